"""A ledger file seen as an Arrow record batch: the same rows, the same bytes in memory."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ledger_rows import DIRECTORY, Row, columns, key, names
from simdisk import SimDisk

from octavo.files import merge
from octavo.files.arrow import binary_array, record_batch
from octavo.files.disk import RealDisk
from octavo.files.errors import Corruption, Misuse
from octavo.files.rows import ByteColumn
from octavo.files.sst import Sst
from octavo.pipeline.value_views import Views

ROWS = [
    Row(key(b"k%03d" % at, b"b" if at > 60 else b""), at + 1, at % 7 == 0, 0,
        b"m%d" % at if at % 3 == 0 else b"", at)
    for at in range(100)
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> str:
    return written(tmp_path, ROWS)


def written(directory: Path, rows: list[Row]) -> str:
    (file,) = merge.write_rows(
        RealDisk(), str(directory), names(), columns(rows),
        max_rows=1 << 18, max_bytes=1 << 30,
    )  # fmt: skip
    return str(directory / file.name)


def opened(path: str) -> Sst:
    return Sst(RealDisk().map(path), path)


def test_columns_hold_the_rows(path: str) -> None:
    batch = record_batch(opened(path))
    batch.validate(full=True)
    assert batch.schema == pa.schema(
        {
            "key": pa.binary(), "sqn": pa.uint64(), "size": pa.uint32(), "flags": pa.uint8(),
            "metadata": pa.binary(),
        }
    )  # fmt: skip
    assert batch.to_pydict() == {
        "key": [row.key.split(b"\0")[2] for row in ROWS],
        "sqn": [row.sqn for row in ROWS],
        "size": [row.size for row in ROWS],
        "flags": [row.flags for row in ROWS],
        "metadata": [row.meta or None for row in ROWS],
    }


def test_columns_lie_in_the_map(path: str) -> None:
    mapped = RealDisk().map(path)
    low = np.frombuffer(mapped, dtype=np.uint8).ctypes.data
    batch = record_batch(Sst(mapped, path), 0, 5, 90)
    for name in ("key", "sqn", "size", "flags", "metadata"):
        _, *content = batch.column(name).buffers()
        for buffer in content:
            assert low <= buffer.address
            assert buffer.address + buffer.size <= low + len(mapped)


def test_a_range_of_rows_is_a_slice(path: str) -> None:
    sst = opened(path)
    whole = record_batch(sst).to_pylist()
    assert record_batch(sst, 0, 10, 20).to_pylist() == whole[10:20]
    assert record_batch(sst, low=90).to_pylist() == whole[90:]
    assert record_batch(sst, 0, 7, 7).num_rows == 0


@pytest.mark.parametrize("bounds", [(-1, 5), (5, 4), (0, 101), (101, None)])
def test_a_range_outside_the_file_is_refused(path: str, bounds: tuple[int, int | None]) -> None:
    with pytest.raises(Misuse, match="low, high"):
        record_batch(opened(path), 0, *bounds)


def test_a_base_is_added_to_the_sqns(path: str) -> None:
    batch = record_batch(opened(path), 10**15)
    assert batch.column("sqn").to_pylist() == [10**15 + row.sqn for row in ROWS]


def test_metadata_is_null_in_a_file_without_any(tmp_path: Path) -> None:
    batch = record_batch(opened(written(tmp_path, [Row(key(b"k"), 1)])))
    assert batch.column("metadata").to_pylist() == [None]


def test_a_batch_outlives_the_reader_and_the_name(path: str) -> None:
    batch = record_batch(opened(path))
    RealDisk().unlink(path)
    assert batch.column("sqn").to_pylist() == [row.sqn for row in ROWS]


def test_damage_is_found_before_the_first_view() -> None:
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    (file,) = merge.write_rows(
        disk, DIRECTORY, names(), columns(ROWS), max_rows=999, max_bytes=1 << 30
    )
    image = bytearray(disk.map(f"{DIRECTORY}/{file.name}"))
    image[-1] ^= 1
    with pytest.raises(Corruption):
        record_batch(Sst(bytes(image), "f"))


def test_without_pyarrow_the_message_says_what_to_install(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Misuse, match=r"octavo\[arrow\]"):
        record_batch(opened(path))


def test_more_bytes_than_a_binary_array_can_hold_are_refused() -> None:
    """Their offsets have 31 bits, and a value may have 3 GiB."""
    blob, most = np.zeros(0, dtype=np.uint8), (1 << 31) - 1
    with pytest.raises(Misuse, match="2147483648 bytes"):
        binary_array(ByteColumn(blob, np.array([0, most + 1])))
    with pytest.raises(Misuse, match="2147483648 bytes"):
        Views(1).add(b"abc", np.array([0]), np.array([0]), np.array([most + 1]))
