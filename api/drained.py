"""The base of scans and index queries: an iterator at the speed of ``itertools.chain``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Protocol, Self, TypeVar

from octavo.actors.reader import Reader
from octavo.handles import Closing

T = TypeVar("T")


class _Part(Protocol):
    """The part that is being drained."""

    def close(self) -> None:
        """Give nothing more."""


class Drained(Closing, chain[T]):
    """An iterator that reads from a snapshot, which it releases at its end, when it is closed
    (``close()``, or a ``with`` block) or when nothing refers to it any more. Not for use by two
    threads at once."""

    _place: Any
    _source: Any
    _reader: Reader

    @classmethod
    def of(cls, place: _Part, source: Iterable[Iterable[T]], reader: Reader) -> Self:
        """Make one that drains ``source``, part by part, and keeps ``place`` and ``reader``."""
        made = cls.from_iterable(source)
        if not isinstance(made, cls):  # pragma: no cover - CPython does make one of this class
            raise TypeError("itertools.chain cannot be subclassed in this interpreter")
        made._place = place
        made._source = source
        made._reader = reader
        return made

    def close(self) -> None:
        """Let go of what this reads from; it gives nothing more. Idempotent."""
        self._place.close()
        self._source.close()
        self._reader.close()
