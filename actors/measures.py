"""What an open store knows of its own work: latencies, background jobs, where gets were answered.

Nothing here takes a lock or is written to a file; it begins anew with each opening. Counts may be
off by a few if several threads do the same thing at the same moment.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from octavo.actors.latency import Latency, Meter
from octavo.files.kernels.cold_pages import COLD
from octavo.files.messages import messages_of
from octavo.files.wall_clock import wall_clock_ms

log = messages_of("octavo.jobs")

P = TypeVar("P")
R = TypeVar("R")

MOST_JOBS = 512
"""How many background jobs are remembered; older ones are only counted."""

_MOST_WHY = 500
"""How many characters are kept of what a failed job raised."""

MEMORY, CACHE, REST = "memory", "cache", "journal_or_absent"
"""Where a get found what it was asked for."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """A background job that ended."""

    kind: str
    """"level_zero", "merge", "seal", "score", "compact", ..."""
    began_ms: int
    """ms UTC."""
    seconds: float
    inputs: int
    """Files that it read."""
    outputs: int
    """Files that it made, or finished."""
    bytes_written: int
    ok: bool
    """False if it raised, or its worker was ended."""
    why: str = ""
    """If it failed: what it raised."""


@dataclass(slots=True)
class JobTotals:
    """All jobs of a kind since the store was opened."""

    runs: int = 0
    failures: int = 0
    seconds: float = 0.0
    inputs: int = 0
    outputs: int = 0
    bytes_written: int = 0
    failed_in_a_row: int = 0
    """Failures since the last run that was ok."""
    last_failed_ms: int | None = None
    """When the newest failed run began, ms UTC."""
    last_failure: str | None = None
    """What that run raised."""


@dataclass(slots=True)
class JobResult:
    """Takes a job's result; empty until the job is done."""

    result: dict[str, Any] = field(default_factory=dict)


class JobHistory:
    """The background jobs of a store. Each is added by the thread that had it done."""

    def __init__(self) -> None:
        self.recent: deque[JobRun] = deque(maxlen=MOST_JOBS)
        """The newest MOST_JOBS, oldest first."""
        self.totals: dict[str, JobTotals] = {}

    def add(self, run: JobRun) -> None:
        """Remember a job. O(1)."""
        log.debug(
            "%s %s: %d files to %d, %d bytes, %.3f s", run.kind, "done" if run.ok else "failed",
            run.inputs, run.outputs, run.bytes_written, run.seconds,
        )  # fmt: skip
        self.recent.append(run)
        totals = self.totals.setdefault(run.kind, JobTotals())
        totals.runs += 1
        totals.failed_in_a_row = 0 if run.ok else totals.failed_in_a_row + 1
        if not run.ok:
            totals.failures += 1
            totals.last_failed_ms, totals.last_failure = run.began_ms, run.why
        totals.seconds += run.seconds
        totals.inputs += run.inputs
        totals.outputs += run.outputs
        totals.bytes_written += run.bytes_written

    @contextmanager
    def timed(self, kind: str, arguments: Mapping[str, Any]) -> Iterator[JobResult]:
        """Around a job: times it and adds it to the history. The block puts the job's result into
        the JobResult; if it raises, the job counts as failed."""
        began_ms, began = wall_clock_ms(), time.perf_counter_ns()
        job = JobResult()
        why = None
        try:
            yield job
        except BaseException as failed:
            why = str(failed)[:_MOST_WHY] or type(failed).__name__
            raise
        finally:
            seconds = (time.perf_counter_ns() - began) / 1e9
            given = next((arguments[name] for name in _INPUTS if name in arguments), ("",))
            files = job.result.get("files", ())
            outputs, bytes_written = len(files), sum(file.get("bytes", 0) for file in files)
            if "bytes" in job.result:  # a file that was finished
                outputs, bytes_written = 1, job.result["bytes"]
            counted = (len(given), outputs, bytes_written)
            self.add(JobRun(kind, began_ms, seconds, *counted, why is None, why or ""))


_INPUTS = ("inputs", "parts", "run", "files")


_often = partial(Meter, often=True)


@dataclass(slots=True)
class Measures:
    """The measures of one open store."""

    opened_ms: int = field(default_factory=wall_clock_ms)
    put: Meter = field(default_factory=Meter)
    put_many: Meter = field(default_factory=_often)
    """A group of at most 512 pairs, which share a system call."""
    batch: Meter = field(default_factory=_often)
    get: Meter = field(default_factory=Meter)
    get_many: Meter = field(default_factory=_often)
    head: Meter = field(default_factory=Meter)
    fsync: Latency = field(default_factory=Latency)
    """Syncs of journal files that callers waited for; every one is timed."""
    pauses: Latency = field(default_factory=Latency)
    """Pauses that slowed writers down while merging lagged; every one is timed."""
    sources: dict[str, int] = field(default_factory=lambda: {MEMORY: 0, CACHE: 0, REST: 0})
    """Where timed gets found what they were asked for, by weight."""
    jobs: JobHistory = field(default_factory=JobHistory)
    first_sqn: int = 0
    """The last sqn given before the store was opened."""
    journal_began: int = 0
    """Bookie.journal_position() at that moment."""
    sealing_bytes: int = 0
    """What sealing added to journal files: their tables."""

    def latencies(self) -> dict[str, Latency]:
        """The latencies, by operation."""
        names = ("put", "put_many", "batch", "get", "get_many", "head")
        return {name: getattr(self, name).latency for name in names} | {"fsync": self.fsync}

    def began(self, sqn: int, position: int) -> None:
        """Note the last sqn and the journal's position as the store opens."""
        self.first_sqn, self.journal_began = sqn, position

    def timed_get(self, get: Callable[[bytes], R], key: bytes, where: str) -> R:
        """Time a get; it also stands for others in where it finds its answer (``where``)."""
        self.sources[where] += self.get.weight
        return self.judged(self.get, get, key)

    def judged(self, meter: Meter, read: Callable[[P], R], what: P) -> R:
        """Time a read; it also stands for others in whether it waits for a device."""
        before = COLD.reads()
        found = meter.timed(read, what)
        COLD.judge(before)
        return found
