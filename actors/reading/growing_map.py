"""The map of a journal file that is being written, made anew as the file grows.

Most values of keys in memory are in that file. A system call for each read would let go of the
interpreter lock, and with several threads that costs more than the read itself. So the file is
mapped as far as it goes, and again once there were enough reads behind the map's end.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap

_FEW = 32
_FAULT_SHIFT = 16
"""A map is made anew after _FEW reads behind its end, and one more for each 64 KiB of its length,
since a longer map may cause more page faults."""


class GrowingMap:
    """Keeps one map, shared by all readers, since each holds a descriptor. For any thread."""

    __slots__ = ("_behind", "_map_now", "_map_surely", "_over", "mapped")

    def __init__(
        self, map_now: Callable[[], mmap | bytes], map_surely: Callable[[], mmap | bytes]
    ) -> None:
        """``map_surely``: for readers that cannot do without a map; it lets go of other maps if it
        has to."""
        self._map_now, self._map_surely = map_now, map_surely
        self.mapped: mmap | bytes = b""
        """The file as of some moment; empty at first, and once the file is no longer written."""
        self._behind = 0
        self._over = False

    def up_to(self, end: int) -> mmap | bytes:
        """A map that goes at least as far as ``end``, where a published record ends. Raises what
        ``OpenFiles.mapped`` does."""
        mapped = self.mapped
        return mapped if len(mapped) >= end else self._anew(self._map_surely)

    def _anew(self, map_now: Callable[[], mmap | bytes]) -> mmap | bytes:
        mapped = map_now()
        if not self._over:
            self.mapped = mapped
        return mapped

    def missed(self) -> mmap | bytes:
        """Count a read behind the map's end; return the map, made anew if that is due."""
        mapped = self.mapped
        self._behind += 1
        if self._behind <= _FEW + (len(mapped) >> _FAULT_SHIFT):
            return mapped
        self._behind = 0
        try:
            return self._anew(self._map_now)
        except OSError:  # no descriptor is left, or no room: the caller can read without a map
            return mapped

    def forget(self) -> None:
        """Give up the map: the file is no longer written, and mapped as others are. Whoever reads
        the map keeps it alive."""
        self._over = True
        self.mapped = b""
