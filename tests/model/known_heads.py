"""A head-only store of which every version is known, and its calls: see known_calls.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from known_calls import ABSENT, CALLS_OF_ANY, OF_ANY, READS_BESIDE, Known, Reads
from known_store import KEY, KEYS, NEXT, KnownStore, State, items_of, value_in


class KnownHeads(KnownStore):
    """Its rows have no sub-keys, and no index entries."""

    mode = "head_only"

    def bucket_of(self, source: Any) -> Any:
        return source.head_bucket(b"")

    def begin_batch(self) -> Any:
        return self.store.head_batch()

    def items_in(self, source: Any) -> list[tuple[bytes, bytes | None]]:
        return [(row.key, row.value) for row in self.bucket_of(source).rows()]

    def put(self, key: bytes = KEY, term: int | None = None, ttl: int = 0, **more: Any) -> int:
        return super().put(key, None, ttl, **more)


def _rows(state: State) -> list[tuple[bytes, bytes | None, int]]:
    return [(key, each.value, each.sqn) for key, each in state.items()]


def _told(rows: Any) -> list[tuple[bytes, bytes | None, int]]:
    return [(row.key, row.value, row.sqn) for row in rows]


def _head(on: KnownStore) -> object:
    row = on.bucket.head(KEY)
    return None if row is None else (row.value, row.sqn)


def _of_snapshot(read: Callable[[KnownStore, Any], object]) -> Callable[[KnownStore], object]:
    def reads(on: KnownStore) -> object:
        with on.store.snapshot() as snapshot:
            return read(on, snapshot)

    return reads


SOME = [KEY, NEXT, KEY]
READS: Reads = {
    "get": (lambda on: on.bucket.get(KEY), lambda state: value_in(state, KEY)),
    "get of none": (lambda on: on.bucket.get(ABSENT), lambda state: None),
    "head": (_head, lambda state: (state[KEY].value, state[KEY].sqn) if KEY in state else None),
    "rows": (lambda on: _told(on.bucket.rows()), _rows),
    "rows backwards": (
        lambda on: _told(on.bucket.rows(reverse=True)),
        lambda state: _rows(state)[::-1],
    ),
    "few rows": (
        lambda on: _told(on.bucket.rows(start=KEY, limit=3)),
        lambda state: [row for row in _rows(state) if row[0] >= KEY][:3],
    ),
    "sub_keys": (
        lambda on: _told(on.bucket.sub_keys(KEY)),
        lambda state: [row for row in _rows(state) if row[0] == KEY],
    ),
    "len": (lambda on: len(on.bucket), len),
    "rows of a snapshot": (_of_snapshot(lambda on, snapshot: on.items_in(snapshot)), items_of),
    "gets of a snapshot": (
        _of_snapshot(lambda on, snapshot: on.gets_in(snapshot, SOME)),
        lambda state: [value_in(state, key) for key in SOME],
    ),
    **READS_BESIDE,
}


def _trims(on: KnownStore) -> None:
    for key in KEYS:
        on.put(key)
    on.store.trim()


HEADS = Known(READS, {**OF_ANY, "trims": _trims}, CALLS_OF_ANY)
