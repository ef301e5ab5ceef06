"""Measures small commits into a closed store, such as a job makes that runs now and then."""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path

from limits import fill
from workload import Values, key, settle

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms

_COMMITS = 300
_ROWS = 100
_COMPARED = 30
_OPENINGS = 5


def commits(place: Path, count: int) -> dict[str, str | float]:
    """Three hundred commits of a hundred rows of 100 bytes, of keys anywhere among ``count``: how
    long those at the beginning and at the end took in milliseconds, and what they left."""
    path, values, chance = place / "store", Values(100), random.Random(7)
    with octavo.open(path) as store:
        fill(store, values, count)
        settle(store)
    before = files(path)
    written: dict[bytes, bytes] = {}
    taken = []
    for number in range(_COMMITS):
        chosen = chance.sample(range(count), min(_ROWS, count))
        rows = {key(each): values.of(each + number) for each in chosen}
        written |= rows
        stage(path, f"job-{number}", rows)
        began = time.perf_counter()
        octavo.commit(path, f"job-{number}", ["0-0"])
        taken.append((time.perf_counter() - began) * 1e3)
    after = files(path)
    opened = []
    for _ in range(_OPENINGS):
        began = time.perf_counter()
        store = octavo.open(path)
        opened.append((time.perf_counter() - began) * 1e3)
        wrong = [each for each, value in written.items() if store.get(each) != value]
        store.close()
        if wrong:
            raise SystemExit(f"{len(wrong)} keys have other values than were committed")
    found: dict[str, str | float] = {
        "shape": f"{_COMMITS} commits of {_ROWS} rows into {count:,} keys",
        "first_ms": statistics.median(taken[:_COMPARED]),
        "last_ms": statistics.median(taken[-_COMPARED:]),
        "longest_ms": max(taken),
        "files_before": before,
        "files": after,
        "open_ms": statistics.median(opened),
    }
    ends = " / ".join(f"{found[each]:.1f}" for each in ("first_ms", "last_ms", "longest_ms"))
    print(f"{found['shape']}:")
    print(f"  ms a commit, the first {_COMPARED} / the last / the longest of all: {ends}")
    print(f"  files before / after: {before} / {after}; to open: {found['open_ms']:.1f} ms")
    return found


def stage(path: Path, job: str, rows: dict[bytes, bytes]) -> None:
    """What the only task of a job makes: files that wait to be taken in."""
    writer = StagedWriter(RealDisk(), str(path), job, "0-0", now_ms=wall_clock_ms())
    writer.put_many(b"", list(rows), list(rows.values()))
    writer.finish()


def files(path: Path) -> int:
    """All files of a store."""
    return sum(1 for file in path.rglob("*") if file.is_file())
