"""Folds that are broken off: by a break, a close, an exception, a second thread, an end of the
store. Each lets go of its snapshot."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from beside import LITTLE, until

import octavo


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with octavo.open(tmp_path / "store", **LITTLE) as opened:
        opened.put_many((b"%05d" % number, b"v" * 50) for number in range(3000))
        yield opened


KINDS = ["keys", "items", "values", "heads"]


def live(store: octavo.Store) -> int:
    store.snapshot().close()  # whoever comes next clears away what was dropped
    return store.stats()["snapshots"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [0, 1, 700])
def test_a_closed_fold_lets_go_at_once(store: octavo.Store, kind: str, after: int) -> None:
    fold: Any = getattr(store, kind)()
    for _ in range(after):
        next(fold)
    assert store.stats()["snapshots"] == 1
    fold.close()
    assert store.stats()["snapshots"] == 0
    assert list(fold) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_break_lets_go(store: octavo.Store, kind: str) -> None:
    for number, _ in enumerate(getattr(store, kind)()):
        if number == 100:
            break
    gc.collect()
    assert live(store) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_in_the_body_lets_go(store: octavo.Store, kind: str) -> None:
    def consume() -> None:
        with getattr(store, kind)() as fold:
            for number, _ in enumerate(fold):
                1 // (50 - number)

    with pytest.raises(ZeroDivisionError):
        consume()
    assert store.stats()["snapshots"] == 0


def test_an_exception_through_a_fold_in_a_generator_lets_go(store: octavo.Store) -> None:
    def keys() -> Iterator[bytes]:
        yield from store.keys()

    def consume() -> None:
        for number, _ in enumerate(keys()):
            if number == 1000:
                raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        consume()
    gc.collect()
    assert live(store) == 0


def test_many_broken_folds_leave_nothing_behind(store: octavo.Store) -> None:
    for number in range(500):
        next(store.keys(b"%05d" % number))
        next(store.items(reverse=True))
    gc.collect()
    assert live(store) == 0


def test_a_fold_that_a_thread_leaves_behind_lets_go(store: octavo.Store) -> None:
    thread = threading.Thread(target=lambda: next(store.keys()))
    thread.start()
    thread.join()
    del thread
    gc.collect()
    until(lambda: live(store) == 0, "the snapshot goes")


def test_a_fold_over_a_store_that_is_closed_says_so(store: octavo.Store) -> None:
    fold = store.items()
    next(fold)
    store.close()
    with pytest.raises(octavo.Closed):
        list(fold)


def test_a_broken_fold_can_be_gone_on_with_elsewhere(store: octavo.Store) -> None:
    with store.keys() as fold:
        first = [next(fold) for _ in range(1234)]
        where = fold.position
    rest = list(store.keys(resume=where))
    assert [*first, *rest] == [b"%05d" % number for number in range(3000)]


def test_writes_go_on_under_a_fold_and_it_does_not_see_them(store: octavo.Store) -> None:
    found = []
    for number, key in enumerate(store.keys()):
        found.append(key)
        store.put(b"%05d" % (number + 10_000), b"new")
        store.delete(key)
    assert found == [b"%05d" % number for number in range(3000)]
    assert len(store) == 3000
