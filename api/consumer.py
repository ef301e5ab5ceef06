"""Durable consumers of the change feed: each continues at its position; compaction waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from octavo import changes as feed
from octavo.actors.opening.startup import Running
from octavo.actors.writing.reserve import RECORD
from octavo.changes import Change
from octavo.files.argument_checks import shown, to_sqn, to_whole
from octavo.files.errors import HistoryCompacted, Misuse
from octavo.handles import Handle
from octavo.manifest.consumers import Consumers, checked_name


class Consumer(Handle):
    """A durable consumer, made by ``Store.consumer``. What it has not acknowledged stays in the
    journal: compaction leaves every file alone that holds anything above its position.

    A consumer that holds back compaction is dropped if it makes no progress for
    ``consumer_hold_seconds``, counted from its last progress or from when the first change after it
    was written, whichever is later; or if it holds back more than ``consumer_hold_bytes`` of the
    journal. The log and the store's notes say so; it then raises HistoryCompacted.
    """

    def __init__(self, running: Running, name: str, since: int | None) -> None:
        self._running = running
        self.name = checked_name(name)
        begin = None if since is None else to_sqn(since)
        with self._consumers.lock:  # of two threads that begin it at once, one does
            if self._consumers.position(self.name) is None:
                self._begin(begin)

    def _begin(self, since: int | None) -> None:
        inker = self._running.inker.actor
        start = inker.last_sqn if since is None else since
        if start > inker.last_sqn:
            newest = f"the newest sequence number is {inker.last_sqn}"
            raise Misuse(f"since={shown(start)}: {newest}")
        self._consumers.begin(self.name, start, lambda: inker.manifest.horizon)

    @property
    def _consumers(self) -> Consumers:
        consumers: Consumers = self._running.inker_clerk.actor.consumers
        return consumers

    @property
    def position(self) -> int:
        """The newest sqn it has acknowledged. Raises HistoryCompacted if it was dropped, Closed."""
        self._refuse_if_closed()
        found = self._consumers.position(self.name)
        if found is None:
            raise HistoryCompacted(
                f"consumer {self.name!r} is no more: it was dropped, by drop() or because it held "
                "compaction back for too long without progress, or too much of the journal"
            )
        return found

    def changes(self) -> Iterator[Change]:
        """The changes after its position, up to the newest now: see ``Store.changes``, also for the
        errors. Reading acknowledges nothing."""
        running = self._running
        return feed.changes(
            running.bookie.actor,
            self.position,
            compacted=False,
            names=running.identity.tags.names(),
        )

    def acknowledge(self, sqn: int) -> None:
        """Say that it needs nothing at or below ``sqn`` any more. Durable on return: some two
        fsyncs.

        Raises Misuse if it has acknowledged more already or there is no such sqn yet;
        HistoryCompacted if it was dropped; StorageFull, StorageFailed, Closed.
        """
        self._refuse_if_closed()
        newest = self._running.inker.actor.last_sqn
        upto = to_whole("sqn", sqn, f"are sequence numbers up to the newest, {newest}", 0, newest)
        self._with_reserve(partial(self._consumers.move, self.name, upto))

    def drop(self) -> None:
        """Remove the consumer, durably; nothing is held back for it any more. Idempotent. Raises
        StorageFull, StorageFailed, Closed."""
        self._refuse_if_closed()
        self._with_reserve(partial(self._consumers.drop, self.name))

    def _with_reserve(self, change: Callable[[], None]) -> None:
        """Make a change even on a full disk: a compaction could give back what this held back."""
        self._running.with_reserve(change, RECORD)

    def _refuse_if_closed(self) -> None:
        bookie = self._running.bookie.actor
        if bookie.closed:
            raise bookie.stopped_error()

    def __repr__(self) -> str:
        return f"<octavo.Consumer {self.name!r} of {self._running.path!r}>"
