"""A memory table in order, as several threads ask for it at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sortedcontainers import SortedList

from octavo.actors.memory_table import MemoryTable


def test_of_a_frozen_table_two_threads_see_each_key_once() -> None:
    table = MemoryTable(0)
    table.rows.update((b"%04d" % number, number) for number in range(1, 101))
    first = threading.current_thread()
    about_to, go_on = threading.Event(), threading.Event()
    found: list[list[bytes]] = []

    def everything() -> None:
        found.append(table.slice(b"", None, 1000, reverse=False))

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
