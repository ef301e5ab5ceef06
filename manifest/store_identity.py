"""The file ``OCTAVO`` that makes a directory a store: JSON with a checksum of the rest.

    {"format": 1, "id": 32 hexadecimal digits, "mode": "standard" | "head_only", "lookup": bool,
     "tags": {name: number}, "strategies": {name: strategy}, "checksum": 16 of them}

"left_recalc" lists types that were under the strategy "recalc" once, where any were.
A backup also has "backup": {"id": which one it is, 32 hexadecimal digits, "of": id of the backup
it was made from, or "" where that was none, "sqn": up to which the two were the same}. Readers
leave fields that they do not know alone.

The checksum is xxh3-64 of the other fields as JSON with sorted keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.files.checked_json import decoded
from octavo.files.door.disk import Disk, refuse_links
from octavo.files.errors import Corruption, Misuse, OctavoError
from octavo.files.ledger import ledger_key

FORMAT_VERSION = 1
IDENTITY = "OCTAVO"
HEAD_ONLY = "head_only"
FOLDERS = (
    "journal", "journal/manifest", "ledger", "ledger/manifest", "snapshots", "staging", "inbox",
    "waste", "damaged",
)  # fmt: skip
"""Directories of a store."""
_MAX_BYTES = 1 << 16


def fields_of(disk: Disk, path: str) -> dict[str, Any]:
    """Read what store the directory says it is; the checksum is compared and left out. Raises
    Corruption, UnsupportedFormat, FileNotFoundError."""
    file = f"{path}/{IDENTITY}"
    refuse_links(disk, *(f"{path}/{folder}" for folder in FOLDERS))
    return decoded(disk.read(file, _MAX_BYTES), file, "a store", FORMAT_VERSION)


def is_head_only(fields: Mapping[str, Any]) -> bool:
    """Whether a store with these fields is."""
    return bool(fields.get("mode") == HEAD_ONLY)


def types_of(fields: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of the types of objects by their names; of a store that is no head-only one."""
    tags = fields.get("tags")
    return {"standard": ledger_key.STANDARD, **(tags if isinstance(tags, dict) else {})}


def without_journal(disk: Disk, path: str) -> OctavoError:
    """What to raise where a directory has no journal, and so is no store."""
    if not disk.exists(f"{path}/{IDENTITY}"):
        return Misuse(f"there is no store at {path}")
    if not disk.exists(f"{path}/ledger") or disk.exists(f"{path}/journal"):  # being made just now
        return Misuse(
            f"{path} holds no store yet, but the beginning of one, without journal and ledger: "
            "its creation was cut short, or they were removed; open it for writing to complete it"
        )
    return Corruption(
        f"{path}/journal", 0,
        "the directory is missing: restore a backup, or open the store for writing, which recovers "
        "what can be",
    )  # fmt: skip
