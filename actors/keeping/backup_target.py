"""Decides where a backup may go: into a new directory, or over an earlier backup of the same store.

A backup bears its store's id, and so does the backup of a backup. Its identity also says which
backup it is, and which of these stores it was made from. So each is brought up to date only by the
one that it was made from: with any other, what was written since they parted would be lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from octavo.actors.keeping.linking import remove_all_in
from octavo.actors.opening import identity as identities
from octavo.actors.opening.identity import BackupOf, Identity
from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk
from octavo.files.door.file_lock import LOCK
from octavo.files.errors import Corruption, Misuse
from octavo.manifest import change_log
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest
from octavo.manifest.store_identity import IDENTITY

PARTIAL = ".partial"
"""A first backup is made under its name with this suffix, and gets its name when it is whole."""


def destination(disk: Disk, who: Identity, source: str, path: str) -> str:
    """The directory to fill: ``path`` if a backup is there; otherwise another one, which gets that
    name once it is whole. Raises Misuse."""
    mine, theirs = f"{os.path.realpath(source)}/", f"{os.path.realpath(path)}/"
    if theirs.startswith(mine) or mine.startswith(theirs):
        raise Misuse(f"path={path!r}: a backup can neither be inside its store nor contain it")
    if disk.exists(f"{path}/{IDENTITY}"):
        if identities.read(disk, path).id != who.id:
            raise Misuse(
                f"path={path!r} holds another store, or the backup of one; name a new directory"
            )
        disk.mkdir(path)  # for its name: a killed process may not have synced that
        return path
    refuse_taken(disk, path, "name a new one, or a backup of this store")
    target = path + PARTIAL
    refuse_strangers(disk, target, "the backup")
    if disk.exists(f"{target}/{IDENTITY}") and identities.read(disk, target).id != who.id:
        raise Misuse(f"{target} is left over from a backup of another store: remove it")
    disk.mkdir(target)
    return target


def refuse_taken(disk: Disk, path: str, advice: str) -> None:
    """Raise Misuse if a path cannot become the name of what is made: only an empty directory can be
    replaced, and not every one of those."""
    identities.refuse_within(disk, path)
    if not disk.exists(path):
        return
    if strangers := identities.listed(disk, path):
        raise Misuse(
            f"path={path!r} is a directory with other things in it ({strangers[0]!r}, ...); "
            f"{advice}"
        )
    fixed = "symbolic link" if disk.is_link(path) else "mount point"
    if disk.is_link(path) or os.path.ismount(path):
        raise Misuse(
            f"path={path!r} is a {fixed}, and nothing can be put in its place; name a directory in "
            "it"
        )


def refuse_strangers(disk: Disk, target: str, what: str) -> None:
    """Raise Misuse if the directory has anything that was not left by a backup or restore that was
    cut short."""
    if disk.is_link(target):
        disk.unlink(target)
    if disk.exists(target):
        strangers = [name for name in identities.listed(disk, target) if not _left_over(name)]
        if strangers:
            raise Misuse(
                f"{target}, where {what} is to be made before it gets its name, is a directory "
                f"with other things in it ({strangers[0]!r}, ...): remove it, or name another path"
            )


@contextlib.contextmanager
def none_left(disk: Disk, path: str) -> Iterator[None]:
    """A context in which something is made under ``path`` + PARTIAL, whose lock the caller has. If
    it fails, all of that is removed as far as possible: the next try begins anew, and until then a
    full disk would stay full."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            remove_all_in(disk, path + PARTIAL, but=LOCK)
            disk.unlink(f"{path}{PARTIAL}/{LOCK}")
            disk.rmdir(path + PARTIAL)
        raise


def give_name(disk: Disk, path: str) -> None:
    """Give what was made under ``path`` + PARTIAL, and is whole, its name, durably."""
    if disk.exists(path):
        disk.rmdir(path)
    disk.rename(path + PARTIAL, path)
    try:
        disk.sync_dir(os.path.dirname(path))
    except OSError:
        # The name is taken back, and given anew by the next try: after a failed sync, a later one
        # that succeeds would say nothing about it.
        with contextlib.suppress(OSError):
            disk.rename(path, path + PARTIAL)
        raise


def _left_over(name: str) -> bool:
    return name in (LOCK, IDENTITY, "journal", "ledger") or name.endswith(TEMPORARY_SUFFIX)


def lines(
    disk: Disk, who: Identity, target: str, last_sqn: int
) -> tuple[BackupOf | None, BackupOf]:
    """Return (which backup the locked ``target`` is, None if it does not say; which backup it is to
    become, its sqn not filled in yet). ``last_sqn``: the store's newest.

    Raises Misuse if it is no backup of this store.
    """
    line = "" if who.backup is None else who.backup.id
    new = BackupOf(identities.new_id(), line, 0)
    if not disk.exists(f"{target}/{IDENTITY}"):
        return None, new
    found = identities.read(disk, target).backup
    if found is None:  # the original, or a backup of an earlier release
        _refuse_newer(disk, who, target, last_sqn)
        return None, new
    if found.of != line:
        raise Misuse(
            f"path={target!r} holds a backup that was made from another copy of this store, and "
            "may have what this one has not; name a new directory"
        )
    if found.sqn > last_sqn:  # two directories have one id: somebody copied the files
        raise Misuse(
            f"path={target!r} holds a backup up to sequence number {found.sqn}, and this store "
            f"ends at {last_sqn}: this is an earlier copy, or has lost some; name a new directory"
        )
    return found, found


def refuse_other_history(disk: Disk, target: str, entries: Iterable[JournalEntry]) -> None:
    """Raise Misuse if backup and store have different records in a file that both had begun: one of
    them is a copy, and both were written to since."""
    try:
        found = change_log.recover(disk, f"{target}/journal/manifest")
        manifest = JournalManifest.replayed(found.snapshot, found.changes)
    except Corruption:  # the update writes it anew
        return
    theirs = {(entry.base_sqn, entry.seed): entry for entry in manifest.entries}
    for entry in entries:
        other = theirs.get((entry.base_sqn, entry.seed), entry)
        if (other.last_sqn, other.count) != (entry.last_sqn, entry.count):
            raise Misuse(
                f"path={target!r} holds a backup that was made from another copy of this store, or "
                f"one of them has lost some: they differ in {entry.name}; name a new directory"
            )


def _refuse_newer(disk: Disk, who: Identity, target: str, last_sqn: int) -> None:
    if who.backup is not None:
        raise Misuse(
            f"path={target!r} holds the store that this one is a backup of, or another that was "
            "not backed up from here; name a new directory"
        )
    found = change_log.recover(disk, f"{target}/journal/manifest")
    ceiling = JournalManifest.replayed(found.snapshot, found.changes).ceiling
    if ceiling > last_sqn + 1:
        raise Misuse(
            f"path={target!r} may hold sequence numbers above {last_sqn}, which this store "
            "lacks; name a new directory"
        )
