"""Ctrl-C in a store that rolls, saves, merges and compacts all the time: it goes on, and holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ctrl_c import CtrlC

import octavo

ROUNDS = 120
SEED = 11


def put_one(store: octavo.Store, number: int) -> None:
    store.put(b"%d" % (number % 500), b"%d" % number)


def put_and_delete(store: octavo.Store, number: int) -> None:
    with store.batch() as batch:
        batch.put("", b"%d" % (number % 500), b"%d of a batch" % number)
        batch.delete("", b"%d" % ((number + 250) % 500))


def put_many(store: octavo.Store, number: int) -> None:
    store.put_many((b"%d" % (key % 500), b"%d of many" % key) for key in range(number, number + 40))


def look(store: octavo.Store, number: int) -> None:
    store.get(b"%d" % (number % 500))
    with store.snapshot() as snapshot:
        list(snapshot.keys(limit=5))


def compact(store: octavo.Store, number: int) -> None:
    if number % 50 == 0:
        store.compact()


@pytest.mark.parametrize(
    "doing",
    [(put_one,), (put_and_delete,), (put_many,), (put_one, look), (put_many, compact)],
    ids=lambda doing: "-".join(one.__name__ for one in doing),
)
def test_an_interrupt_anywhere_leaves_a_store_that_goes_on(
    tmp_path: Path, doing: tuple[Callable[[octavo.Store, int], None], ...]
) -> None:
    number = 0
    known: dict[bytes, bytes] = {}
    since = 0
    with (
        CtrlC(SEED) as ctrl_c,
        octavo.open(tmp_path / "store", roll_count=256, push_rows=64, push_bytes=65536) as store,
    ):

        def do() -> None:
            nonlocal number
            number += 1
            for one in doing:
                one(store, number)

        for _ in range(ROUNDS):
            ctrl_c.during(do, 0.0005, 0.01, 2000)
            # A compaction of this round may have dropped what a later put of it replaced.
            for change in store.changes(since, compacted=compact in doing):
                if change.value is not None:
                    known[change.key] = change.value
                elif change.kind == "delete":
                    known.pop(change.key, None)
                since = change.sqn
            assert since == store.last_sqn
            assert dict(store.items()) == known
        store.verify()
    with octavo.open(tmp_path / "store") as store:
        assert dict(store.items()) == known
        store.verify()
