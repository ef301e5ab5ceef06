"""Finds the rows of a short scan in the call itself, before the first is asked for.

Taking a snapshot, looking into memory and letting go of the snapshot are three turns. If a
``limit`` says that few rows are wanted, they are found by one look, in one turn, and nothing is
held.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from octavo.actors.bookie import Bookie
from octavo.actors.reader import MOST_LOOKED_UP, Reader, Unleased
from octavo.actors.scanning.few_rows import found_at_once
from octavo.actors.scanning.index_scan import Entries, Sought, entries
from octavo.actors.scanning.read_values import STRETCH_BYTES
from octavo.files.errors import OctavoError
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.head import Head
from octavo.scans import Give, Heads, Items, Place, Scan, keys_of

_MOST_KEYS, _MOST_ITEMS = 96, 32
"""Rows that are found this way at most; of heads, as many as are looked up one by one."""


def at_once(
    bookie: Bookie, bound: Bounds, place: Place, limit: int | None, narrow: bool, give: Give
) -> Scan[Any] | None:
    """A scan of keys, items or heads in a range of one bucket whose rows are found already; None if
    they cannot be found this way. ``narrow``: the range has two ends, so that it may have only few
    keys. Raises Closed."""
    heads, more = isinstance(give, Heads), isinstance(give, Heads | Items)
    if isinstance(give, Heads) and give.build is not None:
        return None  # an error of a type's function is raised when its row is asked for
    most = limit or 0
    whole = not 0 < most <= (MOST_LOOKED_UP if heads else _MOST_ITEMS if more else _MOST_KEYS)
    if whole:
        if more or not narrow:
            return None
        most = _MOST_KEYS + 1
    found = found_at_once(bookie, bound, most, whole=whole)
    if found is None:
        return None
    window = found.window
    done = limit is None or len(window.keys) < limit
    if limit is not None:
        window.cut(limit)
    reader = Unleased(bookie, found)
    given: list[Any] | None = window.keys
    if give is not keys_of:
        about = Place(bound, None)
        if not heads:
            parts = give(reader, window, about)
        else:
            few = reader.looked_up(window, bound.prefix)
            parts = chain.from_iterable(give(reader, each, about) for each in few)
        try:
            given = _read(parts, len(window.keys))
        except (OctavoError, OSError):
            return None  # the ordinary scan raises it, when it gets there
    if given is None:
        return None
    if heads and [head.sqn for _, head in given] != window.sqns():
        return None  # one was written meanwhile: the window has its older version
    return Scan.of(place, _given(reader, place, window.keys, given, done), reader)


def entries_at_once(
    bookie: Bookie, sought: Sought, limit: int | None, narrow: bool
) -> tuple[Reader, Iterator[Entries]] | None:
    """As ``at_once``, for the valid entries of an index: the reader, and the entries."""
    most = limit or 0
    whole = not 0 < most <= _MOST_ITEMS
    if limit == 0 or (whole and not narrow):
        return None
    few = found_at_once(bookie, sought.bound, _MOST_KEYS + 1 if whole else most, whole=whole)
    if few is None:
        return None
    reader = Unleased(bookie, few)
    given: list[Entries] = []
    try:
        for some in entries(reader, sought):
            given.append(some)
            most -= len(some.keys)
            if not whole and most <= 0:
                break
        else:
            if not few.whole:
                return None
    except (OctavoError, OSError):
        return None
    return reader, iter(given)


def _read(parts: Iterator[Iterator[Any]], rows: int) -> list[Any] | None:
    """Read what is to be given of so many rows. None if it has, or seems to become, many bytes:
    then each is to be read when it is asked for."""
    given: list[Any] = []
    left = STRETCH_BYTES
    for each in chain.from_iterable(parts):
        given.append(each)
        told = each[1] if type(each) is tuple else each
        size = len(told.metadata if type(told) is Head else told)
        left -= size
        if rows > 1 and size * (rows - len(given)) > left:
            return None
    return given


def _given(
    reader: Unleased, place: Place, keys: list[bytes], given: list[Any], done: bool
) -> Iterator[Iterator[Any]]:
    reader.step()
    yield place.giving(keys, given)
    if done:
        place.settle()
        place.done = True
