"""LZ4 where it pays: values are tried as they come, and less often while they do not shrink."""

from __future__ import annotations

import lz4.block

_PATIENCE = 16
"""So many values in a row that did not shrink; then only one in so many is tried."""
_compress = lz4.block.compress


class Compressor:
    """Compresses a stream of values. For one thread at a time."""

    __slots__ = ("_misses", "saved_bytes")

    def __init__(self) -> None:
        self._misses = 0
        self.saved_bytes = 0
        """By which values got smaller, all together."""

    def packed(self, value: bytes | memoryview) -> bytes | None:
        """The value as an LZ4 block, if that saves an eighth; else None. 1 us a KiB."""
        misses = self._misses
        if misses > _PATIENCE and misses % _PATIENCE:
            self._misses = misses + 1
            return None
        try:
            packed: bytes = _compress(value, store_size=False)
        except (OverflowError, lz4.block.LZ4BlockError):  # over 2,016 MiB no value can be one
            return None
        saved = len(value) - len(packed)
        if saved < len(value) >> 3:
            self._misses = misses + 1
            return None
        self._misses = 0
        self.saved_bytes += saved
        return packed
