"""Names of files and directories: what disk.py and its callers ask of a path."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from octavo.files.errors import Corruption

if TYPE_CHECKING:
    from octavo.files.door.disk import Disk


def refuse_links(disk: Disk, *directories: str) -> None:
    """Raise Corruption where a directory of a store is a symbolic link: whoever made it, what is
    done in a store must stay in it."""
    for path in directories:
        if disk.is_link(path):
            raise Corruption(path, 0, "not ours", expected="directory", found="symbolic link")


def directory_of(path: str) -> str:
    """The directory that holds the name ``path``: what ``sync_dir`` needs after a change of it."""
    stripped = path.rstrip("/")
    if not stripped:
        return "/" if path else "."
    return os.path.dirname(stripped) or "."


def are_one(one: str, other: str) -> bool:
    """Whether two names are known to be of one file. On a simulated disk none are."""
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def unlink_file(path: str) -> None:
    """As ``os.unlink``; raises IsADirectoryError for a directory, also where the system says
    EPERM."""
    try:
        os.unlink(path)
    except PermissionError as error:
        if error.errno == errno.EPERM and stat.S_ISDIR(os.lstat(path).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
        raise
