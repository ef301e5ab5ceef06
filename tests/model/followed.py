"""A store that is written at full speed and followed by Spark, while each of them is killed.

One ``Case`` is a run: the owner of the store and Spark are programs of their own
(``followed_owner.py``, ``followed_spark.py``), heard through pipes. What is killed, and behind
which batch, is drawn from the seed; what it is doing just then is not. At the end the streams are
brought to the end of the store, and all that was told is held against what the owner did.
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from followed_look import Looks
from followed_plan import Plan
from followed_steps import Row, Truth, row_of

HOME = Path(__file__).parent
PATIENCE_SECONDS = 300.0
KILLED = (
    "Python worker exited unexpectedly", "EOFException",
    "EOFError", "SocketException", "Connection reset", "Broken pipe", "ClosedChannelException",
    "ExecutorLostFailure", "Remote RPC client disassociated", "SparkContext was shut down",
    "BrokenPipeError", "ConnectionResetError", "Could not initialize", "worker for streaming",
    "NullOutputStream",
)  # fmt: skip
"""What Spark says where somebody was killed."""
SLOW = "Python worker failed to connect back"
"""What it says where a worker has not begun within ten seconds, which cannot be set: on a machine
with too much to do, killed or not. Who follows begins again."""
RACE = "OptionalDataException"
"""What its Java says where two queries begin at once, and a map of Spark's own was added to as it
was serialized: it has fewer entries than it says. Who follows begins again."""
BELOW = {"python": "-m\0pyspark", "executor": "CoarseGrainedExecutor"}
"""What their commands have."""
DONE = ("batch", "read", "refused")


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
            allowed = (SLOW, RACE, *(KILLED if self.disturbed else ()))
            if not any(sign in words[2] for sign in allowed):
                raise AssertionError(f"{words[1]} failed: {ends(words[2])}")
        elif word == "gap":
            options = self.plan.sink if words[1] == "sink" else self.plan.log
            if "consumerId" in options or "failOnDataLoss" in options:
                raise AssertionError(f"{words[1]} has a gap: {ends(words[2])}")
        elif word == "refused":
            allowed = ("HistoryCompacted", "Busy", SLOW, RACE, *(KILLED if self.disturbed else ()))
            if not any(sign in words[2] for sign in allowed):
                raise AssertionError(f"read of a {words[1]}: {ends(words[2])}")
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

    def judged(self) -> dict[str, int]:
        self.note("judging")
        counts = self.counts
        counts["changes"] = Looks(self.plan, self.work, self.truth, self.jobs).all(self.consumed)
        wanted = ("changes", "batches", "kills", "drivers", "gap", "read", "refused", "loaded")
        return {name: counts[name] for name in wanted}


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def ends(said: str) -> str:
    """An error begins with what was wrong, and ends with where; Java's have thousands of characters
    in between."""
    return said if len(said) < 3000 else f"{said[:1500]}\n...\n{said[-1400:]}"
