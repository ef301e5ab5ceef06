"""Makes a store from a backup, or from a store that is not open: whole, or as of an earlier
point."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.actors.keeping.backup_target import (
    PARTIAL,
    give_name,
    none_left,
    refuse_strangers,
    refuse_taken,
)
from octavo.actors.keeping.linking import Linked, bring, remove_all_in
from octavo.actors.keeping.point_in_time import last_at
from octavo.actors.opening import identity as identities
from octavo.files.door.disk import Disk, FileLock
from octavo.files.door.file_lock import LOCK, locked
from octavo.files.errors import Corruption, HistoryCompacted, Misuse, room_for
from octavo.files.journal import cdb, journal_names, record
from octavo.files.journal.journal_writer import Mover, SealedWriter
from octavo.files.journal.sparse_offsets import numbers_of
from octavo.manifest import adoption, change_log, recovery, store_identity, update_mark
from octavo.manifest.change_log import ChangeLog
from octavo.manifest.journal_manifest import GIVEN_BACK, JournalEntry, JournalManifest
from octavo.manifest.ledger_manifest import REBUILD, LedgerManifest


@dataclass(frozen=True, slots=True)
class Restored:
    """A store that was made of another's files.

    ``path``: Where it is.
    ``sqn``: The last sequence number that is in it.
    ``linked``: Files that were linked.
    ``bytes_linked``: Bytes of those.
    ``bytes_copied``: Bytes of those that were copied, or written anew.
    ``notes``: What was not as it should be at the end of the source's journal, as an opening notes
        it; of a moment, what was written at or before it and is left out all the same; and that the
        source ends before the sqn that was asked for.
    """

    path: str
    sqn: int
    linked: int
    bytes_linked: int
    bytes_copied: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A journal file of the source."""

    name: str
    base: int
    seed: int
    last: int
    found: Disk | Sequence[int]  # where to read its offsets; for an unsealed one, the offsets
    path: str
    entry: JournalEntry | None = None  # None: it is not sealed
    origin: cdb.Origin | None = None  # None: it was never compacted
    latest_ms: int = 0
    """The latest write time of what it has or, before compaction, had; 0: never compacted."""

    @property
    def offsets(self) -> Sequence[int]:
        """The file's offsets. For a sealed file a map, which is not kept, since there may be more
        files than descriptors."""
        if not isinstance(self.found, Disk):
            return self.found
        return cdb.sealed_offsets(memoryview(self.found.map(self.path)), self.path)[1]


@dataclass(frozen=True, slots=True)
class _Source:
    """What a store is restored from; read under its lock."""

    disk: Disk
    path: str
    identity: identities.Identity
    journal: JournalManifest
    ledger: LedgerManifest
    files: Sequence[SourceFile]  # in order
    notes: Sequence[str]

    @property
    def newest(self) -> int:
        """The last sqn in any journal file."""
        return max((file.last for file in self.files), default=0)


def restore_on(
    disk: Disk, backup: str, path: str, *, sqn: int | None, time_ms: int | None, copy: bool
) -> Restored:
    """See octavo.restore."""
    if not disk.exists(f"{backup}/{store_identity.IDENTITY}"):
        raise Misuse(f"backup={backup!r} holds no backup and no store")
    if f"{os.path.realpath(path)}/".startswith(f"{os.path.realpath(backup)}/"):
        raise Misuse(f"path={path!r} is inside the backup; name a directory outside it")
    refuse_taken(disk, path, "name a new one")
    identity = identities.read(disk, backup)
    with locked(disk, f"{backup}/{LOCK}", to_read=True):
        source = _source(disk, backup, identity)
        upto, told = _upto(source, sqn, time_ms)
        with (
            room_for(f"store restored at {path}"),
            _begun(disk, path + PARTIAL),
            none_left(disk, path),
        ):
            done = _made(source, path + PARTIAL, upto, copy)
            give_name(disk, path)
    return Restored(
        path, upto, done.linked, done.bytes_linked, done.bytes_copied, (*source.notes, *told)
    )  # fmt: skip


def _upto(source: _Source, sqn: int | None, time_ms: int | None) -> tuple[int, list[str]]:
    """Return the last sqn to be restored, and notes about it. Raises Misuse, HistoryCompacted or
    Corruption if that state cannot be had."""
    backup, persisted = source.path, source.ledger.persisted_sqn
    newest = source.newest if source.files else persisted
    upto = newest if sqn is None else min(sqn, newest)
    told: list[str] = []
    if time_ms is not None:
        if source.identity.head_only and source.journal.horizon:
            raise HistoryCompacted(
                f"{backup} is head-only, and its journal was trimmed: when its entries were "
                "written and deleted cannot be told any more; restore its last state, without time="
            )
        there, told = last_at(source.disk, f"{backup}/journal", source.files, time_ms)
        told = told if there <= upto else []
        upto = min(upto, there)
    if sqn is not None and upto == newest < sqn:
        told = [*told, f"{backup} ends at sqn {newest}: what came up to {sqn} is not in it"]
    if upto < (complete := _complete_from(source, newest)):
        raise HistoryCompacted(
            f"{backup}: compaction dropped what was replaced or deleted by sqn {complete}: "
            f"no state before that can be restored any more, so not that of sqn {upto}"
            + "".join(f" ({note})" for note in told)
        )
    if source.identity.head_only and upto < newest:
        raise Misuse(f"{backup} is head-only: only its last state can be restored")
    if persisted > upto == newest and (sqn is None or sqn > newest):
        raise Corruption(
            f"{backup}/journal", 0,
            f"it ends at sqn {newest}, but its ledger goes up to {persisted}: "
            "open the backup once, which tells what is lost, and then restore; or name a sqn up "
            f"to {newest}",
        )  # fmt: skip
    return upto, told


def _begun(disk: Disk, target: str) -> FileLock:
    """Prepare the directory in which a store is made, with nothing in it but the lock, which is
    taken and returned: what a restore or backup that was cut short left there is removed. Raises
    Misuse if it has anything else, StoreLocked if another store is being made there."""
    refuse_strangers(disk, target, "the store")
    disk.mkdir(target)
    lock = locked(disk, f"{target}/{LOCK}")
    try:
        remove_all_in(disk, target, but=LOCK)
    except BaseException:
        lock.release()
        raise
    return lock


def _made(source: _Source, target: str, upto: int, copy: bool) -> Linked:
    """Make the store in a prepared directory; returns what was linked and copied."""
    disk, backup, files = source.disk, source.path, source.files
    ledger = source.ledger if source.ledger.persisted_sqn <= upto else source.ledger.emptied()
    for folder in ("journal", "ledger"):
        disk.mkdir(f"{target}/{folder}/manifest")
    done = Linked()
    whole = [file for file in files if file.entry is not None and file.last <= upto]
    names = [file.name for file in whole]
    bring(disk, f"{backup}/journal", f"{target}/journal", names, done, copy=copy)
    entries = [replace(file.entry, file=None) for file in whole if file.entry is not None]
    entries += [
        _cut(source, f"{target}/journal", file, upto, done)
        for file in files
        if file.base <= upto and (file.entry is None or file.last > upto)
    ]
    disk.sync_dir(f"{target}/journal")
    names = [entry.name for entry in ledger.entries]
    bring(disk, f"{backup}/ledger", f"{target}/ledger", names, done, copy=copy)
    ceiling = max(source.journal.ceiling, source.newest + 1)
    if max([entry.last_sqn for entry in entries] or [ledger.persisted_sqn]) < source.newest:
        ceiling += GIVEN_BACK  # or an opening would take sqns left out, or never used, for lost
    journal = source.journal.up_to(upto, entries, ceiling)
    epoch = adoption.youngest(disk, f"{target}/journal", [entry.name for entry in entries]) + 1
    for folder, snapshot in (("journal", journal.encode()), ("ledger", ledger.encode())):
        ChangeLog.begin(disk, f"{target}/{folder}/manifest", epoch, snapshot).close()
    who = replace(source.identity, id=identities.new_id(), backup=None)
    identities.write(disk, target, who)
    return done


def _source(disk: Disk, backup: str, identity: identities.Identity) -> _Source:
    """Read a backup's manifests and files. Raises Corruption if it is not whole."""
    found = change_log.recover(disk, f"{backup}/journal/manifest")
    if found.damaged:
        raise _earlier(backup)
    journal = JournalManifest.replayed(found.snapshot, found.changes)
    if not disk.exists(f"{backup}/journal"):
        if identity.backup is None:
            raise store_identity.without_journal(disk, backup)
        raise Corruption(f"{backup}/journal", 0, "the directory is missing; restore another backup")
    there = change_log.recover(disk, f"{backup}/ledger/manifest")
    ledger = update_mark.ledger_of(disk, backup, found, there)
    names = set(disk.listdir(f"{backup}/ledger")) if disk.exists(f"{backup}/ledger") else set()
    missing = any(entry.name not in names for entry in ledger.entries)
    if there.damaged or missing or REBUILD in names:
        ledger = ledger.emptied()
    if identity.head_only:
        adoption.refuse_lost_ledger(
            f"{backup}/ledger", ledger.persisted_sqn, journal, "restore another backup"
        )
    trimmed = journal.horizon if identity.head_only else 0
    files, notes = _files(disk, backup, journal, found.state_epoch, trimmed, ledger.loaded)
    return _Source(disk, backup, identity, journal, ledger, files, notes)


def _earlier(backup: str) -> Corruption:
    return Corruption(
        f"{backup}/journal/manifest", 0,
        "something was lost, and this may be an earlier state: open the backup once, which "
        "recovers what it can, and then restore",
    )  # fmt: skip


def _files(
    disk: Disk,
    backup: str,
    manifest: JournalManifest,
    epoch: int,
    trimmed: int,
    loaded: frozenset[int],
) -> tuple[list[SourceFile], list[str]]:
    """The journal's files in order, and the notes made when unsealed ones were scanned."""
    directory = f"{backup}/journal"
    names = set(disk.listdir(directory))
    files = []
    for entry in manifest.entries:
        path = f"{directory}/{entry.name}"
        if entry.name not in names:
            raise Corruption(
                path, 0,
                f"the file is missing, with sqns {entry.base_sqn} to {entry.last_sqn}: bring it "
                "back, restore another backup, or copy this one and give the file up in the copy, "
                "with octavo.repair(..., accept_missing=True)",
            )  # fmt: skip
        view = memoryview(disk.map(path))
        trailer = cdb.sealed_offsets(view, path)[0]
        origin = cdb.read_origin(view, trailer, path)
        latest = 0 if origin is None else trailer.last_ms
        base = entry.base_sqn
        last = base + trailer.count - 1
        files.append(
            SourceFile(entry.name, base, entry.seed, last, disk, path, entry, origin, latest)
        )
    others = adoption.may_belong(disk, directory, names, manifest, epoch, loaded)
    found = recovery.find_tails(disk, directory, manifest, above=1 << 63, but=names - others)
    sealed = [name for name in others if name.endswith(journal_names.SEALED)]
    if any(adoption.of_newer(disk, directory, name, manifest, trimmed) for name in sealed):
        raise _earlier(backup)
    files += [
        SourceFile(t.name, t.base_sqn, t.seed, t.last_sqn, t.offsets, f"{directory}/{t.name}")
        for t in found.tails
    ]
    return sorted(files, key=lambda file: file.base), found.notes


def _complete_from(source: _Source, newest: int) -> int:
    """The lowest sqn as of which the journal has the whole state. What compaction drops had been
    replaced, often long after it was written, by something in the ledger as of the file's clean
    sqn. A file above its origin's horizon was only joined: nothing of it was ever dropped."""
    found = source.journal.horizon
    for file in source.files:
        if file.origin is not None and file.origin.horizon >= file.base:
            found = max(found, file.origin.clean_sqn or newest)  # 0: not known
    return min(found, newest)


def _cut(source: _Source, target: str, file: SourceFile, upto: int, done: Linked) -> JournalEntry:
    """Write a file's records up to an sqn to a new sealed file. Nothing of it was ever dropped, or
    the state would not be whole (``_complete_from``): so only its records' write times count.
    Raises Misuse if the sqn is inside a batch."""
    disk, path, offsets = source.disk, file.path, file.offsets
    view = memoryview(disk.map(path))
    last = min(upto, file.last)
    seed = secrets.randbits(64)
    writer = SealedWriter(disk, target, file.base, seed, 0, 0)
    mover = Mover(view, file.seed, path, False)
    try:
        for number in numbers_of(offsets, 0, last - file.base + 1):
            at, end = offsets[number], offsets[number + 1]
            head = record.parse_header(view[at:end], file.seed ^ at, end - at)
            if (
                head.batch is not None
                and file.base + number - head.batch[0] + head.batch[1] > last + 1
            ):
                first = file.base + number - head.batch[0]
                raise Misuse(
                    f"sqn={upto} is inside an atomic batch: name {first - 1}, before it, or "
                    f"{first + head.batch[1] - 1}, its last"
                )
            encoded = mover.changed(
                at, at + head.header_bytes, head.value_bytes, number, seed ^ writer.at, head.kind,
                True,
            )  # fmt: skip
            writer.add(number, encoded, head.time_ms)
        origin = file.origin or cdb.Origin(0, file.base, last, 0, 0)
        made = writer.finish(last, origin._replace(rank=0, run_base=file.base, run_last=last))
    except record.NotARecord as wrong:
        raise Corruption(
            path, offsets[number],
            f"{wrong.args[0]} of sqn {file.base + number}, after which the file is to be cut; "
            "repair the backup, or restore a state that ends before it",
        ) from wrong  # fmt: skip
    finally:
        writer.abandon()
    done.copied += 1
    done.bytes_copied += int(made["bytes"])
    return JournalEntry(
        str(made["name"]), file.base, last, int(made["count"]), int(made["bytes"]), seed
    )
