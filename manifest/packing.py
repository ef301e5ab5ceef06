"""Packing of manifests into bytes: columns of integers and of byte strings, bounded on reading.

    payload   magic 4, version u16, then columns
    integers  width u8 (0: all are 0; 1, 2, 4 or 8), then n values, little-endian
    strings   their lengths as a column of integers, then their bytes end to end

How many values a column has is known before it is read, so nothing in the bytes decides how
much memory is taken: a column that is longer than what is left is refused.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise

from octavo.files.errors import Corruption, UnsupportedFormat

MAX_COUNT = 1 << 21
"""Rows of a table at most."""
MAX_VERSION = 1 << 42
"""No manifest is edited so often: a higher version is damaged or forged. So there is room behind it
in what is made of a version."""

_FRONT = struct.Struct("<4sH")
_NUMBER = struct.Struct("<Q")
_CODES = {array(code).itemsize: code for code in "BHILQ"}
"""array's letters by bytes of an integer; I and L are of 4 and 8, or both of 4."""


class Packer:
    """Builds a payload. Values must fit: 0 <= integer < 2**64."""

    def __init__(self, magic: bytes, version: int) -> None:
        self._parts = [_FRONT.pack(magic, version)]

    def number(self, value: int) -> None:
        """One integer."""
        self._parts.append(_NUMBER.pack(value))

    def integers(self, values: Sequence[int]) -> None:
        """A column of integers, in as many bytes each as the largest one needs."""
        top = max(values, default=0)
        width = next(w for w in (0, 1, 2, 4, 8) if top < 1 << 8 * w)
        self._parts.append(bytes((width,)))
        if width:
            self._parts.append(array(_CODES[width], values).tobytes())

    def strings(self, values: Sequence[bytes]) -> None:
        """A column of byte strings, none of them empty."""
        self.integers([len(value) for value in values])
        self._parts.append(b"".join(values))

    def payload(self) -> bytes:
        """All of it. One copy."""
        return b"".join(self._parts)


class Unpacker:
    """Reads a payload that may hold anything, of ``version`` or an earlier one. ``what`` names it
    in errors."""

    def __init__(self, payload: bytes, what: str, magic: bytes, version: int) -> None:
        self._payload = payload
        self._at = 0
        self.what = what
        found, number = _FRONT.unpack(self._take(_FRONT.size))
        if found != magic:
            raise self.wrong("not of this kind", expected=magic, found=found)
        self.version = int(number)
        if not 1 <= number <= version:
            raise UnsupportedFormat(
                f"{what}: of version {number}; this release knows version {version}"
            )

    def wrong(self, what: str, *, expected: object = None, found: object = None) -> Corruption:
        """The error that says what is wrong at the place reached."""
        return Corruption(self.what, self._at, what, expected=expected, found=found)

    def number(self) -> int:
        """One integer."""
        (value,) = _NUMBER.unpack(self._take(_NUMBER.size))
        return int(value)

    def integers(self, count: int) -> list[int]:
        """A column of ``count`` integers. The caller bounds the count: zeros take no bytes."""
        (width,) = self._take(1)
        if width == 0:
            return [0] * count
        if width not in _CODES:
            raise self.wrong("width of a column", expected="0, 1, 2, 4 or 8", found=width)
        return array(_CODES[width], self._take(count * width)).tolist()

    def strings(self, count: int) -> list[bytes]:
        """A column of ``count`` byte strings, none of them empty."""
        if count > min(MAX_COUNT, len(self._payload) - self._at):
            raise self.wrong("more strings than there can be", found=count)
        if count and self._payload[self._at : self._at + 1] == b"\0":
            raise self.wrong("only empty strings")
        lengths = self.integers(count)
        if 0 in lengths:
            raise self.wrong("an empty string")
        blob = self._take(sum(lengths))
        return [blob[low:high] for low, high in pairwise(accumulate(lengths, initial=0))]

    def end(self) -> None:
        """Raise Corruption if anything is left."""
        if self._at != len(self._payload):
            raise self.wrong("more than a manifest", expected=self._at, found=len(self._payload))

    def _take(self, length: int) -> bytes:
        if length > len(self._payload) - self._at:
            raise self.wrong("cut short", expected=length, found=len(self._payload) - self._at)
        taken = self._payload[self._at : self._at + length]
        self._at += length
        return taken
