"""A process that visits damaged and hostile stores, with little memory and a watch on itself.

    python visiting.py HOME KIND SEED FIRST COUNT [EXTRA_MIB]

HOME has what specimens.Specimens made and saved. For each number from FIRST on it copies a
specimen, changes the copy (KIND: "bits", "splices" or "hostile", see ``changed``), and does with it
what a user would: open, read everything in every way, write, verify, back up, restore, repair,
read snapshots, take in jobs. What must hold:

- nothing but right values and errors of Octavo's that name the file; what is absent or older is
  told (not asked of hostile stores, which may say what they like);
- never more than EXTRA_MIB MiB of address space above what the modules take, nor 5 s of processor;
- no file outside of the store's directory is opened, linked, renamed or removed, and nothing is
  unpickled: an audit hook sees all of it.

Prints a line of JSON for each number that went wrong, and one with figures at the end.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import file_parts
import forging
import numpy  # noqa: F401 - what is loaded later would count as memory and as files
import pandas  # noqa: F401 - as well: pyarrow loads it in the midst of a read, and it a time zone
import pyarrow  # noqa: F401 - as well
from specimens import BUCKETS, NAMES, RESERVE_BYTES, Versions, loaded, options
from whole_store import SMALL

import octavo
from octavo.actors.keeping.ingest import ingest
from octavo.actors.opening import identity as identities
from octavo.actors.opening import startup
from octavo.actors.opening.options import Options
from octavo.actors.published_reader import PublishedReader
from octavo.actors.writing import reserve
from octavo.files.door.disk import RealDisk
from octavo.files.handover import inbox, staging
from octavo.files.journal import record
from octavo.manifest import published
from octavo.pipeline.feed_files import JournalLook, records
from octavo.snapshot import SnapshotBucket

NOW_MS = 2_000_000_000_000
MOST_SECONDS = 5.0
STEP = 1_000_003
"""A prime: by steps of so many every bit of a part comes once, from everywhere in it at first."""
ACTIVE = re.compile(r"(?<!/)\bjournal/[0-9a-f]+-[0-9a-f]+\.log\b")
"""A journal file that is being written, in what is said of a change."""
WRITES = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.symlink", "os.truncate")


class Hang(BaseException):
    """Far more processor time than there may be."""


class Wrong(Exception):  # noqa: N818 - what is found here
    """What must never come of a damaged store."""


# ---------------------------------------------------------------- the watch


class Watch:
    """Sees every file that is touched. It cannot be taken away again, only told where to look."""

    def __init__(self) -> None:
        self.inside = ""
        self.seen: list[str] = []
        self._fine = tuple(
            {os.path.realpath(path) + "/" for path in (sys.prefix, sys.base_prefix, os.getcwd())}
            | {os.path.dirname(os.path.realpath(octavo.__file__)) + "/"}
        )
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.inside:
            return
        if event == "pickle.find_class":
            self.seen.append(f"unpickled {args}")
        elif event == "open":
            self._look(event, args[0], writes=bool(isinstance(args[2], int) and args[2] & 3))
        elif event in WRITES or event == "os.listdir":
            for path in args[:2]:
                if isinstance(path, (str, bytes)):
                    self._look(event, path, writes=event != "os.listdir")

    def _look(self, event: str, path: object, *, writes: bool) -> None:
        if not isinstance(path, (str, bytes)):
            return
        named = os.path.abspath(os.fsdecode(path))
        folder = os.path.realpath(os.path.dirname(named))  # where the name itself is, links apart
        if f"{folder}/".startswith(self.inside) or f"{named}/" == self.inside:
            return
        if named.startswith(("/dev/null", "/dev/urandom", "/proc/", "/sys/", "/etc/local")):
            return
        if not writes and f"{folder}/".startswith(self._fine):
            return  # a module
        if not writes and self.inside.startswith(f"{named}/"):
            return  # a directory above, to sync it
        self.seen.append(f"{event} {named}")

    @contextmanager
    def on(self, folder: Path) -> Iterator[None]:
        self.inside = os.path.realpath(folder) + "/"
        self.seen = []
        try:
            yield
        finally:
            self.inside = ""
        if self.seen:
            raise Wrong(f"left the store's directory: {self.seen[:5]}")


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Break off what takes more of it. Wall-clock time would tell of other people's work."""

    def break_off(number: int, frame: object) -> None:
        raise Hang(f"more than {seconds} s of processor time")

    signal.signal(signal.SIGPROF, break_off)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


# ---------------------------------------------------------------- reading, and judging it


class Judge:
    """What a store may say: ``known`` tells every version; None: anything."""

    def __init__(self, known: Versions | None) -> None:
        self.known = known
        self.named: list[str] = []
        self.missed: list[str] = []

    def errors(self, call: Callable[[], object]) -> None:
        """Errors of Octavo's that name something are an answer."""
        try:
            call()
        except octavo.OctavoError as error:
            if len(str(error)) < 8:
                raise Wrong(f"an error that tells nothing: {error!r}") from error
            self.named.append(str(error))
        except OSError as error:
            # Of a directory or a name that cannot be used; it must say which.
            if error.filename is None:
                raise
            self.named.append(str(error))

    def value(self, tag: str, bucket: bytes, key: bytes, value: object) -> None:
        if self.known is None:
            return
        versions = self.known.of.get((tag, bytes(bucket), bytes(key)))
        if versions is None:
            raise Wrong(f"unknown key {(tag, bucket, key)}")
        if value not in versions:
            raise Wrong(f"{(tag, bucket, key)}: {value!r} is no version of it")
        if value != versions[-1]:
            self.missed.append(f"{(tag, bucket, key)} is an older one")

    def all(self, found: dict[tuple[str, bytes, bytes], bytes]) -> None:
        if self.known is None:
            return
        for where, value in found.items():
            self.value(*where, value)
        self.missed += [f"{where} is absent" for where in self.known.live().keys() - found.keys()]


def items_of(source: Any, judge: Judge, head_only: bool) -> None:
    """All of it, in every way of reading."""
    found: dict[tuple[str, bytes, bytes], bytes] = {}
    for bucket in BUCKETS:
        if head_only:
            for row in source.head_bucket(bucket).rows():
                found[row.sub_key.decode("latin-1"), bucket, bytes(row.key)] = bytes(row.value)
            continue
        for tag in ("standard", "user"):
            part = source.bucket(bucket, tag=tag)
            there = {bytes(key): bytes(value) for key, value in part.items()}
            found.update({(tag, bucket, key): value for key, value in there.items()})
    judge.all(found)


def one_by_one(source: Any, judge: Judge, keys: list[tuple[str, bytes, bytes]]) -> None:
    for tag, bucket, key in keys:

        def get(tag: str = tag, bucket: bytes = bucket, key: bytes = key) -> None:
            part = source.bucket(bucket, tag=tag)
            value, head = part.get(key), part.head(key)
            if value is not None:
                judge.value(tag, bucket, key, bytes(value))
            if judge.known is not None and (value is None) != (head is None):
                raise Wrong(f"{(tag, bucket, key)}: HEAD and GET disagree")

        judge.errors(get)


def other_ways(store: Any, judge: Judge) -> None:
    """Indexes, the change feed, key order backwards, buckets, stats."""
    judge.errors(lambda: [list(store.bucket(b).index("round").keys()) for b in BUCKETS])
    judge.errors(lambda: [list(store.bucket(b).index("name").keys("x", "z")) for b in BUCKETS])
    judge.errors(lambda: list(store.bucket("docs").keys(reverse=True)))
    judge.errors(lambda: list(store.buckets()))
    judge.errors(lambda: len(list(store.changes(0, compacted=True))))
    judge.errors(lambda: store.stats())


class Visitor:
    """Does with a store what a user would."""

    def __init__(self, home: Path, watch: Watch) -> None:
        self.home = home
        self.known = loaded(home)
        self.watch = watch
        self.longest = 0.0

    def started(self, path: str, name: str) -> octavo.Store:
        given = {**SMALL, **options(name)}
        running = startup.start(path, Options(**given), RealDisk(), clock_ms=lambda: NOW_MS)  # type: ignore[arg-type]
        return octavo.Store(running)

    def opening(self, path: str, name: str, judge: Judge) -> None:
        """Open, read, write, verify, publish, close, and once more."""
        for _ in range(2):
            store = self.started(path, name)
            try:
                self._use(store, name, judge)
            finally:
                judge.errors(store.close)

    def _use(self, store: octavo.Store, name: str, judge: Judge) -> None:
        notes = list(store.stats()["notes"])
        judge.named += notes
        judge.errors(lambda: items_of(store, judge, name == "head_only"))
        if name != "head_only":
            one_by_one(store, judge, sorted(self.known[name].of)[::3])
            other_ways(store, judge)
            judge.errors(lambda: self._write(store, name, judge, told=bool(notes)))
        judge.errors(lambda: judge.named.extend(store.verify().problems))
        judge.errors(store.compact)
        judge.errors(lambda: [each.id for each in store.published()])

    def _write(self, store: octavo.Store, name: str, judge: Judge, *, told: bool) -> None:
        sqn = store.put(b"key-after", b"written here")
        highest = self.known[name].highest
        if judge.known is not None:
            if sqn <= highest and not told:
                raise Wrong(f"sqn {sqn} was given twice: {highest} had been reached")
            judge.known.of.setdefault(("standard", b"", b"key-after"), [b"written here", None])
        if store.get(b"key-after") != b"written here":
            raise Wrong("what was put is not there")
        store.delete(b"key-after")

    def read_only(self, path: str, name: str, judge: Judge) -> None:
        """As another process reads it."""
        with octavo.open(path, read_only=True) as found:
            items_of(found, judge, name == "head_only")

    def snapshots(self, path: str, name: str, judge: Judge) -> None:
        """The published snapshots, without the store."""
        disk = RealDisk()
        for folder in published.directories(disk, path):

            def look(folder: str = folder) -> None:
                found = published.read(disk, folder)
                reader = PublishedReader(disk, found, lambda: NOW_MS, 64)
                identity = identities.read(disk, path)
                older = Judge(judge.known)  # of their moment
                try:
                    for bucket in BUCKETS:
                        part = SnapshotBucket(reader, identity, bucket)  # type: ignore[arg-type]
                        for key, value in part.items():
                            older.value("standard", bucket, bytes(key), bytes(value))
                finally:
                    reader._open_files.closed = True

            judge.errors(look)

    def feed(self, path: str, name: str, judge: Judge) -> None:
        """The change feed of another process."""
        look = JournalLook(RealDisk(), path)
        upto = look.newest()
        for part in look.parts(0, upto, 1 << 20):
            for found in records(RealDisk(), path, part, look.horizon):
                if judge.known is not None and name != "head_only" and found.kind == record.PUT:
                    versions = [
                        value
                        for (_, bucket, key), values in judge.known.of.items()
                        if (bucket, key) == (found.bucket, found.key)
                        for value in values
                    ]
                    if found.value not in versions:
                        raise Wrong(f"the feed tells {found.key!r}: {found.value!r}")

    def messages(self, path: str, name: str, judge: Judge) -> None:
        """Requests, answers and the job that waits."""
        disk = RealDisk()
        for message in os.listdir(f"{path}/inbox") if os.path.isdir(f"{path}/inbox") else ():
            judge.errors(lambda message=message: inbox.read(disk, path, message))
        judge.errors(lambda: staging.read_attempt(disk, path, "waiting", "0"))
        store = self.started(path, name)
        try:
            before = set(store.bucket("docs").keys()) if judge.known is not None else set()
            judge.errors(lambda: ingest(store._running, "waiting", ["0"]))
            judge.errors(lambda: list(store.bucket("docs").items()))
            if judge.known is not None:
                for key in set(store.bucket("docs").keys()) - before:
                    if not bytes(key).startswith(b"waiting-"):
                        raise Wrong(f"{key!r} came with a job that has no such key")
        finally:
            store.close()

    def restoring(self, path: str, name: str, judge: Judge) -> None:
        """Restored, and that store read."""
        judge.named += octavo.restore(path, f"{path}-restored").notes
        store = self.started(f"{path}-restored", name)
        try:
            judge.named += store.stats()["notes"]
            items_of(store, judge, name == "head_only")
        finally:
            store.close()

    def backing_up(self, path: str, name: str, judge: Judge) -> None:
        """Backed up to a new place, and an undamaged store onto it."""
        store = self.started(path, name)
        try:
            judge.errors(lambda: store.backup(f"{path}-backup"))
        finally:
            store.close()
        if name == "backup":
            store = self.started(f"{path}-source", "closed")
            try:
                judge.errors(lambda: store.backup(path))
            finally:
                store.close()

    def repairing(self, path: str, name: str, judge: Judge) -> None:
        """Repaired, and then read."""
        done = octavo.repair(path)
        judge.named += [str(lost) for lost in done.files.lost] + done.notes + done.files.notes
        store = self.started(path, name)
        try:
            judge.named += store.stats()["notes"]
            items_of(store, judge, name == "head_only")
        finally:
            store.close()

    def destroying(self, path: str, name: str, judge: Judge) -> None:
        """Removed, and nothing else."""
        octavo.destroy(path)

    VISITS = (
        opening, read_only, snapshots, feed, messages, restoring, backing_up, repairing, destroying,
    )  # fmt: skip

    def _one(
        self,
        call: Callable[[Visitor, str, str, Judge], None],
        name: str,
        what: str,
        changes: Callable[[Path], None],
        work: Path,
        *,
        careful: bool,
    ) -> None:
        place = work / "inside" / "s"
        place.parent.mkdir()
        (work / "secret").write_text("outside of every store")
        shutil.copytree(self.home / name, place)
        changes(place)
        if name == "backup" and call is Visitor.backing_up:
            shutil.copytree(self.home / "closed", f"{place}-source")
        judge = Judge(loaded(self.home)[name] if careful else None)
        began = resource.getrusage(resource.RUSAGE_SELF)
        with processor_time(MOST_SECONDS), self.watch.on(place.parent):
            judge.errors(lambda: call(self, str(place), name, judge))
        ended = resource.getrusage(resource.RUSAGE_SELF)
        took = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
        self.longest = max(self.longest, took)
        # Who only reads takes what is not whole at the journal's end for a write under way.
        tail = ACTIVE.search(what) is not None
        owns = call in (Visitor.opening, Visitor.restoring, Visitor.repairing)
        if judge.missed and not judge.named and (owns or not tail):
            raise Wrong(f"{call.__name__}: nobody was told that {judge.missed[:3]}")
        if (work / "secret").read_text() != "outside of every store":
            raise Wrong(f"{call.__name__}: a file outside of the store was changed")

    def visit(self, kind: str, seed: int, number: int) -> str:
        """One case: what was done; raises what was wrong."""
        rng = random.Random(f"{seed}-{kind}-{number}")
        name, what, changes = changed(self.home, kind, seed, number, rng)
        calls = [rng.choice(self.VISITS) if rng.random() < 0.6 else Visitor.opening]
        if rng.random() < 0.05:
            calls = list(self.VISITS)
        for call in calls:
            with tempfile.TemporaryDirectory(dir=self.home.parent) as work:
                self._one(call, name, what, changes, Path(work), careful=kind != "hostile")
        return f"{name}: {what}; " + ", ".join(call.__name__ for call in calls)


# ---------------------------------------------------------------- what is changed


def flipped(file: str, at: int, place: Path) -> None:
    """Bit ``at`` of a file of a copy."""
    forging.flip(place / file, at // 8, at % 8)


def changed(
    home: Path, kind: str, seed: int, number: int, rng: random.Random
) -> tuple[str, str, Callable[[Path], None]]:
    """(specimen, what is wrong with it, what makes it so)."""
    if kind == "bits":
        of, (name, file, part), turn = file_parts.in_turn(home, NAMES, number)
        bit = turn * STEP % (8 * file_parts.size_of(part))
        at = file_parts.byte_of(part, bit // 8)
        what = f"bit {bit % 8} of byte {at} of {file} flipped: {of}"
        return name, what, partial(flipped, file, 8 * at + bit % 8)
    if kind == "splices":
        return forging.spliced(home, NAMES, rng)
    name = rng.choice(NAMES)
    what, make = forging.forged(home, name, rng)
    return name, what, make


def limited(extra_mib: int) -> int:
    """Allow no more than so much address space above what there is; MiB that there are."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    there = pages * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (there + (extra_mib << 20), hard))
    return there >> 20


def main() -> None:
    home, kind, seed, first, count = sys.argv[1:6]
    extra = int(sys.argv[6]) if len(sys.argv) > 6 else 256
    logging.disable(logging.CRITICAL)
    reserve.RESERVE_BYTES = RESERVE_BYTES
    visitor = Visitor(Path(home), Watch())
    # One of each first: what is imported lazily is neither damage nor memory of a case.
    with tempfile.TemporaryDirectory(dir=Path(home).parent) as work:
        for call in Visitor.VISITS:
            place = Path(work) / call.__name__
            shutil.copytree(Path(home) / "closed", place)
            judge = Judge(loaded(Path(home))["closed"])
            call(visitor, str(place), "closed", judge)
    gc.collect()
    there = limited(extra)
    failed = 0
    for number in range(int(first), int(first) + int(count)):
        try:
            visitor.visit(kind, int(seed), number)
        except BaseException:  # noqa: BLE001 - every one is told
            failed += 1
            name, what, _ = changed(
                Path(home), kind, int(seed), number, random.Random(f"{seed}-{kind}-{number}")
            )
            told = {"number": number, "what": f"{name}: {what}", "error": traceback.format_exc()}
            print(json.dumps(told), flush=True)
    told = {"done": int(count), "failed": failed, "longest": visitor.longest, "mib": there}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
