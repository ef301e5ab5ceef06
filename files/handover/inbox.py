"""Requests to a store's owner from other processes: ``inbox/`` in the store's directory.

    <ms>-<id>.request   what is to be taken in: {"job", "attempts", "stream", "batch", "held"}
    <ms>-<id>.taken     the request's second name: from now on its owner may have done it
    <ms>-<id>.answer    {"first_sqn", "last_sqn", "repeated"}, or {"error": class, "message"}

JSON, its ``checksum`` xxh3-64 of the other fields with sorted keys; written atomically. The asker
has the request locked as long as it waits (``held``), and removes all three files: so the owner
does nothing for one that was killed or gave up, and one that gave up knows whether it may have been
done. ``ms``: the moment of asking, by which what a killed asker left is removed.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from typing import Any

from octavo.files.checked_json import decoded, encoded
from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk, FileLock, refuse_links
from octavo.files.errors import OctavoError
from octavo.files.handover.staging import KEPT_MS
from octavo.files.messages import messages_of

log = messages_of("octavo.inbox")

INBOX = "inbox"
REQUEST = ".request"
TAKEN = ".taken"
ANSWER = ".answer"
HELD = "held"
_NAME = re.compile(r"([0-9a-f]{12})-[0-9a-f]{16}\.(request|taken|answer)(\.tmp)?")
_MAX_BYTES = 16 << 20


class Request:
    """A request to a store's owner, for the one who asks. Nothing is written before ``ask``."""

    def __init__(self, disk: Disk, store: str, told: dict[str, Any], now_ms: int) -> None:
        self._disk = disk
        self._store = store
        self._told = {**told, HELD: True}
        self._stem = f"{now_ms:012x}-{secrets.randbits(64):016x}"
        self._path = f"{store}/{INBOX}/{self._stem}"
        self._lock: FileLock | None = None
        self._begun = False

    def ask(self) -> None:
        """Put the request into the inbox, locked; the first call alone does. Not synced: after a
        power cut nobody waits for it."""
        if self._lock is not None:
            return
        disk, path = self._disk, self._path + REQUEST
        refuse_links(disk, f"{self._store}/{INBOX}")
        disk.mkdir_within(self._store, INBOX)
        self._begun = True
        file = disk.create(path + TEMPORARY_SUFFIX)
        try:
            file.write_all(encoded(self._told))
        finally:
            file.close()
        lock = disk.hold_file(path + TEMPORARY_SUFFIX)  # before anybody looks whether it is
        disk.rename(path + TEMPORARY_SUFFIX, path)
        self._lock = lock

    def answer(self) -> dict[str, Any] | None:
        """The owner's answer; None: there is none yet. Raises Corruption."""
        return read(self._disk, self._store, self._stem + ANSWER)

    def withdraw(self) -> bool:
        """Stop waiting and remove all files. Whether the owner may have done it; if not, it never
        will. Idempotent."""
        if not self._begun:
            return False  # or an inbox that cannot be searched would hide the error that matters
        disk, store, stem = self._disk, self._store, self._stem
        try:
            remove(disk, store, stem + REQUEST, stem + REQUEST + TEMPORARY_SUFFIX)
            taken = disk.exists(self._path + TAKEN)  # not any more: its first name is gone
            remove(disk, store, stem + TAKEN, stem + ANSWER)
        finally:
            if self._lock is not None:
                self._lock.release()
        return taken


def is_held(disk: Disk, store: str, name: str) -> bool:
    """Whether the asker of this request is alive, and waits. Raises Corruption."""
    return disk.is_held(f"{store}/{INBOX}/{name}")


def take(disk: Disk, store: str, name: str) -> bool:
    """Mark a request as taken, as the owner does before anything that it cannot undo. False: nobody
    waits for it. From then on only the answer tells the asker whether it was done."""
    path = f"{store}/{INBOX}/{name}"
    if not is_held(disk, store, name):
        return False
    try:
        disk.link(path, path.removesuffix(REQUEST) + TAKEN)
    except FileExistsError:  # by an owner that was killed, or could not do it then
        return True
    except FileNotFoundError:
        return False
    return True


def forget(disk: Disk, store: str, name: str) -> None:
    """Remove a request that nobody waits for, with all that belongs to it; but not while its asker
    is about to look whether it was taken: that one then removes it."""
    stem = name.removesuffix(REQUEST)
    if not _lives(disk, store, stem):
        remove(disk, store, name, stem + TAKEN, stem + ANSWER)


def _lives(disk: Disk, store: str, stem: str) -> bool:
    """Whether the asker still has the request locked, under either of its names."""
    return any(is_held(disk, store, stem + kind) for kind in (REQUEST, TAKEN))


def write(disk: Disk, store: str, name: str, told: dict[str, Any]) -> None:
    """Put an answer into the inbox, durably; or a request that nobody has locked."""
    refuse_links(disk, f"{store}/{INBOX}")
    disk.mkdir_within(store, INBOX)
    disk.write_atomically(f"{store}/{INBOX}/{name}", encoded(told))


def read(disk: Disk, store: str, name: str) -> dict[str, Any] | None:
    """A request or an answer; None: it is not there. Raises Corruption."""
    path = f"{store}/{INBOX}/{name}"
    try:
        return decoded(disk.read(path, _MAX_BYTES), path, "a request or an answer")
    except FileNotFoundError:
        return None


def remove(disk: Disk, store: str, *names: str) -> None:
    """Remove these files, as far as they are there."""
    for name in names:
        with suppress(FileNotFoundError):  # both sides may remove them
            disk.unlink(f"{store}/{INBOX}/{name}")


def waiting(disk: Disk, store: str, now_ms: int, stuck: set[str] | None = None) -> list[str]:
    """Requests without an answer, oldest first. Files that are too old are removed, but not those
    of a request that is still held. One listing. Raises Corruption where the inbox is a link.

    What cannot be removed stops nothing: it is added to ``stuck``, with a warning; what is in that
    already is not tried again.
    """
    if not disk.exists(f"{store}/{INBOX}"):
        return []
    refuse_links(disk, f"{store}/{INBOX}")
    names = set(disk.listdir(f"{store}/{INBOX}"))
    found = []
    stuck = set() if stuck is None else stuck
    for name in sorted(names):
        who = _NAME.fullmatch(name)
        if who is None:
            continue
        stem = name.partition(".")[0]
        if int(who.group(1), 16) + KEPT_MS < now_ms and not _waited_for(disk, store, stem):
            if name not in stuck:
                _removed(disk, store, name, stuck)
        elif name == stem + REQUEST and stem + ANSWER not in names:
            found.append(name)
    return found


def _waited_for(disk: Disk, store: str, stem: str) -> bool:
    """Whether the asker is alive; age does not tell, since its clock or the owner's may be days
    off."""
    with suppress(OctavoError, OSError):
        return _lives(disk, store, stem)
    return False


def _removed(disk: Disk, store: str, name: str, stuck: set[str]) -> None:
    try:
        remove(disk, store, name)
    except OSError as error:
        stuck.add(name)
        log.warning("%s/%s/%s stays: %s", store, INBOX, name, error)
