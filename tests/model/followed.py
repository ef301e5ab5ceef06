"""A store that is written at full speed and followed by Spark, while each of them is killed.

One ``Case`` is a run: the owner of the store and Spark are programs of their own
(``followed_owner.py``, ``followed_spark.py``), heard through pipes. What is killed, and behind which
batch, is drawn from the seed; what it is doing just then is not. At the end the streams are
brought to the end of the store, and all that was told is held against what the owner did.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from followed_steps import LOADED, Judge, Row, Truth, differences, digest
from whole_store import opened, settle

import octavo
from octavo.files import inbox, staging
from octavo.files.disk import RealDisk
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import published

HOME = Path(__file__).parent
PATIENCE_SECONDS = 100.0
VICTIMS = ("driver", "driver", "owner", "owner", "python", "python", "python", "executor")
DAYS_MS = 3 * staging.KEPT_MS
KILLED = (
    "Python worker exited unexpectedly", "Python worker failed to connect", "EOFException",
    "EOFError", "SocketException", "Connection reset", "Broken pipe", "ClosedChannelException",
    "ExecutorLostFailure", "Remote RPC client disassociated", "SparkContext was shut down",
    "BrokenPipeError", "ConnectionResetError", "Could not initialize", "worker for streaming",
)  # fmt: skip
"""What Spark says where somebody was killed."""
BELOW = {"python": "-m\0pyspark", "executor": "CoarseGrainedExecutor"}
"""What their commands have."""
DONE = ("batch", "read", "refused")


@dataclass
class Plan:
    """What is drawn for a case."""

    seed: str
    master: str = ""
    """Of Spark; none: a program that does the same without."""
    now: bool = False
    """Streams are of availableNow, one after the other."""
    heads: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    target_options: dict[str, Any] = field(default_factory=dict)
    sink: dict[str, Any] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)
    kills: list[tuple[int, str, float]] = field(default_factory=list)
    """Behind how many batches, whom, and after which time more."""
    chores: float = 0.002
    burst: int = 500
    """So many steps more the owner takes for each batch, and each other read."""
    open_target: bool = False
    reads: int = 3
    """Batches or reads before the end."""


def drawn(seed: str, *, kills: int = 5) -> Plan:
    rng = random.Random(f"{seed} plan")
    options: dict[str, Any] = {
        "push_rows": rng.choice((64, 300, 2000)),
        "push_bytes": rng.choice((64 << 10, 1 << 20)),
        "roll_count": rng.choice((256, 256, 1000)),
        "roll_size_bytes": 1 << 20,
        "compact_every_seconds": rng.choice((0.05, 0.5, None)),
        "compact_run_length": rng.choice((2, 8)),
        "compact_single_percent": rng.choice((30.0, 100.0)),
        "compact_run_percent": rng.choice((70.0, 100.0)),
        "worker": rng.random() < 0.5,
    }
    heads = rng.random() < 0.1
    if heads:
        options["mode"] = "head_only"
    return Plan(
        seed,
        master="local-cluster[2,1,512]" if rng.random() < 0.3 else "local[2,4]",
        now=rng.random() < 0.4,
        heads=heads,
        options=options,
        target_options={"push_rows": 300, "roll_count": 256, "compact_every_seconds": None},
        sink=_stream(rng),
        log=_stream(rng),
        kills=[
            (rng.randrange(1, 4), rng.choice(VICTIMS), rng.choice((0.0, 0.05, 0.3, 1.0)) * rng.random())
            for _ in range(kills)
        ],
        chores=rng.choice((0.0005, 0.002, 0.01)),
        burst=rng.choice((300, 2000, 6000)),
        open_target=rng.random() < 0.5,
    )  # fmt: skip


def _stream(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"splitBytes": rng.choice(("50k", "1m", "64m"))}
    if rng.random() < 0.5:
        options["consumerId"] = "yes"
    elif rng.random() < 0.4:
        options["failOnDataLoss"] = "false"
    if rng.random() < 0.4:
        options["maxRecordsPerTrigger"] = str(rng.choice((2000, 20_000)))
    if rng.random() < 0.3:
        options["maxBytesPerTrigger"] = rng.choice(("1m", "200k"))
    return options


class Program:
    """One of the two, and a thread that hears what it says."""

    def __init__(self, name: str, heard: queue.Queue[Any], request: dict[str, Any]) -> None:
        self.killed = False
        self.errors = Path(request["work"]) / f"{name}.stderr"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(HOME / f"followed_{name}.py"), json.dumps(request)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True, cwd=request["work"],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                                  "PYTHONDONTWRITEBYTECODE": "1"},
            )  # fmt: skip
        self._thread = threading.Thread(target=self._hear, args=(name, heard))
        self._thread.start()

    def _hear(self, name: str, heard: queue.Queue[Any]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"[") and line.endswith(b"\n"):
                heard.put((name, json.loads(line)))
        heard.put((name, ["end"]))

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        if self.process.returncode is not None:
            return
        with suppress(BrokenPipeError):
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()

    def kill(self, pid: int | None = None) -> None:
        self.killed = True
        with suppress(ProcessLookupError):
            os.kill(pid or self.process.pid, signal.SIGKILL)

    def bury(self) -> None:
        """End what is left of it: all are of a session that was made for it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._thread.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def below(self, word: str) -> list[int]:
        """Processes that it or its children started, with this in their command."""
        found = []
        for entry in os.listdir("/proc"):
            with suppress(ValueError, OSError):
                pid = int(entry)
                if os.getsid(pid) == self.process.pid != pid:
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if word.encode() in command:
                        found.append(pid)
        return sorted(found)


class Case:
    """One run."""

    def __init__(self, plan: Plan, work: Path) -> None:
        self.plan, self.work = plan, work
        self.rng = random.Random(f"{plan.seed} case")
        self.truth = Truth(plan.seed, heads=plan.heads)
        self.heard: queue.Queue[Any] = queue.Queue()
        self.source = work / "source"
        self.owner: Program | None = None
        self.spark: Program | None = None
        self.life = 0
        self.disturbed = False
        """Since both streams were last undisturbed."""
        self.counts: Counter[str] = Counter()
        self.consumed: list[tuple[int, list[Row]]] = []
        self.jobs: set[str] = set()
        self.began = time.monotonic()
        self.said: list[str] = []

    # ------------------------------------------------------------ the programs

    def start_owner(self) -> None:
        plan = self.plan
        self.life += 1
        first = self.truth.done + (1 if self.life == 1 else 2)
        self.owner = Program("owner", self.heard, {
            "path": str(self.source), "work": str(self.work), "seed": plan.seed,
            "first": first, "burst": plan.burst,
            "since": self.truth.newest, "luck": f"{plan.seed} {self.life}",
            "options": plan.options, "chores": plan.chores,
            "target": str(self.work / "sink.0.target") if plan.open_target else "",
            "target_options": plan.target_options,
        })  # fmt: skip

    def start_spark(self) -> None:
        plan = self.plan
        kind = "spark" if plan.master else "plain"
        self.spark = Program(kind, self.heard, {
            "source": str(self.source), "work": str(self.work), "master": plan.master,
            "now": plan.now, "heads": plan.heads, "sink": plan.sink, "log": plan.log,
            "luck": f"{plan.seed} {self.counts['drivers']}",
        })  # fmt: skip
        self.counts["drivers"] += 1

    # ------------------------------------------------------------ hearing

    def hear(self, *wanted: str) -> list[Any]:
        """Take in what they say until one says a word; all of it. Raises AssertionError where one
        fails of which that was not to be expected."""
        while True:
            try:
                who, words = self.heard.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                raise AssertionError(f"nobody says anything: {self.said[-20:]}") from None
            if who == "owner":
                self.owner_says(words)
            else:
                self.spark_says(words)
            if words[0] in wanted:
                return list(words)

    def owner_says(self, words: list[Any]) -> None:
        word = words[0]
        if isinstance(word, int):
            self.truth.acknowledge(word, words[1])
            return
        self.note(f"owner {word}")
        if word == "opened":
            if self.life > 1:
                self.truth.found([row_of(row) for row in words[1]])
        elif word == "consumed":
            self.consumed.append((words[1], [row_of(row) for row in words[2]]))
        elif word == "end":
            owner = self.owner
            assert owner is not None
            owner.bury()
            if not owner.killed and owner.process.returncode:
                raise AssertionError(f"the owner: {owner.errors.read_text()[-3000:]}")

    def spark_says(self, words: list[Any]) -> None:
        word, spark = words[0], self.spark
        assert spark is not None
        self.note(f"spark {str(words)[:150]}")
        self.counts[{"batch": "batches"}.get(word, word)] += 1
        if word in (*DONE, "loaded", "gap") and self.owner is not None:
            self.owner.tell("on")
        if word != "end" and spark.killed:
            pass  # what its Python says without its Java
        elif word == "failed":
            if not self.disturbed or not any(sign in words[2] for sign in KILLED):
                raise AssertionError(f"{words[1]} failed: {words[2]}")
        elif word == "gap":
            options = self.plan.sink if words[1] == "sink" else self.plan.log
            if "consumerId" in options or "failOnDataLoss" in options:
                raise AssertionError(f"{words[1]} has a gap: {words[2]}")
        elif word == "refused":
            allowed = ("HistoryCompacted", "Busy", *(KILLED if self.disturbed else ()))
            if not any(sign in words[2] for sign in allowed):
                raise AssertionError(f"read of a {words[1]}: {words[2]}")
        elif word == "loaded":
            self.jobs.add(words[1])
        elif word == "end":
            spark.bury()
            if not spark.killed:
                raise AssertionError(f"Spark: {spark.errors.read_text()[-3000:]}")

    # ------------------------------------------------------------ the run

    def run(self) -> dict[str, int]:
        """All of it; how much was done. Raises AssertionError."""
        try:
            self.start_owner()
            self.hear("opened")
            self.start_spark()
            for batches, victim, more in self.plan.kills:
                for _ in range(batches):
                    self.hear(*DONE)
                spin(more)
                self.kill(victim)
            for _ in range(self.plan.reads):
                self.hear(*DONE)
            self.end()
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n{self.plan}\n{self.said[-12:]}") from wrong
        finally:
            for program in (self.owner, self.spark):
                if program is not None and program.process.returncode is None:
                    program.bury()
        return self.judged()

    def note(self, said: str) -> None:
        self.said.append(f"{time.monotonic() - self.began:.1f} {said}")
        print(self.said[-1], file=sys.stderr)  # pytest shows it where a case fails

    def kill(self, victim: str) -> None:
        owner, spark = self.owner, self.spark
        assert owner is not None
        assert spark is not None
        self.note(f"kill {victim}")
        self.counts["kills"] += 1
        self.disturbed = True
        if victim == "owner":
            owner.kill()
            while self.hear("end") and owner.process.returncode is None:
                pass
            self.start_owner()
            self.hear("opened")
            return
        pids = spark.below(BELOW.get(victim, "\0\0"))
        if victim == "driver" or not pids:
            java = spark.below("java") if self.rng.random() < 0.5 else []
            spark.kill(java[0] if java else None)
            spark.killed = True
            while self.hear("end") and spark.process.returncode is None:
                pass
            self.start_spark()
            return
        killed = spark.killed
        spark.kill(self.rng.choice(pids))
        spark.killed = killed

    def end(self) -> None:
        assert self.owner is not None
        assert self.spark is not None
        self.owner.tell("stop")
        self.hear("closed")
        self.spark.tell("drain")
        self.hear("drained")
        self.owner.killed = self.spark.killed = True
        for program in (self.owner, self.spark):
            program.bury()

    # ------------------------------------------------------------ judging

    def judged(self) -> dict[str, int]:
        self.note("judging")
        state = self.look_at_source()
        if not self.plan.heads:
            judge = Judge(self.truth)
            for since, rows in self.consumed:
                if rows:
                    judge.told(rows, since, rows[-1].sqn, 0, "the owner's consumer")
            for name in ("sink", "log"):
                self.look_at_stream(name, judge, state)
        self.look_at_reads()
        self.counts["changes"] = len(self.truth.rows)
        wanted = ("changes", "batches", "kills", "drivers", "gap", "read", "refused", "loaded")
        return {name: self.counts[name] for name in wanted}

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

    def look_at_log(
        self, folder: Path, judge: Judge, horizon: int, last: bool, what: str
    ) -> None:
        attempts: dict[int, dict[int, list[Row]]] = {}
        for file in folder.glob("*.rows"):
            id, attempt, _ = file.name.split(".")
            rows = [Row(*row) for row in pickle.loads(file.read_bytes())]
            attempts.setdefault(int(id), {})[int(attempt)] = rows
        assert sorted(attempts) == list(range(len(attempts))), f"{what}: batches {sorted(attempts)}"
        told: list[Row] = []
        ends = []
        for id in sorted(attempts):
            given = [rows for _, rows in sorted(attempts[id].items())]
            for before, after in zip(given, given[1:], strict=False):
                self.counts["replays"] += 1
                assert set(after) <= set(before), f"{what}: batch {id} came with more"
                gone = [row for row in before if row.sqn > horizon and row not in set(after)]
                assert not gone, f"{what}: batch {id} came without {gone[:5]}"
            told += given[-1]
            if given[-1]:
                ends.append(given[-1][-1].sqn)
        upto = self.truth.newest if last else ends[-1] if ends else 0
        judge.told(told, 0, upto, horizon, what)
        judge.whole_batches(ends, what)

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
                since, upto, rows = pickle.loads(file.read_bytes())
                judge.told([Row(*row) for row in rows], since, upto, 0, f"range {since} {upto}")
            elif file.suffix == ".snapshot":
                upto, rows = pickle.loads(file.read_bytes())
                found = {(bucket, key): (sqn, each) for bucket, key, sqn, each in rows}
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
                for folder in (staging.STAGING, staging.INBOX, published.SNAPSHOTS)
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
    from octavo.manifest import pinning

    found = pinning.read_manifests(RealDisk(), str(path))
    names = {f"ledger/{file.name}" for level in found.ledger.levels for file in level}
    return names | {f"journal/{entry.name}" for entry in found.journal.entries}


def row_of(told: list[Any]) -> Row:
    sqn, bucket, key, each = told
    return Row(sqn, bytes.fromhex(bucket), bytes.fromhex(key), each)


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


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
