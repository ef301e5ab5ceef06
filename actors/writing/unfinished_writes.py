"""Takes into the memory table what the journal accepted of a write that was interrupted.

That needs memory, and a lack of memory may be what interrupted the write. Then the Bookie does it
first thing in its next turn: so whoever writes or takes a snapshot finds all or nothing of a batch.
If it fails even then, nothing more is written on top of it.
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
    """Records of the journal that memory does not have yet. All objects it needs are made ahead."""

    def __init__(self) -> None:
        self._from = 0
        """The sqn of the first such record; 0: there is none."""
        self._message = Call(settle, (), {}), None
        self.refused = StorageFailed(
            "what an interrupted write left could not be taken into memory; close the store and "
            "reopen it"
        )

    def remember(self, bookie: Bookie, first: int) -> None:
        """Take into memory what the journal accepted of an interrupted write, from the sqn
        ``first`` on; if that fails, leave it to ``settle``, and raise. In the turn."""
        try:
            _take_in(bookie, first)
        except BaseException:
            # These lines take no memory, as a call of min() would.
            if not self._from or first < self._from:
                self._from = first
            bookie.waiting_messages.append(self._message)
            raise

    def settle(self, bookie: Bookie) -> None:
        """Take in what ``remember`` could not; if that fails, refuse all further writes. In the
        turn."""
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
    """The message to the Bookie: see UnfinishedWrites."""
    bookie.unfinished.settle(bookie)


def _take_in(bookie: Bookie, first: int) -> None:
    table, inker = bookie.view.recent, bookie.inker
    for sqn in range(first, inker.last_sqn + 1):
        header = inker.view.file_of(sqn).header(sqn)
        key = keys_of.prefix(header.tag, header.bucket) + header.key
        bookie.cache.write_without((key,), partial(table.enter, key, sqn, header))
