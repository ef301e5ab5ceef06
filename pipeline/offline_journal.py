"""Compaction of a closed store's journal by many tasks, each a run of neighbouring files.

A task does what the store's own worker does (octavo.files.jobs.compaction); one change of the
journal's manifest takes all runs at once. A crash before it leaves new files that the next start
knows for left-overs, a crash after it old ones.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Corruption, Misuse
from octavo.files.jobs import compaction, key_deltas, scores
from octavo.files.journal.journal_names import scratch_name
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import store_identity
from octavo.manifest.adoption import RANK_BITS
from octavo.manifest.closed_store import ClosedStore, closed_store
from octavo.manifest.consumers import Consumers
from octavo.manifest.journal_manifest import MAX_SQN, JournalEntry
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.run_choice import MAX_RUN_SQNS, REWRITE_PERCENT
from octavo.manifest.small_files import MANY_SMALL
from octavo.pipeline.offline import DiskOf, Run, on_spark, store_path, told

ROLL_SIZE_BYTES = 128 << 20
RUN_BYTES = 512 << 20
"""What a task rewrites, at least a file."""
_SAMPLES = 1000


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did."""

    files_before: int
    files_after: int
    bytes_before: int
    """Of the sealed journal files."""
    bytes_after: int
    records_dropped: int
    skipped: tuple[str, ...]
    """Damage, for each run that was left as it is because of it."""
    notes: tuple[str, ...]
    """What was not as it should be, as an opening notes it; also lost consumers, for which nothing
    was held back."""
    tasks: int
    seconds: float


def compact(path: str, spark: Any = None) -> CompactReport:
    """Give back the space that replaced and deleted versions take in a closed store, in parallel.

    As ``Store.compact``, except that runs of files are compacted side by side, so a delete goes
    only if the files before its run were already clean (a second call finds them so); and that
    replaced files are removed at once, not kept in ``waste``. Published snapshots and backups keep
    what they have links of. What the ledger does not have yet stays as it is. ``spark``: the
    session; None: the active one. Scratch space: as much as is kept.

    Raises StoreLocked if the store is open (use its own ``compact``), Misuse for a head-only store,
    Corruption if the ledger is damaged (``rebuild`` it first), StorageFull, StorageFailed.
    """
    with told():
        return compacted(RealDisk, store_path(path), on_spark(spark))


def compacted(disk_of: DiskOf, path: str, run: Run) -> CompactReport:
    """See ``compact``; ``disk_of`` gives a task its disk."""
    began = time.monotonic()
    with closed_store(disk_of(), path) as store:
        if store_identity.is_head_only(store.identity):
            raise Misuse("compact is for standard stores; this one is head-only: use trim()")
        if store.ledger is None:
            raise Corruption(f"{path}/ledger", 0, "the ledger is damaged or out of date; rebuild")
        before = store.journal.entries
        runs = runs_of(_eligible(store, store.ledger.persisted_sqn))
        found = _replaced(disk_of, store, store.ledger, run, runs) if runs else []
        after = store.journal.entries
        return CompactReport(
            len(before),
            len(after),
            sum(entry.bytes for entry in before),
            sum(entry.bytes for entry in after),
            sum(each["records"] - each["kept"] for each in found if each.get("files")),
            tuple(f"{each['damaged']}: {each['wrong']}" for each in found if "damaged" in each),
            tuple(store.notes),
            len(runs),
            time.monotonic() - began,
        )


def _eligible(store: ClosedStore, persisted_sqn: int) -> list[JournalEntry]:
    """Sealed files that the ledger has all of and no consumer needs, oldest first."""
    now = partial(int, wall_clock_ms())
    consumers = Consumers(store.disk, store.path, now, store.notes)
    upto = min(persisted_sqn, consumers.lowest())
    return [entry for entry in store.journal.entries if entry.last_sqn <= upto]


def runs_of(entries: Sequence[JournalEntry]) -> list[list[JournalEntry]]:
    """Runs of neighbouring files, of about RUN_BYTES, each at least a file."""
    out: list[list[JournalEntry]] = []
    size = 0
    for entry in entries:
        last = out[-1] if out else []
        if (
            not last
            or size + entry.bytes > RUN_BYTES
            or len(last) >= MANY_SMALL  # each holds a descriptor meanwhile
            or entry.last_sqn - last[0].base_sqn >= MAX_RUN_SQNS
        ):
            out.append([])
            size = 0
        out[-1].append(entry)
        size += entry.bytes
    return out


def _strategies(identity: dict[str, Any]) -> dict[str, str]:
    """Strategies by the number of the type, as the jobs take them."""
    chosen = identity.get("strategies", {})
    types = store_identity.types_of(identity)
    return {str(number): chosen.get(name, "recovr") for name, number in types.items()}


def _replaced(
    disk_of: DiskOf,
    store: ClosedStore,
    ledger: LedgerManifest,
    run: Run,
    runs: Sequence[Sequence[JournalEntry]],
) -> list[dict[str, Any]]:
    """Have each run compacted, and install all that was made; returns what each task says."""
    epoch = store.epoch
    log = store.begin_journal()
    try:
        common: dict[str, Any] = {
            "journal": f"{store.path}/journal",
            "ledger": f"{store.path}/ledger",
            "levels": ledger.for_jobs(),
            "now_ms": ledger.now_ms(wall_clock_ms()),
            "strategies": _strategies(store.identity),
        }
        persisted = ledger.persisted_sqn
        unsealed = min((tail.base_sqn for tail in store.tails), default=MAX_SQN)
        below = store.journal.clean_below(unsealed)
        there = set(store.disk.listdir(f"{store.path}/journal"))
        try:
            scratch = _surveyed(run, disk_of, common, [entry for each in runs for entry in each])
            tasks = [
                {
                    "run": [entry.for_job() for entry in each],
                    "persisted_sqn": persisted,
                    "clean_below": below[each[0].name],
                    "horizon": store.journal.horizon,
                    "epoch": epoch,
                    "rank": (store.journal.version + 1 << RANK_BITS) + number,
                    "roll_size_bytes": ROLL_SIZE_BYTES,
                    "deltas": scratch,
                }
                for number, each in enumerate(runs, 1)
            ]
            found = run(partial(compact_run, disk_of, common), tasks)
        except Exception:
            store.remove_journal_files(there)
            raise
        removed: list[str] = []
        added: list[JournalEntry] = []
        horizon = 0
        for each, result in zip(runs, found, strict=True):
            if not result.get("files"):
                continue
            clean = persisted if result["clean"] else 0
            removed += [entry.name for entry in each]
            added += [JournalEntry(**row, clean_sqn=clean) for row in result["files"]]
            horizon = max(horizon, result["highest_dropped"])
        if removed:
            store.stays_expired(max(result.get("expired_ms", 0) for result in found))
            store.replace_journal_files(log, removed, added, horizon)
        store.remove_journal_files(there)  # of attempts that do not count, and the scratch file
        return found
    finally:
        log.close()


def _surveyed(
    run: Run, disk_of: DiskOf, common: dict[str, Any], entries: Sequence[JournalEntry]
) -> str | None:
    """The name of a scratch file on the key deltas of these files, where a type retains any; made
    by one task."""
    if not key_deltas.retained(common["strategies"]):
        return None
    return run(partial(_survey, disk_of, common), [[entry.for_job() for entry in entries]])[0]


def _survey(disk_of: DiskOf, common: dict[str, Any], files: list[dict[str, Any]]) -> str:
    # Each attempt has a file of its own: another may be at work at the same time, or be cut off.
    scratch = scratch_name()
    key_deltas.survey(disk_of(), files=files, scratch=scratch, **common)
    return scratch


def compact_run(disk_of: DiskOf, common: dict[str, Any], task: dict[str, Any]) -> dict[str, Any]:
    """In a task: rewrite a run of files, if that gives back enough. Raises Corruption (the ledger),
    OSError."""
    disk = disk_of()
    scored = scores.score(
        disk,
        files=[{**file, "clean_below": task["clean_below"]} for file in task["run"]],
        samples=_SAMPLES,
        salt=0,
        compresses=True,
        **common,
    )["scores"]
    wrong = [row for row in scored if "wrong" in row]
    if wrong:
        return {"damaged": wrong[0]["name"], "wrong": wrong[0]["wrong"]}
    total = sum(row["total"] for row in scored)
    dropped = total - sum(row["kept"] for row in scored)
    if task["run"][0]["base_sqn"] <= task["clean_below"]:  # deletes there have nothing to hide
        dropped += sum(row["hiding"] for row in scored)
    squeezed = sum(row["squeezed"] for row in scored)
    dropped += squeezed
    if 100.0 * dropped <= REWRITE_PERCENT * total:
        return {"files": []}
    return compaction.compact(
        disk, seed=secrets.randbits(64), always=squeezed > 0, compresses=True, **common, **task
    )
