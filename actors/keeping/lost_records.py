"""Records that a repair found lost, and the file that keeps them until a repair has ended well.

Before a journal file that lacks records replaces a damaged one, the lost records are written to
``damaged/LOST``, and the ledger gets the mark ``REBUILD``: from then on, the journal file is whole,
and does not show that the ledger names records it lacks, nor which. The opening that makes the
ledger anew removes the mark. ``LOST`` stays, since the repair may be cut short after that opening.
Both are text, for people. A line of ``LOST`` that begins with ``lost `` is JSON: sqn, file, why,
bucket and key in hexadecimal digits or null. Marks of earlier releases have such lines, too.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.manifest.ledger_manifest import REBUILD

DAMAGED = "damaged"
"""The store's folder for files that a repair replaced."""
LOST = "LOST"
_LOST = "lost "
_MOST = 1000
"""Records that are kept at most."""
_MAX_NAME = 256
"""A bucket's name, or a key, of more bytes is not kept."""
_MAX_BYTES = 32 << 20
"""More than ``_MOST`` records take: even a path that is no text has at most 24 KiB of JSON."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A record that no file holds whole any more."""

    sqn: int
    file: str
    why: str
    bucket: bytes | None = None
    """None if what is left of the record does not tell it."""
    key: bytes | None = None


def mark(disk: Disk, store: str, why: Sequence[str], lost: Sequence[Lost]) -> None:
    """Have the next opening make the ledger anew, and, unless this repair ends well, the next one
    know what was lost. Durable. Raises OSError."""
    keep(disk, store, lost)
    text = "\n".join(line.replace("\n", " ") for line in why)
    told = text.encode(errors="backslashreplace")  # it has paths, which need not be valid text
    disk.write_atomically(f"{store}/ledger/{REBUILD}", told)


def keep(disk: Disk, store: str, lost: Sequence[Lost]) -> None:
    """Have the next repair know what was lost, unless this one ends well. Durable. See ``told``."""
    lines = []
    for each in lost[:_MOST]:
        names = [_short(each.bucket), _short(each.key)]
        lines.append(_LOST + json.dumps([each.sqn, each.file, each.why[:_MAX_NAME], *names]))
    if lines:
        disk.mkdir_within(store, DAMAGED)
        disk.write_atomically(f"{store}/{DAMAGED}/{LOST}", "\n".join(lines).encode())


def kept(disk: Disk, store: str) -> list[Lost]:
    """The records that repairs found lost before they were cut short."""
    found = {}
    for name in (f"ledger/{REBUILD}", f"{DAMAGED}/{LOST}"):
        for line in _lines(disk, f"{store}/{name}"):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                each = _lost(*json.loads(line.removeprefix(_LOST)))
                found[each.sqn] = each
    return list(found.values())


def told(disk: Disk, store: str) -> None:
    """Forget what was lost: a repair ended well, and has reported it."""
    if disk.exists(f"{store}/{DAMAGED}/{LOST}"):
        disk.unlink(f"{store}/{DAMAGED}/{LOST}")


def _lines(disk: Disk, path: str) -> list[str]:
    try:
        text = disk.read(path, _MAX_BYTES).decode(errors="replace")
    except (FileNotFoundError, Corruption):
        return []
    return [line for line in text.split("\n") if line.startswith(_LOST)]


def _short(name: bytes | None) -> str | None:
    return None if name is None or len(name) > _MAX_NAME else name.hex()


def _lost(sqn: object, file: object, why: object, bucket: object, key: object) -> Lost:
    if not isinstance(sqn, int) or not isinstance(file, str) or not isinstance(why, str):
        raise TypeError
    names = [bytes.fromhex(name) if isinstance(name, str) else None for name in (bucket, key)]
    return Lost(sqn, file, why, *names)
