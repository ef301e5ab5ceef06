"""Work on a closed store by many tasks: its ledger made anew from its journal, or merged.

``rebuild`` has each task read a stretch of the journal into sorted files, as the store itself does
after the loss of its ledger; then each task merges a range of keys of all of them. ``merge`` does
the latter to the ledger that is there. Both end in one change of the ledger's manifest (see
octavo.manifest.closed_store): whatever is killed, the store opens as before or as after.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from octavo.files.door.disk import Disk, RealDisk
from octavo.files.errors import Corruption, Misuse, storage_errors
from octavo.files.jobs import ledger_files
from octavo.files.journal import cdb
from octavo.files.journal.sparse_offsets import Cut, cut
from octavo.files.kernels.arrays import distinct
from octavo.files.ledger import ledger_key
from octavo.files.ledger.few_maps import Told
from octavo.files.ledger.sst import Sst
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import level_sizes, recovery, store_identity
from octavo.manifest.closed_store import ClosedStore, closed_store
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.small_files import MANY_SMALL
from octavo.pipeline import spark_tasks
from octavo.pipeline.read_options import local_path

T = TypeVar("T")
R = TypeVar("R")
STRETCH_SQNS = 1 << 19
"""What a task of the first step reads of the journal."""
RANGE_ROWS = 1 << 20
"""About how many rows a task of the second step merges, replaced ones included."""
RANGE_BYTES = 1 << 30
"""... or so many bytes of files, for there may be much metadata."""
_LEAST_ROWS = 1 << 15
_SAMPLES = 128
"""Keys of a file from which the ranges are taken."""


@dataclass(frozen=True, slots=True)
class OfflineReport:
    """What was done to a ledger."""

    records: int
    """Records of the journal that were read."""
    rows: int
    """Rows of the new ledger: keys, index entries, and deletes that had to stay."""
    files: int
    bytes: int
    persisted_sqn: int
    """The ledger has the journal up to here, inclusive."""
    tasks: int
    damaged: tuple[str, ...]
    """Records that were stepped over, and why; their keys read as they did before these."""
    notes: tuple[str, ...]
    """What else was not as it should be, as an opening notes it."""
    seconds: float


def rebuild(path: str, spark: Any = None, *, merge: bool = True) -> OfflineReport:
    """Rebuild the ledger of a closed store from its journal, in parallel.

    The result equals what the store would build when opened without its ledger, merged down to one
    level; with ``merge=False`` it is left as before merging, which the store does once it is open.
    ``spark``: the session; None: the active one.

    Raises StoreLocked if the store is open, here or elsewhere: its owner uses the ledger, and
    merges it. Raises Misuse for a head-only store whose journal was trimmed, and for a store with a
    type under the strategy "recalc", whose functions only ``octavo.open`` is given; Corruption if
    the journal or its manifest is lost; StorageFull, StorageFailed. The old ledger stays as it is
    until the last moment.
    """
    with told():
        return _rebuild(RealDisk, store_path(path), on_spark(spark), merge=merge)


def merge(path: str, spark: Any = None) -> OfflineReport:
    """Merge all levels of a closed store's ledger into its bottom one, in parallel by key ranges.

    Drops the rows of replaced, deleted and expired versions. Raises StoreLocked if the store is
    open; Corruption if the ledger is damaged, which ``rebuild`` mends; StorageFull, StorageFailed.
    ``spark`` as for ``rebuild``.
    """
    with told():
        return _merge(RealDisk, store_path(path), on_spark(spark))


def store_path(path: str) -> str:
    """The absolute path of a path or ``file:`` URI. Raises Misuse."""
    return local_path(os.fspath(path))


# ---------------------------------------------------------------- who runs the tasks


class Run:
    """Runs tasks: here, one after the other."""

    parallelism = 1

    def __call__(self, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """The result of each task, in their order. Raises what one raised."""
        return [work(task) for task in tasks]


class _OnSpark(Run):
    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self.parallelism = spark_tasks.parallelism(spark)

    def __call__(self, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        return spark_tasks.results(self._spark, partial(_told, work), tasks)


def _told(work: Callable[[T], R], task: T) -> R:
    """In a task of Spark's. Raises StorageFull, StorageFailed and what else ``work`` does."""
    with told():
        return work(task)


@contextmanager
def told() -> Iterator[None]:
    """Context in which an OSError is StorageFull or StorageFailed, except for Spark's own."""
    try:
        yield
    except ConnectionError:  # Spark is gone
        raise
    except OSError:
        with storage_errors("work on a closed store"):
            raise


def on_spark(spark: Any) -> Run:
    """Tasks of a Spark session; None: of the active one. Raises Misuse."""
    return _OnSpark(spark_tasks.session_of(spark))


DiskOf = Callable[[], Disk]
"""What gives a task its disk."""


# ---------------------------------------------------------------- what the tasks do


@dataclass(frozen=True, slots=True)
class Piece:
    """Numbers [low, high) of a journal file."""

    name: str
    base_sqn: int
    seed: int
    low: int
    high: int
    offsets: bytes | None
    """Of a file that is not sealed: native u32, one more than numbers."""


def read_stretch(disk_of: DiskOf, path: str, stem: str, pieces: Sequence[Piece]) -> dict[str, Any]:
    """In a task: a stretch of the journal as sorted ledger files. Raises Corruption, OSError."""
    disk = disk_of()
    parts: list[dict[str, Any]] = []
    tables: list[bytes] = []
    notes: list[str] = []
    for piece in pieces:
        if piece.offsets is None:
            offsets = _offsets(disk, f"{path}/journal/{piece.name}", piece.seed, notes)
            high = min(piece.high, len(offsets) - 1)  # the last records, or all, may be lost
            taken = cut(offsets, min(piece.low, high), high)
        else:
            taken = Cut(piece.offsets, len(piece.offsets) // 4 - 1, sparse=False)
        if taken.records:
            parts.append(taken.part(piece.name, piece.seed, piece.base_sqn, piece.low))
            tables.append(taken.table)
    made = ledger_files.level_zero(
        disk,
        b"".join(tables),
        journal=f"{path}/journal",
        ledger=f"{path}/ledger",
        stem=f"{stem}-{secrets.token_hex(4)}",
        parts=parts,
        max_rows=level_sizes.MAX_FILE_ROWS,
        max_bytes=level_sizes.MAX_FILE_BYTES,
    )
    return {
        "files": made["files"],
        "damaged": [*notes, *(f"{damage} and skipped" for damage in made["damaged"])],
        "records": sum(part["count"] for part in parts),
    }


def _offsets(disk: Disk, path: str, seed: int, notes: list[str]) -> Any:
    buffer = disk.map(path)
    try:
        return cdb.sealed_offsets(memoryview(buffer), path)[1]
    except Corruption as wrong:
        notes.append(f"{wrong}: read record by record instead")
        found, more = recovery.rebuilt_offsets(buffer, path, seed)
        notes += more
        return found


@dataclass(frozen=True, slots=True)
class KeyRange:
    """What a task of the second step merges: ledger keys in [low, high)."""

    low: bytes
    high: bytes | None
    inputs: tuple[Told, ...]
    """Ledger files: (name, what is added to their sqns)."""


def merge_range(
    disk_of: DiskOf,
    path: str,
    stem: str,
    levels: Sequence[Sequence[Told]],
    now_ms: int,
    numbered: tuple[int, KeyRange],
) -> dict[str, Any]:
    """In a task: a range of keys of all files, as files of the bottom level."""
    number, wanted = numbered
    index = bytes((ledger_key.INDEX,))
    meets = wanted.low[:1] <= index and (wanted.high is None or wanted.high >= index)
    return ledger_files.merge_files(
        disk_of(),
        ledger=f"{path}/ledger",
        stem=f"{stem}{number:06x}-{secrets.token_hex(4)}",
        inputs=wanted.inputs,
        basement=True,
        now_ms=now_ms,
        max_rows=level_sizes.MAX_FILE_ROWS,
        max_bytes=level_sizes.MAX_FILE_BYTES,
        levels=levels if meets else (),
        low=wanted.low,
        high=wanted.high,
    )


# ---------------------------------------------------------------- the steps


def _rebuild(disk_of: DiskOf, path: str, run: Run, *, merge: bool) -> OfflineReport:
    began = time.monotonic()
    with closed_store(disk_of(), path) as store:
        _refuse(store)
        pieces = stretches(store)
        store.sync_tails()
        stem = f"{store.epoch:08x}-{secrets.token_hex(4)}"
        work = partial(read_stretch, disk_of, path, f"{stem}z")
        with _cleaned(store):
            found = run(work, pieces)
            rows = [row for each in found for row in each["files"]]
            entries = [LedgerEntry.of_job(row) for row in rows]
            tasks, expired_ms = len(pieces), 0
            if merge:
                entries, merged, expired_ms = _merged(disk_of, store, run, entries, stem)
                tasks += merged
        store.install_ledger(entries, store.last_sqn, expired_ms)
        return _report(
            began, entries, store.last_sqn, tasks,
            sum(each["records"] for each in found),
            dict.fromkeys(note for each in found for note in each["damaged"]),
            store.notes,
        )  # fmt: skip


def _merge(disk_of: DiskOf, path: str, run: Run) -> OfflineReport:
    began = time.monotonic()
    with closed_store(disk_of(), path) as store:
        if store.ledger is None:
            raise Corruption(
                f"{path}/ledger", 0, "the ledger is damaged or out of date; rebuild it instead"
            )
        persisted = store.ledger.persisted_sqn
        entries = store.ledger.entries
        stem = f"{store.epoch:08x}-{secrets.token_hex(4)}"
        with _cleaned(store):
            made, tasks, expired_ms = _merged(disk_of, store, run, entries, stem)
        store.install_ledger(made, persisted, expired_ms)
        return _report(began, made, persisted, tasks, 0, [], store.notes)


def _refuse(store: ClosedStore) -> None:
    if store_identity.is_head_only(store.identity) and store.journal.horizon:
        raise Misuse(
            f"{store.path} is a head-only store whose journal was trimmed: its ledger is the only "
            "one there is. If it is damaged, restore a backup"
        )
    strategies = store.identity.get("strategies", {})
    named = [name for name, strategy in strategies.items() if strategy == "recalc"]
    if named:
        raise Misuse(
            f"{store.path}: type {named[0]!r} is under the strategy recalc, so that a rebuild "
            f"needs its functions: remove {store.path}/ledger and open the store with tags="
        )


def stretches(store: ClosedStore) -> list[list[Piece]]:
    """The whole journal in pieces, oldest first: of about STRETCH_SQNS, and of MANY_SMALL files at
    most, for each task."""
    every = [
        (entry.name, entry.base_sqn, entry.seed, entry.last_sqn - entry.base_sqn + 1, None)
        for entry in store.journal.entries
    ] + [
        (tail.name, tail.base_sqn, tail.seed, len(tail.offsets) - 1, tail.offsets)
        for tail in store.tails
    ]
    out: list[list[Piece]] = []
    room = 0
    for name, base, seed, count, offsets in sorted(every, key=lambda each: each[1]):
        low = 0
        while low < count:
            if not room or len(out[-1]) >= MANY_SMALL:
                out.append([])
                room = STRETCH_SQNS
            high = min(count, low + room)
            table = None if offsets is None else offsets[low : high + 1].tobytes()
            out[-1].append(Piece(name, base, seed, low, high, table))
            room -= high - low
            low = high
    return out


@contextmanager
def _cleaned(store: ClosedStore) -> Iterator[None]:
    """Remove what the block made in the ledger, if it fails. Not to be put around an install: one
    that fails may be durable all the same, and the manifest name these files."""
    there = set(store.disk.listdir(f"{store.path}/ledger"))
    try:
        yield
    except Exception:
        store.remove_ledger_files(there)
        raise


def _merged(
    disk_of: DiskOf, store: ClosedStore, run: Run, entries: Sequence[LedgerEntry], stem: str
) -> tuple[list[LedgerEntry], int, int]:
    """(the entries of the bottom level that these files make, tasks, the latest expiry, ms UTC,
    of what was left out for it)."""
    ranges = key_ranges(store.disk, f"{store.path}/ledger", entries, run.parallelism)
    levels: Sequence[Sequence[Told]] = []
    if len(entries) <= level_sizes.MOST_SEARCHED:
        levels = _by_level(entries)
    now_ms = wall_clock_ms()
    if store.ledger is not None:
        now_ms = store.ledger.now_ms(now_ms)
    work = partial(merge_range, disk_of, store.path, f"{stem}m", levels, now_ms)
    found = run(work, list(enumerate(ranges)))
    made = [LedgerEntry.of_job(row) for each in found for row in each["files"]]
    expired_ms = max((each["expired_ms"] for each in found), default=0)
    level = level_sizes.level_for(sum(entry.rows for entry in made))
    return [replace(entry, level=level) for entry in made], len(ranges), expired_ms


def _by_level(entries: Sequence[LedgerEntry]) -> list[list[Told]]:
    """All levels, the first with its newest file first; the others stay in the order of keys."""
    levels: list[list[LedgerEntry]] = [[]]
    for entry in entries:
        levels += [[] for _ in range(len(levels), entry.level + 1)]
        levels[entry.level].append(entry)
    levels[0].sort(key=lambda entry: entry.max_sqn, reverse=True)
    return [[entry.for_job() for entry in level] for level in levels]


def key_ranges(
    disk: Disk, directory: str, entries: Sequence[LedgerEntry], parallelism: int
) -> list[KeyRange]:
    """All ledger keys in ranges of about RANGE_ROWS, and for each the files that have some of it.
    Reads a few keys of each file."""
    samples: list[tuple[bytes, float]] = []
    for entry in entries:
        path = f"{directory}/{entry.name}"
        sst = Sst(disk.map(path), path)
        rows = distinct(np.linspace(0, sst.rows, _SAMPLES, endpoint=False).astype(np.int64))
        samples += [(sst.ledger_key(row), sst.rows / len(rows)) for row in rows.tolist()]
    samples.sort()
    total = sum(entry.rows for entry in entries)
    size = sum(entry.bytes for entry in entries)
    count = max(
        -(-total // RANGE_ROWS), -(-size // RANGE_BYTES), min(parallelism, total // _LEAST_ROWS), 1
    )
    cuts: list[bytes] = []
    filled = 0.0
    for key, rows_before in samples:
        if filled >= (len(cuts) + 1) * total / count and (not cuts or key > cuts[-1]):
            cuts.append(key)
        filled += rows_before
    out = []
    for low, high in zip([b"", *cuts], [*cuts, None], strict=True):
        inputs = tuple(
            entry.for_job()
            for entry in entries
            if entry.last_key >= low and (high is None or entry.first_key < high)
        )
        if inputs:
            out.append(KeyRange(low, high, inputs))
    return out


def _report(
    began: float,
    entries: Sequence[LedgerEntry],
    persisted: int,
    tasks: int,
    records: int,
    damaged: Iterable[str],
    notes: Sequence[str],
) -> OfflineReport:
    return OfflineReport(
        records,
        sum(entry.rows for entry in entries),
        len(entries),
        sum(entry.bytes for entry in entries),
        persisted,
        tasks,
        tuple(damaged),
        tuple(notes),
        time.monotonic() - began,
    )
