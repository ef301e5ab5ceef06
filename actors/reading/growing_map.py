"""The map of a journal file that is being written.

Most of what memory names stands in that file. A system call for each read of it would let go of the
interpreter lock, and with several threads that costs more than the read itself. So the file is
mapped as far as it goes, and anew once enough was read behind the map's end.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap

_FEW = 32
_FAULT_SHIFT = 16
"""A map is made anew after a few reads behind its end, and one more for each 64 KiB of it: so many
page faults may come of it."""


class GrowingMap:
    """One map at a time, shared by all who read the file: each holds a descriptor. Any thread."""

    __slots__ = ("_behind", "_map_now", "_map_surely", "_over", "mapped")

    def __init__(
        self, map_now: Callable[[], mmap | bytes], map_surely: Callable[[], mmap | bytes]
    ) -> None:
        """``map_surely``: for who cannot do without; other maps are let go of for it."""
        self._map_now, self._map_surely = map_now, map_surely
        self.mapped: mmap | bytes = b""
        """The file up to some moment; nothing at first, and once it is no longer written."""
        self._behind = 0
        self._over = False

    def up_to(self, end: int) -> mmap | bytes:
        """A map that goes at least as far as ``end``, where a record ends that was published.
        Raises as ``OpenFiles.mapped``."""
        mapped = self.mapped
        return mapped if len(mapped) >= end else self._anew(self._map_surely)

    def _anew(self, map_now: Callable[[], mmap | bytes]) -> mmap | bytes:
        mapped = map_now()
        if not self._over:
            self.mapped = mapped
        return mapped

    def missed(self) -> mmap | bytes:
        """A read went behind the map's end: what is mapped now, as before or anew."""
        mapped = self.mapped
        self._behind += 1
        if self._behind <= _FEW + (len(mapped) >> _FAULT_SHIFT):
            return mapped
        self._behind = 0
        try:
            return self._anew(self._map_now)
        except OSError:  # no descriptor is left, or no room: it can be read without
            return mapped

    def forget(self) -> None:
        """The file is no longer being written: it is mapped as others are. Who reads the map keeps
        it alive."""
        self._over = True
        self.mapped = b""
