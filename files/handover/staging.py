"""What a job made elsewhere and hands over to a store: ``staging/<job>/`` in the store's directory.

    <attempt>-<number>-<ms>-<seed>.cdb   sealed journal files (cdb.py), base 0: "made elsewhere"
    <attempt>-<number>-<ms>-....sst      ledger files of one journal file, sqns relative to it
    <attempt>.json                       the attempt: names, counts, digests

``attempt`` is a task's part and attempt, ``ms`` the moment when the file was begun.

An attempt is JSON, its ``checksum`` xxh3-64 of the other fields with sorted keys. It is written
last, when all it names is durable. Only attempts that a commit names count; others are left-overs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from octavo.files.argument_checks import shown
from octavo.files.checked_json import decoded, encoded
from octavo.files.door.disk import Disk, refuse_links
from octavo.files.errors import Corruption, Misuse, OctavoError
from octavo.files.messages import messages_of

log = messages_of("octavo.ingest")

STAGING = "staging"
ATTEMPT_SUFFIX = ".json"
_FORMAT = 1
_MAX_ATTEMPT_BYTES = 64 << 20
_OTHERS_BYTES = 1 << 20
"""A part of these: more than all takes that an attempt says besides its journal files."""
KEPT_MS = 86_400_000
"""How long the files of a job that was not committed are kept, from its newest one on."""
_AGE = re.compile(r"-([0-9a-f]{12})-[0-9a-f]{16}")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class StagedLedger:
    """A ledger file of an attempt; its sqns are relative to its journal file."""

    name: str
    rows: int
    bytes: int
    tombstones: int
    expiring: int
    first_key: str
    last_key: str
    min_sqn: int
    max_sqn: int


@dataclass(frozen=True, slots=True)
class StagedJournal:
    """A journal file of an attempt, and the ledger files of its records."""

    name: str
    count: int
    bytes: int
    seed: int
    digest: int
    """The trailer's checksum, which covers those of all tables."""
    ledgers: tuple[StagedLedger, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """All that one attempt of one task made."""

    job: str
    name: str
    journals: tuple[StagedJournal, ...] = field(default=())
    created_ms: int = 0

    @property
    def count(self) -> int:
        """How many records it has."""
        return sum(journal.count for journal in self.journals)


def checked_name(what: str, name: object) -> str:
    """A job's or an attempt's name, if it can be a file's name; else raises Misuse."""
    if not isinstance(name, str) or not _JOB.fullmatch(name):
        raise Misuse(
            f"{what}={shown(name)}: allowed are 1 to 128 letters, digits, '-', '_' and '.', "
            "a letter or a digit first"
        )
    return name


def folder(store: str, job: str) -> str:
    """Where a job's files stand. Raises Misuse."""
    return f"{store}/{STAGING}/{checked_name('job_id', job)}"


class Room:
    """How much more an attempt that is being made may say, since it is read as a whole. Only keys
    of many KiB can use that up: it names the first and the last key of each ledger file."""

    def __init__(self) -> None:
        self._left = _MAX_ATTEMPT_BYTES - _OTHERS_BYTES

    def take(self, journal: StagedJournal) -> None:
        """Take the room for this journal file. Raises Misuse where there is not enough."""
        self._left -= len(json.dumps(asdict(journal))) + len(", ")
        if self._left < 0:
            raise Misuse(
                "the keys are so long that one attempt cannot name all its files within "
                f"{_MAX_ATTEMPT_BYTES >> 20} MiB: load in more tasks, each with fewer rows"
            )


def write_attempt(disk: Disk, store: str, attempt: Attempt) -> None:
    """Write durably what the attempt made; all that it names must be durable before."""
    told: dict[str, Any] = {"format": _FORMAT, **asdict(attempt)}
    path = f"{folder(store, attempt.job)}/{attempt.name}{ATTEMPT_SUFFIX}"
    disk.write_atomically(path, encoded(told))


def read_attempt(disk: Disk, store: str, job: str, name: str) -> Attempt:
    """What an attempt made, as it says. Raises Misuse where it is not there, Corruption."""
    path = f"{folder(store, job)}/{checked_name('attempt', name)}{ATTEMPT_SUFFIX}"
    refuse_links(disk, f"{store}/{STAGING}", folder(store, job))
    try:
        told = decoded(disk.read(path, _MAX_ATTEMPT_BYTES), path, "an attempt", _FORMAT)
    except FileNotFoundError:
        raise Misuse(
            f"job {job!r} has no finished attempt {name!r} ({path} is not there): "
            "nothing was taken in"
        ) from None
    try:
        journals = tuple(
            StagedJournal(
                **{
                    **journal,
                    "ledgers": tuple(StagedLedger(**ledger) for ledger in journal["ledgers"]),
                }
            )
            for journal in told["journals"]
        )
        attempt = Attempt(told["job"], told["name"], journals, int(told["created_ms"]))
        for journal in journals:
            _check(journal)
    except (KeyError, TypeError, ValueError, OverflowError, Misuse) as wrong:
        raise Corruption(path, 0, f"does not describe an attempt: {wrong}") from None
    if (attempt.job, attempt.name) != (job, name):
        raise Corruption(path, 0, f"is of attempt {attempt.name!r} of job {attempt.job!r}")
    return attempt


def _check(journal: StagedJournal) -> None:
    """Check that names and numbers are plain, so that nothing outside of the folder is ever named.
    Raises ValueError, Misuse."""
    checked_name("name", journal.name)
    numbers = [journal.count, journal.bytes, journal.seed, journal.digest]
    for ledger in journal.ledgers:
        checked_name("name", ledger.name)
        numbers += [ledger.rows, ledger.bytes, ledger.tombstones, ledger.expiring]
        numbers += [ledger.min_sqn, ledger.max_sqn]
        if not ledger.min_sqn <= ledger.max_sqn < journal.count:
            raise ValueError(f"{ledger.name}: sqns")
    if set(map(type, numbers)) != {int} or min(numbers) < 0 or not journal.count:
        raise ValueError(f"{journal.name}: numbers")


def sweep(disk: Disk, store: str, now_ms: int) -> list[str]:
    """Remove the folders of jobs that began no file for ``KEPT_MS`` and were never committed;
    return their names. Empty ones, which a killed task leaves, go, too: a task that is about to
    make something there makes its folder again. One whose age cannot be told, or that cannot be
    removed, is left alone."""
    if not disk.exists(f"{store}/{STAGING}"):
        return []
    gone = []
    for job in disk.listdir(f"{store}/{STAGING}"):
        if not _JOB.fullmatch(job):
            continue
        where = f"{store}/{STAGING}/{job}"
        if disk.is_link(where):
            continue
        try:
            names = disk.listdir(where)
            if not names:
                disk.rmdir(where)
                continue
            ages = _begun(disk, store, job, names)
            if ages and max(ages) + KEPT_MS < now_ms:
                empty(disk, store, job)
                gone.append(job)
        except FileNotFoundError:
            continue  # its owner is removing it
        except OSError as error:  # another user's, say: no reason not to open the store
            log.warning("%s is left over, and cannot be removed: %s", where, error)
    return gone


def _begun(disk: Disk, store: str, job: str, names: Sequence[str]) -> list[int]:
    """When attempts of a job began files, ms UTC, as their names say; if there are none, the times
    that finished attempts without files say."""
    ages = [int(age.group(1), 16) for name in names if (age := _AGE.search(name))]
    if not ages:
        for name in names:
            with suppress(OctavoError, OSError):
                attempt = name.removesuffix(ATTEMPT_SUFFIX)
                ages.append(read_attempt(disk, store, job, attempt).created_ms)
    return ages


def drop(disk: Disk, store: str, job: str, attempts: Sequence[str]) -> None:
    """Remove what these attempts staged, and the folder if nothing else is in it. Idempotent."""
    where = folder(store, job)
    if not attempts or not disk.exists(where):
        return
    refuse_links(disk, f"{store}/{STAGING}", where)
    begun = tuple(f"{attempt}{mark}" for attempt in attempts for mark in "-.")
    for name in disk.listdir(where):
        if name.startswith(begun):
            disk.unlink(f"{where}/{name}")
    with suppress(OSError):
        disk.rmdir(where)


def empty(disk: Disk, store: str, job: str) -> None:
    """Remove a job's folder with all that is in it. Idempotent. Raises OSError where it cannot."""
    where = folder(store, job)
    if not disk.exists(where):
        return
    refuse_links(disk, f"{store}/{STAGING}", where)
    for name in disk.listdir(where):
        disk.unlink(f"{where}/{name}")
    disk.rmdir(where)
