"""Gives up files that were made for a manifest which, after an error, does not name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from octavo.files.errors import AskTimeout, Misuse, OctavoError, StorageFull
from octavo.files.messages import messages_of

if TYPE_CHECKING:
    from octavo.actors.file_actor import FileActor
    from octavo.files.door.disk import Disk

log = messages_of("octavo.disk")


def for_certain(error: BaseException) -> bool:
    """Whether a manifest change that raised this error is certain never to be in the log: it did
    not get that far, or was taken back. Then the files it would have named may go. After any other
    error, the next start finds out whether the change is there."""
    return isinstance(error, (StorageFull, Misuse, AskTimeout))


@contextmanager
def named_or_gone(files: Sequence[FileActor], names: Callable[[], Iterable[str]]) -> Iterator[None]:
    """A context in which a manifest comes to name these files; ``names`` returns what it names. If
    it fails, the actors of those not named stop, and the files are removed, unless the change may
    be in the log and take effect after a crash."""
    try:
        yield
    except OctavoError as error:
        named = set(names())
        for file in files:
            if file.name not in named:
                file.actor_ref.call(type(file).close)
                file.actor_ref.stop()
                if for_certain(error):
                    remove(file.disk, [file.path])
        raise


def remove(disk: Disk, paths: Iterable[str]) -> None:
    """Remove files that no manifest names. Missing ones are ignored; one that cannot be removed is
    left for the next start."""
    for path in paths:
        try:
            disk.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("%s stays until the next start: %s", path, error)
