"""The journal against the ledger: what one of them says, the other does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from octavo.actors.reader import Reader
from octavo.actors.startup import Running
from octavo.actors.view import Head
from octavo.files import index_terms, ledger_key, record, record_digests
from octavo.files.arrays import np, npt
from octavo.files.bounds import HEAD_ROWS, OBJECTS
from octavo.files.errors import OctavoError
from octavo.files.hashing import LOW_32
from octavo.files.lifecycle import State
from octavo.files.live_batches import Batch, Segments, buckets_of, heads_of, keys_of
from octavo.files.merkle import HASH_BITS
from octavo.files.record_digests import Digests
from octavo.files.sealed_records import Stretch, file_records

STEP = 1024
Array: TypeAlias = "npt.NDArray[Any]"


@dataclass(slots=True)
class Report:
    """What was looked at, and what was wrong with it.

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
        """Nothing was wrong."""
        return not self.problems


def unequal(path: str, whose: str, told: Sequence[object], found: Sequence[object]) -> list[str]:
    """The problem that two tellings of the same differ, if they do."""
    if list(told) == list(found):
        return []
    return [f"{path}: {whose} says {told} of it; it is {found}"]


class Noted(NamedTuple):
    """Some records: arrays, an element for each; their digests first."""

    keys: Array
    sqns: Array
    sizes: Array
    times: Array
    expiries: Array
    metas: Array
    kinds: Array
    indexed: Array
    """Whether it has index entries."""


class Newest:
    """The newest record of each key whose hash falls into one of several equal parts: parts, so
    that memory stays bounded. Records are noted in the order of their sqns."""

    def __init__(self, bits: int, upto: int) -> None:
        """``bits``: two to the power of it is how many parts there are; ``upto``: the sqn
        (inclusive) behind which records are left out."""
        self.parts = 1 << bits
        self.upto = upto
        self.part = 0
        self._shift = HASH_BITS - bits
        self._noted: list[Noted] = []
        self._singles: list[tuple[tuple[int, ...], int, bool]] = []

    @property
    def mine(self) -> Segments | None:
        """The current part; None: it is all keys."""
        if self.parts == 1:
            return None
        return Segments(self._shift, np.arange(self.parts) == self.part)

    def of_stretch(self, stretch: Stretch) -> Noted:
        """What is to be noted of some records of a sealed file."""
        head, rows, mine = stretch.head, stretch.rows, self.mine
        ours = rows.sqns <= np.uint64(self.upto)
        if mine is not None:
            ours &= mine.of(rows.hashes)
        which = np.flatnonzero(ours & (head.kinds != record.KEY_DELTA))
        digests = record_digests.of_records(rows, which)
        return Noted(*digests, head.kinds[which], head.index_bytes[which] > 0)

    def note_all(self, noted: Iterable[Noted]) -> None:
        """What ``of_stretch`` told of the records of a file."""
        self._settle()
        self._noted += noted

    def note(self, sqn: int, change: record.Record | record.Header) -> None:
        """One record."""
        if change.kind == record.KEY_DELTA:
            return
        key = ledger_key.prefix(change.tag, change.bucket) + change.key
        row = record_digests.of_one(key, sqn, change)
        if (row[0] & LOW_32) >> self._shift == self.part:
            self._singles.append((row, change.kind, bool(change.index_changes)))

    def next_part(self) -> None:
        """Forget what was noted; on to the keys of the next part."""
        self.part += 1
        self._noted, self._singles = [], []

    def by_key(self) -> tuple[Digests, Array, Array]:
        """(newest record of each key, in the order of their hashes; its kind; whether it has
        index entries)."""
        self._settle()
        if not self._noted:
            none = np.empty(0, dtype=np.uint8)
            return record_digests.from_rows(()), none, none.astype(bool)
        columns = list(zip(*self._noted, strict=True))[::-1]
        self._noted = []
        keys = np.concatenate(columns.pop())
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        newest = np.append(keys[1:] != keys[:-1], np.ones(min(len(keys), 1), np.bool_))
        last = order[newest]
        found = [keys[newest]]
        del keys, order
        while columns:  # one at a time, and then it is forgotten: they are large
            found.append(np.concatenate(columns.pop())[last])
        *digests, kinds, indexed = found
        return Digests(*digests), kinds, indexed

    def _settle(self) -> None:
        if self._singles:
            rows, kinds, indexed = zip(*self._singles, strict=True)
            self._singles = []
            self._noted.append(
                Noted(
                    *record_digests.from_rows(rows),
                    np.array(kinds, dtype=np.uint8),
                    np.array(indexed, dtype=bool),
                )
            )


def agreement(
    running: Running, reader: Reader, newest: Newest, recalculated: frozenset[int]
) -> Iterator[Report]:
    """The newest record of each key is what the ledger and memory have of it, and what they have
    is in the journal. The first part of the keys was noted while the journal was read."""
    for part in range(newest.parts):
        if part:
            newest.next_part()
            yield from _noted(running, reader, newest)
        yield from _ledger_against_journal(running, reader, newest, recalculated)


def _noted(running: Running, reader: Reader, newest: Newest) -> Iterator[Report]:
    for file in reader.view.journal.files:
        try:
            if file.state is State.SEALED:
                _, _, stretches = file_records(running.disk, file.path, file.seed, file.base)
                newest.note_all(list(map(newest.of_stretch, stretches)))
                yield Report()
                continue
        except OctavoError:
            pass  # told already; what is whole of it is read below
        for number, sqn in enumerate(file.sqns(file.base, reader.sqn)):
            if not number % STEP:
                yield Report()
            try:
                newest.note(sqn, file.header(sqn))
            except OctavoError:
                continue  # told already


def _ledger_against_journal(
    running: Running, reader: Reader, newest: Newest, recalculated: frozenset[int]
) -> Iterator[Report]:
    """Every live key's version is its newest record, and is as the ledger says. What array
    kernels do not find equal is looked at one by one."""
    bound = HEAD_ROWS if running.identity.head_only else OBJECTS
    bases = reader.view.journal.bases
    trimmed = bases[0] - 1 if running.identity.head_only and bases else 0
    told, kinds, indexed = newest.by_key()
    live = np.zeros(len(told.keys), dtype=bool)
    for batch in reader.batches(bound, newest.mine, heads=True):
        rows = record_digests.of_batch(batch)
        at = np.searchsorted(told.keys, rows.keys)
        there = at < len(told.keys)
        at[~there] = 0
        if len(told.keys):
            there &= told.keys[at] == rows.keys
            doubtful = ~there | rows.unequal(told.taken(at)) | indexed[at]
            live[at[there]] = True
        else:
            doubtful = ~there
        doubtful &= rows.sqns > np.uint64(trimmed)
        latest = np.where(there, told.sqns[at] if len(told.keys) else 0, rows.sqns)
        problems = _doubts(
            reader, batch, np.flatnonzero(doubtful).tolist(), latest.tolist(), recalculated
        )
        yield Report(keys=len(batch.rows), problems=problems)
    yield from _left_over(reader, told, kinds, np.flatnonzero(~live))


def _doubts(
    reader: Reader, batch: Batch, rows: list[int], latest: list[int], recalculated: frozenset[int]
) -> list[str]:
    """What is wrong with some rows of a batch. ``latest``: the newest sqn that the journal has of
    each."""
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
                f"ledger key {whole[:80]!r}: the ledger has sqn {head.sqn} of it, the "
                f"journal sqn {latest[row]}"
            )
    return problems


def _recorded(reader: Reader, key: bytes, head: Head, recalculated: frozenset[int]) -> list[str]:
    """What is wrong with the record of a live ledger key, and with its index entries."""
    try:
        file = reader.view.journal.file_of(head.sqn)
        header = file.header(head.sqn)
    except OctavoError as wrong:
        return [f"{wrong} (ledger key {key[:80]!r})"]
    where = f"{file.path}: sqn {head.sqn}"
    if ledger_key.prefix(header.tag, header.bucket) + header.key != key:
        return [f"{where} is not of ledger key {key[:80]!r}"]
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
    """Keys that are not live: their newest records are deletes, or expired."""
    expiries = told.expiries[which]
    over = (expiries > 0) & (expiries <= np.uint64(max(reader.now_ms, 0)))
    wrong = told.sqns[which[(kinds[which] == record.PUT) & ~over]]
    journal = reader.view.journal
    for sqn in wrong.tolist():
        header = journal.file_of(sqn).header(sqn)
        key = ledger_key.prefix(header.tag, header.bucket) + header.key
        problem = (
            f"{journal.file_of(sqn).path}: sqn {sqn} is the newest of ledger key {key[:80]!r}, "
            "but the ledger says it is absent"
        )
        yield Report(problems=[problem])
