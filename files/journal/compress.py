"""Compresses values by LZ4 where that pays: while none shrinks, only some are tried."""

from __future__ import annotations

import lz4.block

_PATIENCE = 16
"""After more than this many values in a row that did not shrink, only one in as many is tried."""
_compress = lz4.block.compress


class Compressor:
    """Compresses a stream of values. For one thread at a time."""

    __slots__ = ("_misses", "saved_bytes")

    def __init__(self) -> None:
        self._misses = 0
        self.saved_bytes = 0
        """By how much values got smaller, in all."""

    def packed(self, value: bytes | memoryview) -> bytes | None:
        """The value as an LZ4 block, if that saves an eighth; else None. 1 us a KiB."""
        misses = self._misses
        if misses > _PATIENCE and misses % _PATIENCE:
            self._misses = misses + 1
            return None
        try:
            packed: bytes = _compress(value, store_size=False)
        except (OverflowError, lz4.block.LZ4BlockError):  # LZ4 takes at most 2,016 MiB
            return None
        saved = len(value) - len(packed)
        if saved < len(value) >> 3:
            self._misses = misses + 1
            return None
        self._misses = 0
        self.saved_bytes += saved
        return packed
