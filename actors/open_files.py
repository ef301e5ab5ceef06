"""How many files may be mapped at once.

In CPython every mmap holds a descriptor, so 5,000 ledger files would pass the usual limit. A
file that was let go is mapped again when it is read; a map lives as long as a buffer from it
does, so nothing is ever unmapped under a reader.
"""

from __future__ import annotations

from collections import OrderedDict
from mmap import mmap
from typing import Protocol

from octavo.files.errors import OUT_OF_DESCRIPTORS, Closed
from octavo.files.locks import new_lock


class Mappable(Protocol):
    """A file that can be mapped now, and can do without its map later."""

    def map_now(self) -> mmap | bytes: ...
    def forget_map(self) -> None: ...


class OpenFiles:
    """At most ``limit`` files are mapped; one more lets go of the one opened longest ago."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = new_lock()
        self._open: OrderedDict[Mappable, None] = OrderedDict()
        self.closed = False

    def opened(self, file: Mappable) -> mmap | bytes:
        """Map ``file`` and count it. One open, one mmap, one close. Raises Closed."""
        if self.closed:
            raise Closed("the store is closed")
        try:
            mapped = file.map_now()
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
            # The process has none left, whoever took them: do with half of ours.
            self._shrink(len(self._open) // 2)
            mapped = file.map_now()
        with self._lock:
            self._open[file] = None
            self._open.move_to_end(file)
        if len(self._open) > self.limit:
            self._shrink(self.limit)
        return mapped

    def settle(self, file: Mappable) -> None:
        """``file`` now keeps its map: not if it was let go of between opened() and here."""
        if file not in self._open:
            file.forget_map()

    def _shrink(self, limit: int) -> None:
        with self._lock:
            over = [self._open.popitem(last=False)[0] for _ in range(len(self._open) - limit)]
        for old in over:
            old.forget_map()

    def forked(self) -> None:
        """In a forked child that goes on reading: a thread that is not there may have the lock."""
        self._lock = new_lock()

    def dropped(self, file: Mappable) -> None:
        """``file`` no longer needs to be counted."""
        with self._lock:
            self._open.pop(file, None)

    def __len__(self) -> int:
        return len(self._open)
