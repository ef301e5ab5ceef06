"""Byte strings of several blobs, which are not put together until they are written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, fill, offsets_of
from octavo.files.kernels.columns import Bytes, Strings


def no_strings(count: int) -> Strings:
    """``count`` strings, all empty."""
    none = np.zeros(count, dtype=np.int64)
    return Strings(np.empty(0, dtype=np.uint8), none, none)


class Scattered(Strings):
    """The strings of all parts, one part after the other; ``starts`` count as if the blobs stood
    end to end. Its ``blob`` is empty: ``picked`` is the way to the strings."""

    __slots__ = ("_begins", "_blobs")

    def __init__(self, parts: Sequence[Strings]) -> None:
        self._blobs: list[Bytes] = []
        starts, at = [], 0
        for part in parts:
            blobs = part._blobs if isinstance(part, Scattered) else [part.blob]
            self._blobs += blobs
            starts.append(part.starts + at)
            at += sum(map(len, blobs))
        self._begins = offsets_of(np.array(list(map(len, self._blobs)), dtype=np.int64))
        lengths = np.concatenate([part.lengths for part in parts])
        super().__init__(np.empty(0, np.uint8), np.concatenate(starts), lengths)

    def picked(self, rows: Ints | slice) -> Strings:
        """These strings, copied to one blob: a part at a time, and from front to back in it."""
        starts, lengths = self.starts[rows], self.lengths[rows]
        parts = len(self._blobs)
        # An empty string may stand at the end of all parts: it counts as the last one's then.
        of = np.minimum(np.searchsorted(self._begins, starts, side="right") - 1, parts - 1)
        order = np.argsort(of.astype(np.uint16 if parts < 1 << 16 else np.uint32), kind="stable")
        at = offsets_of(lengths[order])
        blob = np.empty(int(at[-1]), dtype=np.uint8)
        edges = np.searchsorted(of[order], np.arange(parts + 1)).tolist()
        for part, (low, high) in enumerate(pairwise(edges)):
            if low < high:
                here = order[low:high]
                source, begin = self._blobs[part], self._begins[part]
                fill(source, starts[here] - begin, lengths[here], blob, at[low:high])
        found = np.empty(len(order), dtype=np.int64)
        found[order] = at[:-1]
        return Strings(blob, found, lengths)
