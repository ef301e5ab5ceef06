"""The change feed below the horizon of compaction, and its durable consumers."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from compacted_store import SMALL_FILES, journal_bytes, overwritten
from simdisk import SimDisk
from whole_store import SEED, Clock, WallClock, flush, killed, opened, rolled, settle

import octavo
from octavo.actors.compacting import trimming
from octavo.actors.keeping import inbox_watch
from octavo.manifest import consumers
from octavo.manifest.consumers import Consumers


def test_below_the_horizon_the_feed_says_so(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, random.Random(SEED))
        assert len(list(store.changes())) == store.last_sqn
        store.compact()
        horizon = store._inker.manifest.horizon
        assert 0 < horizon <= store.last_sqn
        with pytest.raises(octavo.HistoryCompacted, match=f"above sqn {horizon}"):
            store.changes(horizon - 1)
        assert list(store.changes(horizon)) == list(store.changes(horizon, compacted=True))
        left = list(store.changes(compacted=True))
        assert [change.sqn for change in left] == sorted(change.sqn for change in left)
        assert {change.key: change.value for change in left if change.kind == "put"} == model
        sqn = store.put(b"new", b"1")
        assert [change.sqn for change in store.changes(sqn - 1)] == [sqn]


def test_the_feed_gives_key_deltas(tmp_path: Path) -> None:
    options = {**SMALL_FILES, "strategies": {"standard": "retain"}}
    with opened(tmp_path / "s", **options) as store:
        model = overwritten(store, random.Random(SEED))
        store.compact()
        kinds = [(change.kind, change.value) for change in store.changes(compacted=True)]
        assert kinds.count(("delta", None)) == len(model)


def test_a_feed_that_is_being_read_goes_on_through_a_compaction(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        overwritten(store, random.Random(SEED))
        last = store.last_sqn
        feed = store.changes()
        seen = [next(feed).sqn for _ in range(100)]
        store.compact()
        assert store._inker.manifest.horizon > 100
        seen += [change.sqn for change in feed]
        assert seen == list(range(1, last + 1))
        clerk = store._running.inker_clerk.actor
        clerk.enter()
        clerk.leave()
        assert clerk.delete_pending.waiting == []


def test_compaction_leaves_alone_what_a_consumer_has_yet_to_see(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        consumer = store.consumer("mail")
        overwritten(store, random.Random(SEED))
        middle = store.last_sqn // 2
        assert store.compact().records_dropped == 0
        assert len(list(consumer.changes())) == store.last_sqn
        consumer.acknowledge(middle)
        assert store.compact().records_dropped > 0
        assert 0 < store._inker.manifest.horizon <= middle
        assert [c.sqn for c in consumer.changes()] == list(range(middle + 1, store.last_sqn + 1))
        consumer.drop()
        assert store.compact().records_dropped > 0
        assert store._inker.manifest.horizon > middle
        with pytest.raises(octavo.HistoryCompacted, match="no more"):
            consumer.changes()


def test_a_position_is_durable(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        consumer = store.consumer("mail", since=0)
        for i in range(10):
            store.put(b"k%d" % i, b"v")
        consumer.acknowledge(4)
        image = killed(store, tmp_path / "image")
    for path in (tmp_path / "s", image):
        with opened(path, **SMALL_FILES) as store:
            again = store.consumer("mail")
            assert again.position == 4
            assert [change.sqn for change in again.changes()] == [5, 6, 7, 8, 9, 10]


def test_a_consumer_without_progress_is_dropped_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(1_000_000.0)
    options = {**SMALL_FILES, "clock_ms": lambda: int(clock.now), "consumer_hold_seconds": 100}
    with opened(tmp_path / "s", **options) as store:
        idle, busy = store.consumer("idle"), store.consumer("busy")
        overwritten(store, random.Random(SEED))
        clock.now += 100_000
        busy.acknowledge(store.last_sqn)
        assert store.compact().records_dropped == 0
        clock.now += 1
        assert store.compact().records_dropped > 0
        assert "consumer 'idle' was dropped" in caplog.text
        assert any("'idle' was dropped" in note for note in store.stats()["notes"])
        with pytest.raises(octavo.HistoryCompacted):
            idle.acknowledge(5)
        clock.now += 1_000_000
        store.compact()
        assert busy.position == store.last_sqn  # it holds back nothing


def test_a_consumer_is_not_dropped_for_the_time_in_which_nothing_came(tmp_path: Path) -> None:
    clock = Clock(1_000_000.0)
    options = {**SMALL_FILES, "clock_ms": lambda: int(clock.now), "consumer_hold_seconds": 100}
    with opened(tmp_path / "s", **options) as store:
        overwritten(store, random.Random(SEED))
        mail = store.consumer("mail")
        clock.now += 1_000_000
        before = store.last_sqn
        overwritten(store, random.Random(SEED))
        clock.now += 100_000
        store.compact()
        assert [change.sqn for change in mail.changes()] == [*range(before + 1, store.last_sqn + 1)]
        clock.now += 1
        store.compact()
        assert store.consumers() == {}


def test_a_consumer_that_has_come_to_the_end_is_not_dropped_for_skipped_numbers(
    tmp_path: Path,
) -> None:
    """A kill skips some, and what is saved behind it goes up to them."""
    clock = Clock(1_000_000.0)
    options = {**SMALL_FILES, "clock_ms": lambda: int(clock.now), "consumer_hold_seconds": 100}
    with opened(tmp_path / "s", **options) as store:
        overwritten(store, random.Random(SEED))
        store.consumer("mail")
        image = killed(store, tmp_path / "image")
    with opened(image, **options) as store:
        clock.now += 1_000_000
        store.compact()
        assert list(store.consumers()) == ["mail"]


def held_bytes(store: octavo.Store, position: int) -> int:
    """Bytes of the sealed files that a consumer keeps from compaction."""
    upto = store._bookie.view.ledger.persisted_sqn
    sealed = store._running.inker_clerk.actor.sealed()
    return sum(entry.bytes for entry in sealed if position < entry.last_sqn <= upto)


def test_a_consumer_that_holds_back_too_much_is_dropped_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        near = store.consumer("near")
        store.consumer("behind")
        overwritten(store, random.Random(SEED))
        near.acknowledge(store.last_sqn // 2)
        assert store.compact().records_dropped == 0  # all is sealed now
        all_of_it = held_bytes(store, 0)
        assert 0 < held_bytes(store, near.position) < all_of_it
    with opened(tmp_path / "s", **SMALL_FILES, consumer_hold_bytes=all_of_it) as store:
        assert store.compact().records_dropped == 0
        assert not store.stats()["notes"]
    with opened(tmp_path / "s", **SMALL_FILES, consumer_hold_bytes=all_of_it - 1) as store:
        behind, near = store.consumer("behind"), store.consumer("near")
        assert store.compact().records_dropped > 0
        told = f"consumer 'behind' was dropped: over {all_of_it} bytes of the journal"
        assert f"{store.path}/CONSUMERS: {told}" in caplog.text
        assert any(told in note for note in store.stats()["notes"])
        with pytest.raises(octavo.HistoryCompacted):
            behind.acknowledge(5)
        with pytest.raises(octavo.HistoryCompacted, match="too much"):
            behind.changes()
        assert len(list(near.changes())) == store.last_sqn - near.position


def test_figures_drop_no_consumer(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES, consumer_hold_bytes=1) as store:
        store.consumer("behind")
        overwritten(store, random.Random(SEED))
        flush(store)
        rolled(store)
        settle(store)
        assert held_bytes(store, 0) > 1
        store.stats(score=True)
        store.inspect_html()
        assert list(store.consumers()) == ["behind"]
        store.compact()
        assert store.consumers() == {}


def test_a_consumer_at_the_end_holds_nothing_back(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES, consumer_hold_bytes=1) as store:
        overwritten(store, random.Random(SEED))
        store.consumer("done")
        store.compact()
        assert list(store.consumers()) == ["done"]


def test_a_head_only_store_is_trimmed_for_all_a_consumer_would_keep(tmp_path: Path) -> None:
    options = {**SMALL_FILES, "consumer_hold_bytes": 1 << 20}
    with opened(tmp_path / "s", mode="head_only", **options) as store:
        store.consumer("idle")
        bucket = store.head_bucket("b")
        for number in range(12_000):
            bucket.put(b"%06d" % number, bytes(100))
        store.trim()
        assert store.consumers() == {}
        assert any("'idle' was dropped" in note for note in store.stats()["notes"])
        assert journal_bytes(store) < 1 << 20


def test_a_consumer_that_comes_during_a_job_keeps_what_it_is_to_see(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        overwritten(store, random.Random(SEED))
        clerk = store._running.inker_clerk.actor
        job = clerk._job
        consumers = []

        def late(name: str, view: object, **arguments: object) -> object:
            result = job(name, view, **arguments)
            if name == "compact" and not consumers:
                consumers.append(store.consumer("late", since=0))
            return result

        clerk._job = late
        assert store.compact().records_dropped == 0
        assert len(list(consumers[0].changes())) == store.last_sqn
        there = {path.name for path in (tmp_path / "s" / "journal").glob("*.cdb")}
        assert there <= {file.name for file in store._inker.view.files}


def test_a_consumer_that_comes_during_a_trim_keeps_what_it_is_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SMALL_FILES, "push_rows": 1 << 16}  # nothing is trimmed unasked
    with opened(tmp_path / "s", mode="head_only", **options) as store:
        bucket = store.head_bucket("b")
        for number in range(1000):
            bucket.put(b"%03d" % number, b"v")
        consumers = []

        def late(*_: object) -> None:
            consumers.append(store.consumer("late", since=0))

        monkeypatch.setattr(trimming, "_refuse_damaged", late)
        assert store.trim() == 0
        assert len(list(consumers[0].changes())) == store.last_sqn


def test_what_a_consumer_may_be(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, random.Random(SEED))
        assert model
        for name in ("", "x" * 201, "a\nb", 5):
            with pytest.raises(octavo.Misuse, match="name="):
                store.consumer(name)  # type: ignore[arg-type]
        with pytest.raises(octavo.Misuse, match="newest"):
            store.consumer("ahead", since=store.last_sqn + 1)
        fresh = store.consumer("now")
        assert fresh.position == store.last_sqn
        assert list(fresh.changes()) == []
        assert store.consumer("now", since=1).position == store.last_sqn  # it is no new one
        with pytest.raises(octavo.Misuse, match="newest"):
            fresh.acknowledge(store.last_sqn + 1)
        with pytest.raises(octavo.Misuse, match="acknowledged"):
            fresh.acknowledge(1)
        store.compact()
        with pytest.raises(octavo.HistoryCompacted, match="cannot begin"):
            store.consumer("late", since=0)
    with pytest.raises(octavo.Closed):
        fresh.acknowledge(1)


def at_once(*calls: Callable[[], object]) -> list[object]:
    """What calls of threads of their own gave or raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        done = [pool.submit(call) for call in calls]
        return [each.exception() or each.result() for each in done]


def test_of_two_that_begin_a_consumer_at_once_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, plain = [], Consumers.begin

    def begin(consumers: Consumers, name: str, *where: Any) -> None:
        begun.append(name)
        plain(consumers, name, *where)

    monkeypatch.setattr(Consumers, "begin", begin)
    names = [f"c{number}" for number in range(20)]
    with opened(tmp_path / "s") as store:
        store.put("a", "1")
        for name in names:
            begins = [partial(store.consumer, name, since=since) for since in (0, 1)]
            assert {type(each) for each in at_once(*begins)} == {octavo.Consumer}
    assert begun == names


def test_who_acknowledges_from_elsewhere_what_another_is_beyond_is_told_no_misuse(
    tmp_path: Path,
) -> None:
    def acknowledge(numbers: range) -> None:
        for sqn in numbers:
            inbox_watch.acknowledge(store._running, "mail", sqn)

    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % n, b"") for n in range(100))
        ways = [partial(acknowledge, range(first, 100, 2)) for first in (0, 1)]
        assert at_once(*ways) == [None, None]
        assert store.consumers() == {"mail": 99}


def test_a_damaged_file_of_consumers_is_told(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        store.consumer("mail", since=0)
    file = tmp_path / "s" / "CONSUMERS"
    text = file.read_bytes()
    for wrong in (b"", b"{}", text.replace(b'"mail": [0', b'"mail": [9'), b"[" * 9000):
        file.write_bytes(wrong)
        with opened(tmp_path / "s", **SMALL_FILES) as store:
            assert any("consumers of the change feed" in note for note in store.stats()["notes"])
    file.write_bytes(text)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        assert store.consumer("mail").position == 0


def test_the_store_lists_its_consumers(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        assert store.consumers() == {}
        store.put(b"k", b"v")
        store.consumer("mail")
        store.consumer("audit", since=0)
        assert store.consumers() == {"mail": 1, "audit": 0}
        store.consumer("mail").drop()
        assert list(store.consumers()) == ["audit"]
    with pytest.raises(octavo.Closed):
        store.consumers()


def test_as_many_consumers_as_there_may_be_are_known_again(tmp_path: Path) -> None:
    names = [f"{number:03d}".ljust(consumers.MAX_NAME, "\N{OCTOPUS}") for number in range(1000)]
    with opened(tmp_path / "s") as store:
        store.consumer(names[0])  # each name is allowed
        known = store._running.inker_clerk.actor.consumers
        known._write({name: consumers.Progress(0, 0) for name in names})
    with opened(tmp_path / "s", consumer_hold_seconds=None) as store:
        assert set(store.consumers()) == set(names)
        with pytest.raises(octavo.Misuse, match="drop some"):
            store.consumer("one more")


@pytest.mark.parametrize("change", ["move", "drop"])
def test_of_a_store_that_was_closed_just_before_no_position_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    store = opened(tmp_path / "s")
    store.put("k", "v")
    mail = store.consumer("mail", since=0)
    file = tmp_path / "s" / consumers.CONSUMERS
    before = file.read_bytes()
    changed = getattr(consumers.Consumers, change)

    def closed_by_another(*given: object) -> None:
        """Behind the look at whether the store is open."""
        with ThreadPoolExecutor() as pool:
            pool.submit(store.close).result()
        changed(*given)

    monkeypatch.setattr(consumers.Consumers, change, closed_by_another)
    with pytest.raises(octavo.Closed):
        {"move": lambda: mail.acknowledge(1), "drop": mail.drop}[change]()
    assert file.read_bytes() == before  # which may be another owner's by now


def test_a_consumer_that_holds_nothing_back_is_not_dropped_however_long_it_rests() -> None:
    """Though something came: the ledger does not have it yet, so no compaction waits."""
    disk, clock = SimDisk(), WallClock(1_800_000_000_000)
    notes: list[str] = []
    disk.mkdir("/s")
    known = Consumers(disk, "/s", clock, notes, hold_seconds=10)
    known.begin("c", 5, lambda: 0)
    clock.now += 3_600_000
    known.drop_holders(5, ())
    assert known.position("c") == known.lowest() == 5
    known.drop_holders(6, ())
    assert known.position("c") is None
    assert len(notes) == 1
