"""The identity file ``OCTAVO``, which makes a directory a store. Its format: store_identity.py."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from octavo.actors.opening.options import Options
from octavo.actors.opening.tags import FIRST_TAG, LAST_TAG, NAME, STRATEGIES, Tags, tags_of
from octavo.files.checked_json import encoded
from octavo.files.door.disk import PROBE_PREFIX, TEMPORARY_SUFFIX, Disk
from octavo.files.door.file_lock import LOCK
from octavo.files.errors import Corruption, Misuse
from octavo.files.ledger import ledger_key
from octavo.manifest.journal_manifest import MAX_SQN
from octavo.manifest.store_identity import FORMAT_VERSION, HEAD_ONLY, IDENTITY, fields_of

_ID = re.compile("[0-9a-f]{32}")
JOURNAL_MANIFEST = "journal/manifest"
LOST = f"; if it is a store that lost its file {IDENTITY}, repair it"


def new_id() -> str:
    """An id that no other store has, and no backup."""
    return f"{secrets.randbits(128):032x}"


class BackupOf(NamedTuple):
    """Which backup a directory is."""

    id: str
    of: str
    """Id of the backup that it was made from; empty if it was not made from one."""
    sqn: int
    """Up to this sqn the other one had all that this has, when this was last brought up to date."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which store a directory is, of which kind, and with which types of objects."""

    id: str
    mode: str = "standard"
    lookup: bool = True
    tags: Tags = field(default_factory=Tags)
    backup: BackupOf | None = None
    """None: no backup, or one that an earlier release made."""

    @property
    def head_only(self) -> bool:
        """Whether the ledger keeps the values, and the journal has them only until then."""
        return self.mode == HEAD_ONLY

    def tag_of(self, name: object) -> int:
        """The tag that rows of this type have; a head-only store, which has only the standard type,
        has a tag of its own. Raises Misuse that lists the types."""
        number = self.tags.number(name)
        return ledger_key.HEAD_ONLY if self.head_only else number


def identify(path: str, options: Options, disk: Disk) -> Identity | None:
    """Read the identity in the directory ``path``; None if it has none, but can be made a store (by
    ``locked_as``). Makes the directory if need be.

    Raises Misuse (also if the options name another mode than the store's), Corruption,
    UnsupportedFormat, or the OSError of a directory that cannot be used.
    """
    if not disk.exists(f"{path}/{IDENTITY}"):
        _new(path, options)
        refuse_within(disk, path)
        if disk.exists(path):
            strangers = [name for name in listed(disk, path) if not _ours(name)]
            # Another process may just have made it a store.
            if strangers and not disk.exists(f"{path}/{IDENTITY}"):
                raise Misuse(
                    f"path={path!r} is a directory with other things in it "
                    f"({strangers[0]!r}, ...); name an empty or a new one"
                    + (LOST if has_journal(disk, path) else "")
                )
        disk.mkdir(path)
        disk.check_supported(path)
        return None
    found = read(disk, path)
    if options.mode not in (None, found.mode):
        raise Misuse(
            f"mode={options.mode!r}, but {path!r} is a {found.mode} store: "
            "a store keeps the mode it was made with"
        )
    if options.lookup not in (None, found.lookup) or (
        options.lookup is not None and not found.head_only
    ):
        raise Misuse(
            f"lookup={options.lookup}, but {path!r} was made "
            + (f"with lookup={found.lookup}" if found.head_only else "as a standard store")
        )
    _checked_tags(found, options)
    return found


def locked_as(path: str, options: Options, disk: Disk) -> Identity:
    """Read the identity, or make the directory a store. The store is locked, so that one process
    alone makes it, and all that others registered before is known. Raises as ``identify``."""
    if disk.exists(f"{path}/{IDENTITY}{TEMPORARY_SUFFIX}"):
        disk.unlink(f"{path}/{IDENTITY}{TEMPORARY_SUFFIX}")  # left by a write that was cut short
    found = identify(path, options, disk) if disk.exists(f"{path}/{IDENTITY}") else None
    if found is None:
        found = _new(path, options)
        write(disk, path, found)
    return found


def _new(path: str, options: Options) -> Identity:
    """The identity of a new store with these options. Raises Misuse."""
    if not options.create:
        raise Misuse(f"path={path!r} holds no store, and create=False makes none")
    mode = options.mode or "standard"
    if options.lookup is not None and mode != HEAD_ONLY:
        raise Misuse(f"lookup={options.lookup} is for a store with mode={HEAD_ONLY!r}")
    found = Identity(new_id(), mode, options.lookup is not False)
    _checked_tags(found, options)
    return found


def has_journal(disk: Disk, path: str) -> bool:
    """Whether a directory without an identity may yet be a store. Raises OSError."""
    return disk.exists(f"{path}/{JOURNAL_MANIFEST}")


def refuse_within(disk: Disk, path: str) -> None:
    """Raise Misuse if ``path`` lies in a store, or in a folder of one: what is made there would be
    deleted with that store."""
    above = os.path.realpath(path)
    for _ in range(2):
        above = os.path.dirname(above)
        if disk.exists(f"{above}/{IDENTITY}"):
            raise Misuse(
                f"path={path!r} is within the store {above!r}: use a bucket of that store, or name "
                "a directory outside it"
            )


def listed(disk: Disk, path: str) -> list[str]:
    """Names in a directory that is to be a store's. Raises Misuse if it is a file, OSError."""
    try:
        return disk.listdir(path)
    except NotADirectoryError:
        raise Misuse(f"path={path!r} is a file, and a store is a directory") from None


def _checked_tags(found: Identity, options: Options) -> Tags:
    if found.head_only and (options.tags or options.strategies):
        raise Misuse("tags and strategies are for standard stores; this one is head-only")
    return tags_of(found.tags.persisted(), options.tags, options.strategies)


def registered(disk: Disk, path: str, found: Identity, options: Options) -> Identity:
    """The identity with the types that this opening registers and the strategies that it chooses,
    made durable before any object can have them. The store is locked. Raises Misuse."""
    tags = _checked_tags(found, options)
    made = replace(found, tags=tags)
    if tags.persisted() != found.tags.persisted():
        write(disk, path, made)
    return made


def write(disk: Disk, path: str, identity: Identity) -> None:
    """Write the identity file anew, atomically and durably."""
    told: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "id": identity.id,
        "mode": identity.mode,
        "lookup": identity.lookup,
        **identity.tags.persisted(),
    }
    if identity.backup is not None:
        told["backup"] = identity.backup._asdict()
    disk.write_atomically(f"{path}/{IDENTITY}", encoded(told) + b"\n")


def read(disk: Disk, path: str) -> Identity:
    """Read the identity file. Raises Corruption, UnsupportedFormat, FileNotFoundError."""
    found = fields_of(disk, path)
    try:
        return _parsed(found)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as wrong:
        raise Corruption(f"{path}/{IDENTITY}", 0, f"does not describe a store: {wrong}") from None


def _parsed(found: dict[str, Any]) -> Identity:
    tags, strategies = found["tags"], found["strategies"]
    mode, lookup = found["mode"], found["lookup"]
    if mode not in ("standard", HEAD_ONLY) or not isinstance(lookup, bool):
        raise ValueError(f"mode {mode!r:.80}, lookup {lookup!r:.80}")
    if not isinstance(found["id"], str) or not _ID.fullmatch(found["id"]):
        raise ValueError(f"id {found['id']!r:.80}")
    if not all(NAME.fullmatch(name) and name not in Tags().numbers for name in tags):
        raise ValueError(f"types {tags!r:.200}")
    numbers = list(tags.values())
    if len(set(numbers)) != len(numbers) or not all(
        isinstance(number, int) and FIRST_TAG <= number <= LAST_TAG for number in numbers
    ):
        raise ValueError(f"types {tags!r:.200}")
    if not set(strategies.values()) <= set(STRATEGIES) or not set(strategies) <= {
        "standard",
        *tags,
    }:
        raise ValueError(f"strategies {strategies!r:.200}")
    left = frozenset(found.get("left_recalc", ()))
    if not left <= set(tags):
        raise ValueError(f"left_recalc {found['left_recalc']!r:.200}")
    tags_found = Tags(Tags().numbers | tags, strategies, left_recalc=left)
    return Identity(found["id"], mode, lookup, tags_found, _backup_of(found.get("backup")))


def _backup_of(found: Any) -> BackupOf | None:
    if found is None:
        return None
    made = BackupOf(found["id"], found["of"], found["sqn"])
    names = (made.id, made.of or made.id)
    if not all(isinstance(name, str) and _ID.fullmatch(name) for name in names):
        raise ValueError(f"backup {found!r:.200}")
    if type(made.sqn) is not int or not 0 <= made.sqn <= MAX_SQN:
        raise ValueError(f"backup {found!r:.200}")
    return made


def _ours(name: str) -> bool:
    """Whether an interrupted opening may have left this name in a new store's directory."""
    return (
        name in (LOCK, "journal", "ledger")
        or name.endswith(TEMPORARY_SUFFIX)
        or name.startswith(PROBE_PREFIX)
    )
