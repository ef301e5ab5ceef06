"""Figures of an open store as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import cast

from octavo.actors.bookie import Bookie
from octavo.actors.closed_meanwhile import or_closed
from octavo.actors.inker import Inker
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.journal_file import JournalFile
from octavo.actors.latency import Latency
from octavo.actors.measures import CACHE, MEMORY, REST, Measures
from octavo.actors.opening.startup import Running
from octavo.actors.penciller import Penciller
from octavo.actors.worker import WorkerDied
from octavo.files.door.disk import Disk
from octavo.files.errors import AskTimeout, Busy, Closed, Corruption, StorageFull
from octavo.files.journal import cdb
from octavo.files.journal.record import FRAME_BYTES
from octavo.files.journal.sparse_offsets import count_from
from octavo.files.lifecycle import State
from octavo.manifest.consumers import Progress
from octavo.manifest.journal_manifest import JournalEntry
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.level_sizes import target_rows
from octavo.manifest.store_identity import FORMAT_VERSION
from octavo.stats_types import (
    ConsumerStats,
    JobsStats,
    JobStats,
    JobTotalsStats,
    JournalFileStats,
    JournalStats,
    LatenciesStats,
    LatencyStats,
    LedgerStats,
    LevelStats,
    ReadCacheStats,
    SnapshotStats,
    Stats,
    WriteStats,
)


def stats(running: Running) -> Stats:
    """All figures of the store. O(files), some of which ``consumers_of`` may read."""
    bookie, inker = running.bookie.actor, running.inker.actor
    penciller, clerk = running.penciller.actor, running.inker_clerk.actor
    measures = inker.measures
    view = bookie.view
    waiting, level_zero = penciller.backlog()
    levels = levels_of(view.ledger)
    pending = _pending(running.disk, penciller, clerk)
    ledger_pending = len(penciller.delete_pending.waiting)
    journal, consumers = _journal_and_consumers(running)
    return {
        "path": running.path,
        "id": running.identity.id,
        "format": FORMAT_VERSION,
        "epoch": inker.epoch,
        "opened_ms": measures.opened_ms,
        "now_ms": bookie.clock_ms(),
        "last_sqn": inker.last_sqn,
        "persisted_sqn": view.ledger.persisted_sqn,
        "journal": journal,
        "ledger": _ledger(levels, penciller),
        "memory": {
            "recent_keys": len(view.recent.rows),
            "waiting_tables": waiting,
            "waiting_keys": sum(len(table.rows) for table in view.frozen),
            "kept_versions": sum(
                sum(map(len, list(table.older.values()))) for table in (view.recent, *view.frozen)
            ),
            "read_cache_bytes": bookie.cache.bytes,
            "read_cache_entries": len(bookie.cache.entries),
        },
        "read_cache": _read_cache(bookie, measures),
        "merging": {
            "waiting_tables": waiting,
            "level_zero_files": level_zero,
            "rows_over_target": sum(
                max(level["rows"] - level["target_rows"], 0)
                for level in levels
                if level["target_rows"] is not None
            ),
            "delete_pending": ledger_pending,
            "delete_pending_bytes": sum(size for _, size in pending[:ledger_pending]),
            "pauses": measures.pauses.count,
            "pause_seconds": measures.pauses.total_ns / 1e9,
        },
        "compaction": {
            "dropped_records": clerk.dropped,
            "delete_pending": len(pending) - ledger_pending,
            "delete_pending_bytes": sum(size for _, size in pending[ledger_pending:]),
            "scored_files": len(clerk.scores),
            "damaged_files": sorted(clerk.damaged),
        },
        "snapshots": len(running.register),
        "live_snapshots": _snapshots(running, pending),
        "consumers": consumers,
        "writes": _writes(running),
        "latencies": _latencies(measures),
        "jobs": _jobs(measures),
        "open_files": len(running.open_files),
        "replayed_at_open": running.replayed,
        "notes": list(running.notes),
    }


@or_closed
def score(running: Running) -> bool:
    """Look for garbage in the journal's files anew: samples of each, in the worker process.
    False: not now, since a compaction is going on, the ledger has to be rebuilt first, or workers
    are killed, as in a container that is short of memory.

    O(files x 192 records).
    """
    clerk = running.inker_clerk
    not_now = (AskTimeout, Busy, Closed, Corruption, StorageFull, WorkerDied)
    with suppress(*not_now), clerk.actor.alone(0.0):
        clerk.call(InkerClerk.survey)
        return True
    return False


# ---------------------------------------------------------------- files


def _journal_and_consumers(running: Running) -> tuple[JournalStats, list[ConsumerStats]]:
    inker, clerk = running.inker.actor, running.inker_clerk.actor
    while True:
        journal, entries = _journal(inker, clerk)
        younger = [
            (file["last_sqn"], file["records"]) for file in journal["file_list"][len(entries) :]
        ]
        unread: list[JournalEntry] = []
        above = partial(records_above, inker.disk, inker.directory, unread)
        consumers = consumers_of(clerk.consumers.all(), entries, younger, above)
        if not unread or inker.manifest.entries is entries:
            return journal, consumers
        # A file was compacted away meanwhile: look again, at what took its place.


def _journal(inker: Inker, clerk: InkerClerk) -> tuple[JournalStats, tuple[JournalEntry, ...]]:
    # In the order in which files move from one to the next, so that each is found at least once.
    active = inker.active
    waiting = list(inker.unsealed)
    entries = inker.manifest.entries
    files = [
        _journal_file(clerk, e.name, "sealed", e.base_sqn, e.last_sqn, e.count, e.bytes)
        for e in entries
    ]
    known = entries[-1].last_sqn if entries else 0  # files not in the manifest are younger
    waiting = [file for file in waiting if file.base > known and file is not active]
    younger = waiting if active is None or active.base <= known else [*waiting, active]
    files += [_unsealed(clerk, file) for file in younger]
    told: JournalStats = {
        "files": len(files),
        "sealed_files": len(entries),
        "sealed_bytes": sum(entry.bytes for entry in entries),
        "unsealed_files": len(waiting),
        "active_file": active.name if active is not None else None,
        "active_bytes": files[-1]["bytes"] if active is not None and active in younger else 0,
        "records": sum(file["records"] for file in files),
        "file_list": files,
    }
    return told, entries


def _unsealed(clerk: InkerClerk, file: JournalFile) -> JournalFileStats:
    """A file that the manifest does not know yet."""
    state = "writing" if file.state is State.WRITING else "rolled"
    ends, entry = file.offsets, file.entry
    count, size = max(len(ends) - 1, 0), ends[-1] if ends else 0
    if entry is not None:  # it has just been sealed, and so has no offsets any more
        count, size = entry.count, entry.bytes
    return _journal_file(clerk, file.name, state, file.base, file.base + count - 1, count, size)


def _journal_file(
    clerk: InkerClerk, name: str, state: str, base: int, last: int, records: int, size: int
) -> JournalFileStats:
    found = clerk.scores.get(name)
    return {
        "name": name,
        "state": state,
        "base_sqn": base,
        "last_sqn": last,
        "records": records,
        "bytes": size,
        "garbage_share": None if found is None else found.garbage / 100,
        "score": None if found is None else 100.0 - found.garbage,
    }


def _ledger(levels: list[LevelStats], penciller: Penciller) -> LedgerStats:
    return {
        "files": sum(level["files"] for level in levels),
        "bytes": sum(level["bytes"] for level in levels),
        "levels": levels,
        "bytes_written": penciller.bytes_written,
        "rows_merged": penciller.rows_merged,
    }


def levels_of(manifest: LedgerManifest) -> list[LevelStats]:
    """Figures of each level of a ledger."""
    return [
        {
            "level": number,
            "files": len(level),
            "rows": sum(entry.rows for entry in level),
            "bytes": sum(entry.bytes for entry in level),
            "tombstones": sum(entry.tombstones for entry in level),
            "target_rows": target_rows(number) if number else None,
        }
        for number, level in enumerate(manifest.levels)
    ]


# ---------------------------------------------------------------- snapshots


def _pending(disk: Disk, penciller: Penciller, clerk: InkerClerk) -> list[tuple[int, int]]:
    """(generation since which it is gone, bytes) of each file that waits: first the ledger's, then
    the journal's."""
    waiting = [(generation, file.path) for generation, file in penciller.delete_pending.waiting]
    waiting += [(generation, file.path) for generation, file in clerk.delete_pending.waiting]
    found = []
    for generation, path in waiting:
        size = 0
        with suppress(OSError):  # it has gone meanwhile
            size = disk.size(path)
        found.append((generation, size))
    return found


def _snapshots(running: Running, pending: list[tuple[int, int]]) -> list[SnapshotStats]:
    out: list[SnapshotStats] = []
    for live in running.register.live:
        held = [size for generation, size in pending if live.version < generation]
        out.append(
            {
                "number": live.number,
                "age_seconds": live.age_seconds,
                "lease_left_seconds": live.left_seconds,
                "holds_files": len(held),
                "holds_bytes": sum(held),
            }
        )
    return out


def consumers_of(
    known: Mapping[str, Progress],
    sealed: Sequence[JournalEntry],
    younger: Sequence[tuple[int, int]],
    above: Callable[[JournalEntry, int], int],
) -> list[ConsumerStats]:
    """Where the consumers of the change feed are, and what they hold. ``younger``: last sqn and
    records of each file that is not sealed. ``above``: counts a file's records above an sqn that it
    covers; called at most once a consumer, if the file has fewer records than sqns.
    O(consumers x files)."""
    out: list[ConsumerStats] = []
    for name, at in sorted(known.items(), key=lambda each: each[1].position):
        position = at.position
        held = [entry for entry in sealed if entry.last_sqn > position]
        behind = sum(entry.count for entry in held)
        behind += sum(min(count, last - position) for last, count in younger if last > position)
        if held and held[0].base_sqn <= position:
            first = held[0]
            gaps = first.count <= first.last_sqn - first.base_sqn
            left = above(first, position) if gaps else first.last_sqn - position
            behind += left - first.count
        out.append(
            {
                "name": name,
                "position": position,
                "behind": behind,
                "moved_ms": at.moved_ms,
                "holds_bytes": sum(entry.bytes for entry in held),
            }
        )
    return out


def records_above(
    disk: Disk, directory: str, unread: list[JournalEntry], entry: JournalEntry, sqn: int
) -> int:
    """Count a sealed file's records above ``sqn``, which it covers: numbers that were skipped after
    a kill, or dropped, have none. A file that cannot be read is added to ``unread``, and counts as
    many as it may have. One map of the file, and a pass over its offsets."""
    path = f"{directory}/{entry.name}"
    try:
        _, offsets = cdb.sealed_offsets(disk.map(path), path)
    except (OSError, Corruption):
        unread.append(entry)
        return min(entry.count, entry.last_sqn - sqn)
    return count_from(offsets, sqn + 1 - entry.base_sqn)


# ---------------------------------------------------------------- work done


def _writes(running: Running) -> WriteStats:
    inker = running.inker.actor
    measures = inker.measures
    records = max(inker.last_sqn - measures.first_sqn, 0)
    appended = max(running.bookie.actor.journal_position() - measures.journal_began, 0)
    put = max(appended - records * FRAME_BYTES + inker.compressor.saved_bytes, 0)
    compacted = measures.jobs.totals.get("compact")
    penciller = running.penciller.actor
    journal = appended + measures.sealing_bytes
    compaction = compacted.bytes_written if compacted is not None else 0
    manifest = inker.change_log.bytes_written + penciller.change_log.bytes_written
    written = journal + compaction + penciller.bytes_written + manifest
    return {
        "records": records,
        "bytes_put": put,
        "journal_bytes": journal,
        "compaction_bytes": compaction,
        "ledger_bytes": penciller.bytes_written,
        "manifest_bytes": manifest,
        "amplification": written / put if records and put else None,
    }


def _read_cache(bookie: Bookie, measures: Measures) -> ReadCacheStats:
    known = sum(measures.sources.values())
    scale = measures.get.calls / known if known else 0.0  # includes gets since the last timed one
    return {
        "entries": len(bookie.cache.entries),
        "bytes": bookie.cache.bytes,
        "limit_bytes": bookie.cache.limit,
        "hits": round(measures.sources[CACHE] * scale),
        "misses": round(measures.sources[REST] * scale),
        "not_asked": round(measures.sources[MEMORY] * scale),
    }


def _latencies(measures: Measures) -> LatenciesStats:
    return {
        "put": _latency(measures.put.latency, measures.put.calls),
        "put_many": _latency(measures.put_many.latency, measures.put_many.calls),
        "batch": _latency(measures.batch.latency, measures.batch.calls),
        "get": _latency(measures.get.latency, measures.get.calls),
        "get_many": _latency(measures.get_many.latency, measures.get_many.calls),
        "head": _latency(measures.head.latency, measures.head.calls),
        "fsync": _latency(measures.fsync, measures.fsync.count),
    }


def _latency(latency: Latency, calls: int) -> LatencyStats:
    def seconds(ns: float | None) -> float | None:
        return None if ns is None or not latency.count else ns / 1e9

    return {
        "count": calls,
        "mean_seconds": seconds(latency.total_ns / max(latency.count, 1)),
        "p50_seconds": seconds(latency.quantile_ns(0.5)),
        "p90_seconds": seconds(latency.quantile_ns(0.9)),
        "p99_seconds": seconds(latency.quantile_ns(0.99)),
        "p999_seconds": seconds(latency.quantile_ns(0.999)),
        "max_seconds": seconds(latency.longest_ns),
    }


def _jobs(measures: Measures) -> JobsStats:
    totals = {k: cast(JobTotalsStats, asdict(v)) for k, v in sorted(measures.jobs.totals.items())}
    recent = [cast(JobStats, asdict(run)) for run in list(measures.jobs.recent)]
    return {"totals": totals, "recent": recent}
