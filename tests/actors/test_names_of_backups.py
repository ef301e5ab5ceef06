"""A backup that is opened makes files of its own: their names and the store's never meet."""

from __future__ import annotations

from pathlib import Path

from whole_store import flush, opened


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
