"""Finds the few rows that a short scan is to give by one look, in one turn.

An ordinary scan takes three turns: one for its snapshot, one for what memory has, and one to let go
of the snapshot. If few rows are known to be wanted, they are found as of one moment, and nothing is
held for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from octavo.actors.memory_table import MemoryTable
from octavo.actors.scanning.ledger_order import Between
from octavo.actors.scanning.scan_windows import Brief
from octavo.actors.scanning.short_scans import BEHIND_A_RANGE, Memory, in_ledger
from octavo.actors.view import View
from octavo.files.errors import OctavoError
from octavo.files.ledger.bounds import Bounds

if TYPE_CHECKING:
    from octavo.actors.bookie import Bookie

_SPARE = 8
"""Rows of the ledger taken beyond those that are wanted, since memory may have deletes of some."""
_NEWEST = 1 << 63
"""Above every sqn."""


class Few(NamedTuple):
    """The rows found in a view, as of this sqn and this moment, ms UTC."""

    view: View
    upper: int
    now_ms: int
    window: Brief
    whole: bool
    """Whether these are all rows of the range."""


def found_at_once(bookie: Bookie, bound: Bounds, most: int, *, whole: bool = False) -> Few | None:
    """Find the first ``most`` rows of a range of one bucket as of one moment, without a snapshot: a
    few more at times, and fewer only if the range has no more. ``whole``: all rows of the range,
    and None if one look does not find them all.

    Returns None if it takes more than one look, or if something is damaged: an ordinary scan then
    does it, or raises the error. Raises Closed, and whatever an ask raises.
    """
    prefix, low, high, reverse = bound
    if high is None or low >= high:
        return None
    view, now_ms, empty = bookie.view, bookie.now_ms(), bookie.empty_ranges
    left = bound
    if empty.lows:
        low, high = empty.left(low, high, _NEWEST, now_ms, reverse)
        if low >= high:
            return None
        left = Bounds(prefix, low, high, reverse)
    wanted = max(most, BEHIND_A_RANGE)
    try:
        kept = bookie.kept_scans.of(view.ledger)
        found, lasting, again, _ = in_ledger(view.ledger, left, wanted, now_ms, kept)
    except (OctavoError, OSError):
        return None
    if whole and (found[2] > low if reverse else found[3] < high):
        return None
    upper = view.recent.since
    if view.recent.rows or view.frozen or bookie.view is not view or bookie.closed:
        for table in view.frozen:
            table.in_order()  # sorts it now, since it may take a while: too long for the turn
        found = _fewer(found, prefix, most + _SPARE, reverse)
        at = None if lasting else now_ms
        seen = bookie.actor_ref.call(_with_memory, view, bound, left, found, wanted, at)
        if seen is None:
            return None
        found, upper, now_ms = seen
    keys, sqns, begin, end = found
    if end <= begin:
        return None
    every = begin <= low if reverse else end >= high
    if not every and (whole or len(keys) < most):
        return None
    if reverse:
        keys.reverse()
        sqns.reverse()
    return Few(view, upper, now_ms, Brief(keys, sqns, again), every)


def _fewer(found: Between, prefix: bytes, rows: int, reverse: bool) -> Between:
    """At most so many of these rows, from where the scan begins: fewer rows span less of the range,
    and each row that memory has there costs more than one of these."""
    keys, sqns, begin, end = found
    if len(keys) <= rows:
        return found
    if reverse:
        return keys[-rows:], sqns[-rows:], prefix + keys[-rows], end
    return keys[:rows], sqns[:rows], begin, prefix + keys[rows]


def _with_memory(
    bookie: Bookie,
    view: View,
    bound: Bounds,
    left: Bounds,
    found: Between,
    wanted: int,
    at: int | None,
) -> tuple[Between, int, int] | None:
    """In the turn: return what was found in the ledger merged with what memory has there, the
    newest sqn and the moment. Returns None if the view is no longer the newest, or more than
    ``left`` of the range now has to be looked at, or the moment is not ``at``, the only one as of
    which what was found is known to live (``at`` None: it lives as of any)."""
    if bookie.closed:
        raise bookie.stopped_error()
    now_ms = bookie.now_ms()
    if bookie.view is not view or (at is not None and at != now_ms):
        return None
    prefix, low, high, reverse = bound
    if left != bound and high is not None:
        rest = bookie.empty_ranges.left(low, high, _NEWEST, now_ms, reverse)
        if rest != (left.low, left.high):
            return None
    memory = Memory(view, _NEWEST, now_ms, MemoryTable.slice)
    if memory.tables:
        found, _ = memory.added(found, prefix, wanted, reverse)
    return found, bookie.inker.last_sqn, now_ms
