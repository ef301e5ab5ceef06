"""Jobs on journal files hold the rows of some records at a time, by their bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_store import flush, opened, rolled, settle

import octavo
from octavo.actors.penciller_clerk import stretches
from octavo.files.door.disk import RealDisk
from octavo.files.jobs import ledger_files
from octavo.files.journal import journal_rows, sealed_records
from octavo.files.journal.sealed_records import file_records
from octavo.files.ledger.sst import Sst

MIB = 1 << 20
KEYS = 200


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    """Each key was put twice; the second half of them in the end has index entries."""
    roomy = {"push_rows": 1 << 16, "push_bytes": 1 << 30, "roll_count": 1 << 16}
    with opened(tmp_path / "s", roll_size_bytes=1 << 30, **roomy) as store:
        for turn in range(2):
            for number in range(KEYS):
                index = {"f": [b"a", b"b"]} if turn and number >= KEYS // 2 else None
                store.put(b"%03d" % number + bytes(30_000), b"v", index=index)
        flush(store)
        rolled(store)
        settle(store)
        yield store


def level_zero(store: octavo.Store, folder: Path) -> list[Sst]:
    """The files that the job makes of all records, oldest first."""
    folder.mkdir(exist_ok=True)
    inker = store._running.inker.actor
    parts, offsets = stretches(inker.view, 0, store.last_sqn)
    where: dict[str, Any] = {"ledger": str(folder), "stem": f"{len(list(folder.iterdir()))}"}
    made = ledger_files.level_zero(
        RealDisk(), offsets, journal=inker.directory, parts=parts,
        max_rows=1 << 16, max_bytes=MIB, **where,
    )  # fmt: skip
    disk = RealDisk()
    return [Sst(disk.map(f"{folder}/{row['name']}"), row["name"]) for row in made["files"]]


def test_level_zero_of_long_keys_is_made_in_parts(
    store: octavo.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_rows, "PART_BYTES", MIB)
    level_zero(store, tmp_path / "made")  # what is made once
    tracemalloc.start()
    try:
        level_zero(store, tmp_path / "made")
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < 8 * MIB, f"{held} bytes"  # of 18 MB of keys


@pytest.mark.parametrize("part", [1, 100_000, MIB, 1 << 40])
def test_of_what_stands_in_several_parts_the_newest_comes_last(
    store: octavo.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    wanted = {sst.ledger_key(row): sst.sqns[row] for sst in level_zero(store, tmp_path / "a")
              for row in range(sst.rows)}  # fmt: skip
    assert len(wanted) == KEYS * 2  # as many entries as keys
    monkeypatch.setattr(journal_rows, "PART_BYTES", part)
    found: dict[bytes, int] = {}
    for sst in level_zero(store, tmp_path / "b"):
        for row in range(sst.rows):
            assert sst.sqns[row] > found.get(sst.ledger_key(row), 0)
            found[sst.ledger_key(row)] = sst.sqns[row]
    assert found == wanted


def test_records_of_long_keys_are_looked_at_few_at_a_time(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealed_records, "_PART_BYTES", MIB)
    (entry,) = store._running.inker.actor.manifest.entries
    path = f"{store._running.inker.actor.directory}/{entry.name}"
    _, table, found = file_records(RealDisk(), path, entry.seed, entry.base_sqn)
    at = 0
    for stretch in found:
        assert stretch.of.start == at
        assert len(stretch.rows.keys.blob) <= MIB
        assert stretch.rows.sqns.tolist() == list(range(at + 1, stretch.of.stop + 1))
        assert len(stretch.sizes) == len(stretch.head) == len(stretch.rows)
        at = stretch.of.stop
    assert at == len(table.numbers) == 2 * KEYS
