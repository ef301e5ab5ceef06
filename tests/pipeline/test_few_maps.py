"""Reads by tasks that may map no more than a few files: ``spark.executor.pyspark.memory``."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import weakref
from pathlib import Path

import pyarrow as pa
import pytest
from scattered_values import scattered

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.ledger import few_maps
from octavo.files.ledger.bounds import OBJECTS
from octavo.files.ledger.ledger_key import STANDARD
from octavo.pipeline import journal_order
from octavo.pipeline.arrow_rows import record_batches
from octavo.pipeline.snapshot_files import SnapshotFiles

NAMES = ("key", "value")
SCHEMA = pa.schema([(name, pa.binary()) for name in NAMES])
RECORDS, FILES = 30, 8
BYTES = 3000


class Map(mmap.mmap):
    """One that can be watched."""


class SmallDisk(RealDisk):
    """Of its journal files no more than so many bytes are mapped at once."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.there: weakref.WeakSet[Map] = weakref.WeakSet()
        self.refused = 0

    def map(self, path: str) -> mmap.mmap | bytes:
        if not path.endswith(".cdb"):
            return super().map(path)
        if sum(map(len, self.there)) + os.path.getsize(path) > self.most:
            self.refused += 1
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path)
        with open(path, "rb") as file:
            made = Map(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.there.add(made)
        return made


@pytest.fixture
def published(tmp_path: Path) -> str:
    return scattered(tmp_path / "s", FILES, RECORDS, BYTES)


def read(files: SnapshotFiles, *, by_key: bool) -> dict[bytes, bytes]:
    out: dict[bytes, bytes] = {}
    if by_key:
        found = record_batches(files, files.batches(OBJECTS), SCHEMA, checksums=True)
    else:
        (whole,) = journal_order.stretches(files, 1 << 30)
        found = journal_order.stretch_batches(files, STANDARD, whole, SCHEMA, checksums=True)
    for batch in found:
        out |= zip(*(batch[name].to_pylist() for name in NAMES), strict=True)
    return out


def limited(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    real = resource.getrlimit

    def getrlimit(which: int) -> tuple[int, int]:
        return (most, most) if which == resource.RLIMIT_AS else real(which)

    monkeypatch.setattr(few_maps.resource, "getrlimit", getrlimit)


@pytest.mark.parametrize("by_key", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_a_task_lets_go_of_files_for_others(
    published: str, monkeypatch: pytest.MonkeyPatch, *, by_key: bool, told: bool
) -> None:
    """``told``: whether the limit leaves no doubt; else others have taken most of it."""
    file = SnapshotFiles(published).found.journal.entries[0].bytes
    limited(monkeypatch, 12 * file if told else 1 << 40)
    disk = SmallDisk(4 * file)
    rows = read(SnapshotFiles(published, disk), by_key=by_key)
    assert len(rows) == FILES * RECORDS
    assert all(value.startswith(key) for key, value in rows.items())
    assert (disk.refused == 0) == told


def test_what_cannot_be_mapped_at_all_is_told_with_what_to_do(published: str) -> None:
    with pytest.raises(octavo.StorageFull, match="allow this process more memory and maps"):
        read(SnapshotFiles(published, SmallDisk(0)), by_key=True)
