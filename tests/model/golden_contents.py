"""All that a store says, as plain values that JSON keeps: what golden stores are compared by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whole_store import opened

import octavo
from octavo.actors.opening import identity as identities
from octavo.actors.published_reader import PublishedReader
from octavo.files.door.disk import RealDisk
from octavo.manifest import published
from octavo.snapshot import SnapshotBucket

NOW_MS = 1_800_000_000_000
BUCKETS = (b"", b"docs")


def text(found: Any) -> Any:
    """Bytes as text, in anything."""
    if isinstance(found, (bytes, memoryview)):
        return bytes(found).decode("latin-1")
    if isinstance(found, dict):
        return {str(text(key)): text(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [text(each) for each in found]
    return found


def contents(path: Path, options: dict[str, object]) -> dict[str, Any]:
    """Everything that can be read of a store, which is opened for it."""
    store = opened(path, clock_ms=lambda: NOW_MS, **options)
    try:
        told: dict[str, Any] = {"id": store._running.identity.id}
        if store._running.identity.head_only:
            told["rows"] = {
                name.decode(): [list(row) for row in store.head_bucket(name).rows()]
                for name in BUCKETS
            }
        else:
            told |= _standard(store)
        told["snapshots"] = {
            folder.rpartition("/")[2]: _snapshot(folder, str(path))
            for folder in published.directories(RealDisk(), str(path))
        }
        told["problems"] = store.verify().problems
        told["notes"] = [note.replace(str(path), "") for note in store.stats()["notes"]]
    finally:
        store.close()
    made: dict[str, Any] = text(told)
    return made


def _standard(store: octavo.Store) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for tag in ("standard", "user"):
        for name in BUCKETS:
            bucket = store.bucket(name, tag=tag)
            told[f"{tag} {name.decode()}"] = {
                key: [value, list(bucket.head(key) or ()), bucket.index_of(key)]
                for key, value in bucket.items()
            }
    told["index"] = {
        f"{name.decode()} {field}": [
            [str(term), key] for term, key in store.bucket(name).index(field).range()
        ]
        for name in BUCKETS
        for field in ("round", "name")
    }
    told["changes"] = [
        [c.sqn, c.kind, c.bucket, c.key, c.value, c.metadata, c.written_at, c.expires_at, c.tag]
        for c in store.changes(0, compacted=True)
    ]
    told["consumers"] = {
        name: progress.position
        for name, progress in store._running.inker_clerk.actor.consumers.all().items()
    }
    told["commits"] = [
        [commit.name, commit.first_sqn, commit.last_sqn] for commit in store._inker.manifest.commits
    ]
    return told


def _snapshot(folder: str, store: str) -> dict[str, Any]:
    disk = RealDisk()
    found = published.read(disk, folder)
    reader = PublishedReader(disk, found, lambda: NOW_MS, 64)
    identity = identities.read(disk, store)
    told: dict[str, Any] = {"sqn": found.sqn, "name": found.name, "keys": found.keys}
    if not identity.head_only:
        for name in BUCKETS:
            part = SnapshotBucket(reader, identity, name)  # type: ignore[arg-type]
            told[name.decode()] = dict(part.items())
    reader._open_files.closed = True
    return told
