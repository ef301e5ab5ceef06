"""Strings of several blobs, and merges and rebuilds that do not hold all metadata in memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ledger_rows import Row, columns, key, names

from octavo.files.door.disk import RealDisk
from octavo.files.kernels.byte_strings import column_of
from octavo.files.kernels.columns import Strings
from octavo.files.kernels.scattered_strings import Scattered, no_strings
from octavo.files.ledger import merge, sorted_files
from octavo.files.ledger.sst import Sst

META_BYTES = 8192
FILE_BYTES = 1 << 20


def listed(found: Strings) -> list[bytes]:
    places = zip(found.starts.tolist(), found.lengths.tolist(), strict=True)
    return [found.blob[at : at + length].tobytes() for at, length in places]


@pytest.mark.parametrize("seed", range(20))
def test_strings_of_several_blobs_are_picked_in_any_order(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    longest = chance.choice([1, 8, 300])
    wanted: list[bytes] = []
    parts: list[Strings] = []
    for _ in range(chance.randrange(1, 6)):
        few = [chance.randbytes(chance.randrange(longest)) for _ in range(chance.randrange(40))]
        parts.append(column_of(few).strings() if any(few) else no_strings(len(few)))
        wanted += few
    middle = len(parts) // 2
    nested = [Scattered(parts[:middle]), *parts[middle:]] if middle else parts
    rows = list(range(len(wanted)))
    chance.shuffle(rows)
    rows = rows[: chance.randrange(len(rows) + 1)]
    for found in (Scattered(parts), Scattered(nested)):
        picked = found.picked(np.array(rows, dtype=np.int64))
        assert listed(picked) == [wanted[row] for row in rows]


def peak_of(work: Callable[[], object]) -> int:
    work()  # what is made once
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_merge_holds_the_metadata_of_one_file_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "_TOGETHER_BYTES", FILE_BYTES)
    disk, next_name = RealDisk(), names()
    inputs = []
    for turn in range(4):
        rows = [
            Row(key(b"%06d" % (n * 4 + turn)), n, meta=bytes([turn]) * META_BYTES)
            for n in range(1000)
        ]
        made = merge.write_rows(
            disk, str(tmp_path), next_name, columns(rows), max_rows=1000, max_bytes=1 << 30
        )
        inputs += [(one.name, turn * 1000) for one in made]
    out: list[sorted_files.Summary] = []

    def work() -> None:
        found = merge.merge(
            disk, str(tmp_path), inputs, next_name,
            basement=True, now_ms=0, max_rows=1 << 18, max_bytes=FILE_BYTES,
        )  # fmt: skip
        out[:] = found.files

    assert peak_of(work) < 6 * FILE_BYTES  # of 32 MB
    files = [Sst(disk.map(f"{tmp_path}/{one.name}"), one.name) for one in out]
    found = [(sst.ledger_key(at), sst.meta(at)) for sst in files for at in range(sst.rows)]
    assert found == [(key(b"%06d" % n), bytes([n % 4]) * META_BYTES) for n in range(4000)]
