"""An actor that is not told of what another one did: the turn that it was told in did not come, or
there was no memory for the message. What is read and what is found again stay right."""

from __future__ import annotations

import sys
from collections import UserList
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from look import clock_ms
from one_thread import HeldPool, forget, one_thread, opened
from simdisk import SimDisk
from whole_store import rolled

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.inker import Inker
from octavo.actors.journal_file import JournalFile
from octavo.actors.keeping.ingest import _Taking, ingest
from octavo.actors.memory_table import MemoryTable
from octavo.actors.penciller import Penciller
from octavo.actors.penciller_clerk import PencillerClerk
from octavo.actors.turns.runtime import TurnActor
from octavo.actors.turns.turn_future import TurnFuture
from octavo.files.errors import AskTimeout
from octavo.files.handover.staged_writer import StagedWriter
from octavo.manifest.change_log import ChangeLog
from octavo.manifest.commits import Commit

KEYS = [b"%03d" % number for number in range(40)]


def put_all(store: octavo.Store, value: bytes) -> None:
    for key in KEYS:
        store.put(key, value)


def saved(store: octavo.Store, pool: HeldPool) -> None:
    store._running.bookie.call(Bookie.push)
    pool.go_on()


def test_a_saved_table_that_the_bookie_was_not_told_of_hides_nothing_newer() -> None:
    with one_thread("not told") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        clerk = store._running.clerk.actor
        tells = clerk.on_change

        def too_late(*_: object) -> int:
            clerk.on_change = tells
            raise AskTimeout("Bookie did not get round to ledger_installed within 60 s")

        put_all(store, b"old")
        clerk.on_change = too_late
        saved(store, pool)
        assert clerk.on_change is tells
        put_all(store, b"new")
        saved(store, pool)
        assert [store.get(key) for key in KEYS] == [b"new"] * len(KEYS)
        assert dict(store.items()) == dict.fromkeys(KEYS, b"new")
        assert store.verify().ok
        forget(store)


def test_a_table_that_the_penciller_was_not_told_of_is_saved_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimDisk()
    with one_thread("lost") as pool:
        store = opened(disk, clock_ms=clock_ms)
        deliver = TurnActor.deliver

        def loses(actor: TurnActor, message: object, future: TurnFuture | None) -> None:
            if getattr(message, "method", None) is not Penciller.push:
                deliver(actor, message, future)

        put_all(store, b"lost on the way")
        with monkeypatch.context() as patch:
            patch.setattr(TurnActor, "deliver", loses)
            saved(store, pool)
        store.put(b"later", b"1")
        saved(store, pool)
        expected = {**dict.fromkeys(KEYS, b"lost on the way"), b"later": b"1"}
        assert dict(store.items()) == expected
        store.sync()
        forget(store)
    with one_thread("again"):
        store = opened(disk.after_kill(), clock_ms=clock_ms)
        assert dict(store.items()) == expected
        assert store.verify().ok
        forget(store)


def lost_push(store: octavo.Store, pool: HeldPool, patch: pytest.MonkeyPatch) -> None:
    """Memory is pushed, and there is none for the message that says so."""
    deliver = TurnActor.deliver

    def loses(actor: TurnActor, message: object, future: TurnFuture | None) -> None:
        if getattr(message, "method", None) is Penciller.push:
            raise MemoryError
        deliver(actor, message, future)

    with patch.context() as lost:
        lost.setattr(TurnActor, "deliver", loses)
        with pytest.raises(MemoryError):
            saved(store, pool)


def loaded(store: octavo.Store, disk: SimDisk) -> None:
    """The first key is taken in anew."""
    writer = StagedWriter(disk, "/store", "job", "0", now_ms=clock_ms())
    writer.put_many(b"", KEYS[:1], [b"2"])
    writer.finish()
    ingest(store._running, "job", ["0"])


@pytest.mark.parametrize("later", [[], [b"later"]])
def test_a_load_has_what_the_penciller_was_not_told_of_saved(
    monkeypatch: pytest.MonkeyPatch, later: list[bytes]
) -> None:
    disk = SimDisk()
    with one_thread("a load") as pool:
        store = opened(disk, clock_ms=clock_ms)
        put_all(store, b"1")
        lost_push(store, pool, monkeypatch)
        for key in later:
            store.put(key, b"1")
        loaded(store, disk)
        expected = {**dict.fromkeys([*KEYS, *later], b"1"), KEYS[0]: b"2"}
        assert dict(store.items()) == expected
        assert store.verify().ok
        assert store.stats()["persisted_sqn"] == store.last_sqn
        forget(store)
    with one_thread("again"):
        store = opened(disk.after_kill(), clock_ms=clock_ms)
        assert dict(store.items()) == expected
        forget(store)


def without(
    patch: pytest.MonkeyPatch, error: type[BaseException], *messages: object
) -> list[object]:
    """These messages are broken off as they are told; those that were."""
    deliver, told = TurnActor.deliver, list[object]()

    def loses(actor: TurnActor, message: object, future: TurnFuture | None) -> None:
        method = getattr(message, "method", None)
        if method in messages:
            told.append(method)
            raise error
        deliver(actor, message, future)

    patch.setattr(TurnActor, "deliver", loses)
    return told


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_clerk_that_could_not_be_told_of_work_is_told_of_the_next(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    # It counted as told for good: memory grew, and puts became ever slower.
    with one_thread("no work") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        pool.go_on()  # what an opening has to do
        with monkeypatch.context() as patch:
            told = without(patch, error, PencillerClerk.work)
            with pytest.raises(error):
                saved(store, pool)
        assert told
        store.put(b"later", b"1")
        saved(store, pool)
        assert store.stats()["persisted_sqn"] == store.last_sqn
        assert dict(store.items()) == dict.fromkeys([*KEYS, b"later"], b"1")
        forget(store)


def test_a_clerk_whose_work_found_no_memory_to_begin_with_is_woken_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The message was gone, and no other was ever sent.
    def no_memory(*_: object) -> None:
        raise MemoryError

    with one_thread("not begun") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        pool.go_on()  # what an opening has to do
        with monkeypatch.context() as patch:
            patch.setattr(PencillerClerk, "_handle_receive", no_memory)
            saved(store, pool)
        store.put(b"later", b"1")
        saved(store, pool)
        assert store.stats()["persisted_sqn"] == store.last_sqn
        forget(store)


def test_a_clerk_that_found_no_memory_to_take_its_turn_with_takes_it_after_the_next_push() -> None:
    # Its message stayed in the inbox, which nobody served.
    with one_thread("not served") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        pool.go_on()  # what an opening has to do
        store._running.bookie.call(Bookie.push)
        pool.work.clear()  # as if each piece had failed where it begins
        store.put(b"later", b"1")
        saved(store, pool)
        assert store.stats()["persisted_sqn"] == store.last_sqn
        forget(store)


@pytest.mark.parametrize(
    "messages", [[JournalFile.seal], [Inker.sealed], [Inker.sealed, Inker.sealing_failed]]
)
def test_files_are_sealed_though_there_was_no_memory_to_tell_of_one(
    monkeypatch: pytest.MonkeyPatch, messages: list[object]
) -> None:
    # None was any more: no backup could be made, and no snapshot published.
    with one_thread("not sealed") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        pool.go_on()
        with monkeypatch.context() as patch:
            told = without(patch, MemoryError, *messages)
            rolled(store)
            pool.go_on()
        assert set(told) == set(messages)
        put_all(store, b"2")
        rolled(store)
        pool.go_on()
        assert store.stats()["journal"]["sealed_files"] == 2
        assert store.backup("/backup").sqn == store.last_sqn
        assert dict(store.items()) == dict.fromkeys(KEYS, b"2")
        forget(store)


def test_files_are_sealed_though_one_that_was_told_never_began() -> None:
    with one_thread("not begun") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        pool.go_on()
        rolled(store)
        store._inker.answer(None)
        (file,) = store._inker.unsealed
        assert len(file.waiting_messages) == 1
        file.waiting_messages.clear()  # there was no memory for so much as its call
        pool.go_on()
        put_all(store, b"2")
        rolled(store)
        pool.go_on()
        assert store.stats()["journal"]["sealed_files"] == 2
        forget(store)


def test_a_load_goes_on_where_the_bookie_was_not_told_what_was_saved() -> None:
    disk = SimDisk()
    with one_thread("not told, a load") as pool:
        store = opened(disk, clock_ms=clock_ms)
        clerk = store._running.clerk.actor
        tells = clerk.on_change

        def no_memory(*_: object) -> int:
            clerk.on_change = tells
            raise MemoryError

        put_all(store, b"1")
        clerk.on_change = no_memory
        saved(store, pool)
        assert clerk.on_change is tells
        loaded(store, disk)
        assert dict(store.items()) == {**dict.fromkeys(KEYS, b"1"), KEYS[0]: b"2"}
        assert store.verify().ok
        forget(store)


def test_no_turn_stays_taken_behind_a_load_that_had_no_memory_as_it_let_go_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nothing was merged any more, and the close of the store had no end.
    disk = SimDisk()
    with one_thread("no memory, a load"):
        store = opened(disk, clock_ms=clock_ms)
        put_all(store, b"1")
        running = store._running
        take_in, schedule = _Taking._take_in, TurnActor.schedule

        def told_meanwhile(taking: _Taking) -> Commit:
            running.bookie.tell("a message")
            return take_in(taking)

        def without_memory(actor: TurnActor) -> None:
            if actor is running.bookie.actor:
                raise MemoryError
            schedule(actor)

        with monkeypatch.context() as patch:
            patch.setattr(_Taking, "_take_in", told_meanwhile)
            patch.setattr(TurnActor, "schedule", without_memory)
            with pytest.raises(MemoryError):
                loaded(store, disk)
        for ref in (running.clerk, running.bookie, running.inker, running.penciller):
            assert not ref.actor.holder
        assert dict(store.items()) == {**dict.fromkeys(KEYS, b"1"), KEYS[0]: b"2"}
        store.close()


def test_a_trim_has_what_the_penciller_was_not_told_of_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with one_thread("a trim") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms, mode="head_only")
        bucket = store.head_bucket(b"")
        for key in KEYS:
            bucket.put(key, b"1")
        lost_push(store, pool, monkeypatch)
        assert store.trim() > 0
        assert store.stats()["persisted_sqn"] == store.last_sqn
        assert [row.key for row in bucket.rows()] == KEYS
        assert store.verify().ok
        forget(store)


def test_a_table_is_saved_once_though_there_was_no_memory_behind_the_change_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def short(*_: object) -> None:
        raise MemoryError

    with one_thread("saved once") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        with monkeypatch.context() as patch:
            patch.setattr(ChangeLog, "snapshot_if_due", short)
            saved(store, pool)
        put_all(store, b"2")
        saved(store, pool)
        assert store.verify().ok
        assert store.stats()["persisted_sqn"] == store.last_sqn
        assert dict(store.items()) == dict.fromkeys(KEYS, b"2")
        forget(store)


def test_a_roll_that_is_broken_off_takes_no_more_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    with one_thread("broken off") as pool:
        store = opened(disk, clock_ms=clock_ms)

        def no_memory(*_: object) -> None:
            raise MemoryError

        put_all(store, b"1")
        store.sync()
        with monkeypatch.context() as patch:
            patch.setattr(Inker, "_activate", no_memory)
            with pytest.raises(MemoryError):
                rolled(store)
        pool.go_on()  # the file that was full is sealed
        with pytest.raises(octavo.StorageFailed, match="was not begun"):
            store.put(b"later", b"2")
        assert dict(store.items()) == dict.fromkeys(KEYS, b"1")
        store.close()
    with one_thread("again"):
        store = opened(disk, clock_ms=clock_ms)
        assert dict(store.items()) == dict.fromkeys(KEYS, b"1")
        store.put(b"later", b"2")
        forget(store)


def test_a_sealing_without_memory_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with one_thread("no memory") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        runner = store._running.runner

        def no_memory(*_: object, **__: object) -> dict[str, object]:
            raise MemoryError

        put_all(store, b"1")
        with monkeypatch.context() as patch:
            patch.setattr(runner, "run", no_memory)
            rolled(store)
            pool.go_on()
        put_all(store, b"2")
        rolled(store)
        pool.go_on()
        assert store.stats()["journal"]["sealed_files"] == 2
        assert dict(store.items()) == dict.fromkeys(KEYS, b"2")
        forget(store)


def broken_off(store: octavo.Store, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """A batch of 40 deletes, and of a put with metadata before, for which memory has no room, so
    many times."""
    enter, left = MemoryTable.enter, times

    def no_memory(table: MemoryTable, *given: object) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise MemoryError
        enter(table, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryTable, "enter", no_memory)
    batch = store.batch()
    batch.put("", KEYS[0], b"", metadata=b"m")
    for key in KEYS:
        batch.delete("", key)
    with pytest.raises(MemoryError):
        batch.commit()


def test_a_batch_that_memory_cannot_take_in_is_whole_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with one_thread("owed"):
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        broken_off(store, monkeypatch, 2)
        assert dict(store.items()) == {}
        assert [store.get(key) for key in KEYS] == [None] * len(KEYS)
        store.put(KEYS[0], b"2")
        assert dict(store.items()) == {KEYS[0]: b"2"}
        forget(store)


def test_nothing_is_written_on_top_of_what_memory_never_took_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimDisk()
    with one_thread("owed for good"):
        store = opened(disk, clock_ms=clock_ms)
        put_all(store, b"1")
        with monkeypatch.context() as patch:
            broken_off(store, patch, 4)
            with pytest.raises(octavo.StorageFailed, match="could not be taken into memory"):
                store.put(b"later", b"2")
        with pytest.raises(octavo.StorageFailed):
            store.close()
    with one_thread("again"):
        store = opened(disk, clock_ms=clock_ms)
        assert dict(store.items()) == {}
        forget(store)


def test_a_batch_whose_ends_find_no_memory_is_not_begun() -> None:
    class Ends(UserList[int]):
        def __iter__(self) -> Iterator[int]:
            yield self[0]
            raise MemoryError

    with one_thread("ends"):
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        active = store._inker.active
        assert active is not None
        end = active.offsets[-1]
        with pytest.raises(MemoryError):
            active.append_encoded(b"ab", Ends([end + 1, end + 2]), atomic=True)
        assert (len(active.offsets) - 1, active.offsets[-1]) == (len(KEYS), end)
        forget(store)


def at_depths_without_room(call: Callable[[], object]) -> None:
    """Call it at every depth at which Python's stack has room for a few calls and no more."""

    def at(depth: int) -> object:
        return at(depth - 1) if depth else call()

    limit = sys.getrecursionlimit()
    for depth in range(limit, limit - 200, -1):
        with suppress(RecursionError):
            at(depth)


def test_who_has_recursed_too_far_does_nothing_that_others_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As what memory has to know of a write that was broken off."""
    with one_thread("too far") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        broken_off(store, monkeypatch, 2)
        at_depths_without_room(lambda: store.put(b"deep", b"2"))
        pool.go_on()
        store.put(KEYS[0], b"2")
        assert set(store) <= {KEYS[0], b"deep"}
        assert store.verify().ok
        forget(store)


def test_no_message_is_lost_in_a_stack_that_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with one_thread("no room") as pool:
        store = opened(SimDisk(), clock_ms=clock_ms)
        put_all(store, b"1")
        bookie = store._running.bookie
        told = list[int]()

        def deep(bookie: Bookie, depth: int = 30) -> None:
            if depth:
                deep(bookie, depth - 1)
            else:
                told.append(1)

        bookie.send(deep)
        at_depths_without_room(lambda: store.put(b"deep", b"2"))
        pool.go_on()
        assert told == [1]
        forget(store)
