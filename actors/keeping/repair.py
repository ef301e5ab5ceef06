"""Repairs a closed store: damaged files are written anew from what is whole of them.

Nothing is changed in place, since a backup may have the same file under another name, and nothing
is deleted: damaged files stay in the folder ``damaged``. A repair that is cut short is done again
by the next one, which ends in the same state and reports the same losses (lost_records.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.actors.keeping import lost_records
from octavo.actors.keeping.kind_of_store import is_head_only
from octavo.actors.keeping.lost_records import DAMAGED, Lost
from octavo.actors.keeping.whole_records import (
    HEADERLESS,
    Found,
    Whole,
    broken_batches,
    lost_of,
    lost_of_unsealed,
    read_whole,
    records_of,
)
from octavo.actors.opening.identity import Identity, new_id, read, write
from octavo.actors.progress import Progress, untold
from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk, refuse_links
from octavo.files.door.unreadable import Unreadable, refuse_unreadable
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, journal_names, record
from octavo.files.journal.journal_writer import Mover, SealedWriter
from octavo.files.kernels.arrays import np
from octavo.files.ledger import ledger_key
from octavo.files.ledger.sst import Sst
from octavo.files.messages import messages_of
from octavo.files.wall_clock import wall_clock_ms
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
    """What was wrong with the ledger; if anything, it is rebuilt from the journal."""
    lost: list[Lost] = field(default_factory=list)
    unsealed: list[Lost] = field(default_factory=list)
    """What files without tables lost. It joins ``lost`` at the end: the ledger knows more of
    some."""
    moved: list[str] = field(default_factory=list)
    """Where the damaged originals are now."""
    notes: list[str] = field(default_factory=list)
    earlier_manifest: bool = False
    """Whether the journal's manifest has an earlier state: see ``repair_files``."""

    @property
    def all_lost(self) -> list[Lost]:
        """All lost records: the next repair is to know them, if this one is cut short."""
        return [*self.lost, *self.unsealed]

    @property
    def nothing(self) -> bool:
        """Whether there was nothing to repair."""
        return not (self.rewritten or self.ledger or self.moved or self.notes)

    def and_then(self, later: Repaired) -> None:
        """Add what a second repair did."""
        for mine, more in (
            (self.rewritten, later.rewritten), (self.ledger, later.ledger),
            (self.moved, later.moved), (self.notes, later.notes),
        ):  # fmt: skip
            mine += more
        self.lose(later.lost)
        self.unsealed += later.unsealed

    def lose(self, lost: list[Lost]) -> None:
        """Add records to those reported as lost."""
        known = {each.sqn for each in self.lost}
        self.lost += [each for each in lost if each.sqn not in known]


def repair_files(
    disk: Disk, path: str, progress: Progress = untold, accept_missing: bool = False
) -> Repaired:
    """Repair the files of a closed store, whose lock the caller has. What can be found only from
    all files together is left to the next opening. ``accept_missing``: forget journal files that
    are gone. O(bytes). Raises StorageFull, OSError.

    If part of the journal's manifest was lost, it is left alone: written anew, it would be
    believed, and files that it does not list would be taken for left-overs. The next opening makes
    it up from the files; then this is to be called again (``earlier_manifest``)."""
    done = Repaired()
    journal = f"{path}/journal"
    refuse_links(disk, *(f"{path}/{folder}" for folder in FOLDERS))
    names = [name for name in disk.listdir(journal) if name.endswith(journal_names.SEALED)]
    files = {name: who for name in names if (who := journal_names.identity(name))}
    identity = _identity(disk, path, files, done)
    done.lost += lost_records.kept(disk, path)  # from a repair that was cut short
    _logs(disk, path, done)
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
        done.notes.append(f"{journal}/manifest: brought up to date with the rewritten files")
        changed = manifest.edit(entries.values())
    if whole and accept_missing:
        upto = _persisted(disk, path) if identity.head_only else MAX_SQN
        changed = _without_missing(disk, journal, changed, upto, done)
    if changed is not manifest:
        ChangeLog.begin(disk, f"{journal}/manifest", epoch + 1, changed.encode()).close()
    if whole:
        _end(disk, path, changed, done)
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
    """Put aside all files of a folder of the store."""
    for name in disk.listdir(f"{path}/{folder}"):
        _put_aside(disk, path, f"{folder}/{name}", done)
        disk.unlink(f"{path}/{folder}/{name}")
    disk.sync_dir(f"{path}/{folder}")


# ---------------------------------------------------------------- identity and manifests


def _identity(
    disk: Disk, path: str, files: Mapping[str, tuple[int, int]], done: Repaired
) -> Identity:
    """The store's identity. If it cannot be read, another one is written, made up from the
    journal's files."""
    try:
        return read(disk, path)
    except FileNotFoundError:
        why = "was missing"
    except Corruption as wrong:
        why = str(wrong)
        _put_aside(disk, path, IDENTITY, done)
    head_only = is_head_only(disk, path, files)
    made = Identity(new_id(), "head_only" if head_only else "standard")
    write(disk, path, made)
    done.notes.append(
        f"{path}/{IDENTITY}: {why}; it was written anew, with another id"
        + ("" if head_only else ", and without the names of types: register them again")
    )
    return made


def _journal_manifest(disk: Disk, path: str, done: Repaired) -> tuple[JournalManifest, int, bool]:
    """Return (the manifest as far as it can be read, its epoch, whether nothing of it was lost).
    One that cannot be read is put aside: the next opening makes it up from the files."""
    folder = "journal/manifest"
    try:
        found = change_log.recover(disk, f"{path}/{folder}")
        manifest = JournalManifest.replayed(found.snapshot, found.changes)
    except Corruption as wrong:
        _take_away(disk, path, folder, done)
        done.notes.append(f"{path}/{folder}: {wrong}; it is rebuilt from the files")
        return JournalManifest.empty(), 0, False
    unlisted = set(disk.listdir(f"{path}/journal")) - {entry.name for entry in manifest.entries}
    lost = found.damaged or adoption.is_earlier(
        disk, f"{path}/journal", unlisted, found.state_epoch
    )
    return manifest, found.epoch, not lost


def _ledger(disk: Disk, path: str, identity: Identity, done: Repaired, progress: Progress) -> None:
    """Check every ledger file; if one is not whole, have the next opening rebuild the ledger."""
    folder = f"{path}/ledger"
    try:
        found = change_log.recover(disk, f"{folder}/manifest")
        manifest = LedgerManifest.replayed(found.snapshot, found.changes)
    except Corruption as wrong:
        done.ledger.append(str(wrong))
        _take_away(disk, path, "ledger/manifest", done)
        manifest = LedgerManifest.empty()
    for number, entry in enumerate(manifest.entries):
        name = entry.name
        progress(f"ledger {name}", number, len(manifest.entries))
        try:
            file = Sst(disk.map(f"{folder}/{name}"), f"{folder}/{name}")
            file.verify()
            _name(done.lost, file, entry.sqn_base)
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
    lost_records.mark(disk, path, done.ledger, done.all_lost)


def _name(lost: list[Lost], file: Sst, sqn_base: int) -> None:
    """Give lost records with unknown keys the buckets and keys that a whole ledger file has."""
    nameless = {each.sqn: at for at, each in enumerate(lost) if each.why == HEADERLESS}
    if not nameless:
        return
    sqns = file.sqns_of(slice(None), sqn_base)
    for row in np.isin(sqns, np.array(list(nameless), np.uint64)).nonzero()[0].tolist():
        tag, bucket, key = ledger_key.split(file.ledger_key(row))
        if tag >= ledger_key.STANDARD:  # not of an index
            at = nameless[int(sqns[row])]
            lost[at] = replace(lost[at], bucket=bucket, key=key)


# ---------------------------------------------------------------- journal files


def _persisted(disk: Disk, path: str) -> int:
    """The ledger's persisted sqn, as far as it can be read."""
    try:
        found = change_log.recover(disk, f"{path}/ledger/manifest")
        return LedgerManifest.replayed(found.snapshot, found.changes).persisted_sqn
    except Corruption:
        return 0


def _without_missing(
    disk: Disk, journal: str, manifest: JournalManifest, upto: int, done: Repaired
) -> JournalManifest:
    """Forget the files that are gone, up to the sqn ``upto``: the journal's history begins after
    them. A head-only store's ledger must have what is forgotten, as it has what trims remove."""
    gone = [each for each in manifest.entries if not disk.exists(f"{journal}/{each.name}")]
    gone = [each for each in gone if each.last_sqn <= upto]
    if not gone:
        return manifest
    for entry in gone:
        last = f"to {entry.last_sqn}" if entry.last_sqn else "on"
        done.notes.append(f"{journal}/{entry.name}: is gone, with sqns {entry.base_sqn} {last}")
    horizon = max(each.last_sqn or manifest.ceiling - 1 for each in gone)
    return manifest.edit(removed=[each.name for each in gone], horizon=horizon)


def _journal_file(
    disk: Disk,
    path: str,
    name: str,
    who: tuple[int, int],
    entry: JournalEntry | None,
    identity: Identity,
    done: Repaired,
) -> JournalEntry | None:
    """Write one sealed file anew if anything in it is damaged. Returns its new manifest entry, if
    the present one does not match the file."""
    whole = read_whole(disk, f"{path}/journal/{name}", *who)
    if not whole.faults:
        length = len(whole.view)
        if entry is None or whole.trailer is None or entry.bytes == length:
            return None
        # An earlier repair was cut short after it wrote this file.
        last = entry.base_sqn + whole.trailer.count - 1
        return replace(entry, last_sqn=last, count=whole.trailer.live, bytes=length)
    log.warning("%s: %s", whole.path, "; ".join(whole.faults[:3]))
    _put_aside(disk, path, f"journal/{name}", done)

    def losing(lost: list[Lost]) -> None:
        done.lose(lost)
        if lost and identity.head_only:
            lost_records.keep(disk, path, done.all_lost)
        elif lost:
            lost_records.mark(disk, path, [f"{whole.path}: lacks records"], done.all_lost)

    made = _rewritten(disk, f"{path}/journal", whole, entry, losing)
    done.rewritten.append(name)
    if entry is None:
        return None
    return replace(entry, last_sqn=made["last_sqn"], count=made["count"], bytes=made["bytes"])


def _logs(disk: Disk, path: str, done: Repaired) -> None:
    """Look at unsealed files, of which the next opening takes what is whole, and report what will
    be lost. A file with unreadable parts is replaced by a copy that can be read, since the opening
    and its worker read it through a map."""
    for name in disk.listdir(f"{path}/journal"):
        who = journal_names.identity(name)
        if who is None or not name.endswith(journal_names.LOG):
            continue
        file = f"{path}/journal/{name}"
        view = memoryview(disk.map(file))
        try:
            refuse_unreadable(disk, file)
        except Unreadable:
            _put_aside(disk, path, f"journal/{name}", done)
            disk.write_atomically(file, view)
        done.unsealed += lost_of_unsealed(Whole(file, *who, view))
    if done.unsealed:
        lost_records.keep(disk, path, done.all_lost)


def _end(disk: Disk, path: str, manifest: JournalManifest, done: Repaired) -> None:
    """Report what a closed store had beyond all that is there. Known only until it is opened."""
    journal = f"{path}/journal"
    ends = [entry.last_sqn for entry in manifest.entries]
    tails = recovery.find_tails(disk, journal, manifest, above=MAX_SQN).tails
    newest = max([_persisted(disk, path), *ends, *(tail.last_sqn for tail in tails)])
    known = {each.sqn for each in done.all_lost}
    gone = [sqn for sqn in manifest.gone(newest) if sqn not in known]
    if gone:
        done.unsealed += [Lost(sqn, journal, "gone with the journal's end") for sqn in gone]
        lost_records.keep(disk, path, done.all_lost)


def _left_over(disk: Disk, path: str, name: str, who: tuple[int, int], done: Repaired) -> None:
    """Put aside a sealed file that is no part of the journal, if it is damaged: written anew, it
    would be taken for a part."""
    whole = read_whole(disk, f"{path}/journal/{name}", *who)
    if whole.faults:
        _put_aside(disk, path, f"journal/{name}", done)
        disk.unlink(whole.path)
        done.notes.append(f"{whole.path}: was left over, and is damaged; nothing is lost with it")


def _rewritten(
    disk: Disk,
    journal: str,
    whole: Whole,
    entry: JournalEntry | None,
    losing: Callable[[list[Lost]], None],
) -> dict[str, Any]:
    """Write the whole records of a file to a new one, which covers the same sqns and gets its name.
    ``losing`` is called with what the new one lacks before that."""
    file, base, seed = whole.path, whole.base, whole.seed
    found, damaged = records_of(whole)
    last = max([head.relative_sqn for _, head in found] + [0])
    if whole.trailer is not None:
        last = max(last, whole.trailer.count - 1)
    if entry is not None:
        last = max(last, min(entry.last_sqn - base, recovery.HIGHEST))
    if disk.exists(file + TEMPORARY_SUFFIX):
        disk.unlink(file + TEMPORARY_SUFFIX)
    writer = SealedWriter(disk, journal, base, seed, 0, 0)
    broken = broken_batches(found)
    mover = Mover(whole.view, seed, file, False)
    try:
        for at, head in found:
            number = head.relative_sqn
            encoded = mover.changed(
                at, at + head.header_bytes, head.value_bytes, number, seed ^ writer.at, head.kind,
                head.batch is not None and number - head.batch[0] not in broken,
            )  # fmt: skip
            writer.add(number, encoded, head.time_ms)
        losing(lost_of(whole, last, entry, found, damaged))
        origin, latest_ms = _origin_of(whole, entry, found, last)
        made: dict[str, Any] = writer.finish(base + last, origin, latest_ms)
    finally:
        writer.abandon()
    disk.sync_dir(journal)
    return made


def _origin_of(
    whole: Whole, entry: JournalEntry | None, found: list[Found], last: int
) -> tuple[cdb.Origin, int]:
    """Return the origin of a file that is written anew, and the latest write time of what it was
    made of. If it was, or may have been, compacted and its origin is lost, nobody knows as of which
    sqn all that it lacks had been replaced (``clean_sqn`` 0), nor when that was written, except
    that it was before now. That goes for a file that lacks nothing itself, too: its time may have
    to stand for another file of its making."""
    base, trailer = whole.base, whole.trailer
    origin = cdb.Origin(0, base, base + last, 0, 0)
    if trailer is not None:
        compacted = trailer.compacted
    else:  # gaps that no manifest tells of may be losses
        compacted = entry is not None and entry.count <= last
        compacted = compacted or any(head.kind == record.KEY_DELTA for _, head in found)
    if whole.origin is not None:
        origin = whole.origin
    elif compacted:
        origin = origin._replace(horizon=base + last)
    if trailer is not None:
        return origin, trailer.last_ms
    return origin, wall_clock_ms() if origin.horizon else 0
