"""Secondary indexes: which keys have a term in a field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Generic, cast

from octavo.actors.index_scan import Entries, entries
from octavo.actors.index_sets import checked_term, field_bytes
from octavo.actors.reader import STEP, Reader
from octavo.actors.scan import FIRST_WINDOW, LARGEST_WINDOW, Bounds
from octavo.arguments import Key, to_flag
from octavo.files import index_terms, ledger_key
from octavo.files.argument_checks import shown
from octavo.files.errors import Misuse
from octavo.files.index_terms import Term
from octavo.filters import to_limit
from octavo.handles import Handle
from octavo.scans import LEAST_FIRST, Text
from octavo.type_parameters import Out

if TYPE_CHECKING:
    from octavo.reading import Reading

BOUNDED = 256
"""Rows that are read ahead where a query says both ends."""
Pattern = str | bytes | re.Pattern[Any]


class Index(Handle, Generic[Out]):
    """One field's entries in a bucket: terms in their natural order (all ints, then all bytes,
    then all str), and under a term the keys in byte order.

    Reads from an implicit snapshot, or the snapshot that it was asked of. An entry is there
    exactly as long as the version of the key that was put with it: an overwrite without it, a
    delete and an expiry take it away.
    """

    def __init__(self, reading: Reading[Out, Any], field: object) -> None:
        self._reading = reading
        self._name = field_bytes(field)
        self._field = index_terms.field_part(self._name)

    def range(
        self,
        start: Term | None = None,
        end: Term | None = None,
        *,
        match: Pattern | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: tuple[Term, Key] | None = None,
    ) -> Iterator[tuple[Term, Out]]:
        """(term, key) pairs with ``start`` <= term < ``end``, which are of one type.

        ``match``: a regular expression that is searched for in the term; one of str finds str
        terms, one of bytes finds bytes terms, and int terms match none. ``limit`` pairs at most.
        ``after``: the last pair of an earlier page; goes on behind it, in the direction of the
        scan. One look at the ledger an entry; no value is read. An implicit snapshot is of the
        moment of this call, and ends with the iteration. Raises Misuse, SnapshotExpired.
        """
        bound = self._bounds(start, end, to_flag("reverse", reverse), after)
        most = to_limit(limit)
        pattern = None if match is None else _pattern(match)
        first = FIRST_WINDOW if start is None or end is None else BOUNDED
        if most is not None:
            first = min(max(most, LEAST_FIRST), LARGEST_WINDOW)
        found = _pairs(*self._entries(bound, first), self._reading._text)
        if pattern is not None:
            found = _matching(found, pattern)
        return found if most is None else islice(found, most)

    def keys(
        self,
        start: Term | None = None,
        end: Term | None = None,
        *,
        match: Pattern | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: tuple[Term, Key] | None = None,
    ) -> Iterator[Out]:
        """The keys of ``range``, in its order, with its arguments and errors; a key with several
        of the terms comes with each."""
        found = self.range(start, end, match=match, reverse=reverse, limit=limit, after=after)
        return (key for _, key in found)

    def having(self, term: Term) -> Iterator[Out]:
        """The keys that have exactly this term, in byte order; 1 and "1" are two terms. One look
        at the ledger an entry. Raises Misuse, SnapshotExpired."""
        part = self._part(term)
        front = self._front()
        bound = Bounds(front, front + part, ledger_key.after(front + part), False)
        return _keys(*self._entries(bound, BOUNDED), self._reading._text)

    def terms(
        self, start: Term | None = None, end: Term | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[Term, int]]:
        """(term, number of keys that have it); the range, and what is raised, as in ``range``.
        O(entries)."""
        pairs = self.range(start, end, reverse=reverse)
        return ((term, sum(1 for _ in same)) for term, same in groupby(pairs, lambda pair: pair[0]))

    def __repr__(self) -> str:
        return f"<octavo.Index {self._name!r} of {self._reading!r}>"

    # ------------------------------------------------------------ bounds and rows

    def _front(self) -> bytes:
        return ledger_key.prefix(ledger_key.INDEX, self._reading.name)

    def _part(self, term: object) -> bytes:
        """``field 00 00 term 00 00``, as far as it is field: up to where a term's type stands."""
        checked = checked_term(self._field[:-2], term)
        try:
            return self._field + index_terms.escaped_term(checked)
        except ValueError as wrong:
            raise Misuse(f"index: {wrong}") from None

    def _bounds(self, start: object, end: object, reverse: bool, after: object) -> Bounds:
        front = self._front()
        kinds = {index_terms.kind_of(checked_term(self._field[:-2], t))
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

    def _entries(self, bound: Bounds, first: int) -> tuple[Reader, Iterator[Entries]]:
        reading = self._reading
        reader = reading._reader()
        return reader, entries(reader, reading.name, reading._tag, self._field, bound, first)


def _pairs(
    reader: Reader, windows: Iterator[Entries], text: Text | None
) -> Iterator[tuple[Term, Any]]:
    for window in windows:
        keys = window.keys if text is None else list(map(text.out, window.keys))
        pairs = list(zip(index_terms.stored_terms(window.terms), keys, strict=True))
        for low in range(0, len(pairs), STEP):
            reader.step()
            yield from pairs[low : low + STEP]
    reader.close()  # one that is broken off is collected, which must not ask for a turn


def _keys(reader: Reader, windows: Iterator[Entries], text: Text | None) -> Iterator[Any]:
    for window in windows:
        for keys in reader.steps(window.keys):
            yield from keys if text is None else map(text.out, keys)
    reader.close()


def _pattern(match: object) -> re.Pattern[Any]:
    if not isinstance(match, str | bytes | re.Pattern):
        raise Misuse(
            f"match is of type {type(match).__name__}; allowed are a regular expression as str or "
            "bytes, and a compiled one"
        )
    try:
        return re.compile(match)
    except (re.error, OverflowError, RecursionError) as wrong:
        raise Misuse(f"match={shown(match)} is no regular expression: {wrong}") from None


def _matching(
    pairs: Iterator[tuple[Term, Any]], pattern: re.Pattern[Any]
) -> Iterator[tuple[Term, Any]]:
    wanted = type(pattern.pattern)
    search = pattern.search
    return (pair for pair in pairs if type(pair[0]) is wanted and search(cast(Any, pair[0])))
