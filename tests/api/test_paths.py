"""Paths of stores, of backups, and of what is neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import octavo


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with octavo.open(tmp_path / "s", worker=False) as opened:
        yield opened


@pytest.mark.parametrize("path", [None, 3, "", "nul\0"])
def test_what_names_no_directory_is_refused_by_whoever_takes_one(store, path: Any) -> None:
    for call in (octavo.open, octavo.destroy, octavo.repair, store.backup):
        with pytest.raises(octavo.Misuse, match="path="):
            call(path)
    with pytest.raises(octavo.Misuse, match="backup="):
        octavo.restore(path, "there")


def test_a_file_is_no_store_and_stays_as_it_is(store, tmp_path: Path) -> None:
    store.backup(tmp_path / "backup")
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    for call in (
        lambda: octavo.open(file),
        lambda: store.backup(file),
        lambda: octavo.restore(tmp_path / "backup", file),
        lambda: octavo.repair(file),
        lambda: octavo.destroy(file),
    ):
        with pytest.raises(octavo.Misuse, match="file"):
            call()
    assert file.read_bytes() == b"mine"


def test_a_store_says_whether_it_is_only_read(store: octavo.Store) -> None:
    assert not store.read_only
    with octavo.open(store.path, read_only=True) as reader:
        assert reader.read_only


def test_repair_leaves_nothing_where_no_store_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(octavo.Misuse, match="holds no store"):
            octavo.repair(path)
    assert [name.name for name in tmp_path.iterdir()] == ["mine.txt"]
