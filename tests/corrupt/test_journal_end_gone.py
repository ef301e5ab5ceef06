"""A store that was closed knows how far its journal went: what is missing at its end is told."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_store import opened, rolled, settle

import octavo
from octavo.manifest import journal_manifest, pinning, recovery

TOLD = "the store was closed at"


def written(path: Path, count: int, begin: int = 0) -> None:
    with octavo.open(path) as store:
        store.put_many((b"%04d" % n, b"value") for n in range(begin, begin + count))


def active(path: Path) -> Path:
    (found,) = (path / "journal").glob("*.log")
    return found


@pytest.mark.parametrize("what", ["gone", "older"])
def test_it_is_told_where_a_file_is_gone_or_an_older_one_in_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Of a file that is still written no manifest knows."""
    path = tmp_path / "s"
    written(path, 100)
    shutil.copy(active(path), tmp_path / "older")
    written(path, 100, 100)
    left = 0
    if what == "gone":
        active(path).unlink()
    else:
        shutil.copy(tmp_path / "older", active(path))
        left = 100
    with octavo.open(path) as store:
        (told,) = store.stats()["notes"]
        assert f"ends at sqn {left}, and the store was closed at 200" in told
        assert len(store) == left
        assert store.put("more", "v") > 200
    assert TOLD in caplog.text
    caplog.clear()
    with octavo.open(path):
        pass
    assert TOLD not in caplog.text


@pytest.mark.parametrize("raised", [True, False])
def test_an_owner_who_reserves_more_meanwhile_has_not_closed_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, raised: bool
) -> None:
    """What a reader finds may come up to what was reserved when it read the manifest."""
    monkeypatch.setattr(journal_manifest, "GIVEN_BACK", 1 << 40)
    plain = pinning.recovery.growing_tail
    with opened(tmp_path / "s") as store:
        store.put("k", "v")

        def growing_tail(*args: Any) -> recovery.Tail:
            found = plain(*args)
            if raised:
                rolled(store)
                settle(store)
            return found

        monkeypatch.setattr(pinning.recovery, "growing_tail", growing_tail)
        with octavo.open(tmp_path / "s", read_only=True) as reader:
            assert bool(reader.stats()["notes"]) is not raised


def test_a_file_that_comes_back_has_all_that_was_in_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    written(path, 100)
    file = active(path)
    away = file.rename(tmp_path / "away")
    with octavo.open(path) as store:
        store.put("0005", "newer")
    away.rename(file)
    with octavo.open(path) as store:
        assert (store["0005"], store["0006"], len(store)) == (b"newer", b"value", 100)
        assert store.verify().ok


def test_it_is_told_by_repair(tmp_path: Path) -> None:
    written(tmp_path / "s", 100)
    active(tmp_path / "s").unlink()
    done = octavo.repair(tmp_path / "s")
    assert any(TOLD in note for note in done.notes)
    assert [each.sqn for each in done.files.lost] == list(range(1, 101))
    assert not done.ok


def test_a_last_record_that_is_damaged_is_lost_where_the_store_was_closed(tmp_path: Path) -> None:
    """To a store that was killed it is what a write left that broke off."""
    written(tmp_path / "s", 100)
    file = active(tmp_path / "s")
    whole = bytearray(file.read_bytes())
    whole[-1] ^= 1
    file.write_bytes(whole)
    done = octavo.repair(tmp_path / "s")
    assert [each.sqn for each in done.files.lost] == [100]
    assert octavo.repair(tmp_path / "s").ok


@pytest.mark.parametrize("what", ["gone", "damaged"])
def test_it_is_told_to_who_only_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    path = tmp_path / "s"
    written(path, 100)
    with octavo.open(path, read_only=True) as found:
        assert not found.stats()["notes"]
        assert found.verify().ok
    assert not caplog.text
    file = active(path)
    if what == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    with octavo.open(path, read_only=True) as found:
        assert TOLD in caplog.text
        (problem,) = found.verify().problems
        assert TOLD in problem
        assert found.stats()["notes"] == [problem]
    octavo.open(path).close()  # which tells it, and goes on from there
    with octavo.open(path, read_only=True) as found:
        assert found.verify().ok


def _backed_up(store: octavo.Store, to: Path) -> None:
    store.backup(to)


def _copied_closed(store: octavo.Store, to: Path) -> None:
    store.close()
    shutil.copytree(store.path, to)


def _copied_open(store: octavo.Store, to: Path) -> None:
    shutil.copytree(store.path, to)  # as a kill leaves it


def _earlier(store: octavo.Store, to: Path) -> None:
    store.close()
    octavo.restore(store.path, to, sqn=100)


def _earliest(store: octavo.Store, to: Path) -> None:
    store.close()
    octavo.restore(store.path, to, sqn=0)


def _compacted_away(store: octavo.Store, to: Path) -> None:
    store.delete_many(list(store))
    store.compact()
    _copied_closed(store, to)


def _a_second_opening(store: octavo.Store, to: Path) -> None:
    store.close()
    with octavo.open(store.path) as again:
        _copied_open(again, to)


def _updated_backup(store: octavo.Store, to: Path) -> None:
    store.backup(to)
    store.delete("0001")
    store.backup(to)


@pytest.mark.parametrize(
    "how",
    [_backed_up, _copied_closed, _copied_open, _earlier, _earliest, _compacted_away,
     _a_second_opening, _updated_backup],
    ids=lambda how: how.__name__.strip("_"),
)  # fmt: skip
def test_where_nothing_is_missing_nothing_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: Callable[[octavo.Store, Path], None]
) -> None:
    with octavo.open(tmp_path / "s", roll_count=256) as store:
        for _ in range(3):
            store.put_many((b"%04d" % n, b"value") for n in range(300))
        how(store, tmp_path / "to")
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        with octavo.open(tmp_path / "to", read_only=True) as found:
            assert found.verify().ok
        with octavo.open(tmp_path / "to") as found:
            assert found.verify().ok
    assert octavo.repair(tmp_path / "to").ok
    assert TOLD not in caplog.text


def test_where_a_trimmed_store_holds_its_entries_in_its_ledger_nothing_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        for n in range(300):
            store.head_bucket(b"b").put(b"%d" % n, b"v")
        store.trim()
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        assert store.verify().ok
    assert TOLD not in caplog.text
