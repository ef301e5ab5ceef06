"""The first record of the journal file being written is lost, and those behind it are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_store import active_file, killed, opened

import octavo
from octavo.files.journal import cdb, record


@pytest.mark.parametrize("lost", [record.FIXED_BYTES, 600, 70_000])
def test_who_only_reads_is_told_of_what_was_lost_at_the_beginning(
    tmp_path: Path, lost: int
) -> None:
    store = opened(tmp_path / "s", roll_count=1000)
    store.put_many((f"{number:03}", b"x" * 300) for number in range(500))
    store.sync()
    journal = active_file(store)
    killed(store, tmp_path / "killed")
    journal = tmp_path / "killed" / "journal" / journal.name
    with journal.open("r+b") as file:
        file.seek(cdb.RECORDS_AT)
        file.write(bytes(lost))
    with pytest.raises(octavo.Corruption, match=r"damaged .* and skipped"):
        octavo.open(tmp_path / "killed", read_only=True)
    with octavo.open(tmp_path / "killed") as recovered:
        assert "damaged" in recovered.stats()["notes"][0]
        there = len(recovered)
        assert there > 200
    with octavo.open(tmp_path / "killed", read_only=True) as reader:
        assert len(reader) == there
