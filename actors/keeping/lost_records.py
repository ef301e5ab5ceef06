"""Records that a repair found lost, and the file that keeps them until a repair has ended well.

Before a journal file that lacks records takes the place of a damaged one, they are written to
``damaged/LOST``, and the ledger gets the mark ``REBUILD``: the file is whole from then on, and
shows neither that the ledger names what it lacks nor what that was. The opening that makes the
ledger anew takes the mark away; what was lost stays, for the repair may be cut short behind it.
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
"""Folder of a store for files that a repair replaced."""
LOST = "LOST"
_LOST = "lost "
_MOST = 1000
"""Records that are kept."""
_MAX_NAME = 256
"""Bytes of a bucket or key that are kept."""
_MAX_BYTES = 32 << 20
"""Above what so many take: the longest path has 24 KiB of JSON, where it is no text."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A record that no file holds whole any more."""

    sqn: int
    file: str
    why: str
    bucket: bytes | None = None
    """None: what is left of the record does not tell."""
    key: bytes | None = None


def mark(disk: Disk, store: str, why: Sequence[str], lost: Sequence[Lost]) -> None:
    """Have the next opening make the ledger anew, and the next repair know what was lost, unless
    this one ends well. Durable. Raises OSError."""
    keep(disk, store, lost)
    text = "\n".join(line.replace("\n", " ") for line in why)
    told = text.encode(errors="backslashreplace")  # of paths, which need be no text
    disk.write_atomically(f"{store}/ledger/{REBUILD}", told)


def keep(disk: Disk, store: str, lost: Sequence[Lost]) -> None:
    """Have the next repair know what was lost, unless this one ends well. Durable."""
    lines = []
    for each in lost[:_MOST]:
        names = [_short(each.bucket), _short(each.key)]
        lines.append(_LOST + json.dumps([each.sqn, each.file, each.why[:_MAX_NAME], *names]))
    if lines:
        disk.mkdir_within(store, DAMAGED)
        disk.write_atomically(f"{store}/{DAMAGED}/{LOST}", "\n".join(lines).encode())


def kept(disk: Disk, store: str) -> list[Lost]:
    """What repairs that were cut short found lost."""
    found = {}
    for name in (f"ledger/{REBUILD}", f"{DAMAGED}/{LOST}"):
        for line in _lines(disk, f"{store}/{name}"):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                each = _lost(*json.loads(line.removeprefix(_LOST)))
                found[each.sqn] = each
    return list(found.values())


def told(disk: Disk, store: str) -> None:
    """A repair ended well, and tells what was lost."""
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
