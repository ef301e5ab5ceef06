"""The few rows that a scan is to give, found by one look, in one turn.

What begins as a scan takes three turns: for its snapshot, for what memory has, and to let go of the
snapshot. Where it is known that few rows are wanted they are found as of one moment, and nothing
is held for them.
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
"""Rows of the ledger beyond those that are wanted, for some that memory says are deleted."""
_NEWEST = 1 << 63
"""Above every sqn."""


class Few(NamedTuple):
    """What was found of a view, as of this sqn and this moment, ms UTC."""

    view: View
    upper: int
    now_ms: int
    window: Brief
    whole: bool
    """That is all there is in the range."""


def found_at_once(bookie: Bookie, bound: Bounds, most: int, *, whole: bool = False) -> Few | None:
    """The first ``most`` rows of a range of one bucket, or a few more, fewer only where it has no
    more, as of one moment: what short_windows finds through a snapshot, without one. ``whole``:
    all rows of the range, if they are fewer.

    None where that takes more than one look, or what is wrong is to be told. Raises Closed, and
    what an ask does.
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
            table.in_order()  # not in the turn: it may take a while
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
    """At most so many of these rows, from where a scan begins: each one of memory costs more."""
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
    """In the turn: what was found of the ledger with what memory has there, the newest sqn and the
    moment. None if the view is not the newest any more, what is ``left`` of the range not all that
    is, or the moment not ``at``, as of which alone what was found lives; None: as of any."""
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
