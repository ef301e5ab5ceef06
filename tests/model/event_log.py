"""Everything that was ever written to a store, in order: what it must hold at each sequence number,
and what its change feed must tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from octavo import Change, Head

Where = tuple[str, bytes, bytes]
"""Type, bucket, key."""
Entries = frozenset[tuple[bytes, Any]]
"""Index entries: field and term."""
NO_ENTRIES: Entries = frozenset()


class Event(NamedTuple):
    """A put, or a delete."""

    sqn: int
    where: Where
    value: bytes | None
    """None: a delete."""
    metadata: bytes
    expiry: int
    """ms, 0: never."""
    entries: Entries
    time: int
    batch: tuple[int, int] | None

    def lives(self, now: int) -> bool:
        return self.value is not None and not 0 < self.expiry <= now

    def head(self) -> Head:
        return Head(self.sqn, len(self.value or b""), self.metadata, self.time, self.expiry or None)


State = dict[Where, Event]
"""The newest event of each key, deletes included."""


def live(state: State, now: int) -> State:
    return {where: event for where, event in state.items() if event.lives(now)}


def in_bucket(state: State, tag: str, bucket: bytes) -> list[tuple[bytes, Event]]:
    """The keys of a bucket in order, of a live state."""
    return sorted(
        (key, event) for (kind, name, key), event in state.items() if (kind, name) == (tag, bucket)
    )


def rank(term: Any) -> tuple[int, Any]:
    """Where a term stands among all: ints, bytes, str."""
    return (0 if isinstance(term, int) else 1 if isinstance(term, bytes) else 2, term)


@dataclass
class EventLog:
    """All events by ascending sqn; gaps are where a process was lost."""

    events: list[Event]
    state: State
    highest: int = 0

    @classmethod
    def of(cls, events: Iterable[Event], highest: int = 0) -> EventLog:
        made = cls([], {}, highest)
        for event in events:
            made.add(event)
        return made

    def add(self, event: Event) -> None:
        if event.sqn <= self.highest:
            raise AssertionError(f"sqn {event.sqn} was given twice: {self.highest} was before")
        self.highest = event.sqn
        self.events.append(event)
        self.state[event.where] = event

    def upto(self, sqn: int) -> EventLog:
        """As it was at a sequence number."""
        return EventLog.of(event for event in self.events if event.sqn <= sqn)

    def above(self, sqn: int) -> list[Event]:
        return [event for event in self.events if event.sqn > sqn]

    def told(self, changes: Iterable[Change], since: int, horizon: int) -> None:
        """Raise AssertionError unless a feed that is whole above ``horizon`` tells exactly what
        came above ``since``, not below that."""
        found, wanted = list(changes), self.above(since)
        assert [change.sqn for change in found] == [event.sqn for event in wanted], (
            f"the feed above {since} tells {[c.sqn for c in found][:9]}..., "
            f"and {[e.sqn for e in wanted][:9]}... were written"
        )
        for change, event in zip(found, wanted, strict=True):
            same(change, event)
            cut = event.batch is not None and event.sqn - event.batch[0] <= horizon
            assert change.batch == event.batch or (cut and change.batch is None), (change, event)

    def is_over(self, put: Event, now: int) -> bool:
        """Whether a put with an expiry has expired, or its key was deleted, or has, since: which of
        these the ledger does not know where a merge dropped all that is of the key."""
        later = (each for each in self.events if each.where == put.where and each.sqn >= put.sqn)
        return put.expiry > 0 and any(not each.lives(now) for each in later)

    def what_is_left(self, changes: Iterable[Change], now: int) -> None:
        """Raise AssertionError unless a compacted feed, replayed, makes the live state."""
        by_sqn = {event.sqn: event for event in self.events}
        newest: dict[Where, Change] = {}
        before = 0
        for change in changes:
            assert change.sqn > before, "the feed is not in order"
            before, event = change.sqn, by_sqn[change.sqn]
            where = (change.tag, change.bucket, change.key)
            assert where == event.where, (change, event)
            if change.kind == "put":
                same(change, event)
            elif change.kind == "delete":
                assert event.value is None or self.is_over(event, now), (change, event)
            newest[where] = change
        left = {
            where: change.sqn
            for where, change in newest.items()
            if change.kind == "put" and not 0 < (change.expires_at or 0) <= now
        }
        assert left == {where: event.sqn for where, event in live(self.state, now).items()}


def same(change: Change, event: Event) -> None:
    """Raise AssertionError unless a change is of this event."""
    tag, bucket, key = event.where
    wanted = (
        event.sqn, tag, bucket, key, event.value, event.metadata, event.expiry or None, event.time,
    )  # fmt: skip
    found = (
        change.sqn, change.tag, change.bucket, change.key, change.value, change.metadata,
        change.expires_at, change.written_at,
    )  # fmt: skip
    assert found == wanted, f"told {change}, written {event}"
    told = frozenset((name, term) for name, terms in change.index.items() for term in terms)
    assert {(n, type(t), t) for n, t in told} == {(n, type(t), t) for n, t in event.entries}
