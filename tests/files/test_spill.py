"""Columns by parts, put aside and read back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from octavo.files.door.disk import RealDisk
from octavo.files.kernels.spill import Columns, ScratchFailed, Spill

SEED = 20261125


def some(random: np.random.Generator, rows: int) -> list[np.ndarray]:  # type: ignore[type-arg]
    return [
        random.integers(0, 1 << 63, rows, dtype=np.uint64),
        random.integers(0, 200, rows, dtype=np.uint8),
        random.integers(0, 2, rows).astype(np.bool_),
    ]


def joined(blocks: list[Columns]) -> list[list[int]]:
    return [np.concatenate(column).tolist() for column in zip(*blocks, strict=True)]


@pytest.mark.parametrize("parts", [1, 2, 7, 1 << 17])
def test_each_row_comes_back_in_its_part_in_the_order_of_adding(tmp_path: Path, parts: int) -> None:
    random = np.random.default_rng(SEED)
    spill = Spill(RealDisk(), str(tmp_path / "aside"), parts)
    added = [some(random, rows) for rows in (1000, 1, 0, 333)]
    for columns in added:
        spill.add(columns, columns[0] % np.uint64(parts))
    whole = [np.concatenate(column) for column in zip(*added, strict=True)]
    parts_of = whole[0] % np.uint64(parts)
    for part in {*parts_of[:50].tolist(), 0, parts - 1}:
        wanted = [column[parts_of == part].tolist() for column in whole]
        assert joined(spill.part(part)) == wanted
    spill.close()


def test_one_part_stays_in_memory(tmp_path: Path) -> None:
    spill = Spill(RealDisk(), str(tmp_path / "nowhere" / "aside"), 1)
    spill.add(some(np.random.default_rng(SEED), 10), None)
    assert len(joined(spill.part(0))[0]) == 10


def test_the_file_has_no_name(tmp_path: Path) -> None:
    spill = Spill(RealDisk(), str(tmp_path / "aside"), 2)
    spill.add([np.arange(10)], np.arange(10) % 2)
    assert os.listdir(tmp_path) == []
    assert joined(spill.part(1)) == [[1, 3, 5, 7, 9]]
    spill.close()
    spill.close()


def test_bytes_that_are_gone_are_told(tmp_path: Path) -> None:
    spill = Spill(RealDisk(), str(tmp_path / "aside"), 2)
    spill.add([np.arange(10)], np.arange(10) % 2)
    assert spill._file is not None
    os.truncate(spill._file.fd, 50)
    with pytest.raises(ScratchFailed, match="aside"):
        spill.part(1)
