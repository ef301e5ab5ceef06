"""Onto what a store may be backed up: its own backups, and nothing that has what it has not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from whole_store import opened

import octavo
from octavo.actors.keeping import backup as backups
from octavo.actors.keeping.repair import IDENTITY
from octavo.files.checked_json import checksum


def contents(path: Path) -> dict[bytes, bytes]:
    with opened(path) as store:
        assert store.verify().ok
        return dict(store.items())


def as_an_earlier_release_made_it(path: Path) -> None:
    """Its identity says nothing of backups."""
    told = json.loads((path / IDENTITY).read_bytes())
    del told["checksum"], told["backup"]
    (path / IDENTITY).write_text(json.dumps({**told, "checksum": checksum(told)}))


def a_store_and_its_backup(place: Path) -> None:
    with opened(place / "s") as store:
        store.put("both", b"old")
        store.backup(place / "b")
        store.put("newer", b"of the store")
    with opened(place / "b") as backup:
        for number in range(5):
            backup.put("own", b"%d" % number)


@pytest.mark.parametrize("behind", [True, False])
def test_a_backup_is_not_backed_up_onto_its_store(tmp_path: Path, behind: bool) -> None:
    a_store_and_its_backup(tmp_path)
    if behind:
        with opened(tmp_path / "s") as store:
            store.put_many((b"%d" % n, b"v") for n in range(30))
    before = contents(tmp_path / "s")
    with (
        opened(tmp_path / "b") as backup,
        pytest.raises(octavo.Misuse, match=r"path='.*/s'.*is a backup of.*new directory"),
    ):
        backup.backup(tmp_path / "s")
    assert contents(tmp_path / "s") == before


def test_a_store_brings_a_backup_up_to_date_that_was_written_to(tmp_path: Path) -> None:
    a_store_and_its_backup(tmp_path)
    for _ in range(2):
        with opened(tmp_path / "s") as store:
            store.backup(tmp_path / "b")
        assert contents(tmp_path / "b") == contents(tmp_path / "s")


def test_a_backup_has_backups_of_its_own_and_leaves_those_of_its_store_alone(
    tmp_path: Path,
) -> None:
    a_store_and_its_backup(tmp_path)
    with opened(tmp_path / "s") as store:
        store.backup(tmp_path / "b2")
    with opened(tmp_path / "b") as backup:
        for _ in range(2):
            backup.put("more", b"v")
            backup.backup(tmp_path / "of-b")
        with pytest.raises(octavo.Misuse, match="another copy of this store"):
            backup.backup(tmp_path / "b2")
    with (
        opened(tmp_path / "s") as store,
        pytest.raises(octavo.Misuse, match="another copy of this store"),
    ):
        store.backup(tmp_path / "of-b")
    assert contents(tmp_path / "of-b") == contents(tmp_path / "b")
    assert contents(tmp_path / "b2") == contents(tmp_path / "s")


def test_a_restored_store_is_no_backup(tmp_path: Path) -> None:
    a_store_and_its_backup(tmp_path)
    octavo.restore(tmp_path / "b", tmp_path / "r")
    with opened(tmp_path / "r") as restored:
        for place in ("s", "b"):
            with pytest.raises(octavo.Misuse, match="another store"):
                restored.backup(tmp_path / place)
        for _ in range(2):
            restored.put("more", b"v")
            restored.backup(tmp_path / "of-r")
    assert contents(tmp_path / "of-r") == contents(tmp_path / "r")


def test_a_backup_of_an_earlier_release_is_brought_up_to_date(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"v")
        store.backup(tmp_path / "b")
        as_an_earlier_release_made_it(tmp_path / "b")
        store.put("k", b"w")
        store.backup(tmp_path / "b")
    assert contents(tmp_path / "b") == {b"k": b"w"}


def test_a_backup_of_an_earlier_release_is_not_backed_up_onto_a_newer_store(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s") as store:
        store.backup(tmp_path / "b")
        store.put("newer", b"of the store")
    as_an_earlier_release_made_it(tmp_path / "b")
    with (
        opened(tmp_path / "b") as backup,
        pytest.raises(octavo.Misuse, match=r"may hold sequence numbers above 0, which this"),
    ):
        backup.backup(tmp_path / "s")
    assert contents(tmp_path / "s") == {b"newer": b"of the store"}


def test_what_lies_where_a_backup_is_made_first_stays(tmp_path: Path) -> None:
    (tmp_path / "b.partial").mkdir()
    (tmp_path / "b.partial" / "mine.txt").write_text("keep")
    with (
        opened(tmp_path / "s") as store,
        pytest.raises(octavo.Misuse, match=r"b\.partial, where the backup is to be made"),
    ):
        store.backup(tmp_path / "b")
    assert (tmp_path / "b.partial" / "mine.txt").read_text() == "keep"


def test_a_store_that_is_open_elsewhere_is_not_backed_up_onto(tmp_path: Path) -> None:
    a_store_and_its_backup(tmp_path)
    with opened(tmp_path / "s") as store, opened(tmp_path / "b") as backup:
        with pytest.raises(octavo.StoreLocked):
            store.backup(tmp_path / "b")
        with pytest.raises(octavo.StoreLocked):
            backup.backup(tmp_path / "s")


def test_a_store_by_another_name_is_no_place_for_its_backup(tmp_path: Path) -> None:
    os.symlink(tmp_path / "s", tmp_path / "link")
    with opened(tmp_path / "s") as store:
        for place in ("link", "link/journal", "link/new"):
            with pytest.raises(octavo.Misuse, match="neither be inside its store nor contain it"):
                store.backup(tmp_path / place)


# ---------------------------------------------------------------- consumers of a backup


def told_in(path: Path) -> list[bytes]:
    with opened(path) as backup:
        return [change.key for change in backup.consumer("mail").changes()]


def with_a_consumer_ahead(place: Path) -> None:
    """A backup of one change, and a consumer in it that has seen five of its own."""
    a_store_and_its_backup(place)
    with opened(place / "b") as backup:
        mail = backup.consumer("mail", since=0)
        mail.acknowledge(backup.last_sqn)


def test_a_consumer_of_a_backup_is_told_what_an_update_brings(tmp_path: Path) -> None:
    with_a_consumer_ahead(tmp_path)
    with opened(tmp_path / "s") as store:
        store.backup(tmp_path / "b")
        assert told_in(tmp_path / "b") == [b"newer"]
        with opened(tmp_path / "b") as backup:
            backup.consumer("mail").acknowledge(backup.last_sqn)
        store.put("newest", b"v")
        store.backup(tmp_path / "b")
    assert told_in(tmp_path / "b") == [b"newest"]


def test_a_consumer_of_a_backup_is_told_what_an_update_brings_that_was_cut_short_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_consumer_ahead(tmp_path)

    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with opened(tmp_path / "s") as store:
        with monkeypatch.context() as patched:
            patched.setattr(backups, "_begin", cut)
            with pytest.raises(KeyboardInterrupt):
                store.backup(tmp_path / "b")
        with opened(tmp_path / "b") as backup:
            assert backup["own"] == b"4"
            backup.consumer("mail").acknowledge(backup.last_sqn)
        store.backup(tmp_path / "b")
    assert told_in(tmp_path / "b") == [b"newer"]


def test_a_consumer_in_a_backup_of_an_earlier_release_is_told_all_there_is(tmp_path: Path) -> None:
    with_a_consumer_ahead(tmp_path)
    shutil.copytree(tmp_path / "b", tmp_path / "old")
    as_an_earlier_release_made_it(tmp_path / "old")
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % n, b"v") for n in range(10))
        store.backup(tmp_path / "old")
    assert told_in(tmp_path / "old")[:2] == [b"both", b"newer"]


def test_an_earlier_copy_of_the_files_of_a_store_takes_nothing_from_its_backup(
    tmp_path: Path,
) -> None:
    with octavo.open(tmp_path / "store", worker=False) as store:
        store.put("early", b"1")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with octavo.open(tmp_path / "store", worker=False) as store:
        store.put_many((f"{number}", b"late") for number in range(9))
        store.backup(tmp_path / "backup")
    with octavo.open(tmp_path / "copy", worker=False) as copy:
        copy.put("copy", b"2")
        with pytest.raises(octavo.Misuse, match=r"number 10, .* ends at 2: .* copy"):
            copy.backup(tmp_path / "backup")
    with octavo.open(tmp_path / "backup", worker=False) as backup:
        assert (len(backup), backup["8"]) == (10, b"late")


def test_a_copy_of_a_store_that_was_written_to_for_longer_takes_nothing_from_its_backup(
    tmp_path: Path,
) -> None:
    with octavo.open(tmp_path / "store", worker=False) as store:
        store.put("both", b"1")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with octavo.open(tmp_path / "store", worker=False) as store:
        store.put_many((f"{number}", b"of the store") for number in range(9))
        store.backup(tmp_path / "backup")
    with octavo.open(tmp_path / "copy", worker=False) as copy:
        copy.put_many((f"{number}", b"of the copy") for number in range(20))
        with pytest.raises(octavo.Misuse, match=r"another copy of this store"):
            copy.backup(tmp_path / "backup")
        copy.backup(tmp_path / "another")
    with octavo.open(tmp_path / "backup", read_only=True) as backup:
        assert (len(backup), backup["8"], backup.verify().ok) == (10, b"of the store", True)
    with octavo.open(tmp_path / "store", worker=False) as store:
        store.put("newer", b"2")
        store.compact()
        store.backup(tmp_path / "backup")
    with octavo.open(tmp_path / "backup", read_only=True) as backup:
        assert len(backup) == 11


def test_a_directory_that_nothing_can_be_put_in_the_place_of_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A symbolic link to an empty directory, or an empty disk that was mounted there."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "mounted").mkdir()
    at = str(tmp_path / "mounted")
    monkeypatch.setattr(os.path, "ismount", lambda path: path == at)
    with opened(tmp_path / "s") as store:
        store.put(b"k", b"v")
        store.backup(tmp_path / "b")
        for name in ("link", "mounted"):
            for call in (store.backup, lambda path: octavo.restore(tmp_path / "b", path)):
                with pytest.raises(octavo.Misuse, match=f"path='.*/{name}' is a .*directory in it"):
                    call(tmp_path / name)
                assert not (tmp_path / f"{name}.partial").exists()
            store.backup(tmp_path / name / "b")
            assert contents(tmp_path / name / "b") == {b"k": b"v"}
        store.put(b"k", b"newer")
        (tmp_path / "newest").symlink_to(tmp_path / "b")
        store.backup(tmp_path / "newest")
    assert contents(tmp_path / "b") == {b"k": b"newer"}


def test_a_store_that_lost_records_to_a_repair_takes_none_from_its_backup(tmp_path: Path) -> None:
    wanted = {b"%03d" % number: b"%03d" % number * 300 for number in range(100)}
    with opened(tmp_path / "s") as store:
        store.put_many(wanted)
        store.backup(tmp_path / "b")
    shutil.copytree(tmp_path / "b", tmp_path / "elsewhere")  # as on another file system
    (file,) = (tmp_path / "s" / "journal").glob("*.cdb")
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    assert len(octavo.repair(tmp_path / "s").files.lost) == 1
    with opened(tmp_path / "s") as store:
        with pytest.raises(octavo.Misuse, match=r"one of them has lost some.*new directory"):
            store.backup(tmp_path / "elsewhere")
        store.backup(tmp_path / "new")
    assert contents(tmp_path / "elsewhere") == wanted
    assert len(contents(tmp_path / "new")) == 99
