"""Thousands of short lives of one store: each opens what the one before it left, holds it against
what was answered, takes a few steps and is killed; then, on a disk of its own, the power is cut.

    python tests/model/short_lives.py KIND PATH SEED LIVES      KIND: kill, ext4 or xfs

A program, so that it has no thread and little memory, and a life is a fork away. A life knows the
model by birth. It says ``open COUNT SQN`` (so much of the step that was not answered is there) and
``STEP SQN``. Every other life ends after so many answers; the others by an alarm, wherever it
meets them.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from lives import PARTS
from loop_disk import LoopDisk, NotHere
from small_sizes import EARLY_MAPS, sizes
from steps import Step, Told, contents, differences, step, take

import octavo

OPTIONS: dict[str, Any] = {
    "worker": False, "push_rows": 64, "roll_count": 256, "compact_every_seconds": None,
}  # fmt: skip
MOST_STEPS = 12
LONGEST_ALARM_SECONDS = 0.05
LONGEST_LIFE_SECONDS = 240
NOT_HERE = 3
"""Exit code: this machine cannot do it; standard error says why."""


class Lives:
    """One run. ``next`` raises AssertionError where something is not as it was answered."""

    def __init__(self, kind: str, path: str, seed: str) -> None:
        self.kind, self.seed = kind, f"{seed} {kind}"
        self.disk = LoopDisk(kind) if kind != "kill" else None
        self.path = str(self.disk.path / "s") if self.disk else path
        self.rng = random.Random(self.seed)
        self.told = Told(self.seed)
        self.counts = {"lives": 0, "openings": 0, "steps": 0, "alarms": 0}

    def next(self, number: int) -> None:
        most = self.rng.randrange(1, MOST_STEPS) if number % 2 else 0
        luck = self.rng.random()
        mine, theirs = os.pipe()
        child = os.fork()
        if not child:
            os.close(mine)
            self._be_born(theirs, 0.0 if most else luck * LONGEST_ALARM_SECONDS, luck)
        os.close(theirs)
        with open(mine, "rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    continue
                self._hear(line.split(b" ", 2))
                if most and self.told.done >= self.begun + most:
                    os.kill(child, signal.SIGKILL)
                    most = 0
        _, status = os.waitpid(child, 0)
        ended = os.waitstatus_to_exitcode(status)
        if ended != (-signal.SIGKILL if number % 2 else -signal.SIGALRM):
            raise AssertionError(f"life {number} ended by {ended}")
        self.counts["lives"] += 1
        self.counts["alarms"] += ended == -signal.SIGALRM
        if self.disk is not None:
            self.disk.cut_power()
            self.disk.mount()

    begun = 0

    def _hear(self, words: list[bytes]) -> None:
        if words[0] == b"wrong":
            raise AssertionError(b" ".join(words[1:]).decode())
        told = self.told
        if words[0] == b"open":
            count, sqn = int(words[1]), int(words[2])
            following = step(self.seed, told.done + 1)
            told.apply(Step(following.kind, following.changes[:count]))
            told._note(told.done + 1, sqn)
            self.begun = told.done
            self.counts["openings"] += 1
            return
        told.acknowledge(int(words[0]), int(words[1]))
        self.counts["steps"] += 1

    # ------------------------------------------------------------ in the child

    def _be_born(self, out: int, alarm: float, luck: float) -> None:
        try:
            if alarm:
                signal.setitimer(signal.ITIMER_REAL, alarm)  # by default it ends the process
            else:
                signal.alarm(LONGEST_LIFE_SECONDS)  # a hang is a life that ends by one
            with sizes(EARLY_MAPS if luck * 100 % 1 < 0.5 else {}):
                self._live(out, luck)
        except BaseException as error:  # noqa: BLE001 (the parent judges it)
            text = f"wrong {type(error).__name__}: {error}".replace("\n", " ")
            os.write(out, text.encode()[:3000] + b"\n")
        finally:
            os._exit(1)

    def _live(self, out: int, luck: float) -> None:
        sync = "always" if self.disk is not None else "none"
        store = octavo.open(self.path, sync=sync, **OPTIONS)
        count = self._found(store)
        os.write(out, b"open %d %d\n" % (count, store.last_sqn))
        number = self.told.done + 2
        chore = number + int(luck * 3 * MOST_STEPS)
        while True:
            take(store, step(self.seed, number))
            os.write(out, b"%d %d\n" % (number, store.last_sqn))
            number += 1
            if number == chore:
                if luck < 0.1:
                    store.backup(f"{self.path}.backup")
                else:
                    store.compact()

    def _found(self, store: octavo.Store) -> int:
        """How much of the step that was not answered is there: all or nothing, or of several puts
        the first ones."""
        told = self.told
        if store.last_sqn < told.sqns[-1]:
            raise AssertionError(f"at sqn {store.last_sqn}, {told.sqns[-1]} was answered")
        found = contents(store)
        kind, changes = step(told.seed, told.done + 1)
        before = dict(told.state)
        for count in range(len(changes) + 1):
            if count and kind != "many" and count < len(changes):
                continue
            told.state = dict(before)
            told.apply(Step(kind, changes[:count]))
            if found == told.state:
                return count
        raise AssertionError(f"behind {told.done} steps: {differences(before, found)}")

    def close(self) -> None:
        if self.disk is not None:
            self.disk.close()


def main(kind: str, path: str, seed: str, lives: int) -> int:
    """The command."""
    for part in ("numpy", *(f"octavo.{part}" for part in PARTS)):  # or each life would
        importlib.import_module(part)
    try:
        run = Lives(kind, path, seed)
    except NotHere as why:
        print(why, file=sys.stderr)
        return NOT_HERE
    number = 0
    try:
        for number in range(lives):
            run.next(number)
    except AssertionError as wrong:
        print(f"life {number} of {lives}: {wrong}", file=sys.stderr)
        return 1
    finally:
        run.close()
    print(json.dumps(run.counts))
    return 0


class NotThis(Exception):  # noqa: N818 (what is missing is no error of the test)
    """This machine cannot do it."""


def lived(kind: str, home: Path, seed: object, lives: int) -> dict[str, int]:
    """What a run in a process of its own counted. Raises NotThis, AssertionError."""
    words = [sys.executable, __file__, kind, str(home / "s"), str(seed), str(lives)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False,
        env={
            **os.environ,
            "OPENBLAS_NUM_THREADS": "1",  # or a fork would leave its threads behind
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
    )  # fmt: skip
    if done.returncode == NOT_HERE:
        raise NotThis(done.stderr.strip())
    if done.returncode:
        raise AssertionError(f"replay: {' '.join(words)}\n{done.stdout}{done.stderr}")
    told: dict[str, int] = json.loads(done.stdout)
    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
