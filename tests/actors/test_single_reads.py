"""Of a store with more files than may be mapped, gets read what they need by system calls: a map
for each would take the place of another one's."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from whole_store import opened, rolled

from octavo.actors.journal_file import JournalFile
from octavo.actors.open_files import OpenFiles
from octavo.files.journal import cdb

SEED = int(os.environ.get("OCTAVO_SEED", "20261126"))
FILES = 60


def filled(path: Path) -> dict[bytes, bytes]:
    wanted = {}
    with opened(path) as store:
        for number in range(FILES):
            for key in range(5):
                name = b"%d-%d" % (number, key)
                wanted[name] = b"of %d " % number * (1 if key else 3000)
                store.put(name, wanted[name])
            rolled(store)
        store._running.inker.call(lambda _: None)
    return wanted


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The journal files that were mapped, each time."""
    names: list[str] = []
    map_now = JournalFile.map_now

    def noted(self: JournalFile) -> object:
        names.append(self.name)
        return map_now(self)

    monkeypatch.setattr(JournalFile, "map_now", noted)
    return names


def test_gets_here_and_there_map_few_files_and_find_all(tmp_path: Path, mapped: list[str]) -> None:
    print(f"OCTAVO_SEED={SEED}")
    wanted = filled(tmp_path / "s")
    keys = list(wanted) * 4
    random.Random(SEED).shuffle(keys)
    with opened(tmp_path / "s", max_open_files=8) as store:
        mapped.clear()
        for key in keys:
            assert store.get(key) == wanted[key]
            assert store.get(key + b"-") is None
        assert len(mapped) < len(keys) / 4, "each get would map one"
        with store.snapshot() as snap:
            assert [snap.get(key) for key in keys] == [wanted[key] for key in keys]
        assert len(store._running.open_files) <= 8
        assert store.verify().ok


def test_a_file_that_is_asked_for_often_is_mapped(tmp_path: Path, mapped: list[str]) -> None:
    wanted = filled(tmp_path / "s")
    with opened(tmp_path / "s", max_open_files=8) as store:
        dict(store.items())  # so that as many are mapped as may be
        mapped.clear()
        for _ in range(30):
            assert store.get(b"3-1") == wanted[b"3-1"]
        assert len(mapped) == 1


def test_a_table_that_leads_elsewhere_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = filled(tmp_path / "s")
    path = sorted((tmp_path / "s/journal").glob("*.cdb"))[3]
    data = bytearray(path.read_bytes())
    trailer = cdb.read_trailer(bytes(data[-cdb.TRAILER_BYTES :]), len(data), "")
    for number in range(1, 5):  # each record but the first is said to be the one behind it
        at = trailer.offsets_at + 4 * number
        data[at : at + 4] = data[at + 4 : at + 8]
    path.write_bytes(data)
    with opened(tmp_path / "s", max_open_files=8) as store:
        dict(store.bucket("none").items())
        for key in [*wanted][::-1]:
            assert store.get(key) == wanted[key]
    assert "reading record by record instead" in caplog.text


def test_a_wrong_end_in_the_table_takes_no_more_memory_than_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = filled(tmp_path / "s")
    path = sorted((tmp_path / "s/journal").glob("*.cdb"))[3]
    data = bytearray(path.read_bytes())
    trailer = cdb.read_trailer(bytes(data[-cdb.TRAILER_BYTES :]), len(data), "")
    at = trailer.offsets_at + 4 * trailer.count  # where the last record ends
    data[at : at + 4] = (1 << 29).to_bytes(4, "little")
    path.write_bytes(data)
    lengths: list[int] = []
    read = OpenFiles.read

    def noted(self: OpenFiles, file: JournalFile, at: int, length: int) -> bytes:
        lengths.append(length)
        return read(self, file, at, length)

    monkeypatch.setattr(OpenFiles, "read", noted)
    with opened(tmp_path / "s", max_open_files=8) as store:
        for key in [*wanted][::-1]:
            assert store.get(key) == wanted[key]
    assert 0 < max(lengths) < len(data)
