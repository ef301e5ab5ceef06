"""A program that tests start: the owner of a store that others follow, writing at full speed.

    python followed_owner.py REQUEST

It says on standard output, a JSON list each line

    ["opened", rows]       what the journal has behind the sqn that it was told, each
                           [sqn, bucket, key, digest]
    [number, sqn]          a step was done
    ["consumed", sqn, rows]   what its own durable consumer was given behind a sqn, and acknowledges
    ["closed"]             on request

and hears on standard input "on": as many steps more, and "stop".
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
import time
from itertools import count
from typing import Any

from followed_steps import digest, step, take, take_of_heads

import octavo

MINE = "own"


def say(*words: Any) -> None:
    """At once: what was said is there after a kill."""
    line = json.dumps(words).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


def opened(path: str, **options: Any) -> octavo.Store:
    """As soon as nobody has it: a commit or an acknowledgement opens it where its owner is gone."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return octavo.open(path, **options)
        except octavo.StoreLocked:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def told(changes: Any) -> list[Any]:
    return [(c.sqn, c.bucket.hex(), c.key.hex(), digest(c.value, c.metadata)) for c in changes]


class Owner:
    """One life."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.rng = random.Random(request["luck"])
        self.heads = request["options"].get("mode") == "head_only"
        self.allowed = threading.Semaphore(4)
        """Bursts of steps, each at full speed."""
        self.stop = False
        self.store = opened(request["path"], **request["options"])
        self.target: octavo.Store | None = None

    def live(self) -> None:
        request, rng = self.request, self.rng
        say("opened", told(self.store.changes(since=request["since"])))
        act = take_of_heads if self.heads else take
        for number in count(request["first"]):
            if not (number - request["first"]) % request["burst"]:
                self.allowed.acquire()
            if self.stop:
                break
            say(number, act(self.store, step(request["seed"], number), number))
            if rng.random() < request["chores"]:
                self.chore()
        for store in (self.store, self.target):
            if store is not None:
                store.close()
        say("closed")

    def chore(self) -> None:
        rng, store = self.rng, self.store
        what = rng.choice(("compact", "compact", "consume", "publish", "reopen", "target"))
        if what == "compact" and self.heads:
            store.trim()
        elif what == "compact":
            store.compact()
        elif what == "consume" and not self.heads:
            mine = store.consumer(MINE)
            rows = told(mine.changes())
            say("consumed", mine.position, rows)
            if rows:
                mine.acknowledge(rows[-1][0])
        elif what == "publish":
            for each in store.published():
                if each.name == "owners":
                    each.release()
            with store.snapshot() as snap:
                snap.publish("owners")
        elif what == "reopen" and rng.random() < 0.3:
            store.close()
            self.store = opened(self.request["path"], **self.request["options"])
        elif what == "target" and self.request["target"]:
            self.turn_target()

    def turn_target(self) -> None:
        """Have the follower open, or no more."""
        if self.target is not None:
            self.target.close()
            self.target = None
        elif os.path.exists(self.request["target"]):
            self.target = opened(self.request["target"], **self.request["target_options"])


def main() -> None:
    logging.disable(logging.CRITICAL)
    owner = Owner(json.loads(sys.argv[1]))

    def listen() -> None:
        for line in sys.stdin:
            owner.stop = owner.stop or line.strip() == "stop"
            owner.allowed.release()

    threading.Thread(target=listen, daemon=True).start()
    owner.live()


if __name__ == "__main__":
    main()
