"""Reading everything that a store on a simulated disk holds, and what an image of it holds."""

from __future__ import annotations

from typing import Any

from history import Found, State, Where
from one_thread import HeldPool, forget, one_thread, opened
from simdisk import SimDisk

import octavo
from octavo.actors.opening.identity import read as identity_of
from octavo.actors.published_reader import PublishedReader
from octavo.manifest import published
from octavo.snapshot import SnapshotBucket

FIELD = "f"
NOW_MS = 1_800_000_000_000


def clock_ms() -> int:
    return NOW_MS


def look(disk: SimDisk, path: str, *, rests: bool, verifies: bool, **options: object) -> Found:
    """Open what is there and read all of it; the disk is changed by that.

    ``rests``: what the opening left to be done in the background is done before. Errors come out
    as ``wrong``.
    """
    found = Found()
    with one_thread("look") as pool:
        try:
            store = opened(disk, path, clock_ms=clock_ms, sync="always", **options)
            try:
                if rests:
                    pool.go_on()
                _read(store, disk, found)
                found.next_sqn = _put(store)
                if verifies and (problems := store.verify().problems):
                    found.wrong = f"verify: {problems[:3]}"
            finally:
                forget(store)
        except (octavo.OctavoError, OSError, AssertionError, LookupError, ValueError) as error:
            found.wrong = f"{type(error).__name__}: {error}"
    return found


def _put(store: octavo.Store) -> int:
    if store._running.identity.head_only:
        return store.head_bucket(b"").put(b"after", b"crash")
    sqn = store.put(b"after", b"crash")
    if store.get(b"after") != b"crash":
        raise AssertionError("what is put after the crash is not there")
    return sqn


def _read(store: octavo.Store, disk: SimDisk, found: Found) -> None:
    if store._running.identity.head_only:
        read_rows(store, found)
        return
    for name in store.buckets():
        bucket = store.bucket(name)
        _read_bucket(bucket, name, found.objects)
        found.entries.update((name, term, key) for term, key in bucket.index(FIELD).range())
    for each in store.published():
        if not each.name:
            continue  # pinned by another process
        found.snapshots[each.name] = published_state(disk, store.path, each.name)


def read_rows(store: octavo.Store, found: Found) -> None:
    """The rows of a head-only store, each as an object under key and sub-key."""
    for name in store.buckets():
        bucket = store.head_bucket(name)
        for row in bucket.rows():
            where = (name, row.key + b"/" + row.sub_key)
            found.objects[where] = (bytes(row.value), row.sqn)
            if store._running.identity.lookup:
                single = bucket.head(row.key, row.sub_key)
                if single is None or (single.sqn, single.value) != (row.sqn, row.value):
                    raise AssertionError(f"{where}: HEAD says {single}, the list {row}")


def _read_bucket(bucket: Any, name: bytes, objects: dict[Where, tuple[bytes, int]]) -> None:
    for key, value in bucket.items():
        head, single = bucket.head(key), bucket.get(key)
        if head is None or single != value or head.size != len(value):
            raise AssertionError(f"{key!r}: HEAD {head}, GET {single!r}, list {value!r}")
        objects[name, key] = (bytes(value), head.sqn)


def read_all(store: octavo.Store) -> Found:
    """What an open store holds; raises where its ways of reading do not agree."""
    found = Found()
    _read(store, store._running.disk, found)  # type: ignore[arg-type]
    return found


def published_state(disk: SimDisk, path: str, name: str) -> State:
    """What another process reads in a published snapshot."""
    there = published.read(disk, published.found(disk, path, name, NOW_MS).path)
    reader: Any = PublishedReader(disk, there, clock_ms, 64)
    objects = published_objects(reader, identity_of(disk, path))
    return {where: value for where, (value, _) in objects.items()}


def published_objects(reader: Any, identity: Any) -> dict[Where, tuple[bytes, int]]:
    """Value and sqn of each; raises where the ways of reading do not agree."""
    objects: dict[Where, tuple[bytes, int]] = {}
    for bucket in reader.buckets(identity.tags.number("standard")):
        _read_bucket(SnapshotBucket(reader, identity, bucket), bucket, objects)
    return objects


__all__ = [
    "FIELD", "NOW_MS", "HeldPool", "clock_ms", "look", "published_objects", "published_state",
    "read_all",
]  # fmt: skip
