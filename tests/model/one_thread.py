"""A whole store on one thread: what the pool would do waits until it is told to go on.

Then a workload does the same operations in the same order each time, a power cut can be looked at
in the middle of one, and a store whose machine has lost power is simply forgotten.
"""

from __future__ import annotations

import os
import random
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pykka import ActorRegistry

import octavo
from octavo import registry
from octavo.actors.opening import startup
from octavo.actors.opening.options import Options
from octavo.actors.turns import runtime
from octavo.actors.writing import reserve
from octavo.files.door.disk import Disk

MOST_WORK = 100_000
RESERVE_BYTES = 512
"""Of the low-space reserve: one of its true size would be most of what images are made of, and
torn in so many ways that no image would be met again."""


class HeldPool:
    """Stands where the pool of threads stands."""

    def __init__(self) -> None:
        self.work: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def go_on(self, most: int = MOST_WORK) -> None:
        """Do ``most`` pieces of the work that waits, and of what that brings."""
        while self.work and most:
            self.work.popleft()()
            most -= 1


@contextmanager
def one_thread(seed: object) -> Iterator[HeldPool]:
    """Within it nothing runs on the pool, and names and ids are those of ``seed``.

    Actors that were made in it are gone when it ends, as if their machine had lost power. May be
    entered again within itself, for another machine.
    """
    pool, rng = HeldPool(), random.Random(f"names of {seed}")
    before = runtime.POOL, secrets.randbits, os.sched_yield, reserve.RESERVE_BYTES
    running, open_before = ActorRegistry.get_all(), set(registry.OPEN)
    runtime.POOL, secrets.randbits = pool, rng.getrandbits  # type: ignore[assignment]
    os.sched_yield = lambda: None
    reserve.RESERVE_BYTES = RESERVE_BYTES
    try:
        yield pool
    finally:
        runtime.POOL, secrets.randbits, os.sched_yield, reserve.RESERVE_BYTES = before  # type: ignore[misc]
        registry.OPEN &= open_before
        kept = set(map(id, running))
        for ref in ActorRegistry.get_all():
            if id(ref) not in kept:
                ActorRegistry.unregister(ref)


def opened(
    disk: Disk,
    path: str = "/store",
    *,
    clock_ms: Callable[[], int],
    monotonic: Callable[[], float] | None = None,
    **given: object,
) -> octavo.Store:
    """A small store with no thread or process of its own."""
    options = Options(
        **{
            "worker": False,
            "push_rows": 64,
            "push_bytes": 64 << 10,
            "roll_count": 256,
            "read_cache_bytes": 0,
            "compact_every_seconds": None,
            **given,
        }  # type: ignore[arg-type]
    )
    running = startup.start(
        path,
        options,
        disk,
        clock_ms=clock_ms,
        monotonic=monotonic or (lambda: clock_ms() / 1000),
    )
    return octavo.Store(running)


def forget(store: octavo.Store) -> None:
    """Its machine has no power: nobody asks it anything any more, at exit neither."""
    store._closed = True
