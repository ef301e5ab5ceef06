"""What the journal accepted of a write that was broken off, and memory has to know of.

To take it in wants memory, which may be what the write was broken off for. Then it is the first
that the Bookie does in its next turn: so whoever writes or takes a snapshot finds all or nothing of
a batch. Where it cannot even then, nothing more is written on top of it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from octavo.actors.turns.messages import Call, interruptible
from octavo.files.errors import StorageFailed
from octavo.files.ledger import ledger_key as keys_of

if TYPE_CHECKING:
    from octavo.actors.bookie import Bookie


class UnfinishedWrites:
    """Records of a journal that memory does not have yet. All that it needs is made ahead."""

    def __init__(self) -> None:
        self._from = 0
        """The first of them; 0: there are none."""
        self._message = Call(settle, (), {}), None
        self.refused = StorageFailed(
            "what an interrupted write left could not be taken into memory; close the store and "
            "reopen it"
        )

    def remember(self, bookie: Bookie, first: int) -> None:
        """In the turn: a write was interrupted. Take into memory whatever the journal did accept of
        it, from the sqn ``first`` on."""
        try:
            _take_in(bookie, first)
        except BaseException:
            # Lines that take no memory: a call of min() would.
            if not self._from or first < self._from:
                self._from = first
            bookie.waiting_messages.append(self._message)
            raise

    def settle(self, bookie: Bookie) -> None:
        """In the turn: take in what is owed."""
        if self._from:
            try:
                _take_in(bookie, self._from)
            except Exception:
                bookie.inker.failed = self.refused
                if bookie.active is not None:
                    bookie.active.failed = self.refused
                raise
            self._from = 0


@interruptible
def settle(bookie: Bookie) -> None:
    """In the turn: see UnfinishedWrites."""
    bookie.unfinished.settle(bookie)


def _take_in(bookie: Bookie, first: int) -> None:
    table, inker = bookie.view.recent, bookie.inker
    for sqn in range(first, inker.last_sqn + 1):
        header = inker.view.file_of(sqn).header(sqn)
        key = keys_of.prefix(header.tag, header.bucket) + header.key
        bookie.cache.write_without((key,), partial(table.enter, key, sqn, header))
