"""What must be there after a run of a store that was followed (``followed.py``)."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from followed_plan import Plan
from followed_steps import LOADED, Judge, Row, Truth, differences, digest, row_of
from whole_store import opened, settle

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.handover import inbox, staging
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import pinning, published

DAYS_MS = 3 * staging.KEPT_MS


class Looks:
    """At the stores, and at what followers were told."""

    def __init__(self, plan: Plan, work: Path, truth: Truth, jobs: set[str]) -> None:
        self.plan, self.work, self.truth, self.jobs = plan, work, truth, jobs
        self.source = work / "source"

    def all(self, consumed: list[tuple[int, list[Row]]]) -> int:
        """How many changes there were. Raises AssertionError."""
        state = self.look_at_source()
        if not self.plan.heads:
            judge = Judge(self.truth)
            for since, rows in consumed:
                if rows:
                    judge.told(rows, since, rows[-1].sqn, 0, "the owner's consumer")
            for name in ("sink", "log"):
                self.look_at_stream(name, judge, state)
        self.look_at_reads()
        return len(self.truth.rows)

    def look_at_source(self) -> dict[Any, int]:
        options = {"compact_every_seconds": None, "worker": False}
        with octavo.open(self.source, **options) as store:
            assert store.verify().ok
            if self.plan.heads:
                found = heads_of(store)
                wanted = self.truth.state()
                assert found == wanted, differences(wanted, found)
                return {}
            horizon = store._running.inker.actor.manifest.horizon
            told = [
                Row(c.sqn, c.bucket, c.key, digest(c.value, c.metadata))
                for c in store.changes(since=0, compacted=True)
            ]
            self.truth.loaded(told)
            Judge(self.truth).told(told, 0, self.truth.newest, horizon, "the owner's journal")
            state = {place: each for place, (_, each) in self.truth.state().items()}
            found = contents(store)
            assert found == state, differences(state, found)
            for job in self.jobs:
                name = job.encode()
                assert sum(key.startswith(LOADED + name) for _, key in found) == 40, job
        self.nothing_is_left(self.source)
        return state

    def look_at_stream(self, name: str, judge: Judge, state: dict[Any, int]) -> None:
        options = self.plan.sink if name == "sink" else self.plan.log
        many = len(list(self.work.glob(f"{name}.*.checkpoint")))
        for number in range(many):
            place = f"{self.work}/{name}.{number}"
            what, last = f"{name} {number}", number == many - 1
            horizon = horizon_of(Path(f"{place}.checkpoint"))
            careless = options.get("failOnDataLoss") == "false"
            if careless:
                horizon = 1 << 62
            if name == "log":
                self.look_at_log(Path(f"{place}.batches"), judge, horizon, last, what)
            elif last or os.path.exists(f"{place}.target"):
                self.look_at_target(f"{place}.target", judge, state if last else None, careless)

    def look_at_log(self, folder: Path, judge: Judge, horizon: int, last: bool, what: str) -> None:
        attempts: dict[int, dict[int, list[Row]]] = {}
        for file in folder.glob("*.rows"):
            id, attempt, _ = file.name.split(".")
            rows = [row_of(row) for row in json.loads(file.read_text())]
            attempts.setdefault(int(id), {})[int(attempt)] = rows
        there = sorted(attempts)
        assert there == list(range(len(there))), f"{what}: batches {there}"
        told: list[Row] = []
        ends = []
        for id in there:
            given = [rows for _, rows in sorted(attempts[id].items())]
            for before, after in pairwise(given):
                assert set(after) <= set(before), f"{what}: batch {id} came with more"
                gone = [row for row in before if row.sqn > horizon and row not in set(after)]
                assert not gone, f"{what}: batch {id} came without {gone[:5]}"
            told += given[-1]
            if given[-1]:
                ends.append(given[-1][-1].sqn)
        upto = self.truth.newest if last else ends[-1] if ends else 0
        judge.told(told, 0, upto, horizon, what)
        judge.whole_batches(ends, horizon, what)

    def look_at_target(
        self, path: str, judge: Judge, state: dict[Any, int] | None, careless: bool
    ) -> None:
        with octavo.open(path, **self.plan.target_options, worker=False) as store:
            assert store.verify().ok
            history: dict[Any, list[int]] = {}
            for change in store.changes(since=0):
                given = digest(change.value, change.metadata)
                history.setdefault((change.bucket, change.key), []).append(given)
            judge.followed(history, path)
            found = contents(store)
            if careless and state is not None:
                found = {place: each for place, each in found.items() if place in state}
            if state is not None:
                assert found == state, f"{path}: {differences(state, found)}"
        self.nothing_is_left(Path(path))

    def look_at_reads(self) -> None:
        judge = Judge(self.truth)
        for file in (self.work / "reads").glob("*.*"):
            if file.suffix == ".range":
                since, upto, rows = json.loads(file.read_text())
                judge.told([row_of(row) for row in rows], since, upto, 0, f"range {since} {upto}")
            elif file.suffix == ".snapshot":
                upto, rows = json.loads(file.read_text())
                found = {
                    (bytes.fromhex(bucket), bytes.fromhex(key)): (sqn, each)
                    for bucket, key, sqn, each in rows
                }
                wanted = self.truth.state(upto)
                assert len(found) == len(rows)
                assert found == wanted, f"at {upto}: {differences(wanted, found)}"

    def nothing_is_left(self, path: Path) -> None:
        """Days later all that killed processes began is swept."""

        def later() -> int:
            return wall_clock_ms() + DAYS_MS

        with opened(path, clock_ms=later, compact_every_seconds=None) as store:
            settle(store)
            inbox.waiting(RealDisk(), str(path), later())  # as an open store does now and then
            left = [
                str(file.relative_to(path))
                for folder in (staging.STAGING, inbox.INBOX, published.SNAPSHOTS)
                for file in (path / folder).rglob("*")
            ]
            assert not left, f"{path}: {left[:9]} of {len(left)} are left"
        manifests = published_names(path)
        there = {
            f"{half}/{file}"
            for half in ("journal", "ledger")
            for file in os.listdir(path / half)
            if file.endswith((".cdb", ".sst"))
        }
        assert there <= manifests, f"{path}: {sorted(there - manifests)[:9]} are left"


def published_names(path: Path) -> set[str]:
    found = pinning.read_manifests(RealDisk(), str(path))
    names = {f"ledger/{file.name}" for level in found.ledger.levels for file in level}
    return names | {f"journal/{entry.name}" for entry in found.journal.entries}


def contents(store: octavo.Store) -> dict[Any, int]:
    found = {}
    for name in store.buckets():
        bucket = store.bucket(name)
        for key, value in bucket.items():
            head = bucket.head(key)
            assert head is not None
            found[name, key] = digest(value, head.metadata)
    return found


def heads_of(store: octavo.Store) -> dict[Any, tuple[int, int]]:
    return {
        (name, row.key): (row.sqn, digest(row.value, b""))
        for name in store.buckets()
        for row in store.head_bucket(name).rows()
    }


def horizon_of(checkpoint: Path) -> int:
    """What a stream was told to do without as it began."""
    offsets = [file for file in (checkpoint / "offsets").glob("*") if file.name.isdigit()]
    if not offsets:
        return 0
    return int(json.loads(offsets[0].read_text().splitlines()[-1])["horizon"])
