"""The work that never runs on a caller's path: pure functions from files to files.

Each takes a Disk, plain values and buffers, and returns plain values, so that the same function
runs in the worker process (worker.py) or, where none can be started, on a thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from octavo.files import cdb_seal, journal_rows, merge
from octavo.files.disk import Disk

Job = Callable[..., dict[str, Any]]


def _names(stem: str) -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{stem}-{next(numbers):04x}.sst"


def _summaries(found: Sequence[merge.Summary]) -> dict[str, Any]:
    out = []
    for summary in found:
        row = asdict(summary)
        row["first_key"] = summary.first_key.decode("latin-1")
        row["last_key"] = summary.last_key.decode("latin-1")
        out.append(row)
    return {"files": out}


def seal(
    disk: Disk,
    offsets: bytes,
    *,
    directory: str,
    name: str,
    sealed_name: str,
    seed: int,
    first_ms: int,
    last_ms: int,
) -> dict[str, Any]:
    """Turn a finished journal file into stock CDB under its sealed name, durably.

    ``offsets``: native u32, count + 1. The pointers at the front are written last, after the
    tables are durable; the new name comes after both, so a sealed name means a whole file.
    """
    front, back = cdb_seal.sealing(offsets, seed, first_ms, last_ms)
    records_end = int.from_bytes(offsets[-4:], "little")
    path = f"{directory}/{name}"
    file = disk.reopen(path, records_end)
    try:
        file.write_all(back)
        file.sync()
        file.pwrite_all(front, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(path, f"{directory}/{sealed_name}")
    disk.sync_dir(directory)
    return {"bytes": records_end + len(back)}


def level_zero(
    disk: Disk,
    *offsets: bytes,
    journal: str,
    ledger: str,
    stem: str,
    parts: Sequence[dict[str, Any]],
    max_rows: int,
    max_bytes: int,
) -> dict[str, Any]:
    """One sorted run out of stretches of journal files, as new ledger files.

    Part i (``name``, ``seed``, ``base_sqn``, ``first``) is the records of a file from the
    relative number ``first`` on; ``offsets[i]`` are theirs: native u32, one more than records.
    """
    columns = []
    for part, table in zip(parts, offsets, strict=True):
        buffer = disk.map(f"{journal}/{part['name']}")
        columns.append(
            journal_rows.rows_of(
                memoryview(buffer),
                np.frombuffer(table, dtype=np.uint32),
                part["first"],
                part["seed"],
                part["base_sqn"],
                part["name"],
            )
        )
    rows = merge.sort_rows(journal_rows.concatenated(columns))
    found = merge.write_rows(
        disk, ledger, _names(stem), rows, max_rows=max_rows, max_bytes=max_bytes
    )
    return _summaries(found)


def merge_files(
    disk: Disk,
    *,
    ledger: str,
    stem: str,
    inputs: Sequence[tuple[str, int]],
    basement: bool,
    now_ms: int,
    max_rows: int,
    max_bytes: int,
) -> dict[str, Any]:
    """Sorted files into sorted, disjoint files: see merge.merge."""
    found = merge.merge(
        disk,
        ledger,
        [(name, base) for name, base in inputs],
        _names(stem),
        basement=basement,
        now_ms=now_ms,
        max_rows=max_rows,
        max_bytes=max_bytes,
    )
    return _summaries(found)


JOBS: dict[str, Job] = {"seal": seal, "level_zero": level_zero, "merge": merge_files}
