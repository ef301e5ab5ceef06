"""Repair of a closed store: damaged files are written anew from what is whole.

Nothing is changed in place, since a backup may have the same file under another name, and nothing
goes: what was damaged stays in the folder ``damaged``. A repair that is cut short is done again by
the next one, which ends at the same state and tells of the same losses (lost_records.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.actors.keeping import lost_records
from octavo.actors.keeping.kind_of_store import is_head_only
from octavo.actors.keeping.lost_records import DAMAGED, Lost
from octavo.actors.opening.identity import Identity, read, write
from octavo.actors.progress import Progress, untold
from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk, refuse_links
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, record
from octavo.files.journal.journal_windows import read_windows, verify_windows
from octavo.files.journal.journal_writer import Mover, SealedWriter
from octavo.files.journal.sparse_offsets import numbers_of
from octavo.files.ledger.sst import Sst
from octavo.files.messages import messages_of
from octavo.manifest import adoption, change_log, recovery
from octavo.manifest.change_log import ChangeLog
from octavo.manifest.journal_manifest import MAX_SQN, JournalEntry, JournalManifest
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.store_identity import FOLDERS, IDENTITY

log = messages_of("octavo.repair")


@dataclass(slots=True)
class Repaired:
    """What a repair found and did."""

    rewritten: list[str] = field(default_factory=list)
    """Journal files that were written anew."""
    ledger: list[str] = field(default_factory=list)
    """What was wrong with the ledger, which is rebuilt from the journal then."""
    lost: list[Lost] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    """Where the damaged originals are now."""
    notes: list[str] = field(default_factory=list)
    earlier_manifest: bool = False
    """What the journal's manifest says is an earlier state: see ``repair_files``."""

    @property
    def nothing(self) -> bool:
        """There was nothing to repair."""
        return not (self.rewritten or self.ledger or self.moved or self.notes)

    def and_then(self, later: Repaired) -> None:
        """What a second repair did, too."""
        for mine, more in (
            (self.rewritten, later.rewritten), (self.ledger, later.ledger),
            (self.moved, later.moved), (self.notes, later.notes),
        ):  # fmt: skip
            mine += more
        known = {each.sqn for each in self.lost}
        self.lost += [each for each in later.lost if each.sqn not in known]


def repair_files(
    disk: Disk, path: str, progress: Progress = untold, accept_missing: bool = False
) -> Repaired:
    """Repair the files of a closed store; the lock is the caller's. What can be told only from
    all of them together, the next opening does. ``accept_missing``: journal files that are gone
    are forgotten. O(bytes). Raises StorageFull, OSError.

    Where something was lost of the journal's manifest, it is left alone: written anew, it would be
    believed, and files that it does not list taken for left-overs. The next opening makes it up
    from the files, and then this is to be done again (``earlier_manifest``)."""
    done = Repaired()
    journal = f"{path}/journal"
    refuse_links(disk, *(f"{path}/{folder}" for folder in FOLDERS))
    names = [name for name in disk.listdir(journal) if name.endswith(recovery.SEALED)]
    files = {name: who for name in names if (who := recovery.identity(name))}
    identity = _identity(disk, path, files, done)
    done.lost += lost_records.kept(disk, path)  # from a repair that was cut short
    manifest, epoch, whole = _journal_manifest(disk, path, done)
    entries = {entry.name: entry for entry in manifest.entries}
    complete = whole and entries.keys() <= set(names)
    for number, (name, who) in enumerate(files.items()):
        progress(f"journal {name}", number, len(files))
        unlisted = complete and name not in entries
        if unlisted and adoption.left_over(disk, journal, name, manifest, trims=identity.head_only):
            _left_over(disk, path, name, who, done)
            continue
        made = _journal_file(disk, path, name, who, entries.get(name), identity, done)
        if made is not None:
            entries[name] = made
    changed = manifest
    done.earlier_manifest = not whole
    if whole and tuple(entries.values()) != manifest.entries:
        done.notes.append(f"{journal}/manifest: says now what the files are that were written anew")
        changed = manifest.edit(entries.values())
    if whole and accept_missing:
        upto = _persisted(disk, path) if identity.head_only else MAX_SQN
        changed = _without_missing(disk, journal, changed, upto, done)
    if changed is not manifest:
        ChangeLog.begin(disk, f"{journal}/manifest", epoch + 1, changed.encode()).close()
    _ledger(disk, path, identity, done, progress)
    progress("done", len(files), len(files))
    return done


def _put_aside(disk: Disk, path: str, name: str, done: Repaired) -> None:
    """Give a file of the store a second name in ``damaged``."""
    folder = f"{path}/{DAMAGED}"
    disk.mkdir_within(path, DAMAGED)
    aside = f"{folder}/{name.replace('/', '-')}"
    number = 0
    while disk.exists(f"{aside}.{number}"):
        number += 1
    disk.link(f"{path}/{name}", f"{aside}.{number}")
    disk.sync_dir(folder)
    done.moved.append(f"{aside}.{number}")


def _take_away(disk: Disk, path: str, folder: str, done: Repaired) -> None:
    """Put all files of a folder of the store aside."""
    for name in disk.listdir(f"{path}/{folder}"):
        _put_aside(disk, path, f"{folder}/{name}", done)
        disk.unlink(f"{path}/{folder}/{name}")
    disk.sync_dir(f"{path}/{folder}")


# ---------------------------------------------------------------- identity and manifests


def _identity(
    disk: Disk, path: str, files: Mapping[str, tuple[int, int]], done: Repaired
) -> Identity:
    """The store's; where it cannot be read, another is written, as the journal's files tell."""
    try:
        return read(disk, path)
    except FileNotFoundError:
        why = "was missing"
    except Corruption as wrong:
        why = str(wrong)
        _put_aside(disk, path, IDENTITY, done)
    head_only = is_head_only(disk, path, files)
    made = Identity(f"{secrets.randbits(128):032x}", "head_only" if head_only else "standard")
    write(disk, path, made)
    done.notes.append(
        f"{path}/{IDENTITY}: {why}; it was written anew, with another id"
        + ("" if head_only else ", and without the names of types: register them again")
    )
    return made


def _journal_manifest(
    disk: Disk, path: str, done: Repaired
) -> tuple[JournalManifest, int, bool]:  # fmt: skip
    """(the manifest as far as it can be read, its epoch, whether nothing of it was lost). One that
    cannot be read is put aside: the next opening makes it up from the files."""
    folder = "journal/manifest"
    try:
        found = change_log.recover(disk, f"{path}/{folder}")
        manifest = JournalManifest.replayed(found.snapshot, found.changes)
    except Corruption as wrong:
        _take_away(disk, path, folder, done)
        done.notes.append(f"{path}/{folder}: {wrong}; it is made up from the files")
        return JournalManifest.empty(), 0, False
    unlisted = set(disk.listdir(f"{path}/journal")) - {entry.name for entry in manifest.entries}
    lost = found.damaged or adoption.is_earlier(
        disk, f"{path}/journal", unlisted, found.state_epoch
    )
    return manifest, found.epoch, not lost


def _ledger(disk: Disk, path: str, identity: Identity, done: Repaired, progress: Progress) -> None:
    """See whether every ledger file is whole; have the next opening rebuild them if one is not."""
    folder = f"{path}/ledger"
    try:
        found = change_log.recover(disk, f"{folder}/manifest")
        manifest = LedgerManifest.replayed(found.snapshot, found.changes)
    except Corruption as wrong:
        done.ledger.append(str(wrong))
        _take_away(disk, path, "ledger/manifest", done)
        manifest = LedgerManifest.empty()
    names = [entry.name for entry in manifest.entries]
    for number, name in enumerate(names):
        progress(f"ledger {name}", number, len(names))
        try:
            Sst(disk.map(f"{folder}/{name}"), f"{folder}/{name}").verify()
        except FileNotFoundError:
            done.ledger.append(f"{folder}/{name}: is missing")
        except Corruption as wrong:
            done.ledger.append(str(wrong))
            _put_aside(disk, path, f"ledger/{name}", done)
    if done.lost and not identity.head_only:
        done.ledger.append(f"{folder}: names records that are lost; their keys read as before them")
    if not done.ledger:
        return
    if identity.head_only:
        done.notes.append(
            f"{folder}: the ledger of a head-only store cannot be rebuilt: restore a backup"
        )
        return
    lost_records.mark(disk, path, done.ledger, done.lost)


# ---------------------------------------------------------------- journal files


def _persisted(disk: Disk, path: str) -> int:
    """How far a ledger has the journal, as far as can be told."""
    try:
        found = change_log.recover(disk, f"{path}/ledger/manifest")
        return LedgerManifest.replayed(found.snapshot, found.changes).persisted_sqn
    except Corruption:
        return 0


def _without_missing(
    disk: Disk, journal: str, manifest: JournalManifest, upto: int, done: Repaired
) -> JournalManifest:
    """Forget the files that are gone; the journal's history begins behind them. Only those up to
    an sqn: a head-only store's ledger must have what is forgotten; trims let go of the others."""
    gone = [each for each in manifest.entries if not disk.exists(f"{journal}/{each.name}")]
    gone = [each for each in gone if each.last_sqn <= upto]
    if not gone:
        return manifest
    for entry in gone:
        last = f"to {entry.last_sqn}" if entry.last_sqn else "on"
        done.notes.append(f"{journal}/{entry.name}: is gone, with sqns {entry.base_sqn} {last}")
    horizon = max(each.last_sqn or manifest.ceiling - 1 for each in gone)
    return manifest.edit(removed=[each.name for each in gone], horizon=horizon)


@dataclass(slots=True)
class _Whole:
    """What could be read of a sealed journal file."""

    path: str
    base: int
    seed: int
    view: memoryview
    trailer: cdb.Trailer | None = None
    numbers: frozenset[int] | None = None  # those that had a record; None: the offsets are damaged
    origin: cdb.Origin | None = None
    faults: list[str] = field(default_factory=list)


def _journal_file(
    disk: Disk,
    path: str,
    name: str,
    who: tuple[int, int],
    entry: JournalEntry | None,
    identity: Identity,
    done: Repaired,
) -> JournalEntry | None:
    """Write one sealed file anew if anything in it is damaged; what its manifest's entry is to be,
    if that is not as the file is."""
    whole = _read(disk, f"{path}/journal/{name}", *who)
    if not whole.faults:
        length = len(whole.view)
        if entry is None or whole.trailer is None or entry.bytes == length:
            return None
        # An earlier repair was cut short behind the file.
        last = entry.base_sqn + whole.trailer.count - 1
        return replace(entry, last_sqn=last, count=whole.trailer.live, bytes=length)
    log.warning("%s: %s", whole.path, "; ".join(whole.faults[:3]))
    _put_aside(disk, path, f"journal/{name}", done)

    def losing(lost: list[Lost]) -> None:
        known = {each.sqn for each in done.lost}
        done.lost += [each for each in lost if each.sqn not in known]
        if lost and identity.head_only:
            lost_records.keep(disk, path, done.lost)
        elif lost:
            lost_records.mark(disk, path, [f"{whole.path}: lacks records"], done.lost)

    made = _rewritten(disk, f"{path}/journal", whole, entry, losing)
    done.rewritten.append(name)
    if entry is None:
        return None
    return replace(entry, last_sqn=made["last_sqn"], count=made["count"], bytes=made["bytes"])


def _left_over(disk: Disk, path: str, name: str, who: tuple[int, int], done: Repaired) -> None:
    """A sealed file that is no part of the journal: written anew it would be taken for one."""
    whole = _read(disk, f"{path}/journal/{name}", *who)
    if whole.faults:
        _put_aside(disk, path, f"journal/{name}", done)
        disk.unlink(whole.path)
        done.notes.append(f"{whole.path}: was left over, and is damaged; nothing is lost with it")


def _read(disk: Disk, file: str, base: int, seed: int) -> _Whole:
    """A sealed file, every checksum of it compared."""
    view = memoryview(disk.map(file))
    whole = _Whole(file, base, seed, view)
    try:
        cdb.read_header(view[: cdb.RECORDS_AT], file)
    except Corruption as wrong:
        whole.faults.append(str(wrong))
    try:
        trailer = cdb.trailer_of(view, file)
        whole.trailer = trailer
        offsets = cdb.read_offsets(view[trailer.offsets_at :], trailer, file)
        # Of a file that was compacted often the numbers reach far, and few of them have a record.
        numbers = list(numbers_of(offsets, 0, len(offsets) - 1))
        whole.numbers = frozenset(numbers)
        whole.origin = cdb.read_origin(view, trailer, file)
        cdb.verify_tables(view, trailer, file)
        read_windows(view, trailer, file)
    except Corruption as wrong:
        whole.faults.append(str(wrong))
        return whole
    for number in numbers:
        at, end = offsets[number], offsets[number + 1]
        try:
            record.decode(view[at:end], seed ^ at, 0, file, at)
        except Corruption as wrong:
            whole.faults.append(str(wrong))
    if not whole.faults:
        try:
            verify_windows(view, trailer, file)
        except Corruption as wrong:
            whole.faults.append(str(wrong))
    return whole


def _rewritten(
    disk: Disk,
    journal: str,
    whole: _Whole,
    entry: JournalEntry | None,
    losing: Callable[[list[Lost]], None],
) -> dict[str, Any]:
    """The whole records of a file in a new one under its name, which covers the same sqns;
    ``losing`` is told what it lacks before it has that name."""
    file, base, seed = whole.path, whole.base, whole.seed
    found, damaged = _records(whole)
    last = max([head.relative_sqn for _, head in found] + [0])
    if whole.trailer is not None:
        last = max(last, whole.trailer.count - 1)
    if entry is not None:
        last = max(last, min(entry.last_sqn - base, recovery.HIGHEST))
    if disk.exists(file + TEMPORARY_SUFFIX):
        disk.unlink(file + TEMPORARY_SUFFIX)
    writer = SealedWriter(disk, journal, base, seed, 0, 0)
    broken = _broken_batches(found)
    mover = Mover(whole.view, seed, file, False)
    try:
        for at, head in found:
            number = head.relative_sqn
            encoded = mover.changed(
                at, at + head.header_bytes, head.value_bytes, number, seed ^ writer.at, head.kind,
                head.batch is not None and number - head.batch[0] not in broken,
            )  # fmt: skip
            writer.add(number, encoded, head.time_ms)
        losing(_lost(whole, last, entry, found, damaged))
        origin = whole.origin or cdb.Origin(0, base, base + last, 0, 0)
        latest_ms = 0 if whole.trailer is None else whole.trailer.last_ms
        made: dict[str, Any] = writer.finish(base + last, origin, latest_ms)
    finally:
        writer.abandon()
    disk.sync_dir(journal)
    return made


def _lost(
    whole: _Whole,
    last: int,
    entry: JournalEntry | None,
    found: list[_Found],
    damaged: list[_Found],
) -> list[Lost]:
    """What the file had, up to the number ``last``, and is not among the whole records."""
    lost = []
    file, base = whole.path, whole.base
    there = {head.relative_sqn for _, head in found}
    known = {head.relative_sqn: head for _, head in damaged}
    wanted = whole.numbers
    gaps = bool(whole.origin or (entry and entry.count <= last))
    if wanted is None and (gaps or last > len(whole.view) // record.FIXED_BYTES):
        # A file that was compacted has gaps, and nothing tells them from losses but their number.
        wanted = frozenset(known)
        missing = 0 if entry is None else entry.count - len(there) - len(known)
        if missing > 0:
            why = f"{missing} records up to sqn {base + last} are gone; which, nothing tells"
            lost.append(Lost(base, file, why))
    elif wanted is None:
        wanted = frozenset(range(last + 1))
    for number in sorted(wanted - there):
        told = known.get(number)
        if told is None:
            lost.append(Lost(base + number, file, "nothing is left of its header"))
        else:
            lost.append(Lost(base + number, file, "its value is damaged", told.bucket, told.key))
    return lost


_Found = tuple[int, record.Header]
"""Where a record stands, and its header."""


def _records(whole: _Whole) -> tuple[list[_Found], list[_Found]]:
    """(records that are whole, records of which only the header is). What the offsets left out,
    if they can be read, stays out."""
    view, seed = whole.view, whole.seed
    end = whole.trailer.tables_at if whole.trailer is not None else len(view)
    found: list[_Found] = []
    damaged: list[_Found] = []
    newest = -1
    at = cdb.RECORDS_AT
    while at < end:
        try:
            head = record.parse_header(view[at : at + record.MAX_HEADER_BYTES], seed ^ at, end - at)
        except record.NotARecord:
            at = cdb.search(view, at + 1, end, seed)
            continue
        number = head.relative_sqn
        stop = at + head.header_bytes + record.SUMS_BYTES + head.value_bytes
        told = whole.numbers is None or number in whole.numbers
        if told and newest < number <= recovery.HIGHEST:
            newest = number
            try:
                record.checked_value(view[at:stop], head, "", at)
                found.append((at, head))
            except Corruption:
                damaged.append((at, head))
        at = stop
    return found, damaged


def _broken_batches(found: list[_Found]) -> set[int]:
    """First numbers of the batches of which a record is missing."""
    sizes: dict[int, list[int]] = {}
    for _, head in found:
        if head.batch is not None:
            sizes.setdefault(head.relative_sqn - head.batch[0], []).append(head.batch[1])
    return {first for first, each in sizes.items() if len(each) != each[0]}
