"""Decides which sealed journal files belong to the journal though its manifest does not list them.

Compaction makes files before the manifest names them, and deletes old ones after it no longer does.
So an opening finds left-overs of both kinds, and removes them if the manifest is whole. If it is
not, the files themselves say where they come from: see cdb.Origin. Of files that hold the same sqns
those of the highest rank count, provided that all files made together with them are there, or what
was made of these in turn.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, journal_names
from octavo.files.messages import messages_of
from octavo.manifest import loaded_files, recovery, update_mark
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest
from octavo.manifest.log_file import MAX_EPOCH
from octavo.manifest.update_mark import UPDATING

log = messages_of("octavo.recovery")

RANK_BITS = 20
"""A rank is a version of the journal's manifest and, in this many low bits, a number of its own."""


class _Sealed(NamedTuple):
    """A sealed file, as its own bytes describe it."""

    origin: cdb.Origin  # of rank 0 if no compaction made it
    entry: JournalEntry


class Adopted(NamedTuple):
    """The journal's manifest, corrected by the files that are there."""

    manifest: JournalManifest
    notes: list[str]
    doubtful: bool
    """Sqns may have been given that neither the manifest nor a file knows of."""
    epoch: int = 0
    """If so: the highest epoch in which a file was made; it may be above the manifest's."""


def adopted(
    disk: Disk,
    directory: str,
    manifest: JournalManifest,
    *,
    state_epoch: int,
    damaged: bool,
    trims: bool = False,
    persisted_sqn: int = 0,
    loaded: frozenset[int] = frozenset(),
) -> Adopted:
    """Compare the manifest with the directory; remove what compaction left over.

    ``state_epoch``: that of the manifest. ``damaged``: what was read may be an earlier state of the
    manifest. ``trims``: files up to the horizon were dropped, as in a head-only store, but none
    above ``persisted_sqn``, if that is known. ``loaded``: see LedgerManifest.loaded. If nothing is
    missing, costs a listing and the beginnings of unlisted files; else also the ends of the files
    concerned. Raises UnsupportedFormat.
    """
    updating = disk.exists(f"{directory}/{UPDATING}")
    trimmed = manifest.horizon if trims else 0
    notes: list[str] = []
    if not updating:
        known = {entry.name for entry in manifest.entries}
        unlisted = set(disk.listdir(directory)) - known
        damaged = damaged or is_earlier(disk, directory, unlisted, state_epoch)
        loads = loaded_files.lacked(disk, directory, unlisted, manifest, loaded)
        if loads and not damaged:
            damaged = True
            notes.append(
                f"{directory}/manifest: lacks its last changes: what was loaded with {loads[0]}"
                f"{'' if len(loads) == 1 else f' and {len(loads) - 1} more'} is in the ledger, and "
                "is taken in. Which jobs and stream batches were committed since that state is no "
                "longer known: one that is repeated is taken in twice"
            )
    found = _adopted(disk, directory, manifest, damaged, updating, trimmed)
    found.notes.extend(notes)
    if found.doubtful:
        found = found._replace(epoch=youngest(disk, directory, disk.listdir(directory)))
    if updating:  # the mark goes last
        disk.unlink(f"{directory}/{UPDATING}")
        disk.sync_dir(directory)
    if trims and (damaged or _is_lost(manifest)):
        return _trimmed(disk, directory, found, persisted_sqn)
    return found


def _is_lost(manifest: JournalManifest) -> bool:
    """Whether this is the empty manifest, as read where there is none."""
    return not manifest.entries and manifest.ceiling == 1


def _trimmed(disk: Disk, directory: str, found: Adopted, persisted_sqn: int) -> Adopted:
    """Set the horizon that the files show: what was trimmed lies below the oldest of them. Listed
    files up to there that are gone were trimmed since, and leave the manifest."""
    names = set(disk.listdir(directory))
    known = [who for name in names if (who := journal_names.identity(name))]
    gone = min(known)[0] - 1 if known else 0
    horizon = min(gone, persisted_sqn) if persisted_sqn else gone
    went = [
        entry.name
        for entry in found.manifest.entries
        if entry.last_sqn <= horizon and entry.name not in names
    ]
    return found._replace(manifest=found.manifest.edit(removed=went, horizon=horizon))


def _adopted(
    disk: Disk,
    directory: str,
    manifest: JournalManifest,
    damaged: bool,
    updating: bool,
    trimmed: int,
) -> Adopted:
    names = set(disk.listdir(directory))
    for name in sorted(names):
        stem = name.removesuffix(TEMPORARY_SUFFIX)
        if stem != name and (stem == UPDATING or journal_names.identity(stem)):
            disk.unlink(f"{directory}/{name}")  # of a mark or a compaction that was cut short
    known = {entry.name for entry in manifest.entries}
    if not known <= names:
        _sealed_again(disk, directory, known - names, names)
    if updating:
        # Unlisted files are of the store whose backup this is, and bear its epochs. Where the
        # manifest is not whole, those of an update may be all that there is.
        if damaged or not known <= names:
            left = update_mark.newer(names - known, manifest.ceiling)
        else:
            left = update_mark.strangers(disk, directory, names - known, manifest.ceiling)
        for name in sorted(left):
            log.info("%s/%s is left over from a backup: removed", directory, name)
            disk.unlink(f"{directory}/{name}")
        names -= left
    if not damaged and known <= names and (manifest.entries or manifest.ceiling > 1):
        loaded_files.remove_uncommitted(disk, directory, names - known)
        names = set(disk.listdir(directory))
    others = [name for name in sorted(names - known) if name.endswith(journal_names.SEALED)]
    doubtful = damaged or _is_lost(manifest) or not known <= names
    if not doubtful:
        doubtful = any(of_newer(disk, directory, name, manifest, trimmed) for name in others)
    unlisted = [
        found
        for name in others
        if (found := _read(disk, directory, name, thorough=doubtful)) is not None
    ]
    if not unlisted:
        return Adopted(manifest, [], damaged)
    if not doubtful:
        for found in unlisted:
            entry = found.entry
            if _has(manifest, found) or entry.last_sqn <= trimmed:
                log.info("%s/%s is left over from a compaction: removed", directory, entry.name)
                disk.unlink(f"{directory}/{entry.name}")
        return Adopted(manifest, [], damaged)
    return Adopted(*_chosen(disk, directory, manifest, names, unlisted), doubtful=True)


def _sealed_again(disk: Disk, directory: str, missing: set[str], names: set[str]) -> None:
    """Rename missing files that are there under their names from before they were sealed: the disk
    lost the rename, though it had been synced."""
    for name in sorted(missing):
        earlier = name.removesuffix(journal_names.SEALED) + journal_names.LOG
        if earlier in names and _read(disk, directory, earlier, thorough=False) is not None:
            log.warning("%s/%s was found under its earlier name", directory, name)
            disk.rename(f"{directory}/{earlier}", f"{directory}/{name}")
            disk.sync_dir(directory)
            names.remove(earlier)
            names.add(name)


def is_earlier(disk: Disk, directory: str, unlisted: set[str], state_epoch: int) -> bool:
    """Whether an unlisted journal file is of a newer epoch than the manifest. If so, a newer
    manifest was lost: an epoch's first file is that of its manifest."""
    return youngest(disk, directory, unlisted) > state_epoch


def of_newer(
    disk: Disk, directory: str, name: str, manifest: JournalManifest, trimmed: int = 0
) -> bool:
    """Whether compaction made this unlisted sealed file of files that the manifest does not all
    list either. If so, it was made for a newer manifest."""
    who = journal_names.identity(name)
    if who is None or who[0] <= trimmed:
        return False
    found = _read(disk, directory, name, thorough=False)
    return found is not None and found.origin.rank > 0 and not _has(manifest, found)


def _has(manifest: JournalManifest, found: _Sealed) -> bool:
    """Whether the manifest lists files with the sqns of this one. If a run was compacted into
    several, one may end among sqns that an unclean stop skipped between two files of the run."""
    entry, origin = found.entry, found.origin
    begins, ends, *run = map(
        manifest.find, (entry.base_sqn, entry.last_sqn, origin.run_base, origin.run_last)
    )
    return begins is not None and (ends is not None or None not in run)


def youngest(disk: Disk, directory: str, names: Iterable[str]) -> int:
    """The highest epoch in which one of these journal files was made. Manifests must not be of a
    lower one, or the files would be taken for those of a manifest that was lost."""
    return max((_epoch(disk, directory, name) for name in sorted(names)), default=0)


def refuse_earlier(disk: Disk, directory: str, unlisted: set[str], state_epoch: int) -> None:
    """Raise Corruption if the manifest is an earlier state; for readers, which cannot recover the
    newer one. Only that one said what compactions dropped since."""
    if is_earlier(disk, directory, unlisted, state_epoch):
        raise _earlier(directory, "its newest log")


def refuse_older(
    disk: Disk, directory: str, names: Iterable[str], manifest: JournalManifest, listed: str
) -> None:
    """Raise Corruption if these files in ``directory`` (``listed`` in messages) show that the end
    of the newest log is missing. The manifest must be one that did not change before the names were
    listed: else compaction may have made one of them from files that came meanwhile."""
    sealed = (name for name in names if name.endswith(journal_names.SEALED))
    if any(of_newer(disk, directory, name, manifest) for name in sealed):
        raise _earlier(listed, "the end of its log")


def _earlier(directory: str, what: str) -> Corruption:
    return Corruption(
        f"{directory}/manifest", 0,
        f"{what} is missing, and what is there is an earlier state: open the store for writing "
        "once, which recovers what can be",
    )  # fmt: skip


def _epoch(disk: Disk, directory: str, name: str) -> int:
    """The epoch in which a journal file was made; 0: it is none, or its epoch is impossible."""
    if journal_names.identity(name) is None:
        return 0
    try:
        head = journal_names.by_either_name(
            f"{directory}/{name}", lambda path: disk.pread(path, cdb.RECORDS_AT, 0)
        )
        epoch = cdb.read_header(head, name).epoch
    except Corruption:
        return 0
    return epoch if epoch < MAX_EPOCH else 0


def may_belong(
    disk: Disk,
    directory: str,
    names: set[str],
    manifest: JournalManifest,
    state_epoch: int,
    loaded: frozenset[int],
) -> set[str]:
    """Return those of ``names``, a listing of the journal, that its manifest does not list but that
    are of its state all the same; for readers. Files of an undecided commit are left out.
    ``manifest``: a whole one, of ``state_epoch``. ``loaded``: see LedgerManifest; of one that was
    read before the journal's. Raises Corruption if a newer manifest was lost, or the last changes
    of this one, FileNotFoundError if files go meanwhile."""
    found = update_mark.unlisted(disk, directory, names, manifest)
    refuse_earlier(disk, directory, found, state_epoch)
    if loads := loaded_files.lacked(disk, directory, found, manifest, loaded):
        raise Corruption(
            f"{directory}/manifest", 0,
            f"lacks its last changes, such as the loading of {loads[0]}: open the store for "
            "writing once, which recovers what can be",
        )  # fmt: skip
    if _is_lost(manifest):
        return found
    return {name for name in found if not loaded_files.made_elsewhere(disk, directory, name)}


def left_over(
    disk: Disk, directory: str, name: str, manifest: JournalManifest, *, trims: bool
) -> bool:
    """Whether an unlisted sealed file is no part of the journal: its commit was cut short, or the
    manifest has its sqns, or they were trimmed. The manifest must be whole, and all files that it
    lists be there."""
    who = journal_names.identity(name)
    return who is not None and (
        manifest.find(who[0]) is not None
        or (trims and who[0] <= manifest.horizon)
        or loaded_files.made_elsewhere(disk, directory, name)
    )


def outdated(persisted_sqn: int, manifest: JournalManifest) -> bool:
    """Whether a ledger persisted up to this sqn is older than a compaction that dropped something:
    it may name records that the journal no longer has. How far the ledger had come at the
    compaction is no measure: one that was made anew since may have less."""
    return 0 < persisted_sqn < manifest.horizon


def refuse_lost_ledger(
    directory: str, persisted_sqn: int, manifest: JournalManifest, do: str = "restore a backup"
) -> None:
    """Raise Corruption if a head-only store's ledger, which cannot be made anew, lacks what the
    journal has dropped. ``do``: what the message advises."""
    if persisted_sqn < manifest.horizon:
        raise Corruption(
            directory, 0,
            "the ledger of a head-only store is damaged or missing, and the journal no longer has "
            f"what was in it: {do}",
        )  # fmt: skip


def _chosen(
    disk: Disk,
    directory: str,
    manifest: JournalManifest,
    names: set[str],
    unlisted: list[_Sealed],
) -> tuple[JournalManifest, list[str]]:
    """(the manifest with the newest whole set of files for all sqns, notes)."""
    listed = []
    for entry in manifest.entries:
        if entry.name in names:
            read = _read(disk, directory, entry.name, thorough=False)
            origin = _by_itself(entry.base_sqn, entry.last_sqn) if read is None else read.origin
            listed.append(_Sealed(origin, entry))
    taken: list[_Sealed] = []  # in order
    candidates = sorted([*listed, *unlisted], key=lambda each: each.origin[:3], reverse=True)
    for origin, group in groupby(candidates, key=lambda each: each.origin[:3]):
        free, clash = [], False
        for each in sorted(group, key=lambda each: each.entry.base_sqn):
            over = _among(taken, each.entry.base_sqn, each.entry.last_sqn)
            if not over:
                free.append(each)
            elif not _covered(over, each.entry.base_sqn, each.entry.last_sqn):
                clash = True
        run = origin[1:]
        if not clash and _covered([*_among(taken, *run), *free], *run):
            for each in free:
                insort(taken, each, key=_base)
    # Where a set is not whole and what it was made of is gone, a part is better than nothing.
    for each in candidates:
        if not _among(taken, each.entry.base_sqn, each.entry.last_sqn):
            insort(taken, each, key=_base)
    chosen = {each.entry.name for each in taken}
    gone = [entry for entry in manifest.entries if entry.name not in names]
    lost = [entry for entry in gone if not _among(taken, entry.base_sqn, entry.last_sqn)]
    kept = {entry.name for entry in lost} | chosen
    added = [each for each in unlisted if each.entry.name in chosen]
    made = manifest.edit(
        [each.entry for each in added],
        [entry.name for entry in manifest.entries if entry.name not in kept],
        horizon=max((each.origin.horizon for each in taken), default=0),
    )
    rank = max((each.origin.rank for each in taken), default=0)
    notes = []
    if added:
        notes.append(
            f"{directory}/manifest: an earlier state was found; {len(added)} files that it does "
            f"not list were taken in ({added[0].entry.name}, ...)"
        )
    return replace(made, version=max(made.version, (rank >> RANK_BITS) + 1)), notes


_base = attrgetter("entry.base_sqn")
_last = attrgetter("entry.last_sqn")


def _among(files: list[_Sealed], first: int, last: int) -> list[_Sealed]:
    """Those that have any sqn of [first, last], of files in order that share none. O(log files)."""
    return files[bisect_left(files, first, key=_last) : bisect_right(files, last, key=_base)]


def _covered(files: list[_Sealed], first: int, last: int) -> bool:
    """Whether the files hold every sqn of [first, last]."""
    for entry in sorted((each.entry for each in files), key=lambda entry: entry.base_sqn):
        if entry.base_sqn <= first <= entry.last_sqn:
            first = entry.last_sqn + 1
    return first > last


def _by_itself(base_sqn: int, last_sqn: int) -> cdb.Origin:
    return cdb.Origin(0, base_sqn, last_sqn, 0, 0)


def _read(disk: Disk, directory: str, name: str, *, thorough: bool) -> _Sealed | None:
    """Describe a sealed file; None: it is not one of ours, or that cannot be told. ``thorough``:
    one that is damaged at its end is read record by record."""
    who = journal_names.identity(name)
    if who is None:
        return None
    path = f"{directory}/{name}"
    try:
        view = memoryview(disk.map(path))
        if len(view) < cdb.RECORDS_AT:
            return None
        header = cdb.read_header(view[: cdb.RECORDS_AT], path)
        if (header.base_sqn, header.seed) != who:
            return None
        trailer = cdb.trailer_of(view, path)
        origin = cdb.read_origin(view, trailer, path)
    except Corruption:
        return _scanned(disk, path, name, who) if thorough else None
    if not trailer.count:
        return None
    base, seed = who
    last = base + trailer.count - 1
    entry = JournalEntry(
        name=name,
        base_sqn=base,
        last_sqn=last,
        count=trailer.live if trailer.compacted else trailer.count,
        bytes=len(view),
        seed=seed,
        clean_sqn=0 if origin is None else origin.clean_sqn,
    )
    return _Sealed(origin or _by_itself(base, last), entry)


def _scanned(disk: Disk, path: str, name: str, who: tuple[int, int]) -> _Sealed | None:
    """Describe a sealed file by its name and records alone, and take the horizon from its origin if
    that is whole; None: it has no record."""
    base, seed = who
    buffer = disk.map(path)
    try:
        offsets, notes = recovery.rebuilt_offsets(buffer, path, seed)
    except Corruption:
        return None
    for note in notes:
        log.warning("%s", note)
    count = len(offsets) - 1
    entry = JournalEntry(name, base, base + count - 1, count, len(buffer), seed)
    origin = _by_itself(base, entry.last_sqn)
    with suppress(Corruption):
        if (told := cdb.read_origin(memoryview(buffer), None, path)) is not None:
            origin = origin._replace(horizon=told.horizon)  # not the rank: that is for whole files
    return _Sealed(origin, entry)
