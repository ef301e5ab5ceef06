"""An open store whose directory is moved away, and another that comes to stand in its place: the
old owner leaves that one alone, and says why."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gone_meanwhile
import pytest
from whole_store import SMALL, flush

import octavo
from octavo import destroying
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.penciller import Penciller
from octavo.actors.penciller_clerk import PencillerClerk
from octavo.files.door.disk import Disk, RealDisk
from octavo.files.handover.staged_writer import StagedWriter

KEYS = [b"%03d" % n for n in range(300)]
TOLD = "moved, removed or replaced"


def everything(path: Path) -> dict[str, tuple[int, bytes]]:
    """Files below a directory: by name their numbers of names and bytes."""
    return {
        str(file.relative_to(path)): (file.stat().st_nlink, file.read_bytes())
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "LOCK"
    }


@pytest.fixture
def old(tmp_path: Path) -> Iterator[octavo.Store]:
    """A store that is open by the path of another: its earlier state, restored from a backup."""
    store = octavo.open(tmp_path / "s", **{**SMALL, "worker": True})  # type: ignore[arg-type]
    for turn in range(3):
        store.put_many((key, b"%d of %s" % (turn, key)) for key in KEYS)
    store.backup(tmp_path / "backup")
    store.put_many((key, b"later") for key in KEYS[:200])
    store.close()
    store = octavo.open(tmp_path / "s", **{**SMALL, "worker": True})  # type: ignore[arg-type]
    os.rename(tmp_path / "s", tmp_path / "moved")
    octavo.restore(tmp_path / "backup", tmp_path / "s")
    yield store
    with pytest.raises(octavo.StorageFailed, match=TOLD):
        store.close()


def _read_what_is_not_open(store: octavo.Store, _: Path) -> None:
    for key in KEYS:
        store.get(key)


def _put_until_it_rolls(store: octavo.Store, _: Path) -> None:
    for number in range(10_000):
        store.put(b"key", b"%d" % number)


CALLS: dict[str, Callable[[octavo.Store, Path], object]] = {
    "compact": lambda store, _: store.compact(),
    "backup": lambda store, beside: store.backup(beside / "another"),
    "publish": lambda store, _: store.snapshot().publish(),
    "consumer": lambda store, _: store.consumer("mail"),
    "put": _put_until_it_rolls,
    "get": _read_what_is_not_open,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_an_owner_does_whose_store_was_replaced_leaves_the_other_alone(
    old: octavo.Store, tmp_path: Path, call: Callable[[octavo.Store, Path], object]
) -> None:
    before = everything(tmp_path / "s")
    with pytest.raises(octavo.StorageFailed, match=TOLD):
        call(old, tmp_path)
    assert everything(tmp_path / "s") == before
    with octavo.open(tmp_path / "s", worker=False) as new:
        assert dict(new.items()) == {key: b"2 of " + key for key in KEYS}
        assert new.verify().ok
        assert new.stats()["notes"] == []


def test_a_commit_by_an_owner_whose_store_was_replaced_links_nothing_into_the_other(
    tmp_path: Path,
) -> None:
    """Not even where that comes first, for there is nothing to be saved or sealed before."""
    octavo.open(tmp_path / "another", worker=False).close()
    store = octavo.open(tmp_path / "s", worker=False)
    os.rename(tmp_path / "s", tmp_path / "moved")
    os.rename(tmp_path / "another", tmp_path / "s")
    writer = StagedWriter(RealDisk(), str(tmp_path / "s"), "job", "a", now_ms=1)
    writer.put_many(b"", [b"key"], [b"value"])
    writer.finish()
    before = everything(tmp_path / "s")
    with pytest.raises(octavo.StorageFailed, match=TOLD):
        store.ingest("job", ["a"])
    assert everything(tmp_path / "s") == before
    with suppress(octavo.StorageFailed):
        store.close()


def test_what_an_owner_wrote_whose_store_was_moved_is_there(
    old: octavo.Store, tmp_path: Path
) -> None:
    for number in range(10):
        old.put(b"key %d" % number, b"value")
    shutil.copytree(tmp_path / "moved", tmp_path / "image")
    with octavo.open(tmp_path / "image", worker=False) as found:
        assert len(list(found.keys())) == len(KEYS) + 10
        assert found.verify().ok


@pytest.mark.parametrize("retention", [0, 3600], ids=["removed", "kept as waste"])
def test_files_that_a_snapshot_held_until_then_stay_in_the_other_store(
    tmp_path: Path, retention: int
) -> None:
    options = {**SMALL, "waste_retention_seconds": retention}
    store = octavo.open(tmp_path / "s", **options)  # type: ignore[arg-type]
    for turn in range(3):
        store.put_many((key, b"%d" % turn) for key in KEYS)
        flush(store)
    snap = store.snapshot()
    store.backup(tmp_path / "backup")
    store.compact()
    os.rename(tmp_path / "s", tmp_path / "moved")
    octavo.restore(tmp_path / "backup", tmp_path / "s")
    octavo.open(tmp_path / "s", **options).close()  # type: ignore[arg-type]
    before = everything(tmp_path / "s")
    pending = store._running.inker_clerk.actor.delete_pending
    waiting = {Path(file.path) for _, file in pending.waiting}
    assert waiting & set((tmp_path / "s" / "journal").iterdir())
    snap.close()
    assert store._running.inker_clerk.call(InkerClerk.sweep) == 0
    store._running.penciller.call(Penciller.sweep)
    with suppress(octavo.StorageFailed):
        store.close()
    assert everything(tmp_path / "s") == before


def test_a_merge_that_finds_no_file_in_a_store_that_was_moved_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:  # as a worker tells, which looks for it by its path
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(tmp_path / "s"))

    store = octavo.open(tmp_path / "s", **{**SMALL, "worker": False})  # type: ignore[arg-type]
    store.put(b"key", b"value")
    monkeypatch.setattr(PencillerClerk, "_save", missing)
    os.rename(tmp_path / "s", tmp_path / "moved")
    flush(store)
    with pytest.raises(octavo.StorageFailed, match=TOLD):
        store.put(b"key", b"another")
    with pytest.raises(octavo.StorageFailed, match=TOLD):
        store.close()


def test_a_store_behind_a_link_that_leads_elsewhere_now_is_not_the_owners(tmp_path: Path) -> None:
    for name in ("one", "two"):
        octavo.open(tmp_path / name, worker=False).close()
    os.symlink(tmp_path / "one", tmp_path / "current")
    store = octavo.open(tmp_path / "current", worker=False)
    store.put(b"key", b"value")
    os.unlink(tmp_path / "current")
    os.symlink(tmp_path / "two", tmp_path / "current")
    before = everything(tmp_path / "two")
    with pytest.raises(octavo.StorageFailed, match=TOLD):
        store.compact()
    with pytest.raises(octavo.StorageFailed, match=TOLD):
        store.close()
    assert everything(tmp_path / "two") == before
    with octavo.open(tmp_path / "one", worker=False) as found:
        assert found[b"key"] == b"value"


@pytest.mark.parametrize(
    ("call", "stands"),
    [*((call, "nothing") for call in gone_meanwhile.CALLS), ("open", "empty")],
)
def test_where_the_directory_goes_before_any_call_an_error_of_ours_names_it(
    call: str, stands: str
) -> None:
    run = subprocess.run(
        [sys.executable, gone_meanwhile.__file__, call, stands], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["calls"] > 10
    assert len(told["found"]) > told["calls"] // 2
    assert [each for each in told["found"] if not each[2]] == []


def test_a_destruction_leaves_a_store_alone_that_comes_to_stand_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s", "another"):
        with octavo.open(tmp_path / name, worker=False) as store:
            store.put(b"key", name)
    before = everything(tmp_path / "another")
    remove = destroying._remove_files

    def replaced(disk: Disk, path: str) -> None:
        os.rename(path, tmp_path / "moved")
        os.rename(tmp_path / "another", path)
        remove(disk, path)

    monkeypatch.setattr(destroying, "_remove_files", replaced)
    with pytest.raises(octavo.StorageFailed, match=TOLD):
        octavo.destroy(tmp_path / "s")
    assert everything(tmp_path / "s") == before


def test_an_owner_whose_store_is_back_in_its_place_goes_on(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        os.rename(tmp_path / "s", tmp_path / "t")
        store.put(b"key", b"value")
        os.rename(tmp_path / "t", tmp_path / "s")
        assert store.compact().files_after == 1
    with octavo.open(tmp_path / "s", worker=False) as found:
        assert found[b"key"] == b"value"


def test_an_owner_whose_file_system_failed_is_not_told_that_its_store_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XFS answers so to every look, once it has shut down."""
    look = os.stat

    def failed(path: Any, *args: Any, **given: Any) -> os.stat_result:
        if path == str(tmp_path / "s"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return look(path, *args, **given)

    store = octavo.open(tmp_path / "s", worker=False)
    store.put(b"key", b"value")
    monkeypatch.setattr(os, "stat", failed)
    for call in (store.compact, lambda: store.backup(tmp_path / "b"), store.close):
        with pytest.raises(octavo.StorageFailed) as told:
            call()
        assert "Input/output error" in str(told.value)
        assert TOLD not in str(told.value)
