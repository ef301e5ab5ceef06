"""Brings a store's files into another directory as hard links or copies, for backups and
restores."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.files.door.copying import copied
from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk
from octavo.files.door.names import are_one
from octavo.files.errors import Corruption, Misuse

_END_BYTES = 8192


@dataclass(slots=True)
class Linked:
    """What was brought into a directory."""

    linked: int = 0
    copied: int = 0
    bytes_linked: int = 0
    bytes_copied: int = 0


def bring(
    disk: Disk,
    source: str,
    target: str,
    names: Sequence[str],
    done: Linked,
    *,
    copy: bool,
) -> None:
    """Link files of one directory into another under the same names, and make these names durable.

    ``copy``: copy them if that is on another file system. Raises Misuse if they would have to be
    copied without ``copy``, Corruption if one is missing.
    """
    there = set(disk.listdir(target))
    brought = []
    for name in names:
        path, wanted = f"{source}/{name}", f"{target}/{name}"
        try:
            size = disk.size(path)
        except FileNotFoundError:
            raise Corruption(
                path, 0, "the file is missing: bring it back, or repair the store"
            ) from None
        if name in there and _alike(disk, path, wanted, size):
            continue
        temporary = wanted + TEMPORARY_SUFFIX
        if disk.exists(temporary):
            disk.unlink(temporary)
        try:
            disk.link(path, temporary)
            done.linked += 1
            done.bytes_linked += size
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
                raise
            if not copy:
                elsewhere = "name a directory on the same file system, or "
                raise Misuse(
                    f"path={target!r} cannot have a link to {path} ({error.strerror}): "
                    f"{elsewhere if error.errno == errno.EXDEV else ''}let the files be copied "
                    "(copy=True; octavo ... --copy)"
                ) from error
            copied(disk, path, temporary)
            done.copied += 1
            done.bytes_copied += size
        disk.rename(temporary, wanted)
        brought.append(wanted)
    try:
        disk.sync_dir(target)
    except OSError:
        # The names are taken back: the next try would find them there, and after a failed sync, a
        # later one that succeeds says nothing about them.
        with contextlib.suppress(OSError):
            for wanted in brought:
                disk.unlink(wanted)
        raise


def _alike(disk: Disk, one: str, other: str, size: int) -> bool:
    """Whether two files of one name are the same, judged by their ends, which have the checksums of
    the rest, and random ids."""
    if are_one(one, other):
        return True
    if disk.size(other) != size:
        return False
    end = max(size - _END_BYTES, 0)
    return all(
        disk.pread(one, _END_BYTES, at) == disk.pread(other, _END_BYTES, at) for at in (0, end)
    )


def remove_others(disk: Disk, directory: str, names: set[str], suffixes: tuple[str, ...]) -> int:
    """Remove the files with these suffixes that are not among ``names``; returns how many."""
    gone = [
        name
        for name in disk.listdir(directory)
        if name not in names and name.removesuffix(TEMPORARY_SUFFIX).endswith(suffixes)
    ]
    for name in gone:
        disk.unlink(f"{directory}/{name}")
    if gone:
        disk.sync_dir(directory)
    return len(gone)


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory and all that is in it; symbolic links are not followed."""
    if disk.is_link(path):
        disk.unlink(path)
        return
    remove_all_in(disk, path)
    disk.rmdir(path)


def remove_all_in(disk: Disk, path: str, but: str = "") -> None:
    """Remove all that is in a directory, except the name ``but``; symbolic links are not
    followed."""
    for name in disk.listdir(path):
        if name == but:
            continue
        try:
            disk.unlink(f"{path}/{name}")
        except IsADirectoryError:
            remove_tree(disk, f"{path}/{name}")
