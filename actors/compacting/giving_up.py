"""Files made for a manifest that, after an error, does not name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from octavo.files.errors import AskTimeout, Misuse, OctavoError, StorageFull
from octavo.files.messages import messages_of

if TYPE_CHECKING:
    from octavo.actors.journal_file import JournalFile
    from octavo.actors.ledger_file import LedgerFile
    from octavo.files.door.disk import Disk

File = TypeVar("File", "JournalFile", "LedgerFile")
log = messages_of("octavo.disk")


def for_certain(error: BaseException) -> bool:
    """Whether a change that raised this is not in a manifest's log and never will be, so that what
    it would have named may go: it came not so far, or was taken back. Of any other the next start
    finds out."""
    return isinstance(error, (StorageFull, Misuse, AskTimeout))


@contextmanager
def named_or_gone(files: Sequence[File], names: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Within it a manifest, whose ``names`` are asked for, comes to name these files. Where it does
    not, their actors stop, and they go, unless a crash may bring the change to light."""
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
    """Remove files that no manifest names, as far as they are there. One that stays is removed by
    the next start."""
    for path in paths:
        try:
            disk.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("%s stays until the next start: %s", path, error)
