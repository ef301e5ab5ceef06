"""Small stores with every kind of file in them, and what may be read from a damaged one.

A store is damaged by copying the directory of an undamaged one and changing the copy: taken
while the store is open and still, a copy is what SIGKILL leaves behind.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from pykka import ActorDeadError

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.opening import startup
from octavo.actors.opening.options import Options
from octavo.actors.scanning.kept_scans import Stretches
from octavo.files.door.disk import Disk, RealDisk

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))
SMALL = {
    "push_rows": 64,
    "push_bytes": 64 << 10,
    "roll_count": 256,
    "worker": False,
    "read_cache_bytes": 0,
}
"""Options with which a few hundred puts roll the journal and merge the ledger."""
NEVER_MS = 4_000_000_000_000
"""An expiry that no test lives to see, ms UTC."""


class Clock:
    """A clock that a test sets: call it for the time, add to ``now`` to let time pass."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class WallClock(Clock):
    """The same of whole ms UTC."""

    def __call__(self) -> int:
        return int(self.now)


def opened(path: Path | str, disk: Disk | None = None, **given: object) -> octavo.Store:
    """A small store; ``clock_ms`` and ``monotonic`` stand in for the clocks."""
    clocks = {name: given.pop(name) for name in ("clock_ms", "monotonic") if name in given}
    options = Options(**{**SMALL, **given})  # type: ignore[arg-type]
    return octavo.Store(startup.start(str(path), options, disk or RealDisk(), **clocks))


def active_file(store: octavo.Store) -> Path:
    """The journal file that is being written."""
    active = store._inker.active
    assert active is not None
    return Path(active.path)


def taken(store: octavo.Store) -> int:
    """Where its last record ends."""
    active = store._inker.active
    assert active is not None
    return active.offsets[-1]


def ahead(store: octavo.Store) -> int:
    """Its bytes behind that."""
    return active_file(store).stat().st_size - taken(store)


def rolled(store: octavo.Store) -> None:
    """Begin a new journal file, as a put does: in the Bookie's turn. Outside it what the pool does
    meanwhile could put a view from before back."""
    store._running.bookie.call(lambda bookie: bookie.inker.roll())


# ---------------------------------------------------------------- waiting


def settle(store: octavo.Store) -> None:
    """Return when nothing is left to save, merge, seal or delete that could be: by taking the
    turns of those who do it, which serves what was sent to them."""
    running = store._running
    inker, penciller = running.inker.actor, running.penciller.actor
    clerk = running.clerk.actor
    for _ in range(10_000):
        before = (penciller.manifest.version, len(penciller.tables), len(inker.unsealed))
        for actor in (running.bookie.actor, penciller, clerk, *inker.unsealed, inker, penciller):
            with suppress(ActorDeadError):  # a file may have been trimmed meanwhile
                actor.enter()
                actor.leave()
        busy = penciller.next_task() or inker.unsealed
        after = (penciller.manifest.version, len(penciller.tables), len(inker.unsealed))
        if before == after and (not busy or penciller.failed or penciller.condemned):
            return
    raise AssertionError("the store does not come to rest")


def flush(store: octavo.Store) -> None:
    """Memory goes into the ledger, and everything that follows from it is done."""
    store._running.bookie.call(Bookie.push)
    settle(store)


def verified(store: octavo.Store) -> None:
    """All files of its ledger, as after many lookups."""
    for entry in store._bookie.view.ledger.entries:
        entry.file.reader().ensure_whole()


def stretches(store: octavo.Store) -> Stretches:
    """What is kept of the store's ledger as it is."""
    bookie = store._bookie
    return bookie.kept_scans.of(bookie.view.ledger)


@contextmanager
def standing_still(store: octavo.Store) -> Iterator[None]:
    """Hold every actor's turn, so that the directory does not change."""
    running = store._running
    with ExitStack() as turns:
        for actor in (
            running.clerk.actor,
            running.inker_clerk.actor,
            running.bookie.actor,
            running.penciller.actor,
            running.inker.actor,
        ):
            actor.enter()
            turns.callback(actor.leave)
        for file in running.inker.actor.view.files:  # now that none of them can go
            file.enter()
            turns.callback(file.leave)
        yield


def killed(store: octavo.Store, image: Path) -> Path:
    """What SIGKILL would leave of ``store`` now, copied to ``image``; the store goes on."""
    with standing_still(store):
        shutil.copytree(store.path, image)
    return image


class Hang(BaseException):
    """Something took far longer than it may."""


@contextmanager
def no_hang(seconds: float = 300.0) -> Iterator[None]:
    """Break off what takes longer, which is far longer than a slow machine needs. Only in the main
    thread."""

    def break_off(number: int, frame: FrameType | None) -> None:
        raise Hang(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, break_off)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---------------------------------------------------------------- what was put, what is found


@dataclass
class Known:
    """Every version of every (bucket, key) that was ever put; None is a delete."""

    versions: dict[tuple[bytes, bytes], list[bytes | None]] = field(default_factory=dict)
    sqns: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    metadata: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    highest: int = 0

    def put(self, bucket: bytes, key: bytes, value: bytes | None, sqn: int, meta: bytes) -> None:
        self.versions.setdefault((bucket, key), []).append(value)
        self.metadata[bucket, key] = meta
        self.sqns[sqn] = (bucket, key)
        self.highest = max(self.highest, sqn)

    def newest(self, sqn: int) -> bool:
        """Whether this is the newest version of its key, and not a delete."""
        where = self.sqns.get(sqn)
        later = [other for other, key in self.sqns.items() if key == where and other > sqn]
        return where is not None and not later and self.versions[where][-1] is not None

    def live(self) -> dict[tuple[bytes, bytes], bytes]:
        """What an undamaged store holds."""
        newest = {where: found[-1] for where, found in self.versions.items()}
        return {where: value for where, value in newest.items() if value is not None}


def fill(store: octavo.Store, known: Known, rng: random.Random, count: int, start: int = 0) -> None:
    """``count`` puts, deletes and batches, in two buckets, of every kind of record."""
    for i in range(start, start + count):
        bucket = rng.choice((b"", b"docs"))
        target = store.bucket(bucket)
        key = b"key-%03d" % rng.randrange(300)
        value = b"value %d of %s;" % (i, key) + rng.randbytes(rng.randrange(40))
        kind = rng.randrange(12)
        if kind == 0:
            known.put(bucket, key, None, target.delete(key), b"")
        elif kind == 1:
            value += b"compressible " * 300
            known.put(bucket, key, value, target.put(key, value, metadata=b"m%d" % i), b"m%d" % i)
        elif kind == 2:
            sqn = target.put(key, value, expires_at=NEVER_MS)
            known.put(bucket, key, value, sqn, b"")
        elif kind == 3:
            with store.batch() as batch:
                for j in range(3):
                    batch.put(bucket, key + b".%d" % j, value)
            for j in range(3):
                known.put(bucket, key + b".%d" % j, value, batch.last_sqn - 2 + j, b"")
        else:
            known.put(bucket, key, value, target.put(key, value), b"")


@dataclass
class Outcome:
    """What came of opening and reading a store that may be damaged."""

    refused: str = ""  # why it was not opened
    right: int = 0
    lost: list[tuple[bytes, bytes]] = field(default_factory=list)  # absent, and a note says so
    older: list[tuple[bytes, bytes]] = field(default_factory=list)  # an older version, likewise
    named: list[str] = field(default_factory=list)  # errors that reading raised
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # of verify()

    @property
    def whole(self) -> bool:
        """Everything was there, and right."""
        return not (self.refused or self.lost or self.older or self.named)


NAMED = (octavo.Corruption, octavo.UnsupportedFormat)


def look(path: Path, known: Known, where: str, **given: object) -> Outcome:
    """Open the store and read all of it, each way there is.

    Passes over right values, values that are absent or older while a note says what was lost,
    and named errors. Anything else fails: a wrong value, an unknown key, another error, a sqn
    that is given twice, ways of reading that do not agree, no end.
    """
    outcome = Outcome()
    with no_hang():
        try:
            store = opened(path, **given)
        except NAMED as error:
            outcome.refused = str(error)
            return outcome
        try:
            outcome.notes = store.stats()["notes"]
            _read_all(store, known, outcome, where)
            sqn = store.put(b"after", b"damage")
            assert sqn > known.highest, f"{where}: sqn {sqn} was given twice"
            assert store.get(b"after") == b"damage"
            outcome.problems = store.verify().problems
        finally:
            store.close()
    return outcome


def _read_all(store: octavo.Store, known: Known, outcome: Outcome, where: str) -> None:
    absent: set[tuple[bytes, bytes]] = set()
    for (bucket, key), versions in known.versions.items():
        found, failed = _read_one(store.bucket(bucket), key)
        what = f"{where}: {bucket!r} {key!r}"
        if failed:
            outcome.named.append(failed)
        elif found == versions[-1]:
            outcome.right += 1
        elif found is None:
            assert outcome.notes, f"{what} is absent, and no note says why"
            outcome.lost.append((bucket, key))
        else:
            assert found in versions, f"{what}: {found!r} is no version of it"
            assert outcome.notes, f"{what} is of an older version, and no note says why"
            outcome.older.append((bucket, key))
        if found is None and not failed:
            absent.add((bucket, key))
    with store.snapshot() as snap:
        for source, (bucket, key) in [
            (source, pair) for source in (store, snap) for pair in known.versions
        ]:
            if source is snap:
                found, failed = _read_one(snap.bucket(bucket), key)
                again = _read_one(store.bucket(bucket), key)
                assert (found, bool(failed)) == (again[0], bool(again[1])), (
                    f"{where}: {bucket!r} {key!r}: a snapshot reads something else"
                )
        for bucket in (b"", b"docs"):
            for source in (store, snap):
                _scan(source, bucket, known, absent, outcome, where)


def _read_one(bucket: octavo.Bucket, key: bytes) -> tuple[bytes | None, str]:
    """(value or None, why it could not be read); HEAD must agree."""
    try:
        found = bucket.get(key)
    except NAMED as error:
        return None, str(error)
    try:
        head = bucket.head(key)
    except NAMED as error:
        return None, str(error)
    assert (head is None) == (found is None), f"{key!r}: HEAD and GET disagree"
    assert head is None or head.size == len(found), f"{key!r}: HEAD tells another size"
    return found, ""


def _scan(
    source: octavo.Store | octavo.Snapshot,
    bucket: bytes,
    known: Known,
    absent: set[tuple[bytes, bytes]],
    outcome: Outcome,
    where: str,
) -> None:
    for reverse in (False, True):
        keys: list[bytes] = []
        whole = False
        try:
            for key in source.bucket(bucket).keys(reverse=reverse):
                assert (bucket, key) in known.versions, f"{where}: unknown key {key!r}"
                keys.append(key)
            whole = True
            for key, value in source.bucket(bucket).items(reverse=reverse):
                versions = known.versions[bucket, key]
                assert value in versions, f"{where}: {key!r}: {value!r} is no version of it"
        except NAMED as error:
            outcome.named.append(str(error))
        assert keys == sorted(set(keys), reverse=reverse), f"{where}: out of order, or twice"
        if whole and not outcome.named:
            there = {key for at, key in known.versions if at == bucket and (at, key) not in absent}
            assert set(keys) == there, f"{where}: keys() and get() disagree"
