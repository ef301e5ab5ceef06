"""Files that a newer manifest does without, and that wait for the snapshots that need them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

File = TypeVar("File")


def due(pending: list[tuple[int, File]], needed: Callable[[int], bool]) -> Iterator[File]:
    """Take what is no longer needed from ``pending``, of (gone since generation, file), one by one.

    A file waits no more before it is given, however its deletion ends: one that was half let go of
    can not be deleted again, and all later sweeps would fail of it. The next start removes it.
    """
    waiting: list[tuple[int, File]] = []
    going: list[tuple[int, File]] = []
    for one in pending:
        (waiting if needed(one[0]) else going).append(one)
    pending[:] = waiting + going[::-1]
    for _ in going:
        yield pending.pop()[1]
