"""An iterator that two threads share, which none is for: one is told so, and the other goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_store import opened

from octavo.actors.reader import Reader
from octavo.actors.scanning import journal_order

ROWS = 100
Waiting = tuple[threading.Event, threading.Event]


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    """(who reads is there; who reads may go on): between two rows or windows of any such read."""
    there, go_on = threading.Event(), threading.Event()

    def held_up(read: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def reading(*arguments: Any) -> Iterator[Any]:
            for found in read(*arguments):
                there.set()
                go_on.wait()
                yield found

        return reading

    for where, name in (
        (journal_order, "items"),
        (journal_order, "heads"),
        (Reader, "head_windows"),
    ):
        monkeypatch.setattr(where, name, held_up(getattr(where, name)))
    return there, go_on


def shared(found: Iterator[Any], waiting: Waiting) -> list[Any]:
    """All that one thread gets, while another one tries."""
    there, go_on = waiting
    rows: list[Any] = []
    thread = threading.Thread(target=lambda: rows.extend(found))
    thread.start()
    there.wait()
    with pytest.raises(ValueError, match="already executing"):
        next(found)
    go_on.set()
    thread.join()
    return rows


@pytest.mark.parametrize("limit", [None, ROWS])
@pytest.mark.parametrize("kind", ["items_by_sqn", "heads_by_sqn"])
def test_of_what_comes_in_the_order_of_writing_one_thread_gets_all(
    tmp_path: Path, waiting: Waiting, kind: str, limit: int | None
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % number, b"v") for number in range(ROWS))
        with store.snapshot() as snap:
            assert len(shared(getattr(snap, kind)(limit=limit), waiting)) == ROWS


def test_of_the_rows_of_a_head_only_store_one_thread_gets_all(
    tmp_path: Path, waiting: Waiting
) -> None:
    with opened(tmp_path / "s", mode="head_only") as store:
        with store.head_batch() as batch:
            for number in range(ROWS):
                batch.put("b", b"%d" % number, b"v")
        assert len(shared(store.head_bucket("b").rows(), waiting)) == ROWS
