"""What journal files are called: by the sqn of their first record and their random id, 16
hexadecimal digits each, with an ending that says whether they are sealed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container
from typing import TypeVar

from octavo.files.door.disk import TEMPORARY_SUFFIX

T = TypeVar("T")

LOG = ".log"
SEALED = ".cdb"
MAX_BASE = 1 << 62
"""No store ever gives so many sqns: a name that says so is damaged, or no store's."""


def name_of(base_sqn: int, seed: int, ending: str) -> str:
    """The name of the file with this id whose first record has this sqn."""
    return f"{base_sqn:016x}-{seed:016x}{ending}"


def identity(name: str) -> tuple[int, int] | None:
    """(base sqn, seed) from a journal file's name; None: not such a name."""
    stem, dot, kind = name.rpartition(".")
    parts = stem.split("-")
    if dot + kind not in (LOG, SEALED) or [len(part) for part in parts] != [16, 16]:
        return None
    try:
        base = int(parts[0], 16)
        return (base, int(parts[1], 16)) if base <= MAX_BASE else None
    except ValueError:
        return None


def when_sealed(name: str) -> str:
    """The name, or path, that a journal file of this one has once it is sealed."""
    return name.removesuffix(LOG).removesuffix(SEALED) + SEALED


def is_sealed_too(name: str, names: Container[str]) -> bool:
    """Whether a file that is not sealed has its sealed name among these, too."""
    return name.endswith(LOG) and when_sealed(name) in names


def by_either_name(path: str, call: Callable[[str], T]) -> T:
    """What ``call`` returns for a journal file's name, or path, or else for the one it has once it
    is sealed: that may have happened since the first one was found. Raises what ``call`` does."""
    try:
        return call(path)
    except FileNotFoundError:
        if not path.endswith(LOG):
            raise
        return call(when_sealed(path))


def scratch_name() -> str:
    """A new name for a scratch file in the journal's directory, which the next start removes."""
    return name_of(0, secrets.randbits(64), SEALED) + TEMPORARY_SUFFIX
