"""A process that reads single damaged and forged files with what reads files of their kind.

    python single_files.py HOME KIND SEED FIRST COUNT [EXTRA_MIB]

As visiting.py, but for each number one file of a specimen is replaced, read alone in each way that
the library has, and put back: some 100 times as many for the time. KIND is "files". A quarter are
damaged without knowledge, or all of another file: those must give what the whole one gives, or be
told. Half are a forger's, with right checksums: those may say what they like. The rest are no
files. None may cost 256 MiB, 5 s of processor, or a look at what is outside of the store.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import file_parts
import forging
from specimens import BUCKETS, MADE_MS, NAMES, files_of
from visiting import Judge, Watch, Wrong, limited, processor_time

from octavo.actors.opening import identity as identities
from octavo.actors.published_reader import PublishedReader
from octavo.files.door.disk import RealDisk
from octavo.files.handover import inbox, staging
from octavo.files.jobs import live_bits
from octavo.files.jobs.live_bits import LiveBits
from octavo.files.journal import cdb, journal_rows
from octavo.files.journal.runs import Run
from octavo.files.journal.sealed_records import file_records
from octavo.files.ledger.hashing import hash_of
from octavo.files.ledger.sst import Sst
from octavo.manifest import change_log, published, recovery
from octavo.manifest.consumers import _decoded
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.pipeline.batch_reader import SnapshotReader
from octavo.pipeline.feed_files import JournalLook, records
from octavo.pipeline.read_options import DDL, parsed
from octavo.snapshot import SnapshotBucket

MOST_SECONDS = 5.0
DISK = RealDisk()
WHOLE_SNAPSHOTS = 0.2
"""With so many of its files a snapshot is read as a whole, which takes longer."""


class Place(NamedTuple):
    """A file in a copy of a specimen."""

    store: str
    file: str
    """From there."""

    @property
    def path(self) -> str:
        return f"{self.store}/{self.file}"

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]


Reading = Callable[[Place], object]
"""Reads a file; what it answers can be compared with what the whole one gives."""


# ---------------------------------------------------------------- small files


def identity(at: Place) -> object:
    return repr(identities.read(DISK, at.store))


def consumers(at: Place) -> object:
    return _decoded(DISK.read(at.path, 1 << 20), at.path)


def message(at: Place) -> object:
    return inbox.read(DISK, at.store, at.name)


def attempt(at: Place) -> object:
    return repr(staging.read_attempt(DISK, at.store, "waiting", "0"))


def manifest_of_a_snapshot(at: Place) -> object:
    return repr(published.read(DISK, at.folder))


def live(at: Place) -> object:
    bits = LiveBits(DISK, at.path)
    wanted = journal_rows.np.arange(200, dtype="int64")
    return bits.are(wanted).tolist()


def log(at: Place) -> object:
    """A change log. Cut or torn it may say an earlier state: nothing to compare."""
    found = change_log.recover(DISK, at.folder)
    if found.snapshot is not None:
        kind = LedgerManifest if "ledger/" in at.file else JournalManifest
        kind.replayed(found.snapshot, found.changes)
    return None


# ---------------------------------------------------------------- the ledger


def rows(at: Place) -> object:
    """All of a ledger file, checked at first."""
    sst = Sst(DISK.map(at.path), at.path)
    sst.verify()
    return sst.ledger_keys(0, sst.rows), sst.columns().sqns.tolist(), list(sst.groups())


def rows_one_by_one(at: Place) -> object:
    """As single reads find them, each window checked when it is needed."""
    sst = Sst(DISK.map(at.path), at.path)
    found: list[object] = []
    for row in range(0, min(sst.rows, 4000), 7):
        key = sst.ledger_key(row)
        found.append((key, sst.find(key, hash_of(key)), sst.lower_bound(key), sst.meta(row)))
    return found


# ---------------------------------------------------------------- the journal


def seed_of(at: Place) -> int:
    return int(at.name.partition(".")[0].split("-")[-1][:16], 16)


def sealed(at: Place) -> object:
    """By its table of offsets: heads as columns."""
    view, table, stretches = file_records(DISK, at.path, seed_of(at), 1)
    sqns = [sqn for stretch in stretches for sqn in stretch.rows.sqns.tolist()]
    trailer = cdb.read_trailer(bytes(view[-cdb.TRAILER_BYTES :]), len(view), at.path)
    cdb.read_header(view[: cdb.RECORDS_AT], at.path)
    cdb.read_origin(view, trailer, at.path)
    cdb.verify_tables(view, trailer, at.path)
    return table.numbers.tolist(), table.starts.tolist(), sqns


def scanned(at: Place) -> object:
    """Record by record. What is not whole is stepped over: a subset of what was there."""
    buffer = DISK.map(at.path)
    return set(cdb.scan(buffer, cdb.RECORDS_AT, len(buffer), seed_of(at), []))


def tail(at: Place) -> object:
    """As a reader of another process reads what is being written."""
    found = recovery.growing_tail(DISK, at.path, at.name)
    return [
        row
        for each in found.changes
        for row in (cdb.each_of(each) if isinstance(each, Run) else (each,))
    ]


def feed(at: Place) -> object:
    """The change feed over all of the journal."""
    look = JournalLook(DISK, at.store)
    parts = look.parts(0, look.newest(), 1 << 20)
    return [
        (found.kind, found.bucket, found.key, found.value)
        for part in parts
        for found in records(DISK, at.store, part, look.horizon)
    ]


# ---------------------------------------------------------------- whole snapshots


def snapshot(at: Place) -> object:
    """Every value of a published snapshot, as another process reads it."""
    found = published.read(DISK, at.folder)
    reader = PublishedReader(DISK, found, lambda: MADE_MS, 64)
    told = identities.read(DISK, at.store)
    try:
        return [
            (bucket, bytes(key), bytes(value))
            for bucket in BUCKETS
            for key, value in SnapshotBucket(reader, told, bucket).items()  # type: ignore[arg-type]
        ]
    finally:
        reader._open_files.closed = True


def schema(names: str) -> Any:
    """Spark's, of these columns."""
    from pyspark.sql import types

    kinds = {"binary": types.BinaryType(), "bigint": types.LongType()}
    return types.StructType([types.StructField(name, kinds[DDL[name]]) for name in names.split()])


def for_spark(names: str, at: Place) -> object:
    """The rows that Spark's tasks would read; in any order."""
    options = parsed({"path": at.store})
    reader = SnapshotReader(options, at.folder, None, schema(names))
    return sorted(
        tuple(row.values())
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    )


SNAPSHOT: tuple[Reading, ...] = (
    snapshot, partial(for_spark, "bucket key value"), partial(for_spark, "bucket key size"),
)  # fmt: skip
SUBSETS: tuple[Reading, ...] = (scanned,)
"""What may find less in a damaged file, never another thing."""
BEGINNINGS: tuple[Reading, ...] = (tail, feed)
"""What may miss the last ones in a file that was cut, or whose end is damaged, and no others."""


def readings(file: str) -> tuple[Reading, ...]:
    """What reads this file by itself."""
    name = file.rpartition("/")[2]
    if "manifest/" in file:
        return (log,)
    if name.endswith(".sst"):
        return (rows, rows_one_by_one)
    if name.endswith((".cdb", ".log")):
        alone: tuple[Reading, ...] = (sealed, scanned) if name.endswith(".cdb") else (scanned, tail)
        return (*alone, feed) if file.startswith("journal/") else alone
    return {
        "OCTAVO": (identity,),
        "CONSUMERS": (consumers,),
        "0.json": (attempt,),
        "manifest": (manifest_of_a_snapshot,),
        live_bits.NAME: (live,),
    }.get(name, (message,) if file.startswith("inbox/") else ())


# ---------------------------------------------------------------- one case


class Case(NamedTuple):
    """What is done to a file."""

    of: tuple[str, str]
    what: str
    make: Callable[[Path], None]
    """Puts it in the place of the file, which is gone."""
    known: Container[Reading] | None
    """What must answer as it does with the whole file, or say what is wrong; None: everything."""


class Cases:
    """Changed files of copies of the specimens, each in its own place."""

    def __init__(self, home: Path, work: Path, watch: Watch) -> None:
        self.watch = watch
        self.work = work
        self.longest = 0.0
        self.contents: dict[tuple[str, str], bytes] = {}
        self.kinds: dict[str, list[tuple[str, str]]] = {}
        self.right: dict[tuple[tuple[str, str], Reading], object] = {}
        (work / "secret").write_text("outside of every store")
        for name in NAMES:
            shutil.copytree(home / name, work / "inside" / name)
            for file in files_of(home / name):
                kind = file_parts.kind_of(file)
                if kind == "other":
                    continue
                self.kinds.setdefault(kind, []).append((name, file))
                self.contents[name, file] = (home / name / file).read_bytes()
        for of in self.contents:
            for way in (*readings(of[1]), *(SNAPSHOT if is_snapshots(of) else ())):
                self.right[of, way] = way(self.place(of))

    def place(self, of: tuple[str, str]) -> Place:
        return Place(str(self.work / "inside" / of[0]), of[1])

    def case(self, seed: int, number: int) -> Case:
        rng = random.Random(f"{seed}-files-{number}")
        # Kinds of files, not files: there are many copies of journal files in snapshots.
        of = rng.choice(self.kinds[rng.choice(sorted(self.kinds))])
        whole, kind, how = self.contents[of], file_parts.kind_of(of[1]), rng.random()
        if how < 0.1:
            what = rng.choice(forging.NO_FILES)
            make = partial(forging.put_no_file, how=what, outside=self.work)
            return Case(of, what, make, ())
        if how < 0.35:
            other = rng.choice(list(self.contents))
            there = file_parts.parts(of[1], whole)
            part = there[rng.choice(sorted(there))]
            what, content = forging.damaged(whole, part, self.contents[other], "/".join(other), rng)
            known = self._known_of_another(kind) if content is self.contents[other] else None
            return Case(of, what, partial(forging.put, content=content), known)
        content = whole
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            content = forging.FORGERS[kind](content, of[1].rpartition("/")[2], rng)
        return Case(of, "forged", partial(forging.put, content=content), ())

    @staticmethod
    def _known_of_another(kind: str) -> Container[Reading] | None:
        """What must notice that a file is all of another one: a journal file says which it is, of
        a ledger file the manifest does."""
        return None if kind in ("sealed", "active") else SNAPSHOT if kind == "ledger" else ()

    def run(self, case: Case, rng: random.Random) -> None:
        """Raises what was wrong."""
        at = self.place(case.of)
        file = Path(at.path)
        ways = readings(case.of[1])
        if is_snapshots(case.of) and (not ways or rng.random() < WHOLE_SNAPSHOTS):
            ways = (*ways, rng.choice(SNAPSHOT))
        file.unlink()
        try:
            case.make(file)
            for way in ways:
                self._read(way, at, case)
        finally:
            if file.is_dir() and not file.is_symlink():
                shutil.rmtree(file)
            forging.put(file, self.contents[case.of])

    def _read(self, way: Reading, at: Place, case: Case) -> None:
        judge = Judge(None)
        found: list[object] = []
        began = time.process_time()
        with processor_time(MOST_SECONDS), self.watch.on(Path(at.store)):
            judge.errors(lambda: found.append(way(at)))
        self.longest = max(self.longest, time.process_time() - began)
        if case.known is not None and way not in case.known:
            return
        right = self.right[case.of, way]
        if way in SUBSETS and found:
            if not found[0] <= right:  # type: ignore[operator]
                raise Wrong(f"{way}: what was never there: {found[0] - right}")  # type: ignore[operator]
        elif way in BEGINNINGS and found:
            if right[: len(found[0])] != found[0]:  # type: ignore[index, arg-type]
                raise Wrong(f"{way}: not a beginning: {found[0]!r:.500} and not {right!r:.500}")
        elif found and found[0] != right:
            raise Wrong(f"{way}: {found[0]!r:.500} and not {right!r:.500}")
        elif not found and at.name not in judge.named[0] and at.folder not in judge.named[0]:
            raise Wrong(f"{way}: an error that names no file: {judge.named[0]}")


def is_snapshots(of: tuple[str, str]) -> bool:
    return of[1].startswith("snapshots/")


def main() -> None:
    home, kind, seed, first, count = sys.argv[1:6]
    logging.disable(logging.CRITICAL)
    failed = 0
    with tempfile.TemporaryDirectory(dir=Path(home).parent) as work:
        cases = Cases(Path(home), Path(work), Watch())
        there = limited(int(sys.argv[6]) if len(sys.argv) > 6 else 256)
        for number in range(int(first), int(first) + int(count)):
            case = cases.case(int(seed), number)
            try:
                cases.run(case, random.Random(f"{seed}-{kind}-{number}"))
            except BaseException:  # noqa: BLE001 - every one is told
                failed += 1
                what = f"{'/'.join(case.of)}: {case.what}"
                told = {"number": number, "what": what, "error": traceback.format_exc()}
                print(json.dumps(told), flush=True)
    told = {"done": int(count), "failed": failed, "longest": cases.longest, "mib": there}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
