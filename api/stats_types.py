"""What ``store.stats()`` gives: every key, what it counts and its unit.

The keys are stable: newer versions only add some. All of it is JSON. Times of day are ms UTC;
names end in their unit. "Since opening" means since this process opened the store.
"""

from __future__ import annotations

from typing import TypedDict


class JournalFileStats(TypedDict):
    """A journal file."""

    name: str
    state: str
    """"writing", "rolled" (waits to be sealed) or "sealed"."""
    base_sqn: int
    last_sqn: int
    """Inclusive."""
    records: int
    bytes: int
    garbage_share: float | None
    """Part of its bytes (0 .. 1) that no get needs any more, by a sample; None: not looked at."""
    score: float | None
    """Percent of it that is still needed; compaction rewrites runs of files with low scores."""


class JournalStats(TypedDict):
    """The journal."""

    files: int
    sealed_files: int
    sealed_bytes: int
    unsealed_files: int
    """Rolled files that wait to be sealed."""
    active_file: str | None
    active_bytes: int
    records: int
    file_list: list[JournalFileStats]
    """Oldest first."""


class LevelStats(TypedDict):
    """A level of the ledger."""

    level: int
    files: int
    rows: int
    bytes: int
    tombstones: int
    """Rows that are deletes."""
    target_rows: int | None
    """With more rows than this, files go to the level below; None: level zero counts files."""


class LedgerStats(TypedDict):
    """The ledger: what is known of every key, without the values."""

    files: int
    bytes: int
    levels: list[LevelStats]
    bytes_written: int
    """Since opening."""
    rows_merged: int
    """Since opening."""


class MemoryStats(TypedDict):
    """What is held in memory."""

    recent_keys: int
    waiting_tables: int
    waiting_keys: int
    kept_versions: int
    """Replaced versions of recent keys, kept for live snapshots."""
    read_cache_bytes: int
    read_cache_entries: int


class ReadCacheStats(TypedDict):
    """The read cache. Hits and misses are estimated from the gets that are timed."""

    entries: int
    bytes: int
    limit_bytes: int
    hits: int
    misses: int
    """Gets of what the cache does not have, absent keys included."""
    not_asked: int
    """Gets answered from recent changes in memory."""


class MergingStats(TypedDict):
    """What waits to be merged, and by how much writers are slowed down meanwhile."""

    waiting_tables: int
    """Memory tables that wait to be saved."""
    level_zero_files: int
    rows_over_target: int
    """Rows that are to go to a deeper level."""
    delete_pending: int
    """Ledger files that were replaced, and wait for snapshots."""
    delete_pending_bytes: int
    pauses: int
    """Pauses of writers since opening."""
    pause_seconds: float


class CompactionStats(TypedDict):
    """Compaction of the journal."""

    dropped_records: int
    """Since opening."""
    delete_pending: int
    """Journal files that were replaced, and wait for snapshots."""
    delete_pending_bytes: int
    scored_files: int
    damaged_files: list[str]
    """Files that compaction leaves as they are, since they are damaged."""


class SnapshotStats(TypedDict):
    """A live snapshot, or a live iterator."""

    number: int
    age_seconds: float
    lease_left_seconds: float
    holds_files: int
    """Replaced files that wait for it; the same file may wait for several."""
    holds_bytes: int


class ConsumerStats(TypedDict):
    """A durable consumer of the change feed."""

    name: str
    position: int
    """The newest sqn that it has acknowledged."""
    behind: int
    """Changes after that; numbers that were skipped after a kill do not count."""
    moved_ms: int
    """When it last acknowledged, ms UTC."""
    holds_bytes: int
    """Of sealed journal files with changes above its position, which compaction leaves as they
    are; several consumers may hold the same file."""


class WriteStats(TypedDict):
    """Bytes written since opening, also as a multiple of the bytes that were put."""

    records: int
    bytes_put: int
    """Bucket names, keys, values (before compression), metadata and index entries; the records'
    fixed parts are left out. Approximate: small headers of optional fields count, too."""
    journal_bytes: int
    """What was appended to journal files, and their tables when they are sealed."""
    compaction_bytes: int
    ledger_bytes: int
    manifest_bytes: int
    amplification: float | None
    """The sum of these divided by ``bytes_put``; None before anything was put."""


class LatencyStats(TypedDict):
    """How long calls take. If only one call in many is timed, it stands for the others. A quantile
    is off by at most 1/32 of itself, and the longest call may not be among those timed."""

    count: int
    """Calls, timed or not, give or take a few; of fsyncs the exact number."""
    mean_seconds: float | None
    p50_seconds: float | None
    p90_seconds: float | None
    p99_seconds: float | None
    p999_seconds: float | None
    max_seconds: float | None


class LatenciesStats(TypedDict):
    """By operation. ``put``, ``get``, ``head``, ``get_many``, ``batch``: one call, whatever its
    size; ``put_many``: a group of at most 512 pairs; ``fsync``: of a journal file."""

    put: LatencyStats
    put_many: LatencyStats
    batch: LatencyStats
    get: LatencyStats
    get_many: LatencyStats
    head: LatencyStats
    fsync: LatencyStats


class JobStats(TypedDict):
    """A background job that has ended."""

    kind: str
    """"level_zero" (memory to the ledger), "merge"; for the journal "seal", "score", "compact" and,
    before it, "survey_deltas"; "check_ledger" before a trim; "count" when a snapshot is published.
    Later versions may have others."""
    began_ms: int
    seconds: float
    inputs: int
    """Files."""
    outputs: int
    """Files."""
    bytes_written: int
    ok: bool
    why: str
    """Why it failed; empty if it did not."""


class JobTotalsStats(TypedDict):
    """All jobs of a kind since opening. If a job is tried again, each try counts."""

    runs: int
    failures: int
    seconds: float
    inputs: int
    outputs: int
    bytes_written: int
    failed_in_a_row: int
    """Failures since the last one that did not fail; 0: all is well."""
    last_failed_ms: int | None
    """When the last one that failed began."""
    last_failure: str | None
    """Why that one failed."""


class JobsStats(TypedDict):
    """Background jobs since opening."""

    totals: dict[str, JobTotalsStats]
    recent: list[JobStats]
    """The newest 512, oldest first."""


class Stats(TypedDict):
    """An open store."""

    path: str
    id: str
    format: int
    epoch: int
    """Openings of the store so far, this one included."""
    opened_ms: int
    now_ms: int
    last_sqn: int
    persisted_sqn: int
    """The ledger on disk has everything up to here; an opening replays the journal above it."""
    journal: JournalStats
    ledger: LedgerStats
    memory: MemoryStats
    read_cache: ReadCacheStats
    merging: MergingStats
    compaction: CompactionStats
    snapshots: int
    live_snapshots: list[SnapshotStats]
    """Oldest first."""
    consumers: list[ConsumerStats]
    """Those that are furthest behind first."""
    writes: WriteStats
    latencies: LatenciesStats
    jobs: JobsStats
    open_files: int
    replayed_at_open: int
    notes: list[str]
    """What opening found and mended."""
