"""Reads of the newest state: in the caller's thread, without a turn, through the current view."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TypeVar

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.measures import CACHE, MEMORY, REST
from octavo.actors.penciller import Penciller
from octavo.actors.read_cache import ReadCache
from octavo.actors.runtime import Ref
from octavo.actors.view import Head, View
from octavo.files import record
from octavo.files.errors import Corruption

T = TypeVar("T")
_LOW_32 = 0xFFFFFFFF


class LiveReads:
    """The Bookie's reading half. Needs only what others replace as a whole, never change."""

    view: View
    cache: ReadCache
    clock_ms: Callable[[], int]
    penciller: Ref[Penciller]

    def get(self, ledger_key: bytes, bucket_and_key: bytes, bucket_bytes: int) -> bytes | None:
        """The newest value, or None. Memory, then cache, then a probe a level and one read."""
        view = self.view
        entry = view.recent.rows.get(ledger_key)
        if entry is None:
            for table in view.frozen:
                entry = table.rows.get(ledger_key)
                if entry is not None:
                    break
            else:
                cached = self.cache.entries.get(ledger_key)
                if cached is not None:
                    cached[1] = True
                    return cached[0]  # type: ignore[return-value]
                return self._get_from_ledger(view, ledger_key, bucket_and_key, bucket_bytes)
        if entry > 0:
            bases, files = view.journal
            last = entry >= bases[-1]  # most recent changes are in the active file
            file = files[-1] if last else files[bisect_right(bases, entry) - 1]
            try:
                data, at = file.raw(entry - file.base)
            except FileNotFoundError:  # compacted since the view was taken
                return self._get_with_care(ledger_key)
            value = record.value_of(
                data, file.seed ^ at, bucket_and_key, bucket_bytes, ledger_key[0]
            )
            if value is not None:
                return value
        return self._get_with_care(ledger_key)

    def where(self, ledger_key: bytes) -> str:
        """Where ``get`` would find a key just now: one of measures.SOURCES."""
        view = self.view
        if ledger_key in view.recent.rows or any(ledger_key in t.rows for t in view.frozen):
            return MEMORY
        return CACHE if ledger_key in self.cache.entries else REST

    def _get_from_ledger(
        self, view: View, ledger_key: bytes, bucket_and_key: bytes, bucket_bytes: int
    ) -> bytes | None:
        h32 = xxh3(ledger_key) & _LOW_32
        ledger = view.ledger
        try:
            for level, firsts in enumerate(ledger.firsts):
                if level == 0:
                    candidates = ledger.levels[0]
                else:
                    at = bisect_right(firsts, ledger_key) - 1
                    if at < 0:
                        continue
                    candidates = ledger.levels[level][at : at + 1]
                for entry in candidates:
                    file = entry.file
                    sst = file.sst or file.reader()
                    row = sst.probe(h32)
                    if row < 0:
                        continue
                    if sst.flags[row]:
                        return self._get_with_care(ledger_key)
                    sqn = sst.sqns[row] + entry.sqn_base
                    bases, files = view.journal
                    journal_file = files[bisect_right(bases, sqn) - 1]
                    data, offset = journal_file.raw(sqn - journal_file.base)
                    value = record.value_of(
                        data,
                        journal_file.seed ^ offset,
                        bucket_and_key,
                        bucket_bytes,
                        ledger_key[0],
                    )
                    if value is None:
                        return self._get_with_care(ledger_key)
                    self._fill(view, ledger_key, value)
                    return value
        except (FileNotFoundError, Corruption):
            return self._get_with_care(ledger_key)
        return None

    def _fill(self, view: View, ledger_key: bytes, value: bytes) -> None:
        """Cache a value, unless it was overwritten since it was read: a put first enters memory
        and then discards, so looking at memory after filling misses nothing."""
        self.cache.fill(ledger_key, value)
        if self.view.recent is not view.recent or ledger_key in view.recent.rows:
            self.cache.discard(ledger_key)

    def _get_with_care(self, ledger_key: bytes) -> bytes | None:
        """The long way: every case, every error named."""
        found = self._retried(lambda view: view.get(ledger_key, 1 << 63, self.clock_ms()))
        return None if found is None else found[0]

    def head(self, ledger_key: bytes) -> Head | None:
        """Head of the newest live version, or None. Reads no value."""
        view = self.view
        if ledger_key not in view.recent.rows and not view.frozen:
            try:
                found = view.find_in_ledger(ledger_key)
            except (FileNotFoundError, Corruption):
                found = None
            else:
                if found is None:
                    return None
            if found is not None and found.plain and found.sst is not None:
                sst, row = found.sst, found.row
                return Head(found.sqn, sst.sizes[row], sst.meta(row), sst.time(row), None)
        return self._retried(lambda view: view.head(ledger_key, 1 << 63, self.clock_ms()))

    def _retried(self, read: Callable[[View], T]) -> T:
        """``read`` on the newest view, again if a file it needed was merged away meanwhile."""
        while True:
            view = self.view
            try:
                return read(view)
            except FileNotFoundError as missing:
                if self.view is view:
                    raise Corruption(str(missing.filename), 0, "the file is missing") from missing
            except Corruption as damage:
                self.penciller.send(Penciller.reported, damage)
                raise

    def index_of(self, ledger_key: bytes) -> bytes | None:
        """The packed index entries of a key's live version, or None."""
        return self._retried(lambda view: view.index_of(ledger_key, 1 << 63, self.clock_ms()))
