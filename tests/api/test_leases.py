"""Leases that end while somebody reads: right values or SnapshotExpired, never anything else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lease_races import Race
from whole_store import flush, opened

from octavo.files.disk import RealDisk
from octavo.manifest import published

SEED = int(os.environ.get("OCTAVO_SEED", "1"))
READS = 500
LATE_MS = 8 * 86_400_000
READER = """
import sys, time
import octavo
late_ns = 0
clock = time.time_ns
time.time_ns = lambda: clock() + late_ns
store = octavo.open(sys.argv[1], read_only=True, max_open_files=8)
scan = store.items()
read = [next(scan) for _ in range(50)]
print("reading", flush=True)
sys.stdin.readline()
late_ns = int(sys.argv[2]) * 1_000_000
said = 0
try:
    for item in scan:
        read.append(item)
except octavo.SnapshotExpired:
    said += 1
assert read == [(b"k%04d" % n, b"old %d" % n) for n in range(len(read))], read[-1]
for ask in (lambda: store.get("k0000"), lambda: store.head("k0399"), lambda: list(store.keys())):
    try:
        ask()
    except octavo.SnapshotExpired:
        said += 1
print(said, len(read), flush=True)
"""


@pytest.mark.parametrize("number", range(20))
def test_readers_beside_everything_that_takes_their_files_away(number: int) -> None:
    print(f"OCTAVO_SEED={SEED + number} pytest tests/api/test_leases.py # its number 0")
    assert Race(SEED + number).run(READS)["reads"] == READS


def test_a_reader_in_another_process_whose_lease_ends(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"k%04d" % n, b"old %d" % n) for n in range(400))
        flush(store)
        with subprocess.Popen(
            [sys.executable, "-c", READER, str(tmp_path / "s"), str(LATE_MS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as reader:  # fmt: skip
            assert reader.stdin is not None
            assert reader.stdout is not None
            begun = reader.stdout.readline()
            for _ in range(3):
                store.put_many((b"k%04d" % n, b"new") for n in range(400))
                flush(store)
            store.compact()
            published.sweep(RealDisk(), store.path, time.time_ns() // 1_000_000 + LATE_MS)
            said, wrong = reader.communicate("go on\n")
    assert begun == "reading\n", wrong
    assert reader.returncode == 0, wrong
    assert said.split()[0] == "4", said
    assert os.listdir(tmp_path / "s" / "snapshots") == []
