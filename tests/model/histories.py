"""Histories of calls on single keys, and whether there is an order of them that explains all.

Every write is answered with its sqn, and sqns are the order in which writes happened: so a history
need not be searched. It is linearizable if writes answered before another began have lower sqns,
if a conditional write follows exactly the version it named, and if each read has the value of some
version that was not yet replaced when the read began, and had been begun when the read ended. What
is read of several keys as of one moment, as a scan reads, must be so of one sqn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple


class Call(NamedTuple):
    """One call, by a clock that all threads share."""

    key: bytes
    kind: str
    """put, delete, or one of READS."""
    began: int
    ended: int
    value: bytes | None
    """Written or read; None: absent."""
    sqn: int = 0
    """Answer of a write, or of a head: 0, absent."""
    condition: int | None = None
    """The version that a write named; 0: absent."""
    indexed: bool = False
    """Of a put: with its value as a term."""
    moment: int = 0
    """Of a read: the same for all that are of one moment; 0: there are no others."""


READS: dict[str, Callable[[Call, Call], bool]] = {
    "get": lambda read, version: version.value == read.value,
    "head": lambda read, version: version.sqn == read.sqn,
    "key": lambda read, version: (version.value is None) == (read.value is None),
    "entry": lambda read, version: _term(version) == read.value,
    "behind": lambda read, version: (_term(version) or b"\xff") > (read.value or b""),
    "before": lambda read, version: (_term(version) or b"") < (read.value or b"\xff"),
}
"""Whether a read may have found a version. Of an index: its term, or where it is known only that it
has none of those up to one."""
_ABSENT = Call(b"", "delete", 0, 0, None)
_END = 1 << 63


def _term(version: Call) -> bytes | None:
    return version.value if version.indexed else None


def wrong(history: list[Call]) -> list[str]:
    """What no order explains; nothing where the history is linearizable."""
    by_key: dict[bytes, list[Call]] = defaultdict(list)
    for call in history:
        by_key[call.key].append(call)
    found: list[str] = []
    together: dict[int, list[tuple[Call, list[tuple[int, int]]]]] = defaultdict(list)
    for calls in by_key.values():
        reads = [call for call in calls if call.kind in READS]
        writes = sorted((call for call in calls if call.kind not in READS), key=lambda c: c.sqn)
        found += _wrong_writes(writes)
        for read in reads:
            when = list(_explained(read, writes))
            if not when:
                found.append(f"{read} has the value of no version of that time")
            elif read.moment:
                together[read.moment].append((read, when))
    return found + [
        f"{[read for read, _ in some]} are not of one moment"
        for some in together.values()
        if not _of_one_moment([when for _, when in some])
    ]


def _wrong_writes(writes: list[Call]) -> list[str]:
    """What is wrong with the writes of a key, by their sqns."""
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
    return found


def _explained(read: Call, writes: list[Call]) -> Iterator[tuple[int, int]]:
    """From which sqn to which (exclusive) there was what it found, at some moment of the read."""
    same = READS[read.kind]
    for at in range(-1, len(writes)):
        version = writes[at] if at >= 0 and writes[at].kind == "put" else _ABSENT
        if not same(read, version) or (at >= 0 and writes[at].began > read.ended):
            continue
        last = at + 1 == len(writes)
        # It was replaced at the latest when the next one was answered.
        if last or writes[at + 1].ended > read.began:
            yield writes[at].sqn if at >= 0 else 0, _END if last else writes[at + 1].sqn


def _of_one_moment(each: list[list[tuple[int, int]]]) -> bool:
    """Whether some sqn is in one of the stretches of each."""
    begins = {low for stretches in each for low, _ in stretches}
    return any(
        all(any(low <= sqn < high for low, high in stretches) for stretches in each)
        for sqn in begins
    )
