"""Requests to a store's owner from other processes: ``inbox/`` in the store's directory.

    <ms>-<id>.request   what is to be taken in: {"job", "attempts", "stream", "batch"}
    <ms>-<id>.answer    {"first_sqn", "last_sqn", "repeated"}, or {"error": class, "message"}

JSON, its ``checksum`` xxh3-64 of the other fields with sorted keys; written atomically. Who asked
removes both. ``ms``: the moment of asking, by which what nobody waits for any more is removed.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.disk import Disk, refuse_links
from octavo.files.errors import Corruption
from octavo.files.staging import INBOX

log = logging.getLogger("octavo.inbox")

REQUEST = ".request"
ANSWER = ".answer"
KEPT_MS = 86_400_000
_NAME = re.compile(r"([0-9a-f]{12})-[0-9a-f]{16}\.(request|answer)")
_MAX_BYTES = 16 << 20


def write(disk: Disk, store: str, name: str, told: dict[str, Any]) -> None:
    """Put a request or an answer there, durably."""
    refuse_links(disk, f"{store}/{INBOX}")
    disk.mkdir(f"{store}/{INBOX}")
    whole = {**told, "checksum": _checksum(told)}
    disk.write_atomically(f"{store}/{INBOX}/{name}", json.dumps(whole).encode())


def read(disk: Disk, store: str, name: str) -> dict[str, Any] | None:
    """A request or an answer; None: it is not there. Raises Corruption."""
    path = f"{store}/{INBOX}/{name}"
    try:
        found = json.loads(disk.read(path, _MAX_BYTES))
        claimed = found.pop("checksum")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Corruption(path, 0, "is no request and no answer") from None
    if claimed != _checksum(found):
        raise Corruption(path, 0, "checksum", expected=_checksum(found), found=claimed)
    return dict(found)


def remove(disk: Disk, store: str, *names: str) -> None:
    """Take these away, as far as they are there."""
    for name in names:
        path = f"{store}/{INBOX}/{name}"
        if disk.exists(path):
            disk.unlink(path)


def waiting(disk: Disk, store: str, now_ms: int, stuck: set[str] | None = None) -> list[str]:
    """Requests without an answer, oldest first; what is too old is removed. One listing.

    What cannot be removed stands in the way of nothing: it is added to ``stuck``, with a warning,
    and what is there already is not tried.
    """
    if not disk.exists(f"{store}/{INBOX}"):
        return []
    names = set(disk.listdir(f"{store}/{INBOX}"))
    found = []
    for name in sorted(names):
        who = _NAME.fullmatch(name)
        if who is None:
            continue
        if int(who.group(1), 16) + KEPT_MS < now_ms:
            if stuck is None or name not in stuck:
                _removed(disk, store, name, set() if stuck is None else stuck)
        elif who.group(2) == "request" and name.removesuffix(REQUEST) + ANSWER not in names:
            found.append(name)
    return found


def _removed(disk: Disk, store: str, name: str, stuck: set[str]) -> None:
    try:
        remove(disk, store, name)
    except OSError as error:
        stuck.add(name)
        log.warning("%s/%s/%s stays: %s", store, INBOX, name, error)


def _checksum(told: dict[str, Any]) -> str:
    return f"{xxh3(json.dumps(told, sort_keys=True).encode()):016x}"
