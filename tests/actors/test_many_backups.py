"""Three hundred backups of stores that are written to, some of them where no link can be made or
no more of them: each is the state at its sqn, before and after a power cut."""

from __future__ import annotations

import errno
import os
import random
from contextlib import suppress

import pytest
from one_thread import forget, one_thread, opened
from simdisk import SimDisk

import octavo

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))
NOW_MS = 1_800_000_000_000
BACKUPS = 60


def state_of(disk: SimDisk, sqn: int) -> dict[bytes, bytes]:
    with one_thread("a backup"):
        store = opened(disk, "/backup", clock_ms=lambda: NOW_MS, create=False)
        try:
            assert store.last_sqn == sqn
            report = store.verify()
            assert report.ok, report.problems
            return dict(store.items())
        finally:
            forget(store)


@pytest.mark.parametrize("round_", range(5))
def test_a_backup_is_the_state_at_its_sqn_wherever_it_lies(round_: int) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(f"backups {SEED} {round_}")
    disk, state, copied = SimDisk(), {}, 0
    with one_thread(f"backups {SEED} {round_}") as pool:
        store = opened(disk, clock_ms=lambda: NOW_MS, push_rows=64, roll_count=256)
        try:
            for number in range(BACKUPS):
                for _ in range(rng.randrange(1, 80)):
                    key = b"k%02d" % rng.randrange(60)
                    if rng.random() < 0.2:
                        store.delete(key)
                        state.pop(key, None)
                    else:
                        state[key] = b"%d %s" % (number, bytes(rng.randrange(40)))
                        store.put(key, state[key])
                    pool.go_on(rng.randrange(2))
                if rng.random() < 0.2:
                    store.compact()
                why = rng.choice((0, 0, errno.EXDEV, errno.EMLINK))
                if why:
                    disk.fail("link", rng.randrange(1, 3), why, lasting=why == errno.EXDEV)
                    if rng.random() < 0.3:
                        refused(store)
                done = store.backup("/backup", copy=True)
                disk.heal()
                copied += done.bytes_copied > 0
                store.put(b"later", b"not in it")
                store.delete(b"later")
                left = disk.after_crash(rng.choice(("nothing", "random_subset", "torn")), number)
                assert state_of(left, done.sqn) == state, f"backup {number}"
        finally:
            forget(store)
    assert 0 < copied < BACKUPS


def refused(store: octavo.Store) -> None:
    """A backup that may not copy says so, or has nothing to link; the next one is whole."""
    with suppress(octavo.Misuse):
        store.backup("/backup")
