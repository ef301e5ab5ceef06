"""Processes that race for one store: of those that have it at a time there is one."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import octavo

METHODS = ("fork", "spawn", "forkserver")
TRIES = 6
WAIT = 120.0


def race(path: str, name: int, luck: str, tries: int, told: Connection) -> None:
    """Open the store again and again; note in it who has it, and find nobody beside."""
    rng = random.Random(luck)
    have = refused = seen = 0
    wrong = ""
    for _ in range(tries):
        if rng.random() < 0.3:  # beside whoever has it
            with octavo.open(path, read_only=True) as reader:
                before, seen = seen, int(reader.get(b"count") or b"0")
            if seen < before:
                wrong = f"{before} openings were seen, and later {seen}"
        if rng.random() < 0.03:  # by its owner, or opened for it
            octavo.acknowledge(path, f"mail{name}", 0)
        try:
            store = octavo.open(path, worker=False, push_rows=64)
        except octavo.StoreLocked:
            refused += 1
            continue
        have += 1
        count = int(store.get(b"count") or b"0")
        if store.get(b"holder") != b"":
            wrong = f"{store.get(b'holder')!r} has the store, too"
        store.put(b"holder", b"%d" % name)
        store.put(b"count", b"%d" % (count + 1))
        if rng.random() < 0.1:
            store.put(b"holder", b"", sync=False)
            told.send((have, refused, wrong))
            os.kill(os.getpid(), signal.SIGKILL)
        store.put(b"holder", b"")
        store.close()
    told.send((have, refused, wrong))


def raced(home: Path, seed: object, method: str, processes: int = 5) -> dict[str, int]:
    """One race. Raises AssertionError where two had the store, or a count of one was lost."""
    context = multiprocessing.get_context(method)
    path = str(home / "s")
    with octavo.open(path, worker=False) as store:
        store.put_many([(b"holder", b""), (b"count", b"0")])
    ends = []
    for name in range(processes):
        mine, theirs = context.Pipe(duplex=False)
        luck = f"openers {seed} {name}"
        process = context.Process(target=race, args=(path, name, luck, TRIES, theirs))
        process.start()
        theirs.close()
        ends.append((process, mine))
    have = refused = 0
    for process, mine in ends:
        assert mine.poll(WAIT), f"{method}: a process said nothing within {WAIT:g} s"
        one, other, wrong = mine.recv()
        assert not wrong, f"{method}: {wrong}"
        have, refused = have + one, refused + other
        process.join(WAIT)
        mine.close()
    with octavo.open(path, worker=False) as store:
        assert store.get(b"count") == b"%d" % have, "two had the store at a time"
        assert store.verify().ok
    return {"openings": have, "refused": refused}


if __name__ == "__main__":
    for number in range(int(sys.argv[3])):
        here = Path(sys.argv[1]) / str(number)
        here.mkdir()
        print(raced(here, number, sys.argv[2], processes=3))
