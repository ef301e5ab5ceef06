"""Records that a repair found lost, and the mark that outlives a repair that is cut short.

Before a journal file that lacks records takes the place of a damaged one, the ledger gets the mark
``REBUILD``: the file is whole from then on, and shows neither that the ledger names what it lacks
nor what that was. The mark is text, for people; a line of it that begins with ``lost `` is JSON:
sqn, file, why, bucket and key in hexadecimal digits or null.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.files.disk import Disk
from octavo.files.errors import Corruption
from octavo.manifest.level_sizes import REBUILD

_LOST = "lost "
_MOST = 1000
"""Records that a mark names."""
_MAX_BYTES = 1 << 20
_MAX_NAME = 256
"""Bytes of a bucket or key that a mark tells."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A record that no file holds whole any more."""

    sqn: int
    file: str
    why: str
    bucket: bytes | None = None
    """None: what is left of the record does not tell."""
    key: bytes | None = None


def mark(disk: Disk, ledger: str, why: Sequence[str], lost: Sequence[Lost]) -> None:
    """Have the next opening make the ledger in this directory anew, and the next repair know what
    was lost. Durable. Raises OSError."""
    lines = [line.replace("\n", " ") for line in why]
    for each in lost[:_MOST]:
        names = [_short(each.bucket), _short(each.key)]
        lines.append(_LOST + json.dumps([each.sqn, each.file, each.why[:_MAX_NAME], *names]))
    disk.write_atomically(f"{ledger}/{REBUILD}", "\n".join(lines).encode())


def marked(disk: Disk, ledger: str) -> list[Lost]:
    """What the mark of a repair that was cut short names; [] where it names nothing."""
    try:
        text = disk.read(f"{ledger}/{REBUILD}", _MAX_BYTES).decode(errors="replace")
    except (FileNotFoundError, Corruption):
        return []
    found = []
    for line in text.split("\n"):
        if line.startswith(_LOST):
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                found.append(_lost(*json.loads(line.removeprefix(_LOST))))
    return found


def _short(name: bytes | None) -> str | None:
    return None if name is None or len(name) > _MAX_NAME else name.hex()


def _lost(sqn: object, file: object, why: object, bucket: object, key: object) -> Lost:
    if not isinstance(sqn, int) or not isinstance(file, str) or not isinstance(why, str):
        raise TypeError
    names = [bytes.fromhex(name) if isinstance(name, str) else None for name in (bucket, key)]
    return Lost(sqn, file, why, *names)
