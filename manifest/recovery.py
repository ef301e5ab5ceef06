"""Finds, at start-up, what a stopped process left behind in the journal."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from mmap import mmap
from typing import TypeVar

from octavo.files.door.disk import Disk
from octavo.files.door.unreadable import refuse_unreadable
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, record
from octavo.files.journal.journal_names import LOG, SEALED, identity, is_sealed_too
from octavo.files.journal.runs import Run
from octavo.files.journal.sparse_offsets import SPARSE_BELOW, SparseOffsets
from octavo.files.kernels.arrays import np
from octavo.manifest.journal_manifest import JournalManifest

HIGHEST = (1 << 32) - 2
"""The highest number of a record in a file: of a damaged or forged one none above is believed."""
T = TypeVar("T")


@dataclass(slots=True)
class Tail:
    """A journal file that the manifest does not list, of sqns that no listed file has."""

    name: str
    base_sqn: int
    seed: int
    sealed: bool
    offsets: array[int]
    changes: list[cdb.Scanned | Run] = field(default_factory=list)
    """Records for replay, in order; their sqns are relative to the base."""
    length: int = 0
    """How long an unsealed file is to be: its records, and zeros behind them if they are there.
    Others may have these in a map, so they are not cut off."""
    damaged: bool = False
    """Something before its end is no record of it: others may refuse to read it unsealed."""

    @property
    def last_sqn(self) -> int:
        return self.base_sqn + len(self.offsets) - 2


@dataclass(slots=True)
class Found:
    """The journal's unknown part, and everything that was not as it should be."""

    tails: list[Tail]
    notes: list[str]
    damages: list[str] = field(default_factory=list)
    """Those of the notes that report more than the remains of an unfinished write."""

    def damaged(self, note: str) -> None:
        """Note something that is more than the remains of an unfinished write."""
        self.notes.append(note)
        self.damages.append(note)


def find_tails(
    disk: Disk,
    directory: str,
    manifest: JournalManifest,
    *,
    above: int,
    but: Collection[str] = (),
) -> Found:
    """Scan the journal files that neither the manifest lists nor ``but``.

    Records above ``above`` are kept for replay. O(bytes not yet sealed).
    Damage is stepped over and noted; only a last fragment, and a batch that is not whole, are
    cut. Raises UnsupportedFormat; Unreadable, if the device cannot read an unsealed file.
    """
    known = {entry.name for entry in manifest.entries}
    found = Found([], [])
    names = set(disk.listdir(directory))
    for missing in sorted(known - names):
        found.notes.append(f"{directory}/{missing}: a journal file is missing; its values are lost")
    candidates = []
    for name in sorted(names - known - set(but)):
        who = identity(name)
        if who is None:
            continue
        base, seed = who
        if is_sealed_too(name, names):
            # A rename that a power cut left half done: one file under both names, sealed and
            # durable before the new one was given.
            disk.unlink(f"{directory}/{name}")
        elif manifest.find(base) is not None:
            if name.endswith(LOG) and disk.size(f"{directory}/{name}") <= cdb.RECORDS_AT:
                # It held no record and was removed, which a power cut took back.
                disk.unlink(f"{directory}/{name}")
        else:
            candidates.append((base, seed, name))
    for base, seed, name in sorted(candidates):
        path = f"{directory}/{name}"
        known_damages = len(found.damages)
        if name.endswith(LOG):
            refuse_unreadable(disk, path)
        tail = _tail(disk.map(path), path, name, base, seed, above, found)
        tail.damaged = len(found.damages) > known_damages
        if tail.sealed and not all(older.sealed for older in found.tails):
            # Older records go into memory, past which the ledger takes nothing: so do these.
            again = _scanned(disk.map(path), path, name, base, seed, above, Found([], []))
            tail.changes = again.changes
        found.tails.append(tail)
    return found


def _tail(
    buffer: bytes | mmap, path: str, name: str, base: int, seed: int, above: int, found: Found
) -> Tail:
    view = memoryview(buffer)
    if name.endswith(SEALED):
        try:
            offsets = cdb.sealed_offsets(view, path)[1]
            return Tail(name, base, seed, True, array("I", offsets[:]))
        except Corruption as wrong:
            found.damaged(f"{wrong}: read record by record instead")
    if len(view) < cdb.RECORDS_AT:
        how = "cut short in its header" if len(view) else "empty"
        found.notes.append(f"{path}: {how}; it held no record")
        return Tail(name, base, seed, False, array("I", (cdb.RECORDS_AT,)), length=cdb.RECORDS_AT)
    try:
        header = cdb.read_header(view[: cdb.RECORDS_AT], path)
        if (header.base_sqn, header.seed) != (base, seed):
            found.damaged(f"{path}: its header is another file's; the name is believed")
    except Corruption as wrong:
        found.damaged(f"{wrong}: its name is believed instead")
    return _scanned(buffer, path, name, base, seed, above, found)


def growing_tail(disk: Disk, path: str, name: str, known: array[int] | None = None) -> Tail:
    """Read the whole records of a tail that is still being written; an unfinished last one is no
    damage. ``known``: the offsets that this gave of the same file before; only what follows them is
    read. O(bytes read). Raises Corruption if whole records follow something that is none."""
    who = identity(name)
    if who is None:
        raise Corruption(path, 0, "not the name of a journal file")
    base, seed = who
    return steadily(lambda: _tail_now(disk, path, name, base, seed, known))


def steadily(read: Callable[[], T]) -> T:
    """What ``read`` finds in a file that its owner writes meanwhile. What looks damaged is read
    twice more: a record may have been written behind the reading, and the next one before it."""
    for _ in range(2):
        with suppress(Corruption):
            return read()
    return read()


def _tail_now(
    disk: Disk, path: str, name: str, base: int, seed: int, known: array[int] | None
) -> Tail:
    found = Found([], [])
    # Its owner may cut a file that is not sealed, where a write broke off.
    start = known[-1] if known is not None else 0
    buffer = disk.map(path) if name.endswith(SEALED) else disk.map_growing(path, start)
    if known is None:
        tail = _tail(buffer, path, name, base, seed, 1 << 63, found)
    else:
        tail = _scanned(buffer, path, name, base, seed, 1 << 63, found, known)
    if found.damages:
        told = f"{found.damages[0]}; open the store for writing, which recovers what is whole"
        raise Corruption(path, 0, told)
    return tail


def rebuilt_offsets(
    buffer: bytes | mmap, path: str, seed: int
) -> tuple[array[int] | SparseOffsets, list[str]]:
    """(offsets, notes) of a sealed file whose own are damaged, read record by record.

    O(bytes). Raises Corruption where no record is found at all.
    """
    found = Found([], [])
    # Record numbers of a compacted file may be far above the records it has room for.
    records = _records(buffer, path, 0, seed, 1 << 63, HIGHEST, found)
    if not len(records.numbers):
        raise Corruption(path, cdb.RECORDS_AT, "no whole record in a sealed journal file")
    return records.offsets(), found.notes  # without ``torn``: tables stand there


def _scanned(
    buffer: bytes | mmap,
    path: str,
    name: str,
    base: int,
    seed: int,
    above: int,
    found: Found,
    known: array[int] | None = None,
) -> Tail:
    most = len(buffer) // record.FIXED_BYTES  # a higher number than there can be records
    records = _records(buffer, path, base, seed, above, most, found, known)
    found.notes += records.torn
    length = len(buffer) if records.end == records.ahead else records.end
    return Tail(name, base, seed, False, records.plain_offsets(), records.changes, length)


def _records(
    buffer: bytes | mmap,
    path: str,
    base: int,
    seed: int,
    above: int,
    most: int,
    found: Found,
    known: array[int] | None = None,
) -> _Records:
    """The whole records of a file, as far as their numbers are no higher than ``most``; those
    whose offsets are ``known`` are not looked at."""
    damages: list[cdb.Damage] = []
    newest = -1
    # Plain numbers, not a tuple a record: the garbage collector would look at millions of lasting
    # objects again and again.
    numbers, starts = array("I"), array("I")
    ends: dict[int, int] = {}  # of records that none of the same run follows
    start = cdb.RECORDS_AT
    if known is not None:
        newest, start = len(known) - 2, known[-1]
        numbers.frombytes(np.arange(newest + 1, dtype=np.uint32).tobytes())
        starts.extend(known[:-1])
        ends[newest] = start
    changes: list[cdb.Scanned | Run] = []
    batches = _Batches([])
    length = len(buffer)
    for each in cdb.scan_runs(buffer, start, length, seed, damages):
        relative = each.relative_sqn
        if isinstance(each, Run) and newest < relative <= most - len(each.starts):
            newest = relative + len(each.starts) - 1
            numbers.extend(range(relative, newest + 1))
            starts.extend(each.starts)
            ends[newest] = each.end
            if each.batches:
                ends.update(zip(range(relative, newest), each.starts[1:], strict=True))
                for number, batch in each.batches.items():
                    batches.note(number, *batch)
            if base + newest > above:
                changes.append(each.behind(above - base))
            continue
        for row in cdb.each_of(each) if isinstance(each, Run) else (each,):
            relative = row.relative_sqn
            if relative > most or relative <= newest:
                found.damaged(f"{path} at offset {row.at}: record {relative} is out of order")
                continue
            newest = relative
            numbers.append(relative)
            starts.append(row.at)
            ends[newest] = row.end
            if base + relative > above:
                changes.append(row)
            if row.batch is not None:
                batches.note(relative, *row.batch)
    broken: set[int] = set()
    for of, there in batches.not_whole():
        broken.update(there)
        found.notes.append(
            f"{path}: a batch of {of} is not whole ({len(there)} are there): dropped"
        )
    damages, ahead = _without_what_is_ahead(damages, buffer)
    torn = _told(damages, path, length, found)
    if broken:
        # They are gone for ever; a number that is not there gets an empty range.
        kept = [at for at, number in enumerate(numbers) if number not in broken]
        numbers, starts = (array("I", [column[at] for at in kept]) for column in (numbers, starts))
        changes = [
            row
            for each in changes
            for row in (cdb.each_of(each) if isinstance(each, Run) and each.batches else (each,))
            if row.relative_sqn not in broken
        ]
    end = ends[numbers[-1]] if numbers else cdb.RECORDS_AT
    return _Records(numbers, starts, end, ahead, changes, torn)


@dataclass(slots=True)
class _Batches:
    """The batches of a file, as far as they are there."""

    groups: list[tuple[int, int, list[int]]]
    """Of each the number of its first record, its length, and the numbers that are there."""

    def note(self, number: int, position: int, of: int) -> None:
        """Note a record with this number, at a position in a batch of so many."""
        if position == 0 or not self.groups or self.groups[-1][0] != number - position:
            self.groups.append((number - position, of, []))
        self.groups[-1][2].append(number)

    def not_whole(self) -> Iterator[tuple[int, list[int]]]:
        """The lengths of those that lack a record, with the numbers that are there."""
        return ((of, there) for _, of, there in self.groups if len(there) != of)


def _told(damages: list[cdb.Damage], path: str, length: int, found: Found) -> list[str]:
    """Tell of the damages of a file of so many bytes; returns notes about what its end lacks."""
    torn: list[str] = []
    for damage in damages:
        where, size = f"{path} at offset {damage.start}", damage.end - damage.start
        if damage.end < length:
            found.damaged(f"{where}: {size} bytes damaged ({damage.what}) and skipped")
        else:
            how = "of a write, or a sealing, that broke off"
            torn.append(f"{where}: torn tail of {size} bytes cut: {how}")
    return torn


def _without_what_is_ahead(
    damages: list[cdb.Damage], buffer: bytes | mmap
) -> tuple[list[cdb.Damage], int]:
    """(damages without zeros at the end, where these begin, or else the end). Zeros are no damage:
    a file that is synced often is lengthened before it is written. A write that breaks off just
    before them breaks off at the end."""
    length = len(buffer)
    if not damages or damages[-1].end < length or length - damages[-1].start > cdb.AHEAD_BYTES:
        return damages, length
    start = damages[-1].start
    if buffer[start:].strip(b"\0"):
        return damages, length
    damages = damages[:-1]
    if damages and damages[-1].end == start:
        damages[-1].end = length
    return damages, start


@dataclass(slots=True)
class _Records:
    """Whole records of a file: their relative numbers, ascending, where each begins and where the
    last one ends; where zeros at the file's end begin, or that end; those for replay."""

    numbers: array[int]
    starts: array[int]
    end: int
    ahead: int
    changes: list[cdb.Scanned | Run]
    torn: list[str]
    """Notes to make, of an unsealed file, about bytes behind the last record."""

    def plain_offsets(self) -> array[int]:
        """Offsets by relative number, the last record's end behind them; a number that is not
        there gets an empty range."""
        numbers, starts = self.numbers, self.starts
        if len(numbers) and numbers[-1] == len(numbers) - 1:
            offsets = starts[:]  # dense, as ever but after damage
        else:
            offsets = array("I")
            for relative, at in zip(numbers, starts, strict=True):
                # A hole begins where the record behind it does, so the one before may end early.
                offsets.extend([at] * (relative + 1 - len(offsets)))
        offsets.append(self.end)
        return offsets

    def offsets(self) -> array[int] | SparseOffsets:
        """The same, as a sparse table if few numbers have a record."""
        count = self.numbers[-1] + 1
        if SPARSE_BELOW * len(self.numbers) >= count:
            return self.plain_offsets()
        starts = self.starts[:]
        starts.append(self.end)
        return SparseOffsets(memoryview(self.numbers), memoryview(starts), count)
