"""Verifying a store through a reader: nothing of it is changed, and its owner may go on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from whole_store import active_file, flush, opened, rolled
from without_links import refuse_links

import octavo
from octavo import verify
from octavo.cli.commands import cli
from octavo.files.wall_clock import wall_clock_ms


@pytest.fixture(params=["linked", "held open"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How a reader keeps the files of a store."""
    if request.param == "held open":
        refuse_links(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "störe") as store:
        store.put_many((f"{n:04}", b"%d" % n * 50) for n in range(2000))
        flush(store)
        rolled(store)
        for n in range(0, 2000, 7):
            store.bucket("b").put(f"{n:04}", b"new %d" % n, metadata=b"m", index={"f": [n]})
        store.delete("0003")
        yield store


@pytest.mark.usefixtures("either_way")
def test_it_finds_a_sound_store_sound_and_counts_all_of_it(store: octavo.Store) -> None:
    own = store.verify()
    with octavo.open(store.path, read_only=True) as reader:
        store.put("later", b"x")
        found = reader.verify()
        assert (found.problems, found.keys, found.records) == ([], own.keys, own.records)
        assert found.journal_files == own.journal_files


@pytest.mark.usefixtures("either_way")
def test_more_than_fits_into_memory_is_put_aside(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "MOST_KEYS", 500)
    with octavo.open(store.path, read_only=True) as reader:
        assert reader.verify().ok
        assert reader["0001"] == b"1" * 50


def flipped(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes((byte ^ 1,)))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", ["journal/*.cdb", "ledger/*.sst"])
def test_damage_is_told_by_the_names_that_files_have_in_the_store(
    store: octavo.Store, kind: str
) -> None:
    store.close()
    file = min(Path(store.path).glob(kind))
    flipped(file, file.stat().st_size // 3)
    with octavo.open(store.path, read_only=True) as reader:
        found = reader.verify()
        assert not found.ok
        assert all("snapshots" not in problem for problem in found.problems)
        assert any(str(file) in problem for problem in found.problems)


@pytest.mark.usefixtures("either_way")
def test_damage_that_a_read_meets_is_told_by_those_names_too(store: octavo.Store) -> None:
    store.close()
    value = b"777" * 50
    (file,) = (f for f in Path(store.path).glob("journal/*.cdb") if value in f.read_bytes())
    flipped(file, file.read_bytes().index(value) + 5)
    with octavo.open(store.path, read_only=True) as reader:
        for read in (
            lambda: reader["0777"],
            lambda: list(reader.items()),
            lambda: list(reader.changes()),
        ):
            with pytest.raises(octavo.Corruption) as damage:
                read()
            assert damage.value.file == str(file)


def test_damage_at_the_journals_end_is_told_by_those_names_as_it_is_opened(
    store: octavo.Store,
) -> None:
    store.put("newest", b"value of it")
    store.put("behind", b"it")
    file = active_file(store)
    flipped(file, file.read_bytes().index(b"value of it") + 5)
    with pytest.raises(octavo.Corruption) as damage:
        octavo.open(store.path, read_only=True)
    assert damage.value.file == str(file)
    assert "snapshots" not in str(damage.value)


def test_a_backup_is_verified_and_stays_as_it_is(store: octavo.Store, tmp_path: Path) -> None:
    store.backup(tmp_path / "backup")
    store.close()

    def files() -> dict[str, tuple[int, int]]:
        return {
            os.path.join(at, name): (stat.st_ino, stat.st_mtime_ns)
            for at, _, names in os.walk(tmp_path / "backup")
            for name in names
            for stat in [os.stat(os.path.join(at, name))]
        }

    before = files()
    with octavo.open(tmp_path / "backup", read_only=True) as reader:
        assert reader.verify().ok
    assert files() == before


def test_the_command_verifies_beside_an_owner(store: octavo.Store) -> None:
    found = CliRunner().invoke(cli, ["verify", store.path, "--json"])
    assert found.exit_code == 0
    assert json.loads(found.stdout)["ok"] is True


def test_a_lease_that_ends_meanwhile_is_no_damage(store: octavo.Store) -> None:
    later = wall_clock_ms() + 7_200_000
    with octavo.open(store.path, read_only=True) as reader:

        def rest(*_: object) -> None:
            reader._pinned._clock_ms = lambda: later

        with pytest.raises(octavo.SnapshotExpired):
            reader.verify(rest)


def test_of_a_head_only_store_whose_journal_was_all_trimmed_nothing_is_wrong(
    tmp_path: Path,
) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        store.head_bucket("b").put("k", b"v")
        assert store.trim() > 0
        store.backup(tmp_path / "b")
        with octavo.open(tmp_path / "s", read_only=True) as reader:
            assert reader.verify().problems == []
    for path in (tmp_path / "s", tmp_path / "b"):
        with octavo.open(path, read_only=True) as reader:
            report = reader.verify()
            assert (report.problems, report.keys) == ([], 1)
