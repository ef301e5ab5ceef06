"""Two that open one path at once: what one does between two steps of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.actors.opening import startup
from octavo.files.door.disk import RealDisk
from octavo.files.door.file_lock import LOCK
from octavo.pipeline import commit


def before(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, other: Any) -> None:
    """Have ``other`` done before ``name`` is called the first time."""
    real = getattr(where, name)

    def called(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(where, name, real)
        other()
        return real(*args, **options)

    monkeypatch.setattr(where, name, called)


def test_a_store_that_another_made_meanwhile_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    before(
        monkeypatch, RealDisk, "check_supported",
        lambda: octavo.open(path, mode="head_only").close(),
    )  # fmt: skip
    with pytest.raises(octavo.Misuse, match="is a head_only store"):
        octavo.open(path, mode="standard")
    octavo.open(path, mode="head_only").close()


def test_a_store_that_is_made_as_its_directory_is_listed_is_no_other_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    path.mkdir()
    before(monkeypatch, RealDisk, "listdir", lambda: octavo.open(path).close())
    octavo.open(path).close()


def test_a_store_is_made_by_who_has_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.mkdir()
    lock = RealDisk().lock(f"{path}/{LOCK}")
    try:
        with pytest.raises(octavo.StoreLocked):
            octavo.open(path)
        assert [each.name for each in path.iterdir()] == [LOCK]
    finally:
        lock.release()


def test_types_that_another_registered_meanwhile_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def types(name: str) -> None:
        with octavo.open(tmp_path / "s", tags={name: octavo.Tag()}) as store:
            store.bucket("b", tag=name).put(name, b"v")

    octavo.open(tmp_path / "s").close()
    before(monkeypatch, startup, "locked", lambda: types("one"))
    types("two")
    with octavo.open(tmp_path / "s") as store:
        for name in ("one", "two"):
            assert list(store.bucket("b", tag=name)) == [name.encode()]


def test_a_load_waits_for_a_store_that_is_just_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    path.mkdir()
    lock = RealDisk().lock(f"{path}/{LOCK}")
    monkeypatch.setattr(commit.time, "sleep", lambda seconds: lock.release())
    assert commit.made_store(str(path)) == str(path)


def test_who_looks_at_a_store_that_is_being_made_is_told_of_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, aside = tmp_path / "s", tmp_path / "aside"
    octavo.open(path).close()
    aside.mkdir()
    for name in ("journal", "ledger"):
        (path / name).rename(aside / name)
    exists = RealDisk.exists

    def made_by_now(self: RealDisk, asked: str) -> bool:
        if asked == str(path / "ledger"):
            for name in ("journal", "ledger"):
                (aside / name).rename(path / name)
            monkeypatch.setattr(RealDisk, "exists", exists)
        return exists(self, asked)

    monkeypatch.setattr(RealDisk, "exists", made_by_now)
    with pytest.raises(octavo.Misuse, match="beginning of one"):
        octavo.open(path, read_only=True)
    octavo.open(path, read_only=True).close()
