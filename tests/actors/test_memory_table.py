"""A memory table in order, as several threads ask for it at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from sortedcontainers import SortedList
from whole_store import opened

from octavo.actors.memory_table import MemoryTable
from octavo.actors.writing.pace import LOOK_EVERY


def test_of_a_frozen_table_two_threads_see_each_key_once() -> None:
    table = MemoryTable(0)
    table.rows.update((b"%04d" % number, number) for number in range(1, 101))
    first = threading.current_thread()
    about_to, go_on = threading.Event(), threading.Event()
    found: list[list[bytes]] = []

    def everything() -> None:
        found.append(table.slice(b"", None, 1000, False))

    def beside() -> None:
        everything()
        about_to.set()

    other = threading.Thread(target=beside)

    class Meeting(SortedList):  # type: ignore[misc]
        """Once one thread has seen that it lacks keys, the other one comes as far as adding them;
        it goes on as soon as the first one has to wait for it, or has added them too."""

        def __len__(self) -> int:
            known: int = super().__len__()
            if threading.current_thread() is first and other.ident is None:
                other.start()
                about_to.wait()
            return known

        def update(self, keys: Iterable[bytes]) -> None:
            if threading.current_thread() is other:
                about_to.set()
                go_on.wait()
            super().update(keys)

    class Told:
        """The table's lock; says that the first thread comes for it."""

        def __init__(self) -> None:
            self.lock = table._ordering

        def __enter__(self) -> None:
            if threading.current_thread() is first:
                go_on.set()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    table.order = Meeting(table.in_order())
    table.rows.update((b"%04d" % number, number) for number in range(101, 111))
    table.frozen = True
    table._ordering = Told()  # type: ignore[assignment]
    everything()
    go_on.set()
    other.join()
    everything()
    assert found == [sorted(table.rows)] * 3


class Looked(int):
    """An entry that counts how often it is looked at."""

    looks = 0

    def __abs__(self) -> int:
        Looked.looks += 1
        return super().__abs__()

    def __le__(self, other: int) -> bool:
        Looked.looks += 1
        return super().__le__(other)

    def __ge__(self, other: int) -> bool:
        Looked.looks += 1
        return super().__ge__(other)


def test_an_old_version_is_found_in_few_looks_however_often_its_key_was_replaced() -> None:
    table = MemoryTable(0)
    table.rows[b"k"] = Looked(1)
    table.pin(0, 1)
    for number in range(2, 4096):  # as scans come and go beside a snapshot that stays
        table.pin(number, number - 1)
        table.keep(b"k")
        table.rows[b"k"] = Looked(-number if number % 5 == 0 else number)
        table.unpin(number)
    Looked.looks = 0
    for upper in (1, 17, 20, 4000, 4095, 9999):
        found = table.entry(b"k", upper)
        assert found is not None
        assert abs(int(found)) == min(upper, 4095)
    assert table.entry(b"k", 0) is None
    assert Looked.looks < 200


class Upper(int):
    """What a reader is bound to; it counts how often two are compared."""

    compared = 0

    def __gt__(self, other: int) -> bool:
        Upper.compared += 1
        return super().__gt__(other)

    def __lt__(self, other: int) -> bool:
        Upper.compared += 1
        return super().__lt__(other)


def test_a_reader_that_goes_compares_few_others_however_many_there_are() -> None:
    table = MemoryTable(0)
    for number in range(2000):
        table.pin(number, Upper(number // 2))
    Upper.compared = 0
    for number in range(100):
        table.unpin(number)  # one that came early
        assert table.newest_pin == 999
        table.pin(5000 + number, Upper(999))
        table.unpin(5000 + number)  # the one that came last
        assert table.newest_pin == 999
    for number in reversed(range(1000, 2000)):
        table.unpin(number)
        assert table.newest_pin == (number - 1) // 2
    assert Upper.compared < 2000


def test_expiries_of_versions_that_were_replaced_do_not_pile_up(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1000, push_bytes=1 << 30) as store:
        most = 0
        for number in range(5000):
            store.put(b"%d" % (number % 10), b"%d" % number, ttl=3600)
            most = max(most, len(store._bookie.view.recent.expiring))
        assert most <= 1000 + LOOK_EVERY
        assert list(store.values()) == [b"%d" % number for number in range(4990, 5000)]
