"""A memory table in order, as several threads ask for it at once."""

from __future__ import annotations

import os
import threading

from sortedcontainers import SortedList

from octavo.actors.memory_table import MemoryTable

_YIELDS = 10_000


def test_of_a_frozen_table_two_threads_see_each_key_once() -> None:
    table = MemoryTable(0)
    table.rows.update((b"%04d" % number, number) for number in range(1, 101))
    first = threading.current_thread()
    there, done = threading.Event(), threading.Event()
    found: list[list[bytes]] = []

    def everything() -> None:
        found.append(table.slice(b"", None, 1000, reverse=False))

    other = threading.Thread(target=everything)
    looks: list[threading.Thread] = []

    class Meeting(SortedList):  # type: ignore[misc]
        """One thread is about to update it when the other one has not begun to."""

        def __len__(self) -> int:
            known: int = super().__len__()
            looks.append(threading.current_thread())
            if looks == [first]:
                other.start()
                there.wait()
            elif looks == [first, other, other]:
                there.set()
                for _ in range(_YIELDS):
                    if not done.is_set():
                        os.sched_yield()
            return known

    table.order = Meeting(table.in_order())
    table.rows.update((b"%04d" % number, number) for number in range(101, 111))
    table.frozen = True
    everything()
    done.set()
    other.join()
    everything()
    assert found == [sorted(table.rows)] * 3
