"""Stores that live in processes of their own, to be killed: how they live, and the nursery that
starts them.

Run as a program it is the nursery: it has everything imported and no thread, so that a process for
one more life is a fork away. A request is a line of JSON on standard input; on standard output
come, in lines, what the life says and "end STATUS" when it is over.

    pid N                   it began
    open SQN                the store is open
    N SQN                   step N was taken; SQN is the newest
    c WORD / C WORD SQN     a chore began / ended
    e TEXT                  an error, after which it goes no further
    closing / closed        the store is being closed, was closed
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from small_sizes import EARLY_MAPS, sizes
from steps import step, take

import octavo

CHORES = ("compact", "backup", "publish", "look", "sync")


MOST_CHORES = 8
"""In one life: each makes new files, and slows the steps."""
LONGEST_SECONDS = 300
"""A life that goes on for longer says where it is, and ends: that is a hang."""


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def live(
    path: str,
    seed: str,
    first: int,
    options: dict[str, Any],
    *,
    chores: list[str],
    luck: str,
    last: int | None = None,
) -> None:
    """Open the store and take steps from ``first`` on, to ``last`` and then close; meanwhile a
    thread does chores."""
    say("opening")
    store = octavo.open(path, **options)
    say("open", store.last_sqn)
    if chores:
        doing = threading.Thread(target=_chores, args=(store, chores, luck), daemon=True)
        doing.start()
    number = first
    while last is None or number <= last:
        take(store, step(seed, number))
        say(number, store.last_sqn)
        number += 1
    say("closing")
    store.close()
    say("closed")


def _chores(store: octavo.Store, chores: list[str], luck: str) -> None:
    rng = random.Random(luck)
    published: list[Any] = []
    try:
        for _ in range(MOST_CHORES):
            word = rng.choice(chores)
            say("c", word)
            say("C", word, _chore(store, word, published))
    except octavo.Closed:
        return
    except Exception as error:  # noqa: BLE001 (the parent judges it)
        say("e", word, type(error).__name__, str(error).replace("\n", " ")[:300])


def _chore(store: octavo.Store, word: str, published: list[Any]) -> int:
    if word == "compact":
        try:
            store.compact()
        except octavo.Busy:
            return 0
    elif word == "backup":
        return store.backup(store.path + ".backup").sqn
    elif word == "publish":
        with store.snapshot() as snap:
            published.append(snap.publish(count=False))
        if len(published) > 2:
            published.pop(0).release()
    elif word == "look":
        with store.snapshot() as snap:
            before = sum(map(len, snap.keys()))
            if before != sum(map(len, snap.keys())):
                raise AssertionError("a snapshot changed")
    else:
        store.sync()
    return 0


# ---------------------------------------------------------------- the nursery


PARTS = (
    "store", "snapshot", "index", "changes", "actors.opening.startup", "actors.keeping.backup",
    "actors.keeping.publishing", "actors.compacting.compaction", "files.jobs.table",
    "files.handover.staged_writer",
)  # fmt: skip
"""What a life would import as it begins."""


def nursery() -> None:
    logging.disable(logging.CRITICAL)
    for part in PARTS:
        importlib.import_module(f"octavo.{part}")
    for line in sys.stdin.buffer:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _be_born(request)
        say("pid", child)
        _, status = os.waitpid(child, 0)
        say("end", os.waitstatus_to_exitcode(status))


def _be_born(request: dict[str, Any]) -> None:
    code = 0
    try:
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.close(nowhere)
        faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
        early = random.Random(f"maps {request['luck']}").random() < 0.5
        with sizes(EARLY_MAPS if early else {}):
            live(**request)
    except octavo.OctavoError as error:
        say("e", "steps", type(error).__name__, str(error).replace("\n", " ")[:300])
        code = 3
    except BaseException as error:  # noqa: BLE001 (the parent judges it)
        say("e", "steps", type(error).__name__, str(error).replace("\n", " ")[:300])
        code = 4
    finally:
        os._exit(code)


class Nursery:
    """The parent's side. ``life`` begins one; read its lines, kill it when it is time."""

    def __init__(self) -> None:
        self._life: Life | None = None
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "OPENBLAS_NUM_THREADS": "1",  # or a fork would leave its threads behind
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        )

    def life(self, **request: Any) -> Life:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the nursery has no pipes")
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        self._life = Life(self._process.stdout)
        return self._life

    def close(self) -> None:
        if self._life is not None and self._life.ended is None:
            self._life.kill()
            for _ in self._life.lines():  # the first one may say whom to kill
                self._life.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Life:
    """One life, as it is heard of. Lines come in order; after ``end`` there are none."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.ended: int | None = None
        """Exit status; a signal is negative."""
        self.pid = 0
        self._doomed = False

    def lines(self) -> Iterator[list[str]]:
        """Words of each line that comes; a "pid" and an "end" are taken in here."""
        while self.ended is None:
            line = self._stream.readline()
            if not line:
                raise RuntimeError("the nursery is gone")
            words = line.decode().split()
            if words[0] == "pid":
                self.pid = int(words[1])
                if self._doomed:
                    self.kill()
            elif words[0] == "end":
                self.ended = int(words[1])
            else:
                yield words

    def kill(self) -> None:
        """Now, or as soon as it is known who it is."""
        self._doomed = True
        if self.pid and self.ended is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(self.pid, signal.SIGKILL)


if __name__ == "__main__":
    nursery()
