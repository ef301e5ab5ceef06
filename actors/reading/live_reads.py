"""Reads of the newest state: in the caller's thread, without a turn, through the current view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.measures import CACHE, MEMORY, REST
from octavo.actors.memory_table import MemoryTable
from octavo.actors.penciller import Penciller
from octavo.actors.reading.plain_heads import PlainHeads
from octavo.actors.reading.plain_reads import PlainReads
from octavo.actors.turns.runtime import Ref
from octavo.actors.view import View
from octavo.files.errors import Corruption
from octavo.files.journal import record, short_value
from octavo.files.journal.record import FRAME_BYTES, LOW_32
from octavo.files.ledger.head import Head

T = TypeVar("T")


class LiveReads(PlainReads, PlainHeads):
    """The Bookie's reading half. Uses only state that others replace as a whole, never change."""

    clock_ms: Callable[[], int]
    penciller: Ref[Penciller]

    def now_ms(self) -> int:
        """The moment by which expiry is judged and from which it is counted; ms UTC. If the clock
        was set back, not before the latest expiry for which anything was dropped."""
        return self.view.ledger.now_ms(self.clock_ms())

    def get(self, ledger_key: bytes, bucket_and_key: bytes, plain: bytes) -> bytes | None:
        """The newest value, or None. Asks the cache, then memory, then the ledger (a probe for each
        place) and the journal (one read). Raises Corruption.

        ``plain``: what a plain put's record in this bucket has from byte 19 on: see plain_fields.
        """
        cached = self.cache.entries.get(ledger_key)
        if cached is not None:
            return cached
        view = self.view
        if ledger_key in view.recent.rows:
            return self.get_recent(view, ledger_key, bucket_and_key, plain)
        for table in view.frozen:
            if entry := table.rows.get(ledger_key):
                if entry > 0:
                    return self._get_from_memory(view, entry, ledger_key, bucket_and_key, plain)
                return self._get_if_live(view, table, -entry, ledger_key, bucket_and_key, plain)
        h = xxh3(ledger_key)
        slots, mask, tails = view.guide.way
        steps = tails[slots[h & mask]]
        if not steps:
            return None
        return self.get_from_ledger(view, steps, h & LOW_32, ledger_key, bucket_and_key, plain)

    def get_recent(
        self, view: View, ledger_key: bytes, bucket_and_key: bytes, plain: bytes
    ) -> bytes | None:
        """The value of a key that the view's recent table has, or None. The lines of
        JournalFile.value are repeated here, for the file that is being written."""
        table = view.recent
        entry = table.rows[ledger_key]
        if entry < 0:
            return self._get_if_live(view, table, -entry, ledger_key, bucket_and_key, plain)
        bases, files = view.journal
        if entry >= bases[-1]:
            file = files[-1]
            offsets = file.offsets
            mapped = file.growing.mapped
            relative = entry - file.base
            if relative < len(offsets) - 1:
                at = offsets[relative]
                end = offsets[relative + 1]
                value_at = at + FRAME_BYTES + len(bucket_and_key)
                head = mapped[at : value_at - 8]
                value = None
                if head[19:24] != plain:
                    check = file.seed ^ at
                    value = short_value.value_of(mapped, at, end, check, bucket_and_key, plain)
                elif head[34:] == bucket_and_key and value_at <= end <= len(mapped):
                    found = mapped[value_at:end]
                    h = xxh3(head, file.seed ^ at)
                    if xxh3(found, h) & LOW_32 == record.unpack_u32(mapped, value_at - 4)[0]:
                        value = found
                if value is not None:
                    self.cache.fill(view, ledger_key, entry, value)
                    return value
        return self._get_from_memory(view, entry, ledger_key, bucket_and_key, plain)

    def _get_if_live(
        self,
        view: View,
        table: MemoryTable,
        sqn: int,
        ledger_key: bytes,
        bucket_and_key: bytes,
        plain: bytes,
    ) -> bytes | None:
        """The value of a put that expires; None if it has expired, or ``sqn`` is a delete's."""
        expiry_ms = table.expiring.get(sqn)
        if expiry_ms is None or expiry_ms <= self._moment_ms(view):
            return None
        return self._get_by_record(view, sqn, ledger_key, bucket_and_key, plain)

    def _moment_ms(self, view: View) -> int:
        return view.ledger.now_ms(self.clock_ms())

    def where(self, ledger_key: bytes) -> str:
        """Where ``get`` would find a key just now: CACHE, MEMORY or REST."""
        view = self.view
        if ledger_key in self.cache.entries:
            return CACHE
        if ledger_key in view.recent.rows or any(ledger_key in t.rows for t in view.frozen):
            return MEMORY
        return REST

    def _get_with_care(self, ledger_key: bytes) -> bytes | None:
        """``get`` by the long path, which decides every case and names every error."""
        found = self._retried(lambda view: view.get(ledger_key, 1 << 63, self.clock_ms()))
        return None if found is None else found[0]

    def head(
        self, ledger_key: bytes, bucket_and_key: bytes = b"", plain: bytes = b""
    ) -> Head | None:
        """Head of the newest live version, or None. Reads no value. Raises Corruption.

        ``plain``: as in ``get``; without it, a version in memory is read the long way.
        """
        view = self.view
        table = view.recent
        sqn = table.rows.get(ledger_key)
        if sqn is None:
            for table in view.frozen:
                sqn = table.rows.get(ledger_key)
                if sqn is not None:
                    break
        if sqn is not None:
            now_ms = short_value.ALL_EXPIRED  # it does not expire
            if sqn < 0:
                sqn = -sqn
                expiry_ms = table.expiring.get(sqn)
                if expiry_ms is None or expiry_ms <= (now_ms := self._moment_ms(view)):
                    return None  # a delete, or expired
            return self._head_from_memory(view, sqn, ledger_key, bucket_and_key, plain, now_ms)
        return self.head_in_ledger(view, ledger_key)

    def _head_with_care(self, ledger_key: bytes) -> Head | None:
        return self._retried(lambda view: view.head(ledger_key, 1 << 63, self.clock_ms()))

    def _retried(self, read: Callable[[View], T]) -> T:
        """Run ``read`` on the newest view, and again if a newer view came while it failed: a file
        may have been merged away. Raises Corruption."""
        while True:
            view = self.view
            try:
                return read(view)
            except FileNotFoundError as missing:
                if self.view is view:
                    raise Corruption(str(missing.filename), 0, "the file is missing") from missing
            except Corruption as damage:
                if self.view is not view:
                    continue  # memory may name a record in a journal file newer than this view
                self.penciller.send(Penciller.reported, damage)
                raise

    def index_of(self, ledger_key: bytes) -> bytes | None:
        """The packed index entries of a key's live version, or None."""
        return self._retried(lambda view: view.index_of(ledger_key, 1 << 63, self.clock_ms()))
