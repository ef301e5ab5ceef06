"""The view: an immutable state of the store, which readers read in their own threads.

Nothing here takes a turn or copies a table. A view is replaced, never changed: whoever holds an
old one goes on reading the files and memory tables that it names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.journal_file import JournalFile
from octavo.actors.memory_table import MemoryTable
from octavo.actors.reading.guide import Guide
from octavo.files.errors import Corruption
from octavo.files.journal import record
from octavo.files.journal.record import LOW_32
from octavo.files.ledger.head import Head
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE
from octavo.files.ledger.sst import Sst
from octavo.manifest.ledger_manifest import LedgerManifest


class JournalView(NamedTuple):
    """The journal's files, ordered by their first sequence numbers (``bases``)."""

    bases: tuple[int, ...]
    files: tuple[JournalFile, ...]

    @classmethod
    def of(cls, files: Iterable[JournalFile]) -> JournalView:
        """A view of these files, which may come in any order. O(files)."""
        ordered = tuple(sorted(files, key=attrgetter("base")))
        return cls(tuple(file.base for file in ordered), ordered)

    def file_of(self, sqn: int) -> JournalFile:
        """The file that holds ``sqn``. O(log files). Raises Corruption if all begin above it."""
        at = bisect_right(self.bases, sqn) - 1
        if at < 0:
            raise Corruption("journal", 0, f"no journal file holds sqn {sqn}")
        return self.files[at]


class Found(NamedTuple):
    """Where a key's newest version stands: its sqn and, if the ledger has it, its row there."""

    sqn: int
    plain: bool  # neither a delete nor expiring
    sst: Sst | None
    row: int
    """The row in ``sst``; without one, negative: DELETED if a memory table says it is a delete."""


DELETED = -2


def found_in(table: MemoryTable, entry: int) -> Found:
    """What an entry of a memory table says, as a Found."""
    return Found(abs(entry), entry > 0, None, DELETED if table.deleted(entry) else -1)


@dataclass(frozen=True, slots=True)
class View:
    """A state of the store: its memory tables (newest first), ledger files and journal files."""

    recent: MemoryTable
    frozen: tuple[MemoryTable, ...]
    ledger: LedgerManifest
    journal: JournalView
    generation: int = 0
    """Grows whenever files of either half are replaced; snapshots are registered by it."""
    guide: Guide = field(default=None, compare=False, repr=False)  # type: ignore[assignment]
    """The guide of ``ledger``; made anew if none is given, or that of another ledger."""

    def __post_init__(self) -> None:
        if self.guide is None or self.guide.ledger is not self.ledger:
            object.__setattr__(self, "guide", Guide(self.ledger))

    def find(self, ledger_key: bytes, upper: int) -> Found | None:
        """The newest version at or below ``upper``, deletes included; None if there is none.

        Looks into the memory tables, then probes the hash tables of the ledger's files, one for
        each level below level zero. Raises Corruption.
        """
        table = self.recent
        entry = table.entry(ledger_key, upper)
        if entry is None:
            for table in self.frozen:
                entry = table.rows.get(ledger_key)
                if entry is not None:
                    break
        if entry is not None:
            return found_in(table, entry)
        return self.find_in_ledger(ledger_key)

    def find_in_ledger(self, ledger_key: bytes) -> Found | None:
        """As find, without the memory tables."""
        h32 = xxh3(ledger_key) & LOW_32
        slots, mask, tails = self.guide.way
        for firsts, file, base, entries in tails[slots[h32 & mask]]:
            if firsts is not None:
                # For a key below all of them this is the last file (index -1), which has it not.
                entry = entries[bisect_right(firsts, ledger_key) - 1]
                file, base = entry.file, entry.sqn_base
            sst = file.sst or file.reader()
            row = sst.find(ledger_key, h32)
            if row >= 0:
                plain = not sst.flags[row] & (TOMBSTONE | EXPIRES)
                return Found(sst.sqns[row] + base, plain, sst, row)
        return None

    def newest(self, ledger_key: bytes, upper: int) -> int:
        """Sqn of the newest version at or below ``upper``, deletes included; 0 if there is none."""
        entry = self.recent.entry(ledger_key, upper)
        if entry is not None:
            return abs(entry)
        for table in self.frozen:
            entry = table.rows.get(ledger_key)
            if entry is not None:
                return abs(entry)
        found = self.find_in_ledger(ledger_key)
        return 0 if found is None else found.sqn

    def get(self, ledger_key: bytes, upper: int, now_ms: int) -> tuple[bytes, int] | None:
        """(value, sqn) of a live key; None if it is not live. Raises Corruption."""
        found = self.find(ledger_key, upper)
        if found is None:
            return None
        if not found.plain and self._dead(found, self.ledger.now_ms(now_ms)):
            return None
        file = self.journal.file_of(found.sqn)
        whole = file.read(found.sqn)
        if not ledger_key.endswith(whole.key):
            raise Corruption(
                file.path,
                0,
                f"sqn {whole.sqn} is of another key than the ledger says",
                expected=ledger_key[:80],
                found=whole.key[:80],
            )
        if whole.kind != record.PUT:
            return None  # compacted when it had expired; the clock was set back since
        return whole.value, found.sqn

    def head(self, ledger_key: bytes, upper: int, now_ms: int) -> Head | None:
        """The head of a live key, or None. Does not read the value. Raises Corruption."""
        found = self.find(ledger_key, upper)
        if found is None:
            return None
        head = self.head_of(found)
        return None if head is None or _expired(head, self.ledger.now_ms(now_ms)) else head

    def live(self, ledger_key: bytes, upper: int, now_ms: int) -> int:
        """Sqn of a live key's version; 0 if it is not live. Reads the journal only if memory has a
        version that expires. Raises Corruption."""
        found = self.find(ledger_key, upper)
        if found is None:
            return 0
        if found.plain or not self._dead(found, self.ledger.now_ms(now_ms)):
            return found.sqn
        return 0

    def index_of(self, ledger_key: bytes, upper: int, now_ms: int) -> bytes | None:
        """Packed index entries that a live key's version was put with; None if it is not live."""
        head = self.head(ledger_key, upper, now_ms)
        if head is None:
            return None
        return self.journal.file_of(head.sqn).header(head.sqn).index_changes

    def head_of(self, found: Found) -> Head | None:
        """The head of what ``find`` found, expired or not; None for a delete."""
        sst, row = found.sst, found.row
        if sst is not None:
            if sst.flags[row] & TOMBSTONE:
                return None
            return Head(
                found.sqn, sst.sizes[row], sst.meta(row), sst.time(row), sst.expiry(row) or None
            )
        if row == DELETED:
            return None
        header = self.journal.file_of(found.sqn).header(found.sqn)
        if header.kind == record.DELETE:
            return None
        return Head(
            found.sqn, header.size, header.metadata, header.time_ms, header.expiry_ms or None
        )

    def _dead(self, found: Found, now_ms: int) -> bool:
        head = self.head_of(found)
        return head is None or _expired(head, now_ms)


def _expired(head: Head, now_ms: int) -> bool:
    return head.expires_at is not None and head.expires_at <= now_ms
