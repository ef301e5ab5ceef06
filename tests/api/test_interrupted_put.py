"""Ctrl-C in the middle of a put: it is written and known, or neither; and the store goes on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from ctrl_c import CtrlC

import octavo
from octavo.files.door.open_file import AppendFile, Buffer, RealFile

ROUNDS = 150
SEED = 5


@pytest.mark.parametrize("size", [100, 3000], ids=["plain", "compressed"])
def test_an_interrupted_put_leaves_memory_and_journal_alike(tmp_path: Path, size: int) -> None:
    done = 0
    with CtrlC(SEED) as ctrl_c, octavo.open(tmp_path / "store", worker=False) as store:

        def put() -> None:
            nonlocal done
            done += 1
            store.put(b"%d" % (done % 40), (b"%d " % done).ljust(size, b"."))

        known: dict[bytes, bytes] = {}
        since = 0
        for _ in range(ROUNDS):
            ctrl_c.during(put, 0.0001, 0.0004, 300)
            for change in store.changes(since):
                assert change.value is not None
                known[change.key] = change.value
                since = change.sqn
            assert since == store.last_sqn
            assert dict(store.items()) == known
            assert {key: store.get(key) for key in known} == known


def being_written(store: octavo.Store) -> AppendFile:
    active = store._running.inker.actor.active
    assert active is not None
    assert active.file is not None
    return active.file


def batched(store: octavo.Store) -> None:
    with store.batch() as batch:
        batch.put("", "k", "interrupted")
        batch.put("", "l", "interrupted")


WRITES: dict[str, Callable[[octavo.Store], object]] = {
    "put": lambda store: store.put("k", "interrupted"),
    "with options": lambda store: store.put("k", "interrupted", metadata="m"),
    "put_many": lambda store: store.put_many([("k", "interrupted"), ("l", "interrupted")]),
    "batch": batched,
}
OTHERS = {how: {b"l": b"interrupted"} if how in ("put_many", "batch") else {} for how in WRITES}


def told_to_others(path: Path) -> dict[int, bytes | None]:
    with octavo.open(path, read_only=True) as reader:
        return {change.sqn: change.value for change in reader.changes()}


@pytest.mark.parametrize("how", WRITES)
def test_what_stands_whole_of_an_interrupted_write_is_a_record_for_others_may_know_it(
    tmp_path: Path, how: str
) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put("first", "1")
        file = being_written(store)
        written = file.pwrite
        told = {}

        def interrupted(data: Buffer, at: int) -> int:
            written(data, at)
            told.update(told_to_others(tmp_path / "store"))
            raise KeyboardInterrupt

        file.pwrite = interrupted
        with pytest.raises(KeyboardInterrupt):
            WRITES[how](store)
        file.pwrite = written
        wanted = {b"first": b"1", b"k": b"interrupted"} | OTHERS[how]
        assert dict(store.items()) == wanted
        assert store.put("last", "2") == len(told) + 1 == len(wanted) + 1
        assert told.items() <= told_to_others(tmp_path / "store").items()
    with octavo.open(tmp_path / "store") as store:
        assert dict(store.items()) == wanted | {b"last": b"2"}


@pytest.mark.parametrize(("how", "whole"), [("put_many", 4), ("batch", 0)])
def test_of_what_a_full_disk_cut_short_whole_records_stay_if_they_may(
    tmp_path: Path, how: str, whole: int
) -> None:
    pairs = [(b"%d" % number, bytes((number,)) * 1000) for number in range(9)]

    def batch(store: octavo.Store) -> None:
        with store.batch() as batch:
            for key, value in pairs:
                batch.put("", key, value)

    with octavo.open(tmp_path / "store") as store:
        store.put("first", "1")
        file = being_written(store)
        written = file.pwrite
        told = {}

        def short(data: Buffer, at: int) -> int:
            file.pwrite = full
            return written(data[: len(data) // 2], at)

        def full(data: Buffer, at: int) -> int:
            told.update(told_to_others(tmp_path / "store"))
            raise OSError(errno.ENOSPC, "no space left")

        file.pwrite = short
        with pytest.raises(octavo.StorageFull):
            store.put_many(pairs) if how == "put_many" else batch(store)
        file.pwrite = written
        assert dict(store.items()) == dict([(b"first", b"1"), *pairs[:whole]])
        assert store.put("last", "2") == len(told) + 1 == whole + 2
        assert told.items() <= told_to_others(tmp_path / "store").items()
        assert store.verify().ok


@pytest.mark.parametrize("how", WRITES)
def test_an_interrupt_in_the_undoing_of_an_interrupted_write_misplaces_nothing(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put("first", "1")
        file = being_written(store)
        written = file.pwrite

        def interrupted(data: Buffer, at: int) -> int:
            written(data, at)
            raise KeyboardInterrupt

        def again(self: RealFile, length: int) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            file.pwrite = interrupted
            patch.setattr(RealFile, "truncate", again)
            with pytest.raises(KeyboardInterrupt):
                WRITES[how](store)
            file.pwrite = written
        store.put("k", "acknowledged", sync=True)
        store.put("last", "2", sync=True)
        wanted = {b"first": b"1", b"k": b"acknowledged", b"last": b"2"} | OTHERS[how]
        assert dict(store.items()) == wanted
        assert store.verify().ok
    with octavo.open(tmp_path / "store") as store:
        assert dict(store.items()) == wanted
