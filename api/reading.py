"""What can be read from a bucket, live or in a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar, overload

from octavo.actors.reader import STEP, Reader
from octavo.actors.scan import Window, bounds
from octavo.actors.view import Head
from octavo.arguments import Key, to_bound, to_bytes, to_flag, to_key
from octavo.files import ledger_key
from octavo.files.errors import Misuse
from octavo.files.ledger_key import MAX_KEY_BYTES

D = TypeVar("D")


class Reading:
    """The reading half of a bucket. Values come out as bytes; keys too, unless ``text``."""

    def __init__(self, name: bytes, text: bool) -> None:
        self._name = name
        self._prefix = ledger_key.prefix(ledger_key.STANDARD, name)
        self._text = text
        self._key_limit = MAX_KEY_BYTES - len(name) + 1  # exclusive

    # -- what a live bucket and a snapshot's do differently

    def _reader(self) -> Reader:
        """A reader that pins what it reads; whoever asked for it closes it."""
        raise NotImplementedError  # pragma: no cover - both buckets define it

    def _get(self, key: bytes) -> bytes | None:
        raise NotImplementedError  # pragma: no cover

    def _head(self, key: bytes) -> Head | None:
        raise NotImplementedError  # pragma: no cover

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self._get(key) for key in keys]

    # -- single keys

    @property
    def name(self) -> bytes:
        """The bucket's name; b"" is the default bucket."""
        return self._name

    @overload
    def get(self, key: Key) -> Any: ...
    @overload
    def get(self, key: Key, default: D) -> Any | D: ...
    def get(self, key: Key, default: object = None) -> Any:
        """The value, or ``default`` if the key is absent or expired.

        At most one read of the journal. Raises Misuse, Corruption, Closed, SnapshotExpired.
        """
        if type(key) is not bytes or not 0 < len(key) < self._key_limit:
            key = to_key(key, self._name)
        value = self._get(key)
        if value is None:
            return default
        return self._out(value) if self._text else value

    def head(self, key: Key) -> Head | None:
        """Sqn, size, metadata, write time and expiry, or None; no value is read.

        Raises Misuse, Corruption, Closed, SnapshotExpired.
        """
        if type(key) is not bytes or not 0 < len(key) < self._key_limit:
            key = to_key(key, self._name)
        return self._head(key)

    def get_many(self, keys: Iterable[Key]) -> list[Any]:
        """The values of ``keys``, in their order, None for an absent one. Each is as of the
        moment it is read; take a snapshot for one moment."""
        name, limit = self._name, self._key_limit
        whole = [
            key if type(key) is bytes and 0 < len(key) < limit else to_key(key, name)
            for key in keys
        ]
        found = self._get_many(whole)
        if not self._text:
            return found
        out = self._out
        return [None if value is None else out(value) for value in found]

    def __getitem__(self, key: Key) -> Any:
        value = self._get(to_key(key, self._name))
        if value is None:
            raise KeyError(key)
        return self._out(value)

    def __contains__(self, key: object) -> bool:
        return self._head(to_key(key, self._name)) is not None

    # -- ranges

    def keys(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
    ) -> Iterator[Any]:
        """Keys in byte order. ``start`` is inclusive, ``end`` exclusive, also with ``reverse``.

        Reads from an implicit snapshot, which ends with the iteration. No value is read.
        """
        found = chain.from_iterable(
            keys
            for reader, window in self._scan(start, end, prefix, reverse)
            for keys in reader.steps(window.keys)
        )
        return map(self._out, found) if self._text else found

    def items(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[Any, Any]]:
        """(key, value) pairs; the range as in ``keys``. One journal read an item."""
        name = self._name
        pairs = chain.from_iterable(
            zip(window.keys, reader.values(name, window.keys, window.sqns()), strict=True)
            for reader, window in self._scan(start, end, prefix, reverse)
        )
        return ((self._out(k), self._out(v)) for k, v in pairs) if self._text else pairs

    def values(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
    ) -> Iterator[Any]:
        """Values in the order of their keys; the range as in ``keys``."""
        return (value for _, value in self.items(start, end, prefix=prefix, reverse=reverse))

    def heads(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[Any, Head]]:
        """(key, Head) pairs; the range as in ``keys``. No value is read."""
        return self._heads(self._scan(start, end, prefix, reverse))

    def _heads(self, scan: Iterator[tuple[Reader, Window]]) -> Iterator[tuple[Any, Head]]:
        for reader, window in scan:
            for number, (key, found) in enumerate(zip(window.keys, window.found(), strict=True)):
                if not number % STEP:
                    reader.step()
                head = reader.view.head_of(found)
                if head is not None:
                    yield self._out(key), head

    def __iter__(self) -> Iterator[Any]:
        return self.keys()

    def __len__(self) -> int:
        """How many keys there are. O(keys): nothing is counted while writing."""
        return sum(len(window.keys) for _, window in self._scan(None, None, None, False))

    def __bool__(self) -> bool:
        return next(self.keys(), None) is not None

    def _scan(
        self, start: object, end: object, prefix: object, reverse: bool
    ) -> Iterator[tuple[Reader, Window]]:
        bound = bounds(
            self._prefix,
            to_bound("start", start),
            to_bound("end", end),
            None if prefix is None else to_bytes("prefix", prefix),
            to_flag("reverse", reverse),
        )
        return self._windows(self._reader(), bound)

    @staticmethod
    def _windows(reader: Reader, bound: Any) -> Iterator[tuple[Reader, Window]]:
        for window in reader.windows(bound):
            yield reader, window
        # A scan that is broken off drops its reader instead: a collector may be doing that, in
        # any turn, and must not ask for another.
        reader.close()

    def _out(self, found: bytes) -> Any:
        if not self._text:
            return found
        try:
            return found.decode()
        except UnicodeDecodeError as wrong:
            raise Misuse(
                f"bucket {self._name!r} was opened with text=True, but holds {found[:40]!r}: "
                f"{wrong}"
            ) from None
