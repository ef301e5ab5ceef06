"""The power goes on a real file system: what was synced is there, batches are whole.
A thousand, of shorter lives: test_short_lives.py.

Long form: scripts/campaign power-ext4, power-xfs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_stats import stats_of
from killing import Rounds
from lives import Nursery
from loop_disk import LoopDisk, NotHere
from said_loudly import or_say_so

import octavo

SEED = os.environ.get("OCTAVO_SEED", "20261121")
ROUNDS = {"ext4": 8, "xfs": 4}
MOST_ROUNDS = 64
"""Few lives may all end before a step was answered."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.mark.parametrize("sync", ["always", "none"])
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_what_was_synced_survives_a_power_cut(kind: str, sync: str, nursery: Nursery) -> None:
    print(f"OCTAVO_SEED={SEED} (a longer run: scripts/campaign power-{kind})")
    disk = or_say_so(f"power cuts on {kind}", lambda: LoopDisk(kind), NotHere)
    if disk is None:
        return
    try:
        rounds = Rounds(
            nursery, disk.path / "s", f"{SEED} {kind} {sync}", sync=sync, disk=disk, most_steps=120
        )
        for number in range(1, MOST_ROUNDS + 1):
            rounds.live_and_die()
            if number >= ROUNDS[kind] and rounds.counts["steps"]:
                break
        assert rounds.counts["cuts"] == number
        assert rounds.counts["steps"] > 0
    finally:
        disk.close()


LONG_FILE = """
import random, sys, octavo
store = octavo.open(sys.argv[1], roll_size_bytes=16 << 20, push_rows=1 << 16, worker=False)
first = len(store)
store.put_many((b"%07d" % n, b"%d" % n * 100) for n in range(first, first + 14_000))
store.sync()
told = len(store)
for n in range(1000):
    store.put(b"later", random.Random(n).randbytes(3000))
print(told, flush=True)
while True:
    store.put(b"later", bytes(3000))
"""
"""Files that grow for so long that room is set aside for them, behind their ends, and that have
zeros behind what was not synced."""


def taken_beyond_their_ends(store: Path) -> int:
    """Bytes of the disk that journal files have ahead."""
    found = stats_of(store / "journal", "*.log")
    return sum(512 * each.st_blocks - each.st_size for each in found)


def test_room_that_was_set_aside_holds_nothing_after_a_power_cut() -> None:
    disk = or_say_so("power cuts of long files on ext4", lambda: LoopDisk("ext4"), NotHere)
    if disk is None:
        return
    try:
        path = disk.path / "s"
        for turn in range(1, 4):
            words = [sys.executable, "-c", LONG_FILE, str(path)]
            with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
                assert writer.stdout is not None
                told = int(writer.stdout.readline() or b"0")
                assert told == 14_000 * turn
                assert taken_beyond_their_ends(path) > 1 << 20
                writer.kill()
            disk.cut_power()
            disk.mount()
            with octavo.open(path, worker=False) as store:
                store.delete("later")
                assert all(store.get(b"%07d" % n) == b"%d" % n * 100 for n in range(told))
                assert len(store) == told
                assert store.verify().ok
    finally:
        disk.close()
