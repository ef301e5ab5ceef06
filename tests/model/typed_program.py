"""A user's program for type checkers: what comes out of a store, as they see it. mypy checks it in
scripts/test, tests/api/test_typed_program.py runs it."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from datetime import UTC, datetime
from typing import Any, assert_type

import octavo
from octavo import Bucket, Head, Item, Snapshot, SnapshotBucket, Store


def words(bucket: Bucket[str]) -> list[str]:
    return [word for value in bucket.values() for word in value.split()]


def sizes(bucket: Bucket) -> dict[bytes, int]:
    return {key: head.size for key, head in bucket.heads()}


class Notes:
    """What a program makes of a bucket."""

    def __init__(self, store: Store) -> None:
        self.bucket = store.bucket("notes", text=True)

    def rename(self, old: str, new: str) -> str | None:
        found = self.bucket.get(old)
        if found is not None:
            self.bucket[new] = found
            del self.bucket[old]
        return found


def live(store: Store) -> None:
    assert_type(store.get("k"), bytes | None)
    assert_type(store.get("k", b""), bytes)
    assert_type(store.get("k", 0), bytes | int)
    store.put("k", "v", ttl=60, index={"f": ["x", 1]}, metadata="m")
    assert_type(store["k"], bytes)
    assert_type(store.head("k"), Head | None)
    assert_type(store.get_many(["k", b"l"]), list[bytes | None])
    assert_type(list(store), list[bytes])
    assert_type(dict(store.items()), dict[bytes, bytes])
    assert_type(store.setdefault("l", "w"), bytes)
    assert_type(store.pop("l"), bytes)
    store.update({"m": "1"}, n=b"2")
    as_mapping: MutableMapping[Any, bytes] = store
    print(len(as_mapping))
    text = store.bucket("text", text=True)
    assert_type(text, Bucket[str])
    text.put_many({"a": "b c"})
    text["d"] = b"e"
    assert_type(text.get("a"), str | None)
    assert_type(next(text.items()), tuple[str, str])
    assert_type(next(text.keys(reverse=True)), str)
    assert_type([key for key, _ in text.heads(limit=1)], list[str])
    store.bucket("text").put("a", "b c", index={"f": 1})
    assert_type(list(text.index("f").having(1)), list[str])
    assert_type(list(text.index("f").keys(1, limit=3)), list[str])
    assert_type(list(store.bucket("b")), list[bytes])
    print(words(text), sizes(store.bucket("text")), Notes(store).rename("x", "y"))
    with store.batch() as batch:
        batch.put("text", "z", "last", expires_at=datetime(2100, 1, 1, tzinfo=UTC))
    assert_type(batch.last_sqn, int)


def snapshots(store: Store) -> Iterator[Item[str]]:
    with store.snapshot() as snap:
        assert_type(snap, Snapshot)
        assert_type(snap.get("k"), bytes | None)
        assert_type(snap.bucket("text"), SnapshotBucket)
        assert_type([item.value for item in snap.items_by_sqn()], list[bytes])
        yield from snap.bucket("text", text=True).items_by_sqn()


def tagged(path: str) -> None:
    tag = octavo.Tag(head=lambda key, head: head.size)
    with octavo.open(path, tags={"note": tag}, sync=0.5) as store:
        notes = store.bucket("notes", tag="note", text=True)
        notes["a"] = "12345"
        length: int = notes.head("a") or 0
        print(length)


def head_only(path: str) -> bytes | int:
    with octavo.open(path, mode="head_only") as store:
        sizes = store.head_bucket("sizes")
        sizes.put("a", "17", sub_key="v1")
        assert_type(sizes.get("a", "v1"), bytes | None)
        return sizes.get("b", default=0)


def main(path: str) -> list[str]:
    """What is in the bucket "text" at the end."""
    options: octavo.OpenOptions = {"sync": 0.5, "worker": False}
    with octavo.open(os.path.join(path, "store"), **options) as store:
        assert_type(store, Store)
        live(store)
        found = [item.key for item in snapshots(store)]
    for read_only in (True, False):
        with octavo.open(os.path.join(path, "store"), read_only=read_only) as either:
            assert_type(either, octavo.Store | octavo.ReadOnlyStore)
            assert_type(either.get("a"), bytes | None)
    with octavo.open(os.path.join(path, "store"), read_only=True) as reader:
        assert_type(reader, octavo.ReadOnlyStore)
        assert_type(reader.get("k"), bytes | None)
        assert_type(reader.bucket("text", text=True)["a"], str)
    tagged(os.path.join(path, "tagged"))
    head_only(os.path.join(path, "heads"))
    return found
