"""Secondary indexes: which keys have a term in a field."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from octavo.actors.reader import STEP, Reader
from octavo.actors.scanning.index_scan import FEW, LEAST, Entries, Sought, entries
from octavo.actors.scanning.scan_sources import FIRST_WINDOW, LARGEST_WINDOW
from octavo.actors.writing.index_sets import checked_term, field_bytes
from octavo.arguments import Key, to_flag
from octavo.at_once import entries_at_once
from octavo.drained import Drained
from octavo.files.argument_checks import shown
from octavo.files.errors import Misuse
from octavo.files.ledger import index_terms, ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.index_terms import Term
from octavo.filters import compiled, to_limit
from octavo.handles import Handle
from octavo.scans import LEAST_FIRST
from octavo.type_parameters import Out

if TYPE_CHECKING:
    from octavo.reading import Reading

T = TypeVar("T")

BOUNDED = 256
"""Rows that are read ahead if a query has both ends."""
Pattern = str | bytes | re.Pattern[Any]


class Query(Drained[T]):
    """An iterator over entries of an index.

    It reads from a snapshot, which it releases at its end, when it is closed (``close()``, or a
    ``with`` block) or when nothing refers to it any more. Not for use by two threads at once.
    """

    _place: _Given

    def __repr__(self) -> str:
        return "<octavo.Query>"


class Index(Handle, Generic[Out]):
    """One field's entries in a bucket: terms in their natural order (all ints, then all bytes, then
    all str), and under a term the keys in byte order.

    Reads from an implicit snapshot, or from the snapshot whose bucket it was asked of. An entry is
    valid as long as the version of the key that it was put with is live: an overwrite without it, a
    delete or an expiry takes it away.
    """

    def __init__(self, reading: Reading[Out, Any], field: object) -> None:
        self._reading = reading
        self._name = field_bytes(field)
        self._field = index_terms.escaped(self._name)

    def range(
        self,
        start: Term | None = None,
        end: Term | None = None,
        *,
        match: Pattern | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: tuple[Term, Key] | None = None,
    ) -> Query[tuple[Term, Out]]:
        """(term, key) pairs with ``start`` <= term < ``end``; both bounds are of one type.

        ``match``: a regular expression that is searched for in the term; a str one finds str terms,
        a bytes one bytes terms, and int terms match none. ``limit``: at most so many pairs.
        ``after``: the last pair of an earlier page; continues after it, in the direction of the
        scan. One lookup in the ledger for each entry; no value is read. An implicit snapshot is
        taken by this call, and ends with the iteration. Raises Misuse; Corruption, Closed and
        SnapshotExpired also during the iteration.
        """
        reader, found = self._found(start, end, match, reverse, limit, after)
        return _query(reader, found, to_limit(limit))

    def keys(
        self,
        start: Term | None = None,
        end: Term | None = None,
        *,
        match: Pattern | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: tuple[Term, Key] | None = None,
    ) -> Query[Out]:
        """The keys of ``range``, in its order, with its arguments and errors; a key that has
        several of the terms is given once for each."""
        reader, found = self._found(start, end, match, reverse, limit, after)
        return _query(reader, ([key for _, key in pairs] for pairs in found), to_limit(limit))

    def having(self, term: Term) -> Query[Out]:
        """The keys that have exactly this term, in byte order; 1 and "1" are different terms. One
        lookup in the ledger for each entry. Raises as ``range``."""
        part = self._part(term)
        front = self._front()
        bound = Bounds(front, front + part, ledger_key.after(front + part), False)
        reader, windows = self._entries(bound, BOUNDED, None, narrow=True)
        return _query(reader, map(self._keys, windows), None)

    def terms(
        self, start: Term | None = None, end: Term | None = None, *, reverse: bool = False
    ) -> Query[tuple[Term, int]]:
        """(term, number of its keys) pairs; range and errors as for ``range``. O(entries)."""
        reader, found = self._found(start, end, None, reverse, None, None)
        return _query(reader, _counted(found), None)

    def __repr__(self) -> str:
        return f"<octavo.Index {self._name!r} of {self._reading!r}>"

    # ------------------------------------------------------------ bounds and rows

    def _front(self) -> bytes:
        return ledger_key.prefix(ledger_key.INDEX, self._reading.name)

    def _part(self, term: object) -> bytes:
        """The part of ``field 00 00 term 00 00`` up to the field: the term's type follows it."""
        checked = checked_term(self._name, term)
        try:
            return self._field + index_terms.escaped_term(checked)
        except ValueError as wrong:
            raise Misuse(f"index: {wrong}") from None

    def _bounds(self, start: object, end: object, reverse: bool, after: object) -> Bounds:
        front = self._front()
        kinds = {index_terms.kind_of(checked_term(self._name, t))
                 for t in (start, end) if t is not None}  # fmt: skip
        if len(kinds) > 1:
            raise Misuse(
                f"start={shown(start)} and end={shown(end)}: allowed are two terms of one type"
            )
        low = front + self._field + (kinds.pop() if kinds else b"")
        high = ledger_key.after(low)
        if start is not None:
            low = front + self._part(start)
        if end is not None:
            high = front + self._part(end)
        if after is not None:
            if not isinstance(after, tuple) or len(after) != 2:
                raise Misuse(
                    f"after={shown(after)}: allowed is a (term, key) pair of an earlier page"
                )
            at = front + self._part(after[0]) + self._reading._object_part(after[1])
            if reverse:
                high = at if high is None else min(at, high)
            else:
                low = max(at + b"\x00", low)
        return Bounds(front, low, high, reverse)

    def _found(
        self, start: object, end: object, match: Pattern | None, reverse: object,
        limit: object, after: object,
    ) -> tuple[Reader, Iterator[list[tuple[Term, Any]]]]:  # fmt: skip
        """The reader, and what ``range`` finds, a window at a time. The snapshot is taken last,
        once all arguments are checked."""
        bound = self._bounds(start, end, to_flag("reverse", reverse), after)
        most = to_limit(limit)
        pattern = None if match is None else _pattern(match)
        narrow = start is not None and end is not None
        first = BOUNDED if narrow else FIRST_WINDOW
        if most is not None:
            first = min(max(most, LEAST_FIRST), LARGEST_WINDOW)
        # If a pattern drops some, it is not known how many entries will be needed.
        limit = most if pattern is None else None
        reader, windows = self._entries(bound, first, limit, narrow=narrow)
        found = map(self._pairs, windows)
        return reader, found if pattern is None else _matching(found, pattern)

    def _entries(
        self, bound: Bounds, first: int, most: int | None, *, narrow: bool
    ) -> tuple[Reader, Iterator[Entries]]:
        """The reader, and the valid entries of a range: at least ``most``, if it has so many.
        ``narrow``: the range has two ends, so that it may have only few."""
        reading = self._reading
        few = FEW if most is None else min(max(most, LEAST), FEW)
        told = Sought(reading.name, reading._tag, self._field, bound, first, few)
        newest = reading._newest
        if newest is not None:
            found = entries_at_once(newest, told, most, narrow)
            if found is not None:
                return found
        reader = reading._reader()
        return reader, entries(reader, told)

    def _keys(self, window: Entries) -> list[Any]:
        text = self._reading._text
        return window.keys if text is None else list(map(text.out, window.keys))

    def _pairs(self, window: Entries) -> list[tuple[Term, Any]]:
        return list(zip(index_terms.stored_terms(window.terms), self._keys(window), strict=True))


class _Given:
    """The part that a query is draining: a list's iterator."""

    __slots__ = ("part",)

    def __init__(self) -> None:
        self.part: Any = iter([])

    def close(self) -> None:
        self.part.__setstate__(sys.maxsize)  # moves the iterator to its end


def _query(reader: Reader, found: Iterator[list[Any]], most: int | None) -> Query[Any]:
    given = _Given()
    return Query.of(given, _parts(reader, found, given, most), reader)


def _parts(
    reader: Reader, found: Iterator[list[Any]], given: _Given, most: int | None
) -> Iterator[Iterator[Any]]:
    if most != 0:
        for some in found:
            if most is not None:
                some = some[:most]
                most -= len(some)
            for low in range(0, len(some), STEP):
                reader.step()
                given.part = iter(some[low : low + STEP])
                yield given.part
            if most == 0:
                break
    reader.close()  # not in a finally: the collector may end this, and must not ask for a turn


def _counted(found: Iterator[list[tuple[Term, Any]]]) -> Iterator[list[tuple[Term, int]]]:
    """Yield each term with the number of its entries, once all of those have been found."""
    counted: list[tuple[Term, int]] = []
    for pairs in found:
        for term, same in groupby(pairs, itemgetter(0)):
            number = sum(1 for _ in same)
            if counted and counted[-1][0] == term:
                number += counted.pop()[1]
            counted.append((term, number))
        yield counted[:-1]
        del counted[:-1]
    yield counted


def _pattern(match: object) -> re.Pattern[Any]:
    if not isinstance(match, str | bytes | re.Pattern):
        raise Misuse(
            f"match is of type {type(match).__name__}; allowed are a regular expression as str or "
            "bytes, and a compiled one"
        )
    return compiled(match)


def _matching(
    found: Iterator[list[tuple[Term, Any]]], pattern: re.Pattern[Any]
) -> Iterator[list[tuple[Term, Any]]]:
    wanted = type(pattern.pattern)
    search = pattern.search
    for pairs in found:
        yield [pair for pair in pairs if type(pair[0]) is wanted and search(cast(Any, pair[0]))]
