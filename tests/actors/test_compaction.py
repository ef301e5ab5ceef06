"""Compaction of the journal: what it keeps, what it drops, and what goes on meanwhile."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from compacted_store import SMALL_FILES, check, journal_bytes, overwritten
from whole_store import SEED, Clock, flush, killed, opened, settle

import octavo
from octavo.actors.compacting import journal_install
from octavo.actors.inker_clerk import Done, InkerClerk
from octavo.files.journal import record
from octavo.files.lifecycle import State
from octavo.manifest.journal_manifest import JournalEntry


@pytest.mark.parametrize("size", [20, 200, 3000])
@pytest.mark.parametrize("worker", [False, True])
def test_it_converges_after_everything_was_replaced_ten_times(
    tmp_path: Path, size: int, worker: bool
) -> None:
    rng = random.Random(SEED + size)
    with opened(tmp_path / "s", worker=worker, **SMALL_FILES) as store:
        model = overwritten(store, rng, size=size)
        before = journal_bytes(store)
        done = store.compact()
        assert done.bytes_after < done.bytes_before / 5
        assert not done.skipped
        check(store, model)
        after = journal_bytes(store)
    with opened(tmp_path / "fresh", **SMALL_FILES) as fresh:
        for key, each in model.items():
            fresh.put(key, each)
        fresh.compact()
        live = journal_bytes(fresh)
    assert after <= 1.3 * live, f"{after} bytes of journal for {live} of live data, {before} before"


def test_a_second_compaction_finds_nothing_to_do(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        overwritten(store, random.Random(SEED))
        store.compact()
        store.compact()  # which merges what is small
        files = sorted(entry.name for entry in store._inker.manifest.entries)
        again = store.compact()
        assert again.records_dropped == 0
        assert sorted(entry.name for entry in store._inker.manifest.entries) == files


def bytes_compacted(path: Path, half: bytes, **options: Any) -> tuple[int, int]:
    """(bytes before, bytes after) of two compactions where nothing was replaced; the second one
    is to find nothing more."""
    rng = random.Random(SEED)
    with opened(path, **{**SMALL_FILES, "roll_count": 1024, **options}) as store:
        model = {}
        for n in range(3000):
            model[b"%06d" % n] = rng.randbytes(500) + (half or rng.randbytes(500))
        for key, each in model.items():
            store.put(key, each)
        done = store.compact()
        assert done.records_dropped == 0
        again = store.compact()
        assert again.bytes_before == again.bytes_after == done.bytes_after
        check(store, model)
        return done.bytes_before, done.bytes_after


def test_what_is_live_is_compressed_where_that_saves_room(tmp_path: Path) -> None:
    before, after = bytes_compacted(tmp_path / "s", b"x" * 500)
    assert after < 0.7 * before


def test_what_does_not_shrink_is_left_as_it_is(tmp_path: Path) -> None:
    before, after = bytes_compacted(tmp_path / "s", b"")
    assert after == before


def test_without_compression_nothing_is_rewritten_to_compress_it(tmp_path: Path) -> None:
    before, after = bytes_compacted(tmp_path / "s", b"x" * 500, compression="none")
    assert after == before


def test_the_ledger_is_rebuilt_to_the_same_state_after_a_compaction(tmp_path: Path) -> None:
    rng = random.Random(SEED + 1)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, rng)
        heads = {key: store.head(key) for key in model}
        last = store.last_sqn
        store.compact()
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        check(store, model)
        assert {key: store.head(key) for key in model} == heads
        assert store.last_sqn >= last
        assert not store.stats()["notes"]


def test_a_snapshot_from_before_reads_everything_after_it(tmp_path: Path) -> None:
    rng = random.Random(SEED + 2)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        old = overwritten(store, rng)
        snap = store.snapshot()
        new = overwritten(store, rng)
        settle(store)  # sealed, and so in the manifest
        before = {entry.name for entry in store._inker.manifest.entries}
        store.compact()
        there = {path.name for path in (tmp_path / "s" / "journal").iterdir()}
        assert len(there & before) > 0, "nothing was held for the snapshot"
        assert dict(snap.items()) == old
        assert [snap.get(key) for key in old] == list(old.values())
        snap.close()
        clerk = store._running.inker_clerk.actor
        clerk.enter()  # serves what the end of the snapshot sent
        clerk.leave()
        assert clerk.delete_pending.waiting == []
        left = {path.name for path in (tmp_path / "s" / "journal").iterdir()}
        listed = {file.name for file in store._inker.view.files}
        assert left - {"manifest"} == listed
        check(store, new)


def test_a_reader_with_an_old_view_goes_on_with_the_new_one(tmp_path: Path) -> None:
    rng = random.Random(SEED + 3)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, rng)
        flush(store)
        bookie = store._bookie
        old = bookie.view
        store.compact()
        new = bookie.view
        for key, expected in model.items():
            bookie.view = old  # as if the reader had looked just before
            reads = iter([old])
            found = None
            try:
                found = next(reads).get(octavo_key(key), 1 << 63, 0)
            except FileNotFoundError:
                bookie.view = new
                assert store.get(key) == expected
            else:
                assert found is not None
                assert found[0] == expected
        bookie.view = new


def octavo_key(key: bytes) -> bytes:
    from octavo.files.ledger import ledger_key

    return ledger_key.prefix(ledger_key.STANDARD, b"") + key


def test_gets_and_puts_go_on_meanwhile(tmp_path: Path) -> None:
    rng = random.Random(SEED + 4)
    with opened(tmp_path / "s", worker=True, **SMALL_FILES) as store:
        model = overwritten(store, rng, keys=800)
        over, begun = threading.Event(), threading.Event()
        wrong: list[object] = []

        def read() -> None:
            try:
                while not over.is_set():
                    for key, expected in model.items():
                        if store.get(key) != expected:
                            wrong.append(key)
                        begun.set()
            except Exception as error:  # noqa: BLE001 - told below
                wrong.append(error)

        def write() -> None:
            number = 0
            while not over.is_set():
                store.put(b"other-%d" % (number % 50), b"%d" % number)
                number += 1

        threads = [threading.Thread(target=each) for each in (read, write)]
        for thread in threads:
            thread.start()
        assert begun.wait(300)
        for _ in range(3):
            store.compact()
        over.set()
        for thread in threads:
            thread.join()
        assert not wrong


def test_a_second_caller_is_told_that_it_is_busy(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        overwritten(store, random.Random(SEED))
        told: list[str] = []

        def meanwhile(*_: object) -> None:
            with pytest.raises(octavo.Busy):
                store.compact()
            told.append("busy")

        store.compact(meanwhile)
        assert told
        store.compact()


def test_an_interrupted_compaction_can_be_done_again(tmp_path: Path) -> None:
    with opened(tmp_path / "s", worker=True, **SMALL_FILES) as store:
        model = overwritten(store, random.Random(SEED))

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.compact(interrupted)
        check(store, model)
        store.compact()
        check(store, model)


def test_nothing_above_the_persisted_sqn_is_touched(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 20, push_bytes=1 << 30, **SMALL_FILES) as store:
        model = overwritten(store, random.Random(SEED))
        clerk = store._running.inker_clerk.actor
        before = store._inker.view
        assert clerk.eligible() == ()
        clerk.actor_ref.call(type(clerk).survey)
        assert store._inker.view is before
        check(store, model)


def test_a_damaged_file_is_left_as_it_is_and_told(tmp_path: Path) -> None:
    rng = random.Random(SEED + 5)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, rng)
        flush(store)
        entry = store._inker.manifest.entries[2]
        path = Path(store.path) / "journal" / entry.name
        image = bytearray(path.read_bytes())
        image[2114 + 30] ^= 1
        path.write_bytes(image)
        done = store.compact()
        assert len(done.skipped) == 1
        assert entry.name in done.skipped[0]
        assert path.read_bytes() == bytes(image)
        assert done.records_dropped > 0
        assert {key: store.get(key) for key in model} == model


def test_it_ends_though_a_file_has_no_room_and_others_go_on_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, passes = InkerClerk.rewrite, 0

    def without_room(clerk: InkerClerk, run: Sequence[JournalEntry], deltas: Any = None) -> Done:
        if run[0].base_sqn == 1:
            raise octavo.StorageFull("no room for the first file")
        return plain(clerk, run, deltas)

    monkeypatch.setattr(InkerClerk, "rewrite", without_room)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, random.Random(SEED))

        def meanwhile(what: str, done: int, total: int) -> None:
            nonlocal passes
            if what == "done":
                passes += 1
                assert passes < 30, "it goes on for as long as there is garbage of others"
                for number in range(600):
                    model[b"again"] = b"%d" % number
                    store.put(b"again", b"%d" % number)

        with pytest.raises(octavo.StorageFull, match="no room for the first file"):
            store.compact(meanwhile)
        check(store, model)


def test_a_condemned_ledger_stops_it(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, random.Random(SEED))
        store._running.penciller.actor.condemned = True
        with pytest.raises(octavo.Corruption, match="nothing is compacted"):
            store.compact()
        store._running.penciller.actor.condemned = False
        check(store, model)


def test_a_batch_that_survives_whole_stays_one_and_a_broken_one_is_no_batch(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        for number in range(200):
            with store.batch() as batch:
                for part in range(5):
                    batch.put(b"", b"b-%d-%d" % (number, part), b"v" * 50)
        for number in range(0, 200, 2):
            store.put(b"b-%d-3" % number, b"new")
        store.compact()
        whole = broken = 0
        journal = store._inker.view
        for file in journal.files:
            for sqn in file.sqns(1, store.last_sqn):
                found = file.read(sqn)
                if found.batch is not None:
                    whole += 1
                    assert int(found.key.split(b"-")[1]) % 2 == 1
                elif found.value != b"new":
                    broken += 1
        assert (whole, broken) == (500, 400)
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        assert len(store) == 1000


def test_a_batch_that_survives_whole_stays_in_one_file(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        for number in range(24):
            with store.batch() as batch:
                for part in range(7):
                    batch.put(b"", b"b-%d-%d" % (number, part), rng.randbytes(40 << 10))
            for _ in range(10):
                store.put(b"again", rng.randbytes(12 << 10))
        store.compact()
        files = [file for file in store._inker.view.files if file.state is State.SEALED]
        assert len(files) > 3
        for file in files:
            batches = [file.header(sqn).batch for sqn in file.sqns(1, store.last_sqn)]
            parts = [batch[0] for batch in batches if batch is not None]
            assert parts == list(range(7)) * (len(parts) // 7)


def test_expired_puts_become_deletes_and_do_not_uncover_what_they_replaced(tmp_path: Path) -> None:
    now = Clock(1_000_000.0)
    with opened(tmp_path / "s", clock_ms=lambda: int(now()), **SMALL_FILES) as store:
        for i in range(600):
            store.put(b"k%d" % i, b"old" * 30)
        flush(store)
        for i in range(300):
            store.put(b"k%d" % i, b"new" * 30, ttl=10)
        for i in range(900):
            store.put(b"x%d" % (i % 100), b"f" * 100)
        flush(store)
        now.now += 1_000_000
        store.compact()
        now.now -= 999_000  # a clock that is set back by less than an hour
        assert store.get(b"k5") == b"new" * 30
        now.now += 10_000_000
        store.compact()
        assert store.get(b"k5") is None
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", clock_ms=lambda: int(now()), **SMALL_FILES) as store:
        assert [store.get(b"k%d" % i) for i in range(300)] == [None] * 300
        assert store.get(b"k300") == b"old" * 30


def test_what_sigkill_leaves_in_the_middle_opens_with_everything(tmp_path: Path) -> None:
    rng = random.Random(SEED + 6)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, rng)
        images = []

        def image(*_: object) -> None:
            images.append(killed(store, tmp_path / f"image{len(images)}"))

        store.compact(image)
    assert len(images) > 1
    for path in images:
        with opened(path, **SMALL_FILES) as store:
            check(store, model)
        shutil.rmtree(path / "ledger")
        with opened(path, **SMALL_FILES) as store:
            check(store, model)


def test_close_cuts_a_compaction_short(tmp_path: Path) -> None:
    rng = random.Random(SEED + 7)
    store = opened(tmp_path / "s", worker=True, **SMALL_FILES)
    model = overwritten(store, rng)
    at_work = threading.Event()
    ended: list[BaseException | None] = []
    clerk = store._running.inker_clerk.actor
    run = clerk.runner.run

    def told(job: str, *blobs: bytes, **arguments: object) -> object:
        at_work.set()
        return run(job, *blobs, **arguments)

    clerk.runner.run = told

    def compact() -> None:
        try:
            store.compact()
        except octavo.Closed as closed:
            ended.append(closed)
        else:
            ended.append(None)

    thread = threading.Thread(target=compact)
    thread.start()
    at_work.wait()
    store.close()
    thread.join()
    assert len(ended) == 1
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        check(store, model)


def test_a_view_from_before_its_journal_was_replaced_is_of_an_older_generation(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        overwritten(store, random.Random(SEED))
        flush(store)
        before = store._bookie.view.generation
        store._running.bookie.call(journal_install.journal_replaced)
        assert store._bookie.view.generation == before + 1


def test_a_journal_of_which_nothing_is_left(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        for key in overwritten(store, random.Random(SEED)):
            store.delete(key)
        done = store.compact()
        assert done.bytes_after < 3000 * done.files_after
        check(store, {})
        snap = store.snapshot()
        store.put(b"k", b"v")
        assert len(snap) == 0
        snap.close()
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        check(store, {b"k": b"v"})


def test_a_rebuild_of_few_records_among_many_numbers_takes_few_steps(tmp_path: Path) -> None:
    # A million numbers are skipped by each unclean stop; a compacted file covers them.
    rng = random.Random(SEED)
    path = tmp_path / "s0"
    model = {}
    for number in range(3):
        with opened(path, **SMALL_FILES) as store:
            for i in range(300):
                model[b"%d-%d" % (number, i % 30)] = rng.randbytes(50)
                store.put(b"%d-%d" % (number, i % 30), model[b"%d-%d" % (number, i % 30)])
            path = killed(store, tmp_path / f"s{number + 1}")
    with opened(path, **SMALL_FILES) as store:
        store.compact()
        store.compact()
        assert (
            max(entry.last_sqn - entry.base_sqn for entry in store._inker.manifest.entries)
            > 2 << 20
        )
        assert journal_bytes(store) < 60_000
    shutil.rmtree(path / "ledger")
    with opened(path, **SMALL_FILES) as store:
        check(store, model)
        assert store.stats()["ledger"]["files"] < 5


# ---------------------------------------------------------------- on schedule, waste


def work_through(store: octavo.Store) -> None:
    """Serve what was sent to the clerk, and what it sends itself."""
    clerk = store._running.inker_clerk.actor
    for _ in range(50):
        clerk.enter()
        clerk.leave()


def test_the_schedule_compacts_the_best_run_after_memory_was_saved(tmp_path: Path) -> None:
    clock = Clock(0.0)
    with opened(tmp_path / "s", monotonic=clock, compact_every_seconds=100, **SMALL_FILES) as store:
        model = overwritten(store, random.Random(SEED))
        flush(store)
        work_through(store)
        before = journal_bytes(store)
        clerk = store._running.inker_clerk.actor
        assert clerk.dropped == 0, "it was not yet time"
        clock.now += 101
        store.put(b"one more", b"1")
        flush(store)
        work_through(store)
        assert clerk.dropped > 0
        assert journal_bytes(store) < before / 3
        check(store, model | {b"one more": b"1"})


def test_without_a_schedule_nothing_happens_by_itself(tmp_path: Path) -> None:
    clock = Clock(0.0)
    with opened(
        tmp_path / "s", monotonic=clock, compact_every_seconds=None, **SMALL_FILES
    ) as store:
        overwritten(store, random.Random(SEED))
        clock.now += 1e9
        store.put(b"one more", b"1")
        flush(store)
        work_through(store)
        assert store._running.inker_clerk.actor.dropped == 0


def test_only_one_in_so_many_files_is_scored_anew(tmp_path: Path) -> None:
    options = {**SMALL_FILES, "compact_score_one_in": 4, "compact_every_seconds": None}
    with opened(tmp_path / "s", **options) as store:
        overwritten(store, random.Random(SEED))
        flush(store)
        clerk = store._running.inker_clerk.actor
        asked: list[int] = []
        job = clerk._job

        def counted(name: str, view: object, **arguments: object) -> object:
            asked.append(len(arguments["files"]))  # type: ignore[arg-type]
            return job(name, view, **arguments)

        clerk._job = counted
        files = len(clerk.eligible())
        for _ in range(5):
            clerk.looks += 1
            clerk.actor_ref.call(type(clerk).survey, clerk.options.compact_score_one_in)
        assert asked[0] == files
        assert all(files // 4 <= each <= files // 4 + 1 for each in asked[1:])


def test_replaced_files_are_kept_as_waste_for_a_while(tmp_path: Path) -> None:
    clock = Clock(1_000_000.0)
    waste = tmp_path / "s" / "waste"
    options = {**SMALL_FILES, "clock_ms": lambda: int(clock.now), "waste_retention_seconds": 60}
    with opened(tmp_path / "s", **options) as store:
        model = overwritten(store, random.Random(SEED))
        flush(store)
        replaced = {entry.name for entry in store._inker.manifest.entries}
        store.compact()
        kept = {path.name.partition("-")[2] for path in waste.iterdir()}
        assert kept >= replaced
        (waste / "mine.txt").write_text("not ours")
        clock.now += 59_999
        store.compact()
        assert {path.name.partition("-")[2] for path in waste.iterdir()} >= replaced
        clock.now += 1
        store.compact()
        left = {path.name.partition("-")[2] for path in waste.iterdir()}
        assert not left & replaced
        check(store, model)
        clock.now += 1_000_000
    with opened(tmp_path / "s", **options) as store:
        assert [path.name for path in waste.iterdir()] == ["mine.txt"]
        check(store, model)


# ---------------------------------------------------------------- retain


def deltas_of(store: octavo.Store) -> dict[bytes, list[int]]:
    """Sqns of the key deltas in the journal, by key."""
    found: dict[bytes, list[int]] = {}
    for file in store._inker.view.files:
        for sqn in file.sqns(1, store.last_sqn):
            head = file.header(sqn)
            if head.kind == record.KEY_DELTA:
                found.setdefault(head.key, []).append(sqn)
    return found


def test_retain_keeps_one_delta_a_live_key_and_converges(tmp_path: Path) -> None:
    options = {**SMALL_FILES, "strategies": {"standard": "retain"}}
    rng = random.Random(SEED + 10)
    with opened(tmp_path / "s", **options) as store:
        for _ in range(3):
            model = overwritten(store, rng)
            store.compact()
            found = deltas_of(store)
            assert set(found) == set(model)
            assert {len(sqns) for sqns in found.values()} == {1}
            assert all(sqns[0] < store.head(key).sqn for key, sqns in found.items())
            check(store, model)
        retained = journal_bytes(store)
    with opened(tmp_path / "fresh", **SMALL_FILES) as fresh:
        for key, each in model.items():
            fresh.put(key, each)
        fresh.compact()
        live = journal_bytes(fresh)
    allowed = 1.3 * live + len(model) * (34 + 9 + 8 + 32)
    assert retained <= allowed
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", **options) as store:
        check(store, model)


def test_a_delta_is_the_newest_version_that_was_replaced_without_its_value(tmp_path: Path) -> None:
    options = {**SMALL_FILES, "strategies": {"standard": "retain"}}
    with opened(tmp_path / "s", **options) as store:
        for number in range(5):
            sqn = store.put(b"k", b"v" * 100, metadata=b"m%d" % number, index={"f": [number]})
            if number == 3:
                replaced = sqn
            for other in range(300):
                store.put(b"o%d" % (other % 7), b"f" * 50)
        at = store.head(b"k")
        store.compact()
        store.compact()
        assert deltas_of(store)[b"k"] == [replaced]
        head = store._inker.view.file_of(replaced).header(replaced)
        assert (head.metadata, head.size) == (b"m3", 0)
        assert head.index_changes
        assert store.head(b"k") == at
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", **options) as store:
        assert store.head(b"k") == at
        assert store.verify().ok


def test_the_deltas_of_a_deleted_key_go_with_its_delete(tmp_path: Path) -> None:
    options = {**SMALL_FILES, "strategies": {"standard": "retain"}}
    with opened(tmp_path / "s", **options) as store:
        model = overwritten(store, random.Random(SEED))
        store.compact()
        for key in model:
            store.delete(key)
        for _ in range(2):
            store.compact()
        assert deltas_of(store) == {}
        assert not list((tmp_path / "s" / "journal").glob("*.tmp"))


def test_from_retain_to_recovr_the_deltas_go(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **SMALL_FILES, strategies={"standard": "retain"}) as store:
        overwritten(store, random.Random(SEED))
        store.compact()
        assert deltas_of(store)
    with opened(tmp_path / "s", **SMALL_FILES, strategies={"standard": "recovr"}) as store:
        model = overwritten(store, random.Random(SEED + 1), rounds=3)
        store.compact()
        assert deltas_of(store) == {}
        check(store, model)
