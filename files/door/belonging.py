"""Lets another user, whose store this process works in, use what it makes there.

New files have the owner and the rights that this process gives to all that it makes. So a command
of an administrator, or of a colleague, would leave files that the store's owner may not use.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from octavo.files.door.names import directory_of
from octavo.files.door.open_file import OPEN_FLAGS, open_apart


def hand_over(fd: int, directory: str) -> None:
    """Let whoever may change ``directory`` use what this process has made in it: an open file or
    directory. If root made it, it goes to the directory's owner; and if the group may write to the
    directory, it may write to this, too. Does what this process may do: never raises OSError. Two
    system calls where there is nothing to do."""
    with suppress(OSError):
        around, made = os.stat(directory), os.fstat(fd)
        regular = stat.S_ISREG(made.st_mode)
        if made.st_uid != os.geteuid() or (regular and made.st_nlink != 1):
            return  # not made here; or its other name may be anywhere
        rights = around.st_mode & (stat.S_IRGRP | stat.S_IWGRP if regular else stat.S_IRWXG)
        if not rights & stat.S_IWGRP:
            rights = 0
        if made.st_uid == 0 != around.st_uid:
            os.fchown(fd, around.st_uid, around.st_gid)
        elif rights and made.st_gid != around.st_gid:
            os.fchown(fd, -1, around.st_gid)
        if rights & ~made.st_mode:
            os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | rights)


def hand_over_directory(path: str) -> None:
    """``hand_over`` of the directory ``path``, as made in the one around it."""
    with suppress(OSError):
        fd = open_apart(path, os.O_RDONLY | os.O_DIRECTORY | OPEN_FLAGS)
        try:
            hand_over(fd, directory_of(path))
        finally:
            os.close(fd)
