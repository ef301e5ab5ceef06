"""SIGKILL at any moment: every acknowledged write is there, a batch is whole or absent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import octavo

WRITER = """
import sys, octavo
path, sync = sys.argv[1], sys.argv[2]
start = int(sys.argv[3])
store = octavo.open(path, sync=sync, push_rows=256, push_bytes=64 << 10, roll_count=400)
i = start
while True:
    if i % 5 == 0:
        with store.batch() as batch:
            for j in range(4):
                batch.put("batch", "%d-%d" % (i, j), b"b" * 40)
    elif i % 7 == 0:
        store.delete("k%d" % (i - 1))
    else:
        store.put("k%d" % i, b"v%d" % i)
    sys.stdout.write("%d %d\\n" % (i, store.last_sqn))
    sys.stdout.flush()
    i += 1
"""


def killed_run(path: Path, sync: str, start: int, lines: int) -> tuple[int, int]:
    """(last acknowledged step, highest acknowledged sqn) of a writer killed after ``lines``."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), sync, str(start)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(lines)]
    writer.send_signal(signal.SIGKILL)
    said += writer.stdout.read().splitlines(keepends=True)
    writer.stdout.close()
    writer.wait()
    whole = [line for line in said if line.endswith(b"\n")]
    step, sqn = whole[-1].split()
    return int(step), int(sqn)


def check_step(store: octavo.Store, batches: octavo.Bucket, i: int, newest: bool) -> None:
    """Step i was acknowledged: its effect is there, unless the step behind it took it back."""
    if i % 5 == 0:
        there = [f"{i}-{j}" in batches for j in range(4)]
        assert all(there), f"batch {i}: {there}"
    elif i % 7 == 0:
        assert store.get(f"k{i - 1}") is None
    elif (i + 1) % 7 == 0 and (i + 1) % 5:
        if newest:  # the delete behind it may have been written, too
            assert store.get(f"k{i}") in (b"v%d" % i, None)
    else:
        assert store.get(f"k{i}") == b"v%d" % i


@pytest.mark.parametrize("sync", ["none", "always"])
def test_sigkill_loses_no_acknowledged_write(tmp_path: Path, sync: str) -> None:
    seed = int(os.environ.get("OCTAVO_SEED", "20261121"))
    rng = random.Random(f"{seed}-{sync}")
    print(f"OCTAVO_SEED={seed}")
    path = tmp_path / "s"
    done, highest = 0, 0
    for _ in range(5):
        done, sqn = killed_run(path, sync, done + 1, rng.randrange(1, 900))
        assert sqn > highest, "a sequence number was given twice"
        with octavo.open(path) as store:
            assert store.last_sqn >= sqn
            highest = store.last_sqn
            batches = store.bucket("batch")
            for i in range(1, done + 1):
                check_step(store, batches, i, newest=i == done)
            for i in range(done + 1, done + 3):
                if i % 5 == 0:
                    there = [f"{i}-{j}" in batches for j in range(4)]
                    assert len(set(there)) == 1, f"unacknowledged batch {i}: {there}"
            assert store.verify().ok
