"""The job that compacts the journal: it writes the live records of a run of files into new files.

Like all jobs it is a pure function from files to files (table.py), for the worker process. Which
runs are worth it, the estimates of scores.py tell.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.jobs import key_deltas, live_records
from octavo.files.jobs.key_deltas import is_newest
from octavo.files.jobs.live_records import DROP, KEEP, SUPERSEDED, TO_DELETE, UNSURE
from octavo.files.journal import cdb, record
from octavo.files.journal.journal_rows import Headers
from octavo.files.journal.journal_writer import COMPRESS_FROM_BYTES, Mover, SealedWriter
from octavo.files.journal.sealed_records import STRETCH, headers_of, records_of, table_of
from octavo.files.kernels.arrays import U8, np, npt
from octavo.files.kernels.byte_strings import numbers_at
from octavo.files.ledger import few_maps
from octavo.files.ledger.find_many import Level
from octavo.files.ledger.rows import Rows

_CHUNK = 1 << 16
_PIECE = 8 << 20
_FEW = 512
"""Fewer records with short values, between others, are moved one by one like those."""
_LARGE = 64 << 20
"""A value from this size on is moved by itself."""

TO_DELTA = 5
"""A superseded put that is retained without its value."""
Strategies = Mapping[str, str]
T = TypeVar("T")
_Becomes: TypeAlias = "npt.NDArray[np.uint8]"  # of each record: DROP, KEEP, TO_DELETE, TO_DELTA


@dataclass(slots=True)
class _Plan:
    """What is to become of a file's records: two bytes for each."""

    file: dict[str, Any]
    path: str
    view: memoryview
    highest_dropped: int
    latest_ms: int
    """The latest write time of a record that it has, or that compaction dropped before."""
    expired_ms: int
    unsure: bool
    becomes: _Becomes
    batched: U8  # see _batched

    def parts(self) -> Iterator[_Part]:
        """The records that stay, some at a time; no batch that survives is in two parts. Headers
        are read, and verified, anew: kept for all files of a run they would take much memory.
        Raises Corruption."""
        table = table_of(self.view, self.path)
        low = 0
        while low < len(self.becomes):
            high = low + STRETCH
            if high < len(self.becomes):
                begins = self.batched[high:] != 1
                high += int(np.argmax(begins)) if begins.any() else len(begins)
            of = slice(low, high)
            low = high
            becomes = self.becomes[of]
            stays = np.flatnonzero(becomes != DROP)
            if len(stays):
                head = headers_of(self.view, table, of, self.file["seed"], self.path)
                yield _Part(
                    sqns=head.relative[stays] + self.file["base_sqn"],
                    start=head.start[stays],
                    head_end=head.head_end[stays],
                    stored=head.stored[stays],
                    times=head.times[stays],
                    becomes=becomes[stays],
                    kinds=head.kinds[stays],
                    batched=self.batched[of][stays],
                )


class _Part(NamedTuple):
    """Some of a file's records that stay: arrays, an element for each."""

    sqns: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    head_end: npt.NDArray[np.int64]
    stored: npt.NDArray[np.int64]
    times: npt.NDArray[np.uint64]
    becomes: _Becomes
    kinds: npt.NDArray[np.uint8]
    batched: npt.NDArray[np.uint8]


class _Damaged(Exception):  # noqa: N818 - internal: the file stays as it is
    """A record of the journal file ``args[0]`` is damaged; ``args[1]`` tells how."""


def compact(
    disk: Disk,
    *,
    journal: str,
    ledger: str,
    levels: Sequence[Sequence[few_maps.Told]],
    run: Sequence[dict[str, Any]],
    persisted_sqn: int,
    clean_below: int,
    horizon: int,
    now_ms: int,
    epoch: int,
    rank: int,
    seed: int,
    roll_size_bytes: int,
    strategies: Strategies,
    deltas: str | None,
    always: bool,
    compresses: bool,
    drops: bool = True,
) -> dict[str, Any]:
    """Write the live records of a run of sealed journal files (``name``, ``seed``, ``base_sqn``,
    ``last_sqn``, in order) into new sealed files, durably; the old ones stay as they are.

    The new files cover every sqn of the run. If nothing would be dropped, nothing is written,
    unless ``always``. With ``drops=False`` all records are taken for live. ``deltas``: the scratch
    file of key_deltas.survey.

    The result: ``files`` (what a manifest wants to know of each), ``records``, ``kept``,
    ``highest_dropped``, ``expired_ms`` (the latest expiry of the puts that are no puts any more
    because they expired; 0: none are), ``clean`` (no file holds a superseded put any more as of
    ``persisted_sqn``); or ``damaged`` and ``wrong``: a file that has to be left out, and why.
    """
    known = few_maps.opened(disk, ledger, levels) if drops else []
    last = run[-1]["last_sqn"]
    if any(file["last_sqn"] > persisted_sqn for file in run):
        raise ValueError("a run above the sqn that the ledger has persisted")
    try:
        newest = None
        if deltas is not None:
            newest = key_deltas.read(disk, f"{journal}/{deltas}")
        judge = _Judge(disk, journal, known, clean_below, now_ms, strategies, newest, drops)
        plans = [judge.plan(file) for file in run]
        records = sum(len(plan.becomes) for plan in plans)
        kept = sum(int(np.count_nonzero(plan.becomes != DROP)) for plan in plans)
        clean = not any(plan.unsure for plan in plans)
        highest = max(plan.highest_dropped for plan in plans)
        files: list[dict[str, Any]] = []
        if always or any((plan.becomes != KEEP).any() for plan in plans):
            origin = cdb.Origin(
                rank, run[0]["base_sqn"], last, persisted_sqn if clean else 0, max(horizon, highest)
            )
            output = _Output(
                disk, journal, epoch, now_ms, random.Random(seed), roll_size_bytes, origin
            )
            files = output.write(plans, compresses)
    except _Damaged as damaged:
        return {"damaged": damaged.args[0], "wrong": damaged.args[1]}
    return {
        "files": files,
        "records": records,
        "kept": kept,
        "highest_dropped": highest,
        "expired_ms": max(plan.expired_ms for plan in plans),
        "clean": clean,
    }


@dataclass(frozen=True, slots=True)
class _Judge:
    """Decides what becomes of the records of all files of a run."""

    disk: Disk
    journal: str
    levels: Sequence[Level]
    clean_below: int
    now_ms: int
    strategies: Strategies
    newest: key_deltas.Newest | None
    drops: bool

    def plan(self, file: dict[str, Any]) -> _Plan:
        """Decide what is to become of a file's records. Raises _Damaged."""
        highest = latest = expired = 0
        unsure = False
        all_become: list[_Becomes] = []
        batches: list[_Batched] = []
        try:
            view, _, stretches = records_of(self.disk, self.journal, file)
        except (Corruption, FileNotFoundError) as wrong:
            raise _Damaged(file["name"], str(wrong)) from wrong
        for stretch in _whole(stretches, file["name"]):
            head, rows = stretch.head, stretch.rows
            verdict, becomes = self._judged(head, rows)
            dropped = np.flatnonzero(becomes != KEEP)
            gone = np.isin(verdict, (DROP, TO_DELETE))
            over = gone & (head.expiries <= np.uint64(max(self.now_ms, 0)))
            if len(dropped):
                highest = int(rows.sqns[dropped[-1]])
            latest = max(latest, int(head.times.max(initial=0)))
            expired = max(expired, int(head.expiries[over].max(initial=0)))
            unsure = unsure or bool((verdict == UNSURE).any())
            all_become.append(becomes)
            batches.append(_Batched.of(head, stretch.of.start))
        become = np.concatenate(all_become)
        return _Plan(
            file=file,
            path=f"{self.journal}/{file['name']}",
            view=view,
            highest_dropped=highest,
            latest_ms=max(latest, cdb.trailer_of(view, file["name"]).last_ms),
            expired_ms=expired,
            unsure=unsure,
            becomes=become,
            batched=_batched(batches, become),
        )

    def _judged(self, head: Headers, rows: Rows) -> tuple[live_records.Verdicts, _Becomes]:
        if not self.drops:
            verdict = np.full(len(head), UNSURE, dtype=np.uint8)
            return verdict, _becomes(head, verdict, self.strategies)
        known = live_records.newest_of(self.levels, rows.keys, rows.hashes)
        verdict = live_records.verdicts(
            head.kinds,
            rows.sqns,
            head.expiries,
            known,
            clean_below=self.clean_below,
            now_ms=self.now_ms,
        )
        becomes = _becomes(head, verdict, self.strategies)
        if self.newest is not None:
            deltas = np.flatnonzero((becomes == TO_DELTA) | (head.kinds == record.KEY_DELTA))
            ours = is_newest(known.sqns[deltas], rows.sqns[deltas], self.newest)
            becomes[deltas[~ours]] = DROP
        return verdict, becomes


def _whole(records: Iterator[T], name: str) -> Iterator[T]:
    """The same records, some at a time; where they raise Corruption, raises _Damaged."""
    try:
        yield from records
    except Corruption as wrong:
        raise _Damaged(name, str(wrong)) from wrong


def _becomes(head: Headers, verdict: live_records.Verdicts, strategies: Strategies) -> _Becomes:
    becomes = verdict.copy()
    becomes[verdict == UNSURE] = KEEP
    retained = key_deltas.retained(strategies)
    over = verdict == SUPERSEDED
    becomes[over] = DROP
    if retained:
        held = over & np.isin(head.tags, retained) & (head.kinds != record.DELETE)
        becomes[held] = TO_DELTA
        becomes[held & (head.kinds == record.KEY_DELTA)] = KEEP
    return becomes


class _Batched(NamedTuple):
    """Records that belong to batches: arrays, an element for each."""

    which: npt.NDArray[np.int64]
    """Which of the file's records they are."""
    group: npt.NDArray[np.int64]
    """The relative number of the first record of the same batch."""
    position: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]

    @classmethod
    def of(cls, head: Headers, first: int) -> _Batched:
        """Those among neighbouring records, which begin with the file's record ``first``."""
        of = np.flatnonzero(head.flags & record.BATCH)
        flags = head.flags[of].astype(np.int64)
        at = head.start[of] + record.FIXED_BYTES
        for flag, width in ((record.EXPIRY, 8), (record.METADATA, 4), (record.INDEX, 4)):
            at += width * ((flags & flag) > 0)
        position, length = (
            numbers_at(head.raw, at + more, "<u4").astype(np.int64) for more in (0, 4)
        )
        return cls(first + of, head.relative[of] - position, position, length)


def _batched(parts: Sequence[_Batched], becomes: _Becomes) -> npt.NDArray[np.uint8]:
    """For each record 0: it is in no batch; 1: in one that survives whole, and not its first;
    2: in one that does not; 3: the first of one that survives whole."""
    out = np.zeros(len(becomes), dtype=np.uint8)
    which, group, position, length = map(np.concatenate, zip(*parts, strict=True))
    if not len(which):
        return out
    there = (becomes[which] == KEEP) | (becomes[which] == TO_DELETE)
    names, of = np.unique(group, return_inverse=True)
    whole = np.bincount(of[there], minlength=len(names))[of] == length
    out[which] = np.where(whole, 1, 2)
    out[which[whole & (position == 0)]] = 3
    return out


def _together(part: _Part) -> npt.NDArray[np.int64]:
    """Bytes of each record, or of its whole batch, if that survives: no file begins within one."""
    sizes = part.head_end - part.start + part.stored + cdb.SEALING_BYTES
    of = np.cumsum(part.batched != 1)
    together: npt.NDArray[np.int64] = np.bincount(of, sizes)[of].astype(np.int64)
    return together


@dataclass(frozen=True, slots=True)
class _Output:
    """The new files of a run."""

    disk: Disk
    directory: str
    epoch: int
    now_ms: int
    rng: random.Random
    roll_size: int
    origin: cdb.Origin
    made: list[str] = field(default_factory=list)
    """Paths of those that were begun."""

    def write(self, plans: Sequence[_Plan], compresses: bool) -> list[dict[str, Any]]:
        """Write all records and the directory, durably. If that fails, what was made is removed."""
        try:
            files = list(self._files(plans, compresses))
            self.disk.sync_dir(self.directory)
        except BaseException:
            for path in self.made:
                with contextlib.suppress(OSError):
                    self.disk.unlink(path)
            raise
        return files

    def _begin(self, base_sqn: int) -> SealedWriter:
        seed = self.rng.getrandbits(64)
        writer = SealedWriter(self.disk, self.directory, base_sqn, seed, self.epoch, self.now_ms)
        self.made.append(writer.path)
        return writer

    def _files(self, plans: Sequence[_Plan], compresses: bool) -> Iterator[dict[str, Any]]:
        writer = self._begin(self.origin.run_base)
        try:
            for plan in plans:
                mover = Mover(plan.view, plan.file["seed"], plan.path, compresses)
                for part in _whole(plan.parts(), plan.file["name"]):
                    plain = (part.becomes == KEEP) & (part.batched == 0) & (part.stored < _LARGE)
                    together = _together(part)
                    ends = np.append(np.flatnonzero(plain[1:] != plain[:-1]) + 1, len(plain))
                    low = 0
                    for end in ends.tolist():
                        while low < end:
                            sqn = int(part.sqns[low])
                            if part.batched[low] != 1 and self._full(writer, int(together[low])):
                                yield writer.finish(sqn - 1, self.origin)
                                writer = self._begin(sqn)
                            try:
                                if plain[low]:
                                    low = self._many(writer, mover, part, low, end)
                                else:
                                    self._one(writer, mover, part, low)
                                    low += 1
                            except Corruption as wrong:
                                raise _Damaged(plan.file["name"], str(wrong)) from wrong
            latest_ms = max(plan.latest_ms for plan in plans)
            yield writer.finish(self.origin.run_last, self.origin, latest_ms)
        finally:
            writer.abandon()

    def _full(self, writer: SealedWriter, together: int) -> bool:
        """Whether what is written next, ``together`` bytes, has to go to the next file."""
        room = cdb.MAX_FILE_BYTES - cdb.SEALING_BYTES * (writer.count + _CHUNK) - (1 << 20)
        return bool(writer.count) and (
            writer.at >= self.roll_size or writer.at + max(together, _LARGE) > room
        )

    def _many(self, writer: SealedWriter, mover: Mover, part: _Part, low: int, end: int) -> int:
        """Move records from ``low`` on, as many as surely fit the file; returns where to go on."""
        end = min(end, low + _CHUNK)
        long = part.stored[low:end] >= COMPRESS_FROM_BYTES
        alike = int(np.argmax(long != long[0])) or len(long)
        end = min(end, low + max(alike, _FEW))
        sizes = np.cumsum((part.head_end - part.start + part.stored)[low:end] + record.SUMS_BYTES)
        room = min(self.roll_size - writer.at, _PIECE)
        end = min(end, low + int(np.searchsorted(sizes, room)) + 1)
        columns = [each[low:end] for each in (part.sqns, part.start, part.head_end, part.stored)]
        if alike >= _FEW and not long[0]:
            mover.columns(writer, *columns)
        else:
            mover.many(writer, zip(*(column.tolist() for column in columns), strict=True))
        writer.written_between(int(part.times[low]), int(part.times[end - 1]))
        return end

    def _one(self, writer: SealedWriter, mover: Mover, part: _Part, at: int) -> None:
        becomes, kind, batched = (
            int(each[at]) for each in (part.becomes, part.kinds, part.batched)
        )
        number = int(part.sqns[at]) - writer.base_sqn
        encoded = mover.changed(
            int(part.start[at]),
            int(part.head_end[at]),
            int(part.stored[at]),
            number,
            writer.seed ^ writer.at,
            {TO_DELETE: record.DELETE, TO_DELTA: record.KEY_DELTA}.get(becomes, kind),
            batched in (1, 3),
        )
        writer.add(number, encoded, int(part.times[at]))
