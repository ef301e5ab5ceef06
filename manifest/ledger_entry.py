"""A ledger file as its manifest knows it, and a table of such entries in packed columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from octavo.files.ledger import which_file
from octavo.files.ledger.sst import Sst
from octavo.manifest.file_name import is_plain
from octavo.manifest.journal_manifest import MAX_SQN
from octavo.manifest.packing import Packer, Unpacker

MAX_LEVELS = 64
MAX_KEY_BYTES = 1 << 18
"""Bound of a whole ledger key here: a bucket name of 64 KiB may take twice that, and a few more."""

Key = bytes

_COLUMNS = ("level", "rows", "bytes", "tombstones", "expiring", "min_sqn", "max_sqn", "sqn_base")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What is known of a ledger file without opening it."""

    name: str
    level: int
    rows: int
    bytes: int
    tombstones: int
    """Rows that are deletes."""
    expiring: int
    """Rows that have an expiry."""
    first_key: Key
    """Whole ledger key of the first row; inclusive."""
    last_key: Key
    """Whole ledger key of the last row; inclusive."""
    min_sqn: int
    """Lowest absolute sqn; inclusive."""
    max_sqn: int
    """Highest absolute sqn; inclusive."""
    sqn_base: int
    """What is added to the sqns in the file."""
    file: Any = field(default=None, compare=False, repr=False)
    """The file's actor, where there is one; never persisted."""

    @classmethod
    def of_job(cls, row: dict[str, Any], level: int = 0, file: object = None) -> LedgerEntry:
        """The entry of a new file, from what the job that made it says of it."""
        keys = {key: row[key].encode("latin-1") for key in ("first_key", "last_key")}
        return cls(**{**row, **keys}, level=level, sqn_base=0, file=file)

    def for_job(self) -> tuple[str, int, list[int]]:
        """What a job on the file takes of this: its name, base of the sqns, marks."""
        return self.name, self.sqn_base, which_file.marks_of(self, self.sqn_base)


def refuse_another(entry: LedgerEntry, sst: Sst) -> None:
    """Raise Corruption where a whole ledger file is not the one that its manifest means."""
    which_file.refuse_another(which_file.marks_of(entry, entry.sqn_base), sst)


_numbers = attrgetter("level", "rows", "bytes", "tombstones", "expiring", "sqn_base")


def fault_of(entry: LedgerEntry) -> str:
    """What is wrong with an entry by itself; "" where nothing is."""
    numbers = (*_numbers(entry), entry.min_sqn, entry.max_sqn)
    if not is_plain(entry.name):
        return f"file name {entry.name!r}"
    if set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > MAX_SQN:
        return f"{entry.name}: a number that is not in [0, 2**64)"
    if type(entry.first_key) is not bytes or type(entry.last_key) is not bytes:
        return f"{entry.name}: a key that is not bytes"
    if not 0 < len(entry.first_key) <= MAX_KEY_BYTES or len(entry.last_key) > MAX_KEY_BYTES:
        return f"{entry.name}: length of a key"
    if entry.level >= MAX_LEVELS:
        return f"{entry.name}: level {entry.level}"
    if entry.first_key > entry.last_key:
        return f"{entry.name}: its first key is above its last"
    if not entry.sqn_base <= entry.min_sqn <= entry.max_sqn:
        return f"{entry.name}: sqns {entry.min_sqn} to {entry.max_sqn} on {entry.sqn_base}"
    if not entry.rows or entry.tombstones > entry.rows or entry.expiring > entry.rows:
        counts = (entry.rows, entry.tombstones, entry.expiring)
        return f"{entry.name}: counts of rows, deletes and expiring rows {counts}"
    return ""


# ---------------------------------------------------------------- columns


def pack(out: Packer, entries: list[LedgerEntry]) -> None:
    """A table of entries, without their actors. O(entries)."""
    out.number(len(entries))
    out.strings([entry.name.encode() for entry in entries])
    out.strings([entry.first_key for entry in entries])
    out.strings([entry.last_key for entry in entries])
    for name in _COLUMNS:
        out.integers(list(map(attrgetter(name), entries)))


def unpack(found: Unpacker) -> list[LedgerEntry]:
    """Entries whose columns have the right types; only ``fault_of`` says if they can be."""
    count = found.number()
    names = [name.decode("latin-1") for name in found.strings(count)]
    first, last = found.strings(count), found.strings(count)
    level, rows, size, tombstones, expiring, low, high, base = (
        found.integers(count) for _ in _COLUMNS
    )
    columns = (level, rows, size, tombstones, expiring, first, last, low, high, base)
    return list(map(LedgerEntry, names, *columns))
