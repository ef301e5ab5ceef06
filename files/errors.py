"""The errors of Octavo, one tree, ordered by the moment they arise.

They live in the lowest room because every room raises them; ``octavo`` re-exports them all.
"""

from __future__ import annotations

import copyreg
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class OctavoError(Exception):
    """Base of every error that Octavo raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Made anew from its message and fields: where a pool's process could not send the error of
        # a task to the asker, the asker would wait for ever.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


# -- the caller asked for something that cannot be


class Misuse(OctavoError):  # noqa: N818 - the house's words
    """The call itself is wrong; nothing was changed. The message names the argument."""


class Closed(Misuse):
    """The store, snapshot or batch was closed by its owner before this call."""


class StoreLocked(OctavoError):  # noqa: N818
    """The store is open already, in this process or another."""


class UnsupportedFormat(OctavoError):  # noqa: N818
    """A file is of a version or kind that this release does not know: use a newer release."""


# -- the caller lost a race, or came too late


class Conflict(OctavoError):  # noqa: N818
    """A condition (``if_sqn``) does not hold: the live version's sqn is ``found``, not
    ``expected``."""

    def __init__(self, message: str, *, expected: int, found: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class Busy(OctavoError):  # noqa: N818
    """Another call, or the store itself, is already doing what was asked for; or the store changed
    too often to be read. Wait, and try again."""


class SnapshotExpired(OctavoError):  # noqa: N818
    """The snapshot's lease ran out; take a new snapshot, or renew in time."""


class HistoryCompacted(OctavoError):  # noqa: N818
    """The journal no longer holds every event that was asked for."""


class Fenced(OctavoError):  # noqa: N818
    """Another owner has taken the store over, for example from another machine; close it."""


class AskTimeout(OctavoError):  # noqa: N818
    """No answer in time, for example because a disk hangs; try again."""


class AskCycle(OctavoError):  # noqa: N818
    """A signal handler called into a call of its own thread; nothing was changed. Internally: an
    actor asked, directly or through others, for its own turn."""


# -- the disk


class Corruption(OctavoError):  # noqa: N818
    """A file does not hold what it must. Names the file, the offset, and what was expected and
    found."""

    def __init__(
        self, file: str, offset: int, what: str, *, expected: object = None, found: object = None
    ) -> None:
        if expected is not None or found is not None:
            what = f"{what}: expected {expected}, found {found}"
        super().__init__(f"{file} at offset {offset}: {what}")
        self.file = file
        self.offset = offset
        self.what = what
        self.expected = expected
        self.found = found


class StorageFailed(OctavoError):  # noqa: N818
    """An I/O error: the store takes no further write. Acknowledged writes are kept; close and
    reopen."""


class StorageFull(OctavoError):  # noqa: N818
    """No room for this write. Nothing of it was kept; the store goes on once there is room."""


for _error in list(globals().values()):
    if isinstance(_error, type) and issubclass(_error, OctavoError):
        _error.__module__ = "octavo"  # where they are to be found: a traceback shows it

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
OUT_OF_MEANS = (*OUT_OF_DESCRIPTORS, errno.ENOMEM)
"""What they report is wrong with this process, not with a file."""

READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
"""They come where files may be read, and not written."""

_MAKES_ROOM = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    **dict.fromkeys(OUT_OF_DESCRIPTORS, "close some files, or raise the limit"),
    errno.ENOMEM: "allow this process more memory and maps (ulimit -v, vm.max_map_count)",
}

_ALLOWS = dict.fromkeys(
    READ_ONLY[1:], "this process's user must be allowed to read, write and search it"
)
_SANDBOXED = {errno.ENOSYS: "a sandbox around this process, or the system, refuses that call"}
_HAPPENED = {
    errno.ENOENT: "it, or the directory of its store, was moved or removed meanwhile",
    errno.ESTALE: "what is at its path now is not this store",
    errno.EISDIR: "move that directory away: a file of the store belongs there",
    errno.ENOTDIR: "a part of the path is a file, where a directory should be",
}
_ADVICE = _ALLOWS | _HAPPENED | _SANDBOXED


def refused(error: OSError, call: str) -> OSError:
    """The error to report for a call that needs no right, and was refused all the same: it names
    the call. A sandbox says EPERM, as if something were wrong with the file's owner."""
    if error.errno not in (errno.EPERM, errno.ENOSYS):
        return error
    return OSError(errno.ENOSYS, f"{call} is refused ({error.strerror})", error.filename)


def call_behind(error: BaseException | None, before: BaseException | None) -> OSError | None:
    """The OSError of a system call that ``error`` is, or that was being handled when it came; None
    if there is none: what a signal's handler raises has no number. ``before``: what was being
    handled before that call."""
    while error is not None and error is not before:
        if isinstance(error, OSError) and error.errno is not None:
            return error
        error = error.__context__
    return None


def storage_error(error: OSError, what: str) -> StorageFull | StorageFailed:
    """What an I/O error on the write path means for a store: no room for now, or poisoned."""
    advice = _MAKES_ROOM.get(error.errno or 0)
    if advice is not None:
        return StorageFull(f"{what}: {error}; {advice}")
    return StorageFailed(
        f"{what}: {error}; {_ADVICE.get(error.errno or 0, 'close the store and reopen it')}"
    )


_UNUSABLE = {
    errno.ENAMETOOLONG: "choose a shorter one",
    errno.EROFS: "copy the store to where files can be made, or only read it, with read_only=True",
    **dict.fromkeys(
        _ALLOWS,
        "this process's user must be allowed to read, write and search it; with read_only=True, to "
        "read and search it",
    ),
    errno.ENOTDIR: _HAPPENED[errno.ENOTDIR],
    errno.EISDIR: _HAPPENED[errno.EISDIR],
    errno.ENOENT: "the directory above it must be there, and symbolic links lead somewhere",
    errno.ELOOP: "its symbolic links lead in a circle",
    **_SANDBOXED,
}


@contextmanager
def usable(name: str, path: str) -> Iterator[None]:
    """A context in which an OSError that says that a directory cannot be used becomes Misuse, which
    names the argument that gave it, and says what to do; one for want of room, descriptors or
    memory becomes StorageFull; and one that says that the directory, or a file in it, went
    meanwhile, StorageFailed."""
    try:
        yield
    except OSError as error:
        if error.errno in _MAKES_ROOM:
            raise storage_error(error, f"{name}={path!r} cannot be opened") from error
        advice = _UNUSABLE.get(error.errno or 0)
        inside = str(error.filename).startswith(f"{path}/")
        if error.errno == errno.ESTALE or (inside and error.errno == errno.ENOENT):
            raise storage_error(error, f"{name}={path!r}") from error
        if advice is None:
            raise
        replaced = error.filename2 if error.errno == errno.EISDIR else None
        at = replaced or error.filename
        where = "" if at in (None, path) else f" ({at})"
        raise Misuse(
            f"{name}={path!r} cannot be used: {error.strerror}{where}; {advice}"
        ) from error


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """A context in which an OSError for want of room becomes StorageFull (there is no ``what``),
    and one that says that the store is elsewhere by now, StorageFailed."""
    try:
        yield
    except OSError as error:
        told = storage_error(error, f"no {what}")
        if isinstance(told, StorageFull) or error.errno == errno.ESTALE:
            raise told from error
        raise


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """A context in which an OSError becomes StorageFull or StorageFailed. Nothing of the store is
    in doubt."""
    try:
        yield
    except OSError as error:
        told = storage_error(error, what)
        known = isinstance(told, StorageFull) or error.errno in _ADVICE
        raise (told if known else StorageFailed(str(error))) from error
