"""A store that is closed while a long call is under way: the call says so, by that name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from counting_actor import WAIT
from whole_store import flush, opened

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.inker import Inker
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.keeping import backup as backups
from octavo.actors.keeping import publishing
from octavo.actors.penciller_clerk import PencillerClerk
from octavo.actors.turns.runtime import TurnActor
from octavo.files.door.file_lock import FileLock
from octavo.files.jobs.table import JOBS
from octavo.manifest.change_log import ChangeLog


def test_a_backup_during_which_the_store_is_closed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s")
    store.put_many((b"%d" % n, b"v") for n in range(600))

    def closed_by_another(inker: Inker) -> None:
        closer = threading.Thread(target=store.close)
        closer.start()
        closer.join()
        inker.actor_ref.call(Inker.seal_next)

    monkeypatch.setattr(backups, "seal_waiting", closed_by_another)
    with pytest.raises(octavo.Closed):
        store.backup(tmp_path / "b")
    monkeypatch.undo()
    with opened(tmp_path / "s") as store:
        assert store.backup(tmp_path / "b").sqn == 600


def test_a_snapshot_that_is_closed_just_as_the_store_is_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s")
    store.put(b"k", b"v")
    snap = store.snapshot()
    bookie = store._running.bookie.actor
    entering = bookie.turns

    def closed_by_another() -> Iterator[bool]:
        """Behind the look at whether the store is open, and before the turn."""
        bookie.turns = entering
        closer = threading.Thread(target=store.close)
        closer.start()
        closer.join()
        yield from entering

    monkeypatch.setattr(bookie, "turns", closed_by_another())
    snap.close()
    assert bookie.closed
    assert snap.closed


@pytest.mark.parametrize("reads", [False, True], ids=["owner", "reader"])
def test_a_verification_during_which_the_store_is_closed_says_so_and_tells_of_no_damage(
    tmp_path: Path, reads: bool
) -> None:
    def verify(close_at: int) -> octavo.Report:
        """Closed behind so many steps; below 0: not."""
        store = opened(tmp_path / "s")
        store.put_many((b"%d" % n, b"v") for n in range(600))
        which: octavo.Store | octavo.ReadOnlyStore = store
        if reads:
            store.close()
            which = octavo.open(store.path, read_only=True)

        def progress(what: str, *_: int) -> None:
            steps.append(what)
            if len(steps) == close_at:
                which.close()

        steps.clear()
        with which:
            return which.verify(progress)

    steps: list[str] = []
    assert verify(-1).ok
    for at in range(1, len(steps)):
        with pytest.raises(octavo.Closed):
            verify(at)


@pytest.mark.parametrize("call", ["stats", "inspect_html"])
def test_a_look_for_garbage_during_which_the_store_is_closed_raises_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = opened(tmp_path / "s")
    alone = InkerClerk.alone

    def closed_by_another(clerk: InkerClerk, patience: float) -> Any:
        monkeypatch.undo()
        closer = threading.Thread(target=store.close)
        closer.start()
        closer.join()
        return alone(clerk, patience)

    monkeypatch.setattr(InkerClerk, "alone", closed_by_another)
    with suppress(octavo.Closed):
        getattr(store, call)(score=True)
    assert store.closed


def test_where_a_snapshot_is_published_as_its_store_closes_no_write_comes_in_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s")
    store.put(b"k", b"v")
    bookie, closing = store._bookie, PencillerClerk.save_all
    refused: list[bool] = []

    def rolled_meanwhile(clerk: PencillerClerk) -> None:
        bookie.actor_ref.call(publishing._rolled_past, 1)
        with pytest.raises(octavo.Closed):
            store.put(b"late", b"v")
        refused.append(True)
        closing(clerk)

    monkeypatch.setattr(PencillerClerk, "save_all", rolled_meanwhile)
    store.close()
    monkeypatch.undo()
    assert refused == [True]
    with opened(tmp_path / "s") as store:
        assert dict(store.items()) == {b"k": b"v"}


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_close_keeps_the_store_locked_as_long_as_a_compaction_works_on_a_thread(
    interrupted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However long that is: whoever opened the store meanwhile would lose the files it replaces.
    store = opened(tmp_path / "s", worker=False)
    store.put_many((b"%d" % n, b"then") for n in range(600))
    store.put_many((b"%d" % n, b"now") for n in range(600))
    began, closed = threading.Event(), threading.Event()
    order: list[str] = []
    plain, release = JOBS["compact"], store._running.lock.release

    def job(*args: Any, **given: Any) -> dict[str, Any]:
        made = plain(*args, **given)
        began.set()
        closed.wait(0.5)  # a close that does not wait comes in here
        order.append("compacted")
        return made

    def released() -> None:
        order.append("released")
        closed.set()
        release()

    def compacted() -> None:
        with suppress(octavo.OctavoError):
            store.compact()

    def interrupt(_: InkerClerk) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(JOBS, "compact", job)
    monkeypatch.setattr(FileLock, "release", lambda _: released())
    monkeypatch.setattr(InkerClerk, "DEADLINE_SECONDS", 0.01)
    thread = threading.Thread(target=compacted)
    thread.start()
    assert began.wait(WAIT)
    if interrupted:
        monkeypatch.setattr(InkerClerk, "close", interrupt)
    with suppress(octavo.AskTimeout, KeyboardInterrupt):
        store.close()
    thread.join(WAIT)
    assert order[:2] == ["compacted", "released"]
    monkeypatch.undo()
    with opened(tmp_path / "s") as store:
        assert set(store.values()) == {b"now"}
        assert store.verify().ok


def test_a_close_waits_for_a_merge_on_a_thread_and_leaves_memory_to_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, waited = threading.Event(), threading.Event()
    plain, wait = JOBS["merge"], PencillerClerk.wait_for_turn

    def job(*args: Any, **given: Any) -> dict[str, Any]:
        began.set()
        assert waited.wait(WAIT)  # for longer than the clerk's turn is waited for
        return plain(*args, **given)

    def impatient(clerk: PencillerClerk, timeout: float | None, asked: object = "") -> float:
        if asked is PencillerClerk.save_all:
            waited.set()
            raise octavo.AskTimeout("not within 60 s")
        return wait(clerk, timeout, asked)

    monkeypatch.setitem(JOBS, "merge", job)
    store = opened(tmp_path / "s", worker=False)
    wanted: dict[bytes, bytes] = {}
    while not began.is_set():
        part = {b"%d" % n: b"%d" % len(wanted) for n in range(200)}
        store.put_many(part.items())
        wanted |= part
        store._running.bookie.call(Bookie.push)
        began.wait(0.1)
    store.put(b"0", b"in memory")
    monkeypatch.setattr(PencillerClerk, "wait_for_turn", impatient)
    store.close()
    monkeypatch.undo()
    with opened(tmp_path / "s") as store:
        assert dict(store.items()) == {**wanted, b"0": b"in memory"}
        assert store.verify().ok


@pytest.mark.parametrize("what", ["merge", "put"])
def test_a_close_keeps_the_store_locked_as_long_as_a_turn_hangs_with_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    # Else what a merge replaced was removed under the next owner, who read the manifest before the
    # change was written, and a put was acknowledged that the next owner knew nothing of.
    store = opened(tmp_path / "s", push_rows=1 << 16, compact_every_seconds=None)
    wanted = {b"%d" % n: b"v" for n in range(20)}
    for _ in range(3):
        store.put_many(wanted.items())
        flush(store)
    store.put_many(wanted.items())
    hangs, closed, order = threading.Event(), threading.Event(), list[str]()
    penciller, active, plain = store._running.penciller.actor, store._inker.active, ChangeLog.append
    release = store._running.lock.release
    assert active is not None
    assert active.file is not None
    write = active.file.pwrite

    def wait() -> None:
        hangs.set()
        closed.wait(0.5)  # a close that does not wait comes in here
        order.append("hung")

    def append(log: ChangeLog, change: bytes) -> None:
        if log is penciller.change_log and penciller.backlog() == (0, 4):
            wait()
        plain(log, change)

    def pwrite(data: Any, at: int) -> int:
        wait()
        return write(data, at)

    def released(_: FileLock) -> None:
        order.append("released")
        closed.set()
        release()

    if what == "merge":
        monkeypatch.setattr(ChangeLog, "append", append)
        store._running.bookie.call(Bookie.push)
        thread = threading.Thread(target=bool)
    else:
        active.file.pwrite = pwrite
        wanted[b"late"] = b"v"
        thread = threading.Thread(target=store.put, args=(b"late", b"v"))
    thread.start()
    assert hangs.wait(WAIT)
    monkeypatch.setattr(FileLock, "release", released)
    monkeypatch.setattr(TurnActor, "DEADLINE_SECONDS", 0.01)
    with suppress(octavo.AskTimeout):
        store.close()
    thread.join(WAIT)
    assert order[:2] == ["hung", "released"]
    monkeypatch.undo()
    with opened(tmp_path / "s") as store:
        assert dict(store.items()) == wanted
        assert store.verify().ok


def test_a_close_that_is_cut_short_has_no_consumer_move_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A thread that was about to write positions would write over those of the next owner.
    store = opened(tmp_path / "s")
    store.put(b"k", b"v")
    store.consumer("c", since=0)
    consumers = store._running.inker_clerk.actor.consumers

    def interrupt(_: InkerClerk) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(InkerClerk, "close", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    with pytest.raises(octavo.Closed):
        consumers.move("c", 1)
