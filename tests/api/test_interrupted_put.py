"""Ctrl-C in the middle of a put: it is written and known, or neither; and the store goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ctrl_c import CtrlC

import octavo
from octavo.files.open_file import Buffer, RealFile

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


@pytest.mark.parametrize("how", WRITES)
def test_an_interrupt_in_the_undoing_of_an_interrupted_write_misplaces_nothing(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(tmp_path / "store") as store:
        store.put("first", "1")
        active = store._running.inker.actor.active
        assert active is not None
        assert active.file is not None
        written = active.file.pwrite

        def interrupted(data: Buffer, at: int) -> int:
            written(data, at)
            raise KeyboardInterrupt

        def again(self: RealFile, length: int) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            active.file.pwrite = interrupted
            patch.setattr(RealFile, "truncate", again)
            with pytest.raises(KeyboardInterrupt):
                WRITES[how](store)
            active.file.pwrite = written
        store.put("k", "acknowledged", sync=True)
        store.put("last", "2", sync=True)
        wanted = {b"first": b"1", b"k": b"acknowledged", b"last": b"2"}
        assert dict(store.items()) == wanted
        assert store.verify().ok
    with octavo.open(tmp_path / "store") as store:
        assert dict(store.items()) == wanted
        # Of what was interrupted an end may stand behind the last record still.
        assert all("torn tail" in note for note in store.stats()["notes"])
