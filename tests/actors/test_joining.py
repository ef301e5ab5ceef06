"""Small neighbouring journal files are put together unasked, and nothing is dropped by it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from whole_store import flush, killed, opened, settle

import octavo
from octavo import committing
from octavo.actors import penciller
from octavo.actors.compacting import joining, journal_install
from octavo.actors.inker_clerk import Done, InkerClerk
from octavo.actors.keeping.ingest import Ingested, ingest
from octavo.actors.penciller_clerk import PencillerClerk
from octavo.actors.worker import JobRunner, WorkerDied
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest import level_sizes, run_choice
from octavo.manifest.small_files import FEW_SMALL, MANY_SMALL

SEED = int(os.environ.get("OCTAVO_SEED", "20261125"))
MANY = 3 * FEW_SMALL
OPTIONS = {"roll_count": 1 << 16, "push_rows": 1 << 16}


def brought(store: octavo.Store, number: int, keys: list[bytes], value: bytes = b"") -> Ingested:
    """Commit a job of these keys; with files of its own, as any."""
    writer = StagedWriter(RealDisk(), store.path, f"j{number}", "0-0", now_ms=1000 + number)
    writer.put_many(b"", keys, [value or b"%s of %d" % (key, number) for key in keys])
    writer.finish()
    return ingest(store._running, f"j{number}", ["0-0"])


def rested(store: octavo.Store) -> int:
    """Wait until nothing is put together any more; how many sealed files there are."""
    clerk = store._running.inker_clerk.actor
    clerk.answer(None)
    for _ in range(1000):
        if not clerk.waiting_messages:
            break
        clerk.answer(None)
    else:
        raise AssertionError("files are put together on and on")
    settle(store)
    return len(store._inker.manifest.entries)


def bring_many(store: octavo.Store, rng: random.Random, count: int = MANY) -> dict[bytes, bytes]:
    """So many commits that overwrite each other's keys; what is there then."""
    model = {}
    for number in range(count):
        keys = sorted({b"k%02d" % rng.randrange(60) for _ in range(5)})
        brought(store, number, keys)
        model.update({key: b"%s of %d" % (key, number) for key in keys})
    return model


def history(store: octavo.Store, since: int = 0) -> list[tuple[int, bytes, bytes | None]]:
    return [(each.sqn, each.key, each.value) for each in store.changes(since)]


@pytest.fixture
def rng() -> random.Random:
    print(f"OCTAVO_SEED={SEED}")
    return random.Random(SEED)


def test_files_that_commits_brought_are_put_together(tmp_path: Path, rng: random.Random) -> None:
    with opened(tmp_path / "s", **OPTIONS) as store:
        model = bring_many(store, rng)
        assert rested(store) < FEW_SMALL
        assert dict(store.items()) == model
        assert all(store.get(key) == value for key, value in model.items())
        assert store.verify().ok
        image = killed(store, tmp_path / "image")
    for path in (tmp_path / "s", image):
        with opened(path, **OPTIONS) as store:
            assert dict(store.items()) == model
            assert len(store._inker.manifest.entries) < FEW_SMALL


def test_files_that_publishing_left_are_put_together(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        for number in range(MANY):
            store.put(b"k%02d" % (number % 40), b"%d" % number)
            store.snapshot().publish(count=False).release()
        settle(store)
        assert rested(store) < 2 * FEW_SMALL
        assert [sqn for sqn, _, _ in history(store)] == list(range(1, MANY + 1))
        assert store.verify().ok


def test_files_that_kills_left_are_put_together(tmp_path: Path) -> None:
    path, most = tmp_path / "0", 0
    for number in range(MANY):
        with opened(path) as store:
            store.put(b"k%02d" % (number % 40), b"%d" % number)
            settle(store)
            most = max(most, rested(store))
            path = killed(store, tmp_path / str(number + 1))
    assert FEW_SMALL < most < 2 * FEW_SMALL
    with opened(path) as store:
        assert [value for _, _, value in history(store)] == [b"%d" % n for n in range(MANY)]


def test_without_a_schedule_small_files_stay(tmp_path: Path) -> None:
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        for number in range(MANY):
            store.put("k", b"%d" % number)
            store.snapshot().publish(count=False).release()
        settle(store)
        assert rested(store) == MANY


def test_who_asks_for_a_compaction_waits_for_files_that_are_put_together_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    run = JobRunner.run

    def held(self: JobRunner, job: str, *blobs: bytes, **given: Any) -> dict[str, Any]:
        if job == "compact" and not begun.is_set():
            begun.set()
            assert go_on.wait(300)
        return run(self, job, *blobs, **given)

    with opened(tmp_path / "s", **OPTIONS) as store:
        clerk = store._running.inker_clerk.actor
        wait = clerk.wait_for_turn

        def waiting(*given: Any) -> float:
            go_on.set()
            return wait(*given)

        monkeypatch.setattr(JobRunner, "run", held)
        try:
            for number in range(FEW_SMALL):
                brought(store, number, [b"k%02d" % number])
            assert begun.wait(300)
            assert store.stats(score=True)["compaction"]["scored_files"] == 0  # that gives way
            monkeypatch.setattr(clerk, "wait_for_turn", waiting)
            store.compact()
        finally:
            go_on.set()
        assert len(store._inker.manifest.entries) == 1
        assert store.verify().ok


def test_every_change_is_still_there_for_who_asks(tmp_path: Path, rng: random.Random) -> None:
    with opened(tmp_path / "s", **OPTIONS, compact_every_seconds=None) as store:
        bring_many(store, rng)
        wanted = history(store)
    with opened(tmp_path / "s", **OPTIONS) as store:
        joining.came(store._running.inker_clerk.actor)
        assert rested(store) < FEW_SMALL
        assert history(store) == wanted
        assert store._inker.manifest.horizon == 0


def test_every_earlier_state_can_still_be_restored(tmp_path: Path, rng: random.Random) -> None:
    states = []
    with opened(tmp_path / "s", **OPTIONS) as store:
        for number in range(MANY):
            last = brought(store, number, [b"k%d" % rng.randrange(9), b"k9"]).last_sqn
            states.append((last, 1000 + number, dict(store.items())))
        assert rested(store) < FEW_SMALL
    for number in (0, 1, 31, 32, 50, MANY - 1):
        sqn, moment, wanted = states[number]
        for how in ({"sqn": sqn}, {"time": moment}):
            target = tmp_path / f"{number}-{next(iter(how))}"
            assert octavo.restore(tmp_path / "s", target, **how).sqn == sqn  # type: ignore[arg-type]
            with octavo.open(target) as store:
                assert dict(store.items()) == wanted


def test_a_snapshot_reads_on_in_the_files_of_its_time(tmp_path: Path, rng: random.Random) -> None:
    with opened(tmp_path / "s", **OPTIONS) as store:
        bring_many(store, rng, FEW_SMALL - 1)
        with store.snapshot() as snap:
            model = dict(store.items())
            old = {entry.name for entry in store._inker.manifest.entries}
            for number in range(FEW_SMALL, 2 * FEW_SMALL):
                brought(store, number, [b"k00"])
            rested(store)
            assert dict(snap.items()) == model
            assert {key: snap.get(key) for key in model} == model
            assert old <= set(os.listdir(tmp_path / "s" / "journal"))
        rested(store)
        assert not old & set(os.listdir(tmp_path / "s" / "journal"))


def test_a_consumer_does_not_hold_it_back(tmp_path: Path, rng: random.Random) -> None:
    with opened(tmp_path / "s", **OPTIONS) as store:
        consumer = store.consumer("mail", since=0)
        bring_many(store, rng)
        wanted = store.last_sqn
        assert rested(store) < FEW_SMALL
        assert [each.sqn for each in consumer.changes()] == list(range(1, wanted + 1))


def test_atomic_batches_stay_whole(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **OPTIONS) as store:
        for number in range(MANY):
            with store.batch() as batch:
                for key in range(3):
                    batch.put(b"", b"b%d" % key, b"%d" % number)
            brought(store, number, [b"k%d" % number])
        assert rested(store) < 2 * FEW_SMALL
        found = [each.batch for each in store.changes(0)]
        assert found == [(0, 3), (1, 3), (2, 3), None] * MANY


def test_none_are_put_together_where_compaction_is_for_who_asks(
    tmp_path: Path, rng: random.Random
) -> None:
    with opened(tmp_path / "s", **OPTIONS, compact_every_seconds=None) as store:
        bring_many(store, rng)
        assert rested(store) == MANY
        store.compact()
        assert len(store._inker.manifest.entries) == 1


def test_a_damaged_file_stays_as_it_is_and_nothing_goes_past_it(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    replace = InkerClerk.replace

    def counted(self: InkerClerk, run: Any, **how: Any) -> Any:
        tried.append(len(run))
        if len(tried) > 20:
            raise octavo.Misuse("it is tried again and again")
        return replace(self, run, **how)

    monkeypatch.setattr(InkerClerk, "replace", counted)
    with opened(tmp_path / "s", **OPTIONS, compact_every_seconds=None) as store:
        bring_many(store, rng, 2 * FEW_SMALL + 4)
        wanted = history(store)
        bad = store._inker.manifest.entries[FEW_SMALL + 1]
    path = tmp_path / "s" / "journal" / bad.name
    whole = path.read_bytes()
    with opened(tmp_path / "s", **OPTIONS) as store:
        path.write_bytes(whole.replace(b" of ", b" 0f ", 1))
        joining.came(store._running.inker_clerk.actor)
        assert rested(store) == 3
        assert [entry.name == bad.name for entry in store._inker.manifest.entries] == [
            False,
            True,
            False,
        ]
        path.write_bytes(whole)
        assert history(store) == wanted


def test_files_up_to_the_horizon_are_compacted_as_they_are_put_together(
    tmp_path: Path, rng: random.Random
) -> None:
    with opened(tmp_path / "s", **OPTIONS, compact_every_seconds=None) as store:
        bring_many(store, rng)
        brought(store, MANY, [b"a", b"b", b"c"])
        between = store._inker.manifest.entries[-1]
        for number in range(MANY + 1, 2 * MANY):
            brought(store, number, [b"a", b"x"])
        store._running.inker_clerk.call(InkerClerk.rewrite, [between])
        horizon = store._inker.manifest.horizon
        assert horizon == between.base_sqn  # the file reaches beyond it
        model, changes = dict(store.items()), history(store, horizon)
    with opened(tmp_path / "s", **OPTIONS) as store:
        joining.came(store._running.inker_clerk.actor)
        assert rested(store) < 2 * FEW_SMALL
        assert store._inker.manifest.horizon == horizon
        assert store._running.inker_clerk.actor.dropped > 0
        assert dict(store.items()) == model
        assert history(store, horizon) == changes
        assert store.verify().ok


def test_a_file_that_covers_as_many_numbers_as_one_may_stops_none_behind_it(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_choice, "MAX_RUN_SQNS", 60)
    with opened(tmp_path / "s", **OPTIONS, compact_every_seconds=None) as store:
        brought(store, MANY, [b"w%02d" % number for number in range(60)])
        bring_many(store, rng)
        wanted = history(store)
    with opened(tmp_path / "s", **OPTIONS) as store:
        joining.came(store._running.inker_clerk.actor)
        assert rested(store) < FEW_SMALL
        assert store._inker.manifest.entries[0].last_sqn == 60
        assert history(store) == wanted


def test_expired_puts_and_deletes_stay_as_they_are(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **OPTIONS, compact_every_seconds=None) as store:
        for number in range(MANY):
            store.put(b"gone%d" % number, b"v", expires_at=1)
            store.put(b"k%d" % number, b"v")
            store.delete(b"k%d" % number)
            brought(store, number, [b"k"])
        wanted = history(store)
    with opened(tmp_path / "s", **OPTIONS) as store:
        joining.came(store._running.inker_clerk.actor)
        assert rested(store) < MANY
        assert history(store) == wanted
        assert list(store.keys()) == [b"k"]


def test_commits_into_a_closed_store_leave_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy the machine is: what puts them together has no time but what is waited for.
    opened(tmp_path / "s").close()
    awaited, join, answer = threading.Event(), joining.join, InkerClerk.answer

    def joined(clerk: InkerClerk) -> Done | None:
        return join(clerk) if awaited.wait(0.5) else None

    def answered(clerk: InkerClerk, seconds: float | None) -> None:
        awaited.set()
        answer(clerk, seconds)
        awaited.clear()

    with monkeypatch.context() as slow:
        slow.setattr(joining, "join", joined)
        slow.setattr(InkerClerk, "answer", answered)
        committed_each(tmp_path / "s", [b"k%d" % n for n in range(FEW_SMALL + 8)])
    assert len(list((tmp_path / "s" / "journal").glob("*.cdb"))) < 16
    with octavo.open(tmp_path / "s") as store:
        assert len(store) == FEW_SMALL + 8
        assert store.verify().ok


def test_commits_into_a_closed_store_go_around_a_damaged_file_and_tell_of_it_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened(tmp_path / "s").close()
    keys = [b"k%02d" % n for n in range(FEW_SMALL + 12)]
    committed_each(tmp_path / "s", keys[:4])
    journal = tmp_path / "s" / "journal"
    bad = next(each for each in journal.glob("*.cdb") if keys[2] in each.read_bytes())
    whole = bad.read_bytes()
    bad.write_bytes(whole.replace(keys[2], b"bad"))
    committed_each(tmp_path / "s", keys[4:], first=4)
    assert len(list(journal.glob("*.cdb"))) < 16
    told = [each.getMessage() for each in caplog.records if bad.name in each.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("left as it is by compaction: ")
    bad.write_bytes(whole)
    with octavo.open(tmp_path / "s") as store:
        assert list(store.keys()) == keys
        assert store.verify().ok


def test_commits_that_leave_no_time_for_merges_wait_for_one_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path / "s").close()
    with monkeypatch.context() as never:
        never.setattr(PencillerClerk, "wake", lambda clerk: None)
        committed_each(tmp_path / "s", [b"k%d" % n for n in range(3 * FEW_SMALL)])
    assert len(list((tmp_path / "s" / "ledger").glob("*.sst"))) < 2 * FEW_SMALL
    with octavo.open(tmp_path / "s") as store:
        assert len(store) == 3 * FEW_SMALL
        assert store.verify().ok


def test_a_commit_that_opens_the_store_begins_no_merge_for_its_closing_to_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path / "s").close()
    jobs: list[str] = []
    run = JobRunner.run
    monkeypatch.setattr(
        JobRunner, "run", lambda self, job, *a, **k: (jobs.append(job), run(self, job, *a, **k))[1]
    )
    committed_each(tmp_path / "s", [b"same"] * 4 * penciller.LEVEL_ZERO_FILES)
    assert jobs == []


def test_a_commit_is_done_whatever_becomes_of_the_merge_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path / "s").close()
    jobs: list[str] = []

    def killed_each_time(self: JobRunner, job: str, *blobs: bytes, **arguments: object) -> None:
        jobs.append(job)
        raise WorkerDied("as one is that took too much memory")

    monkeypatch.setattr(committing, "FEW_SMALL", penciller.LEVEL_ZERO_FILES)
    monkeypatch.setattr(JobRunner, "run", killed_each_time)
    committed_each(tmp_path / "s", [b"same"] * 2 * penciller.LEVEL_ZERO_FILES)
    assert "merge" in jobs


def test_many_small_files_take_few_descriptors(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **OPTIONS, compact_every_seconds=None) as store:
        for number in range(300):
            brought(store, number, [b"k%05d" % number])
    code = (
        "import octavo, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        f"with octavo.open({str(tmp_path / 's')!r}, max_open_files=64) as store:\n"
        "    print(store.compact().files_after)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.strip() == "3", done.stderr


def committed_each(path: Path, keys: list[bytes], first: int = 0) -> None:
    """A job for each key, into a closed store."""
    for number, key in enumerate(keys, first):
        job, now_ms = f"j{number}", wall_clock_ms()
        writer = StagedWriter(RealDisk(), str(path), job, "0-0", now_ms=now_ms)
        writer.put_many(b"", [key], [b"v"])
        writer.finish()
        octavo.commit(path, job, ["0-0"])


def test_the_ledger_can_be_made_from_what_was_put_together(
    tmp_path: Path, rng: random.Random
) -> None:
    with opened(tmp_path / "s", **OPTIONS) as store:
        model = bring_many(store, rng)
        rested(store)
        flush(store)
    for path in (tmp_path / "s" / "ledger").rglob("*"):
        if path.is_file():
            path.unlink()
    with opened(tmp_path / "s", **OPTIONS) as store:
        assert dict(store.items()) == model
        assert store.verify().ok


def ledger_files(store: octavo.Store) -> list[int]:
    """Of each level."""
    return [len(level) for level in store._running.penciller.actor.manifest.levels]


def test_small_ledger_files_that_were_only_moved_become_one(tmp_path: Path) -> None:
    with opened(tmp_path / "s", **OPTIONS) as store:
        for number in range(MANY):
            brought(store, number, [b"k%05d" % number])
            settle(store)
            assert sum(ledger_files(store)) < 2 * FEW_SMALL
        rested(store)
        assert [key for key, _ in store.items()] == [b"k%05d" % n for n in range(MANY)]
        assert store.verify().ok


def test_a_load_of_many_tasks_is_merged_some_files_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs: list[int] = []
    run = JobRunner.run

    def counted(self: JobRunner, job: str, *blobs: bytes, **given: Any) -> dict[str, Any]:
        inputs.append(len(given["inputs"]) if job == "merge" else 0)
        return run(self, job, *blobs, **given)

    monkeypatch.setattr(JobRunner, "run", counted)
    with opened(tmp_path / "s", **OPTIONS, compact_every_seconds=None) as store:
        attempts = [f"{number}" for number in range(2 * MANY_SMALL + 40)]
        for attempt in attempts:
            writer = StagedWriter(RealDisk(), store.path, "j", attempt, now_ms=1000)
            writer.put_many(b"", [b"a", b"k" + attempt.encode()], [attempt.encode()] * 2)
            writer.finish()
        ingest(store._running, "j", attempts)
        settle(store)
        assert MANY_SMALL <= max(inputs) <= MANY_SMALL + 4
        assert sum(ledger_files(store)) < penciller.LEVEL_ZERO_FILES * 4
        wanted = {b"k" + attempt.encode(): attempt.encode() for attempt in attempts}
        assert dict(store.items()) == {**wanted, b"a": attempts[-1].encode()}
        assert store.verify().ok


def test_deletes_stay_in_small_files_made_one_while_deeper_levels_have_what_they_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(level_sizes, "LEVEL_ONE_ROWS", 2 * FEW_SMALL)
    with opened(tmp_path / "s", **OPTIONS) as store:
        store.put_many([(b"k%05d" % number, b"old") for number in range(4 * FEW_SMALL)])
        while ledger_files(store)[:2] != [0, 0] or not sum(ledger_files(store)):
            store.put(b"z", b"new")
            flush(store)
        for number in range(FEW_SMALL + 8):
            store.delete(b"k%05d" % (2 * number))
            flush(store)
        levels = store._running.penciller.actor.manifest.levels
        assert max(entry.tombstones for entry in levels[1]) >= FEW_SMALL
        model = [b"k%05d" % n for n in range(4 * FEW_SMALL) if n % 2 or n >= 2 * FEW_SMALL + 16]
        assert list(store.keys()) == [*model, b"z"]
        assert store.verify().ok


def test_small_commits_have_no_large_level_written_anew(tmp_path: Path, rng: random.Random) -> None:
    with opened(tmp_path / "s", **OPTIONS) as store:
        model = {}
        for _ in range(penciller.LEVEL_ZERO_FILES):
            some = {b"k%06d" % rng.randrange(10**6): b"old" for _ in range(4000)}
            store.put_many(some.items())
            model.update(some)
            flush(store)
        made = store._running.penciller.actor
        before = made.rows_merged
        assert ledger_files(store) == [0, 1]
        for number in range(MANY):
            keys = sorted({b"k%06d" % rng.randrange(10**6), *rng.sample(sorted(model), 2)})
            model.update(dict.fromkeys(keys, b"new"))
            brought(store, number, keys, b"new")
            settle(store)
            assert ledger_files(store)[0] <= 4 * penciller.LEVEL_ZERO_FILES
        assert made.rows_merged - before < 3 * len(model)
        assert dict(store.items()) == model
        assert store.verify().ok


@pytest.mark.parametrize("lost", [False, True], ids=["", "its manifest lost"])
def test_a_delete_stays_while_what_was_put_together_has_what_it_hides(
    tmp_path: Path, lost: bool
) -> None:
    options = {**OPTIONS, "roll_size_bytes": 1 << 20, "compact_every_seconds": None}
    with opened(tmp_path / "s", **options) as store:
        brought(store, 0, [b"gone"])
        for number in range(1, 2 * FEW_SMALL):
            brought(store, number, [b"%03d-%03d" % (number, n) for n in range(99)])
        store.delete(b"gone")
        for n in range(2000):
            store.put(b"again", b"%d" % n, metadata=bytes(300))  # in a file that is not small
        flush(store)
        settle(store)
        store._running.bookie.call(journal_install.rolled)
        settle(store)
        store._running.inker_clerk.call(joining.join)
        together = store._inker.manifest.entries[0]
        assert together.count > 5000
    if lost:
        shutil.rmtree(tmp_path / "s" / "journal" / "manifest")
    with opened(tmp_path / "s", **options) as store:
        done = store.compact()
        assert done.records_dropped >= 1999
        assert store._inker.manifest.entries[0].name == together.name
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", **options) as store:
        assert b"gone" not in store
        assert store.verify().ok
