"""Checks the journal against the ledger: what one of them says, the other must say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from octavo.actors.opening.identity import Identity
from octavo.actors.reader import Reader
from octavo.files.door.disk import Disk
from octavo.files.errors import OctavoError, StorageFull
from octavo.files.journal import record, record_digests
from octavo.files.journal.journal_names import scratch_name
from octavo.files.journal.record_digests import Digests
from octavo.files.journal.sealed_records import Stretch
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.spill import Columns, Spill
from octavo.files.ledger import index_terms, ledger_key
from octavo.files.ledger.bounds import HEAD_ROWS, OBJECTS
from octavo.files.ledger.chosen_rows import Segments
from octavo.files.ledger.hashing import LOW_32
from octavo.files.ledger.head import Head
from octavo.files.ledger.live_batches import Batch, buckets_of, heads_of, keys_of
from octavo.files.ledger.merkle import HASH_BITS

STEP = 1024
Array: TypeAlias = "npt.NDArray[Any]"


@dataclass(slots=True)
class Report:
    """What was checked, and what was wrong with it.

    ``journal_files``: Journal files that were read.
    ``ledger_files``: Ledger files that were read.
    ``records``: Records in the journal.
    ``keys``: Live keys.
    ``bytes``: Bytes that were read.
    ``problems``: What is wrong, a line each.
    """

    journal_files: int = 0
    ledger_files: int = 0
    records: int = 0
    keys: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems


def unequal(path: str, whose: str, told: Sequence[object], found: Sequence[object]) -> list[str]:
    """Two accounts of the same thing: the problem that they differ, or []."""
    if list(told) == list(found):
        return []
    return [f"{path}: {whose} says {told} of it; it is {found}"]


class Noted(NamedTuple):
    """Some records as arrays with an element for each; their digests first."""

    keys: Array
    sqns: Array
    rests: Array
    expiries: Array
    kinds: Array
    indexed: Array
    """Whether each has index entries."""


class Both:
    """What the journal says of each record, and the ledger of each row, as digests, in equal parts
    by the hash of the key: a part of both fits into memory."""

    def __init__(self, disk: Disk, directory: str, bits: int, upto: int) -> None:
        """``directory``: for scratch files, if there are several parts; ``bits``: there are
        2 ** bits parts; ``upto``: the sqn (inclusive) after which records are left out."""
        self.parts = 1 << bits
        self.upto = upto
        self._shift = np.uint64(HASH_BITS - bits)
        names = (f"{directory}/{scratch_name()}" for _ in range(2))
        self._records, self._rows = (Spill(disk, name, self.parts) for name in names)
        self._singles: list[tuple[tuple[int, ...], int, bool]] = []

    def segment(self, part: int) -> Segments | None:
        """The keys of a part; None if that is all keys."""
        if self.parts == 1:
            return None
        return Segments(int(self._shift), np.arange(self.parts) == part)

    def of_stretch(self, stretch: Stretch) -> Noted:
        """What is to be noted of some records of a sealed file, for ``note_all``."""
        head, rows = stretch.head, stretch.rows
        ours = rows.sqns <= np.uint64(self.upto)
        which = np.flatnonzero(ours & (head.kinds != record.KEY_DELTA))
        digests = record_digests.of_records(rows, which)
        return Noted(*digests, head.kinds[which], head.index_bytes[which] > 0)

    def note_all(self, noted: Iterable[Noted]) -> None:
        """Note what ``of_stretch`` gave for the records of a file. Files come in the order of
        sqns."""
        self.settle()
        for some in noted:
            self._records.add(some, self._part_of(some.keys))

    def note(self, sqn: int, change: record.Record | record.Header) -> None:
        """Note one record. It stays a Python object until ``settle``."""
        if change.kind == record.KEY_DELTA:
            return
        key = ledger_key.prefix(change.tag, change.bucket) + change.key
        row = record_digests.of_one(key, sqn, change)
        self._singles.append((row, change.kind, bool(change.index_changes)))

    def note_rows(self, digests: Digests) -> None:
        """Note some rows of the ledger."""
        self._rows.add(digests[:3], self._part_of(digests.keys))

    def newest(self, part: int) -> tuple[Digests, Array, Array]:
        """Return the newest record of each key of a part, in the order of their hashes; its kind;
        whether it has index entries. To be called once for each part."""
        self.settle()
        columns = _end_to_end(self._records.part(part), len(Noted._fields))
        keys = next(columns)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        newest = np.append(keys[1:] != keys[:-1], np.ones(min(len(keys), 1), np.bool_))
        last = order[newest]
        found = [keys[newest]]
        del keys, order
        found += [column[last] for column in columns]
        *digests, kinds, indexed = found
        return Digests(*digests), kinds.astype(np.uint8), indexed.astype(np.bool_)

    def rows(self, part: int) -> tuple[Array, Array, Array]:
        """Return (keys, sqns, rests) of the ledger's rows of a part. To be called once for each."""
        keys, sqns, rests = _end_to_end(self._rows.part(part), 3)
        return keys, sqns, rests

    def close(self) -> None:
        """Remove the scratch files."""
        self._records.close()
        self._rows.close()

    def _part_of(self, keys: Array) -> Array | None:
        return None if self.parts == 1 else (keys & np.uint64(LOW_32)) >> self._shift

    def settle(self) -> None:
        """Put records that were noted one by one with the rest. Raises StorageFull,
        ScratchFailed."""
        if self._singles:
            rows, kinds, indexed = zip(*self._singles, strict=True)
            self._singles = []
            digests = record_digests.from_rows(rows)
            noted = Noted(*digests, np.array(kinds, np.uint8), np.array(indexed, np.bool_))
            self._records.add(noted, self._part_of(noted.keys))


def _end_to_end(blocks: list[Columns], count: int) -> Iterator[Array]:
    """Yield each column of all blocks, one at a time, forgetting each after: they are large."""
    columns = list(zip(*blocks, strict=True))[::-1] if blocks else [()] * count
    blocks.clear()
    while columns:
        column = columns.pop()
        yield np.concatenate(column) if column else np.empty(0, dtype=np.uint64)


def agreement(identity: Identity, horizon: int, reader: Reader, both: Both) -> Iterator[Report]:
    """Check that ledger and memory have the newest record of each key, and that what they have is
    in the journal. The records were noted while the journal was read. ``horizon``: the
    journal's."""
    recalculated = identity.tags.by_functions()  # types whose metadata functions may compute anew
    bound = HEAD_ROWS if identity.head_only else OBJECTS
    for batch in reader.batches(bound, heads=True):
        both.note_rows(record_digests.of_batch(batch))
        yield Report(keys=len(batch.rows))
    bases = reader.view.journal.bases
    trimmed = 0
    if identity.head_only:
        trimmed = bases[0] - 1 if bases else horizon
    for part in range(both.parts):
        told, kinds, indexed = both.newest(part)
        keys, sqns, rests = both.rows(part)
        live, doubtful, latest = _compared(told, indexed, keys, sqns, rests)
        doubtful &= sqns > np.uint64(trimmed)
        if doubtful.any():
            order = np.argsort(keys[doubtful])
            suspects = keys[doubtful][order], latest[doubtful][order]
            for batch in reader.batches(bound, both.segment(part), heads=True):
                rows, newest = _among(*suspects, batch)
                yield Report(problems=_doubts(reader, batch, rows, newest, recalculated))
        yield from _left_over(reader, told, kinds, np.flatnonzero(~live))


def _compared(
    told: Digests, indexed: Array, keys: Array, sqns: Array, rests: Array
) -> tuple[Array, Array, Array]:
    """Return which of the journal's keys the ledger has; which of the ledger's rows are to be
    looked at one by one; and the newest sqn in the journal for each row, or the row's own if
    none."""
    live = np.zeros(len(told.keys), dtype=np.bool_)
    if not len(told.keys):
        return live, np.ones(len(keys), dtype=np.bool_), sqns
    at = np.searchsorted(told.keys, keys)
    at[at == len(told.keys)] = 0
    there = told.keys[at] == keys
    live[at[there]] = True
    same = there & (told.sqns[at] == sqns) & (told.rests[at] == rests) & ~indexed[at]
    return live, ~same, np.where(there, told.sqns[at], sqns)


def _among(suspects: Array, latest: Array, batch: Batch) -> tuple[list[int], list[int]]:
    """The rows of a batch whose keys have these hashes, which are in order; and for each row of
    the batch what ``latest`` says of its hash."""
    hashes = record_digests.of_batch(batch).keys
    at = np.searchsorted(suspects, hashes)
    at[at == len(suspects)] = 0
    return np.flatnonzero(suspects[at] == hashes).tolist(), latest[at].tolist()


def _doubts(
    reader: Reader, batch: Batch, rows: list[int], latest: list[int], recalculated: frozenset[int]
) -> list[str]:
    """The problems of some rows of a batch, looked at one by one, which finds out what array
    kernels found unequal. ``latest``: the newest sqn in the journal for each, if any."""
    problems: list[str] = []
    if not rows:
        return problems
    keys, heads = keys_of(batch), heads_of(batch)
    prefixes = [prefix for prefix, low, high in buckets_of(batch) for _ in range(low, high)]
    for number, row in enumerate(rows):
        if not number % STEP:
            reader.renew()
        whole, head = prefixes[row] + keys[row], heads[row]
        problems += _recorded(reader, whole, head, recalculated)
        if latest[row] != head.sqn:
            problems.append(
                f"ledger key {_named(whole)}: the ledger has sqn {head.sqn} of it, the "
                f"journal sqn {latest[row]}"
            )
    return problems


def _named(key: bytes) -> str:
    """A ledger key as the caller who put it knows it."""
    try:
        _, bucket, rest = ledger_key.split(key)
    except ValueError:
        return repr(key[:80])
    return f"{rest[:80]!r}" + (f" of bucket {bucket[:80]!r}" if bucket else "")


def _recorded(reader: Reader, key: bytes, head: Head, recalculated: frozenset[int]) -> list[str]:
    """The problems of a live ledger key's record, and of its index entries."""
    try:
        file = reader.view.journal.file_of(head.sqn)
        header = file.header(head.sqn)
    except StorageFull:
        raise  # no damage: see verify.py
    except (OctavoError, OSError) as wrong:
        return [f"{wrong} (ledger key {_named(key)})"]
    where = f"{file.path}: sqn {head.sqn}"
    if ledger_key.prefix(header.tag, header.bucket) + header.key != key:
        return [f"{where} is not of ledger key {_named(key)}"]
    told = (head.size, head.written_at, head.expires_at or 0, head.metadata)
    found = (header.size, header.time_ms, header.expiry_ms, header.metadata)
    if header.tag in recalculated:  # the journal has what the functions said at the put
        return unequal(where, "the ledger", told[:3], found[:3])
    problems = unequal(where, "the ledger", told, found)
    try:
        entries = index_terms.ledger_keys(
            header.tag, header.bucket, header.key, header.index_changes
        )
    except ValueError as wrong:
        return [*problems, f"{where}: {wrong}"]
    for entry in entries:
        if reader.view.newest(entry, reader.sqn) != head.sqn:
            problems.append(f"{where}: its index entry {entry[:80]!r} is not in the ledger")
    return problems


def _left_over(reader: Reader, told: Digests, kinds: Array, which: Array) -> Iterator[Report]:
    """Check keys that are not live: their newest records must be deletes, or expired."""
    expiries = told.expiries[which]
    over = (expiries > 0) & (expiries <= np.uint64(max(reader.now_ms, 0)))
    wrong = told.sqns[which[(kinds[which] == record.PUT) & ~over]]
    journal = reader.view.journal
    for sqn in wrong.tolist():
        header = journal.file_of(sqn).header(sqn)
        key = ledger_key.prefix(header.tag, header.bucket) + header.key
        problem = (
            f"{journal.file_of(sqn).path}: sqn {sqn} is the newest of ledger key {_named(key)}, "
            "but the ledger says it is absent"
        )
        yield Report(problems=[problem])
