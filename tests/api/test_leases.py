"""Leases that end while somebody reads: right values or SnapshotExpired, never anything else."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lease_races import Race
from whole_store import flush, opened

import octavo
from octavo.files.door.disk import RealDisk
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


READS_OF_FILES = {
    "get": lambda store: store.get("k0005"),
    "head": lambda store: store.head("k0005"),
    "get_many": lambda store: list(store.get_many(["k0005", "k0006"])),
    "items": lambda store: list(store.items()),
    "heads": lambda store: list(store.heads()),
    "to_arrow": lambda store: list(store.to_arrow()),
    "changes": lambda store: list(store.changes()),
}


@pytest.mark.parametrize("read", READS_OF_FILES.values(), ids=list(READS_OF_FILES))
def test_what_another_process_releases_has_expired_to_who_reads_it(
    tmp_path: Path, read: Callable[[octavo.Store], object]
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"k%04d" % n, b"old %d" % n) for n in range(400))
        flush(store)
        for begun in (False, True):
            with octavo.open(store.path, read_only=True) as reader:
                if begun:
                    reader.head("k0001")  # its ledger file stays open
                [pinned] = store.published()
                pinned.release()
                told = pytest.raises(octavo.SnapshotExpired, match=f"{pinned.id} is gone")
                with contextlib.suppress(octavo.SnapshotExpired) if begun else told:
                    read(reader)
