"""A backup that is opened, or updated halfway: its files and the store's do not mix."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_store import flush, opened

from octavo.actors.keeping import backup as backups


def names(path: Path) -> set[str]:
    return {file.name for file in (path / "ledger").glob("*.sst")}


def test_a_backup_may_be_opened_as_often_as_its_store_was(tmp_path: Path) -> None:
    for n in range(4):
        with opened(tmp_path / "s") as store:
            store.put(b"%d" % n, b"of the store")
            flush(store)
    with opened(tmp_path / "s") as store:
        store.backup(tmp_path / "b")
        linked = names(tmp_path / "b")
        for n in range(6):  # one of these counts the same epoch as an opening of the store did
            with opened(tmp_path / "b") as backup:
                backup.put(b"b%d" % n, b"of the backup")
                flush(backup)
                assert not (names(tmp_path / "b") - linked) & names(tmp_path / "s")
                assert len(backup) == 5 + n
                assert backup.verify().ok


def test_a_backup_whose_update_was_cut_short_behind_a_compaction_is_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%04d" % n, b"old") for n in range(600))
        store.backup(tmp_path / "b")
    for _ in range(3):  # the store's epochs go ahead of the backup's
        opened(tmp_path / "s").close()
    with opened(tmp_path / "s") as store:
        store.put_many((b"%04d" % n, b"new") for n in range(0, 600, 2))
        store.compact()

        def cut(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(backups, "_begin", cut)
        with pytest.raises(KeyboardInterrupt):
            store.backup(tmp_path / "b")
        monkeypatch.undo()
        with opened(tmp_path / "b") as backup:
            assert set(backup.values()) == {b"old"}
            assert len(backup) == 600
            assert backup.stats()["notes"] == []
        store.backup(tmp_path / "b")
    with opened(tmp_path / "b") as backup:
        assert sorted(backup.values()) == [b"new"] * 300 + [b"old"] * 300
