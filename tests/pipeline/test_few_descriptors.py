"""Work on stores of more files than a process may have open. Here tasks run one after the other,
each test in a process of its own with few descriptors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from whole_store import opened, rolled

import octavo
from octavo.files.door.disk import RealDisk
from octavo.pipeline import offline
from octavo.pipeline.offline import Run

FILES = 300
BEGINNING = """
import resource
from pathlib import Path
import numpy as np
from octavo.files.door.disk import RealDisk
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import pinning
from octavo.pipeline import batch_reader, offline, offline_journal, read_options
from octavo.pipeline.offline import Run
from pyspark.sql.types import *

def rows(path, names, **options):
    reader = batch_reader.SnapshotReader(
        read_options.parsed({"path": path, **options}), path, None,
        StructType([StructField(n, BinaryType()) for n in names]),
    )
    found = set()
    for part in reader.partitions():
        for batch in reader.read(part):
            found |= set(zip(*(batch.column(n).to_pylist() for n in names)))
    return found

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
"""
ALL = {(b"k%d" % n, b"m%d" % n) for n in range(FILES)}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with a journal file, and a ledger file in level zero, a key."""
    path = tmp_path_factory.mktemp("many") / "s"
    with octavo.open(path, compact_every_seconds=None, worker=False) as store:
        for n in range(FILES):
            store.put(b"k%d" % n, b"old", metadata=b"old", index={"f": n})
        for n in range(FILES):
            store.put(b"k%d" % n, b"a value of %d" % n, metadata=b"m%d" % n, index={"f": n})
            rolled(store)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(offline, "STRETCH_SQNS", 1)
        offline._rebuild(RealDisk, str(path), Run(), merge=False)
    return path


def copied(many: Path, to: Path) -> Path:

    subprocess.run(["cp", "-a", many, to], check=True)
    return to


def runs(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + code],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_closed_store_is_merged(many: Path, tmp_path: Path) -> None:
    path = copied(many, tmp_path / "s")
    runs(f"offline._merge(RealDisk, {str(path)!r}, Run())")
    with opened(path, create=False) as store:
        assert {(key, head.metadata) for key, head in store.heads()} == ALL
        assert list(store.index("f").keys()) == [b"k%d" % n for n in range(FILES)]
        assert store.verify().ok


def test_a_closed_store_with_a_ledger_of_many_files_is_compacted(
    many: Path, tmp_path: Path
) -> None:
    path = copied(many, tmp_path / "s")
    runs(f"offline_journal.compacted(RealDisk, {str(path)!r}, Run())")
    with opened(path, create=False) as store:
        assert {(key, head.metadata) for key, head in store.heads()} == ALL
        assert store.verify().ok


@pytest.mark.parametrize("names", [["key", "metadata"], ["key", "value"]])
@pytest.mark.parametrize("options", [{}, {"keyStart": "k"}])
def test_a_pinned_store_is_read(
    many: Path, tmp_path: Path, names: list[str], options: dict[str, str]
) -> None:
    path = copied(many, tmp_path / "s")
    code = f"""
found = pinning.pin(RealDisk(), {str(path)!r}, 60_000, wall_clock_ms())
print(sorted(rows(found.path, {names}, **{options})))
"""
    values = {(b"k%d" % n, b"a value of %d" % n) for n in range(FILES)}
    assert runs(code) == str(sorted(values if "value" in names else ALL))


def test_a_journal_of_many_files_that_no_ledger_has_yet_is_pinned(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", compact_every_seconds=None, worker=False) as store:
        for n in range(FILES):
            index = {"f": n} if n % 2 else None
            store.put(b"k%d" % n, b"a value of %d" % n, metadata=b"m%d" % n, index=index)
            rolled(store)
        code = f"""
found = pinning.pin(RealDisk(), {store.path!r}, 60_000, wall_clock_ms())
print(sorted(rows(found.path, ["key", "metadata"])))
"""
        assert runs(code) == str(sorted(ALL))


def test_many_are_counted_for_a_published_snapshot(many: Path, tmp_path: Path) -> None:
    path = copied(many, tmp_path / "s")
    code = f"""
import octavo
from octavo.manifest import level_sizes
from octavo.actors import penciller
penciller.LEVEL_ZERO_FILES = 1 << 20
with octavo.open({str(path)!r}, max_open_files=16, worker=False) as store:
    print(store.snapshot().publish(lease_seconds=60).keys)
"""
    assert runs(code) == str(FILES)


def test_a_fold_of_index_entries(many: Path, tmp_path: Path) -> None:
    path = copied(many, tmp_path / "s")
    code = f"""
from octavo.files.ledger import ledger_key
from octavo.files.ledger.chosen_rows import Span
from octavo.pipeline import folding, partitions
from octavo.pipeline.snapshot_files import SnapshotFiles
files = SnapshotFiles(pinning.pin(RealDisk(), {str(path)!r}, 60_000, wall_clock_ms()).path)
asked = partitions.asked_for(files, ledger_key.INDEX, None, [Span()])
batches = files.batches(*asked.ranges)
print([row[2:] for row in folding._entries(files, batches, ledger_key.STANDARD)])
"""
    assert runs(code) == str([(n, b"k%d" % n) for n in range(FILES)])


def test_a_job_of_many_tasks_is_searched_for_duplicates(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    octavo.open(path).close()
    code = f"""
from octavo.files.handover.staged_writer import StagedWriter
from octavo.pipeline.duplicate_keys import first_duplicate
names = [str(n) for n in range({FILES})]
for n, name in enumerate(names):
    writer = StagedWriter(RealDisk(), {path!r}, "job", name, now_ms=wall_clock_ms())
    writer.put_many(b"b", [b"k%d" % (n % {FILES - 1})], [b""])
    writer.finish()
for some in (names[:-1], names):
    print(first_duplicate(RealDisk(), {path!r}, "job", some, within=False))
"""
    assert runs(code) == "None\n(b'b', b'k0')"
