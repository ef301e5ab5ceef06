"""Figures of an open store as plain values."""

from __future__ import annotations

from typing import Any

from octavo.actors.identity import FORMAT_VERSION
from octavo.actors.startup import Running


def stats(running: Running) -> dict[str, Any]:
    """Levels, files, memory, snapshots, backlog. O(files)."""
    bookie = running.bookie.actor
    inker = running.inker.actor
    penciller = running.penciller.actor
    view = bookie.view
    active = inker.active
    waiting, level_zero = penciller.backlog()
    return {
        "path": running.path,
        "id": running.identity.id,
        "format": FORMAT_VERSION,
        "epoch": inker.epoch,
        "last_sqn": inker.last_sqn,
        "persisted_sqn": view.ledger.persisted_sqn,
        "journal": {
            "files": len(view.journal.files),
            "sealed_files": len(inker.manifest.entries),
            "sealed_bytes": sum(entry.bytes for entry in inker.manifest.entries),
            "active_file": active.name if active is not None else None,
            "active_bytes": active.offsets[-1] if active is not None else 0,
            "records": sum(entry.count for entry in inker.manifest.entries)
            + sum(max(len(file.offsets) - 1, 0) for file in view.journal.files),
        },
        "ledger": {
            "files": sum(len(level) for level in view.ledger.levels),
            "bytes": sum(e.bytes for level in view.ledger.levels for e in level),
            "levels": [
                {
                    "level": number,
                    "files": len(level),
                    "rows": sum(entry.rows for entry in level),
                    "bytes": sum(entry.bytes for entry in level),
                    "tombstones": sum(entry.tombstones for entry in level),
                }
                for number, level in enumerate(view.ledger.levels)
            ],
            "bytes_written": penciller.bytes_written,
            "rows_merged": penciller.rows_merged,
        },
        "memory": {
            "recent_keys": len(view.recent.rows),
            "waiting_tables": waiting,
            "waiting_keys": sum(len(table.rows) for table in view.frozen),
            "read_cache_bytes": bookie.cache.bytes,
            "read_cache_entries": len(bookie.cache.entries),
        },
        "merging": {
            "waiting_tables": waiting,
            "level_zero_files": level_zero,
            "delete_pending": len(penciller.delete_pending),
        },
        "snapshots": len(running.register),
        "open_files": len(running.open_files),
        "replayed_at_open": running.replayed,
        "notes": list(running.notes),
    }
