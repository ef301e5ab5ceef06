"""What tasks read in the order of keys, of journal files that are not in memory."""

from __future__ import annotations

import mmap
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from scattered_values import scattered

from octavo.files.door.disk import RealDisk
from octavo.files.kernels.cold_pages import COLD
from octavo.files.ledger.bounds import OBJECTS
from octavo.pipeline.arrow_rows import record_batches
from octavo.pipeline.snapshot_files import SnapshotFiles

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
RECORDS, FILES = 40, 3
BYTES = 70_000


class NotingMap(mmap.mmap):
    """Notes what is asked of the system."""

    advice: list[tuple[int, int, int]]

    def madvise(self, option: int, start: int = 0, length: int | None = None) -> None:
        length = len(self) - start if length is None else length
        self.advice.append((option, start, start + length))
        super().madvise(option, start, length)


class NotingDisk(RealDisk):
    """Its maps of journal files note what is asked of them."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: list[NotingMap] = []

    def map(self, path: str) -> mmap.mmap | bytes:
        if not path.endswith(".cdb"):
            return super().map(path)
        with open(path, "rb") as file:
            made = NotingMap(file.fileno(), 0, access=mmap.ACCESS_READ)
        made.advice = []
        self.maps.append(made)
        return made


@pytest.fixture
def published(tmp_path: Path) -> str:
    return scattered(tmp_path / "s", FILES, RECORDS, BYTES)


def read(path: str, disk: NotingDisk, *, checksums: bool) -> dict[bytes, bytes]:
    files = SnapshotFiles(path, disk)
    out: dict[bytes, bytes] = {}
    for batch in record_batches(files, files.batches(OBJECTS), SCHEMA, checksums=checksums):
        out |= zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return out


def asked_bytes(mapped: NotingMap) -> int:
    return sum(high - low for what, low, high in mapped.advice if what == mmap.MADV_WILLNEED)


@pytest.mark.parametrize("checksums", [True, False])
def test_records_that_are_not_in_memory_are_asked_for_together(
    published: str, monkeypatch: pytest.MonkeyPatch, checksums: bool
) -> None:
    monkeypatch.setattr(COLD, "reads", count().__next__)
    disk = NotingDisk()
    found = read(published, disk, checksums=checksums)
    assert len(found) == FILES * RECORDS
    assert all(value.startswith(key) for key, value in found.items())
    assert len(disk.maps) >= FILES
    assert all(asked_bytes(mapped) > RECORDS * BYTES for mapped in disk.maps[:FILES])


def test_a_page_fault_of_a_read_in_the_order_of_keys_reads_a_page(published: str) -> None:
    disk = NotingDisk()
    read(published, disk, checksums=True)
    for mapped in disk.maps:
        assert (mmap.MADV_RANDOM, 0, len(mapped)) in mapped.advice


def test_records_that_are_in_memory_are_not_asked_for(published: str) -> None:
    disk = NotingDisk()
    assert len(read(published, disk, checksums=True)) == FILES * RECORDS
    assert all(asked_bytes(mapped) < BYTES for mapped in disk.maps)  # the file's offsets are
