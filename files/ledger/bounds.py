"""Ranges of ledger keys."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from octavo.files.ledger import ledger_key

_after = lru_cache(maxsize=64)(ledger_key.after)
"""Cached, for the prefixes of buckets: few are scanned by turns."""


class Bounds(NamedTuple):
    """Ledger keys in [low, high), all of one bucket's prefix."""

    prefix: bytes
    low: bytes
    high: bytes | None
    reverse: bool

    def behind(self, key: bytes) -> Bounds:
        """What is left of the range behind a user key, in the range's direction."""
        if self.reverse:
            return self._replace(high=self.prefix + key)
        return self._replace(low=self.prefix + key + b"\x00")


OBJECTS = Bounds(b"", bytes((ledger_key.STANDARD,)), b"\xff", False)
"""Objects of every type and bucket: the numbers of other types are above the standard one's."""


def of_type(tag: int) -> Bounds:
    """All rows of a type, of every bucket."""
    front = bytes((tag,))
    return Bounds(b"", front, ledger_key.after(front), False)


HEAD_ROWS = of_type(ledger_key.HEAD_ONLY)
"""Entries of every bucket of a head-only store."""


def of_bucket(prefix: bytes) -> Bounds:
    """All rows of a bucket."""
    return Bounds(prefix, prefix, _after(prefix), False)


def bounds(
    prefix: bytes, start: bytes | None, end: bytes | None, begins: bytes | None, reverse: bool
) -> Bounds:
    """The range of a bucket: from ``start``, inclusive, to ``end``, exclusive, of keys that begin
    with ``begins``; None: no such limit."""
    low, high = prefix, _after(prefix)
    if begins:
        low, high = prefix + begins, ledger_key.after(prefix + begins)
    if start is not None:
        low = max(low, prefix + start)
    if end is not None:
        high = prefix + end if high is None else min(high, prefix + end)
    return Bounds(prefix, low, high, reverse)
