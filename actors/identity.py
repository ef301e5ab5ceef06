"""What makes a directory a store: the file ``OCTAVO``, JSON with a checksum of the rest.

    {"format": 1, "id": 32 hexadecimal digits, "mode": "standard", "checksum": 16 of them}

The checksum is xxh3-64 of the other fields as JSON with sorted keys.
"""

from __future__ import annotations

import json
import secrets

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.options import Options
from octavo.files.disk import PROBE_PREFIX, TEMPORARY_SUFFIX, Disk
from octavo.files.errors import Corruption, Misuse, UnsupportedFormat

FORMAT_VERSION = 1
IDENTITY = "OCTAVO"


def identify(path: str, options: Options, disk: Disk) -> dict[str, object]:
    """Read what the directory ``path`` says it is, or make it a store.

    Raises Misuse, Corruption, UnsupportedFormat, or the OSError of a directory that cannot be
    used.
    """
    file = f"{path}/{IDENTITY}"
    if not disk.exists(file):
        if not options.create:
            raise Misuse(f"path={path!r} holds no store, and create=False")
        if disk.exists(path):
            strangers = [name for name in disk.listdir(path) if not _ours(name)]
            if strangers:
                raise Misuse(
                    f"path={path!r} is a directory with other things in it "
                    f"({strangers[0]!r}, ...); name an empty or a new one"
                )
        disk.mkdir(path)
        disk.check_supported(path)
        identity: dict[str, object] = {
            "format": FORMAT_VERSION,
            "id": f"{secrets.randbits(128):032x}",
            "mode": "standard",
        }
        told = identity | {"checksum": _checksum(identity)}
        disk.write_atomically(file, json.dumps(told).encode() + b"\n")
        return identity
    try:
        found = json.loads(disk.read(file, 1 << 16))
        version = found["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Corruption(file, 0, "does not say which store this is") from None
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"{path}: a store of format {version}; this release knows format {FORMAT_VERSION}"
        )
    told = found.pop("checksum", None)
    if told != _checksum(found):
        raise Corruption(file, 0, "checksum", expected=_checksum(found), found=told)
    identity = dict(found)
    return identity


def _checksum(identity: dict[str, object]) -> str:
    return f"{xxh3(json.dumps(identity, sort_keys=True).encode()):016x}"


def _ours(name: str) -> bool:
    """A name that an opening which was stopped may have left in a new store's directory."""
    return (
        name in ("LOCK", "journal", "ledger")
        or name.endswith(TEMPORARY_SUFFIX)
        or name.startswith(PROBE_PREFIX)
    )
