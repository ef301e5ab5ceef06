"""Histories of calls on single keys, and whether there is an order of them that explains all.

Every write is answered with its sqn, and sqns are the order in which writes happened: so a history
need not be searched. It is linearizable if writes answered before another began have lower sqns,
if a conditional write follows exactly the version it named, and if each read has the value of some
version that was not yet replaced when the read began, and had been begun when the read ended.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple


class Call(NamedTuple):
    """One call, by a clock that all threads share."""

    key: bytes
    kind: str
    """put, delete, get or head."""
    began: int
    ended: int
    value: bytes | None
    """Written or read; None: absent."""
    sqn: int = 0
    """Answer of a write, or of a head: 0, absent."""
    condition: int | None = None
    """The version that a write named; 0: absent."""


READS = ("get", "head")
_ABSENT = Call(b"", "delete", 0, 0, None)


def wrong(history: list[Call]) -> list[str]:
    """What no order explains; nothing where the history is linearizable."""
    by_key: dict[bytes, list[Call]] = defaultdict(list)
    for call in history:
        by_key[call.key].append(call)
    return [text for calls in by_key.values() for text in _wrong_of_a_key(calls)]


def _wrong_of_a_key(calls: list[Call]) -> list[str]:
    reads = [call for call in calls if call.kind in READS]
    writes = sorted((call for call in calls if call.kind not in READS), key=lambda call: call.sqn)
    found = []
    for before, after in pairwise(writes):
        if before.sqn == after.sqn:
            found.append(f"sqn {after.sqn} was given twice")
    highest = 0
    for write in writes:
        # Whatever has a lower sqn must have begun before this one ended.
        highest = max(highest, write.began)
        if highest > write.ended:
            found.append(f"{write} was answered before one with a lower sqn began")
    live = 0
    for write in writes:
        if write.condition is not None and write.condition != live:
            found.append(f"{write} met version {live}")
        live = write.sqn if write.kind == "put" else 0
    return found + [
        f"{read} has the value of no version of that time"
        for read in reads
        if not _explained(read, writes)
    ]


def _explained(read: Call, writes: list[Call]) -> bool:
    """Whether some version was there at a moment of the read."""
    for at in range(-1, len(writes)):
        version = writes[at] if at >= 0 and writes[at].kind == "put" else _ABSENT
        same = version.sqn == read.sqn if read.kind == "head" else version.value == read.value
        if not same or (at >= 0 and writes[at].began > read.ended):
            continue
        # It was replaced at the latest when the next one was answered.
        if at + 1 == len(writes) or writes[at + 1].ended > read.began:
            return True
    return False
