"""The ledger of a closed store made anew, or merged, by many tasks: equal to the store's own, and
whole after a crash at any moment. Here tasks run one after the other; test_offline_spark.py has
Spark's."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from ledger_of import ledger_of, manifest_of, merged_down
from pykka import ActorRegistry
from random_stores import fill, held
from simdisk import MODES, SimCrash, SimDisk
from whole_store import NEVER_MS, flush, killed, opened, rolled, settle

import octavo
from octavo.files.door.disk import RealDisk
from octavo.manifest import level_sizes
from octavo.manifest.ledger_manifest import REBUILD
from octavo.pipeline import offline, offline_journal
from octavo.pipeline.offline import OfflineReport, Run

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))
STRATEGIES = {"strategies": {"standard": "retain"}}


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small stores are of many tasks and files."""
    monkeypatch.setattr(offline, "STRETCH_SQNS", 300)
    monkeypatch.setattr(offline, "RANGE_ROWS", 100)
    monkeypatch.setattr(level_sizes, "MAX_FILE_ROWS", 40)


def rebuild(path: Path | str, *, merge: bool = True) -> OfflineReport:
    return offline._rebuild(RealDisk, str(path), Run(), merge=merge)


def merge(path: Path | str) -> OfflineReport:
    return offline._merge(RealDisk, str(path), Run())


def everything(store: octavo.Store, rng: random.Random) -> None:
    """Overwrites, deletes, expiries, batches, indexes, and a compaction with key deltas."""
    fill(store, rng, 900)
    for _ in range(300):
        terms = {"f": [b"%d" % rng.randrange(9) for _ in range(rng.randrange(3))], "n": 7}
        store.put(b"i%d" % rng.randrange(60), rng.randbytes(9), index=terms)
    for number in range(0, 60, 7):
        store.delete(b"i%d" % number)
    store.compact()
    for number in range(0, 60, 5):
        store.put(b"i%d" % number, b"later", index={"f": b"late"}, expires_at=NEVER_MS)
    store.put(b"gone soon", b"x", index={"f": b"1"}, expires_at=1000)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A store that was killed: sealed files, a compacted one, and some that are not sealed."""
    print(f"OCTAVO_SEED={SEED}")
    with opened(tmp_path / "made", compact_every_seconds=None, **STRATEGIES) as store:
        everything(store, random.Random(SEED))
        return killed(store, tmp_path / "killed")


def own(image: Path) -> Path:
    """Where the store itself made its ledger anew."""
    copy = image.parent / "own"
    shutil.copytree(image, copy)
    shutil.rmtree(copy / "ledger")
    with octavo.open(copy, compact_every_seconds=None) as store:
        flush(store)
    return copy


def state(path: Path) -> tuple[object, ...]:
    """What a user sees of it."""
    with octavo.open(path) as store:
        assert store.verify().ok
        with store.snapshot() as snap:
            bucket = snap.bucket("")
            terms = [list(bucket.index(field).terms()) for field in ("f", "n")]
            return held(snap), terms, list(store.changes(compacted=True)), store.last_sqn


def test_the_rows_are_those_of_the_stores_own_rebuild(image: Path) -> None:
    expected = ledger_of(str(own(image)))
    done = rebuild(image, merge=False)
    assert ledger_of(str(image)) == expected
    assert done.tasks > 3
    assert done.damaged == ()
    levels = manifest_of(str(image)).levels
    assert len(levels) == 1
    assert len(levels[0]) == done.files > 10


def test_merged_down_it_has_what_lives(image: Path) -> None:
    expected = merged_down(ledger_of(str(own(image))))
    done = rebuild(image)
    assert ledger_of(str(image)) == expected
    assert done.rows == len(expected)
    levels = manifest_of(str(image)).levels
    assert [len(level) > 0 for level in levels] == [False, True]
    assert done.persisted_sqn == manifest_of(str(image)).persisted_sqn


@pytest.mark.parametrize("merged", [False, True])
def test_the_store_reads_the_same_with_it(image: Path, merged: bool) -> None:
    copy = own(image)
    rebuild(image, merge=merged)
    assert state(image) == state(copy)


def test_levels_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.actors.penciller.LEVEL_ZERO_FILES", 5)
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        everything(store, random.Random(SEED + 1))
        flush(store)
        while len(store._running.penciller.actor.manifest.levels[0]) != 2:
            store.put("last", b"x")
            flush(store)
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    expected = merged_down(ledger_of(str(tmp_path / "s")))
    assert len([level for level in manifest_of(str(tmp_path / "s")).levels if level]) > 1
    done = merge(tmp_path / "s")
    assert ledger_of(str(tmp_path / "s")) == expected
    assert done.tasks > 1
    assert len([level for level in manifest_of(str(tmp_path / "s")).levels if level]) == 1
    assert state(tmp_path / "s") == state(tmp_path / "copy")


def test_a_merge_of_a_deep_level_of_many_files_keeps_the_index(tmp_path: Path) -> None:
    # The newest rows and the oldest begin alike, and those between do not.
    names = [bytes((letter,)) * 20 for letter in b"amcdefghiklna"]
    with opened(tmp_path / "s") as store:
        for number, name in enumerate(names):
            for key in range(40):
                store.bucket(name).put(b"%d %02d" % (number, key), b"v", index={"f": key % 7})
    rebuild(tmp_path / "s")
    assert len(manifest_of(str(tmp_path / "s")).levels[1]) > len(names)
    before = ledger_of(str(tmp_path / "s"))
    merge(tmp_path / "s")
    assert ledger_of(str(tmp_path / "s")) == before
    with octavo.open(tmp_path / "s") as store:
        entries = [list(store.bucket(name).index("f").range()) for name in store.buckets()]
        assert sum(map(len, entries)) == 40 * len(names)
        assert store.verify().ok


def test_files_that_went_are_removed(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        fill(store, random.Random(SEED + 2), 600)
    for work in (merge, rebuild):
        work(tmp_path / "s")
        named = {e.name for level in manifest_of(str(tmp_path / "s")).levels for e in level}
        assert {path.name for path in (tmp_path / "s" / "ledger").glob("*.sst")} == named


def test_an_open_store_is_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", "v")
        for work in (merge, rebuild):
            with pytest.raises(octavo.StoreLocked):
                work(tmp_path / "s")
        assert store["k"] == b"v"


def test_a_damaged_ledger_is_rebuilt_not_merged(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        fill(store, random.Random(SEED + 3), 600)
    before = state(tmp_path / "s")
    (tmp_path / "s" / "ledger" / REBUILD).write_text("damage")
    with pytest.raises(octavo.Corruption, match="rebuild it instead"):
        merge(tmp_path / "s")
    rebuild(tmp_path / "s")
    assert not (tmp_path / "s" / "ledger" / REBUILD).exists()
    with octavo.open(tmp_path / "s") as store:
        assert not [note for note in store.stats()["notes"] if "rebuilt" in note]
    assert state(tmp_path / "s") == before


@pytest.mark.parametrize("how", ["marked", "a file is missing", "as it was"])
def test_what_expired_for_good_does_so_though_the_clock_is_set_back_behind_a_rebuild(
    tmp_path: Path, how: str
) -> None:
    began = 1_700_000_000_000
    now = [began]
    with opened(tmp_path / "s", clock_ms=lambda: now[0]) as store:
        for n in range(300):
            store.put(b"%03d" % n, b"v", ttl=100)
        flush(store)
        now[0] += 3 * 86_400_000
        assert store.compact().records_dropped == 300
        store.put(b"k", b"v", expires_at=began + 50_000)
        store.put(b"lives", b"v")
        flush(store)
    if how == "marked":
        (tmp_path / "s" / "ledger" / REBUILD).write_text("damage")
    elif how == "a file is missing":
        next((tmp_path / "s" / "ledger").glob("*.sst")).unlink()
    rebuild(tmp_path / "s", merge=False)
    now[0] = began + 10_000
    with opened(tmp_path / "s", clock_ms=lambda: now[0]) as store:
        assert dict(store.items()) == {b"lives": b"v"}


def test_an_empty_store_and_none(tmp_path: Path) -> None:
    octavo.open(tmp_path / "s").close()
    assert rebuild(tmp_path / "s").rows == merge(tmp_path / "s").rows == 0
    with pytest.raises(octavo.Misuse, match="holds no store"):
        rebuild(tmp_path)


def test_a_trimmed_head_only_store_is_refused(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        store.head_bucket("b").put("k", b"v")
        store.trim()
    with pytest.raises(octavo.Misuse, match="restore a backup"):
        rebuild(tmp_path / "s")
    merge(tmp_path / "s")
    with octavo.open(tmp_path / "s") as store:
        assert store.head_bucket("b").get("k") == b"v"


def test_a_type_whose_rows_are_worked_out_is_refused(tmp_path: Path) -> None:
    words = octavo.Tag(index=lambda key, value: {"word": [value]})
    with octavo.open(tmp_path / "s", tags={"w": words}, strategies={"w": "recalc"}) as store:
        store.put("k", "v")
    with pytest.raises(octavo.Misuse, match="'w' is under the strategy recalc"):
        rebuild(tmp_path / "s")


def test_a_damaged_record_is_stepped_over_and_told(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for number in range(300):
            store.put(b"%03d" % number, b"v")
    file = sorted((tmp_path / "s" / "journal").glob("*.cdb"))[0]
    raw = bytearray(file.read_bytes())
    at = raw.index(b"007")
    raw[at : at + 3] = b"???"
    file.write_bytes(raw)
    done = rebuild(tmp_path / "s")
    assert len(done.damaged) == 1
    assert "damaged and skipped" in done.damaged[0]
    assert done.rows == 299


@pytest.mark.parametrize("work", [rebuild, merge])
def test_a_store_without_its_journal_is_refused(
    tmp_path: Path, work: Callable[[Path], OfflineReport]
) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", "v")
        flush(store)
    shutil.rmtree(tmp_path / "s/journal")
    with pytest.raises(octavo.Corruption, match=r"journal.*the directory is missing"):
        work(tmp_path / "s")
    assert not (tmp_path / "s/journal").exists()


def test_a_rebuild_beside_an_earlier_journal_tells_that_it_is_one(tmp_path: Path) -> None:
    """What an opening would tell of it is gone with the ledger that is made anew."""
    with opened(tmp_path / "s") as store:
        store.put("k", "v")
    shutil.copytree(tmp_path / "s/journal", tmp_path / "journal")
    with opened(tmp_path / "s") as store:
        store.put("k", "newer")
        flush(store)
    shutil.rmtree(tmp_path / "s/journal")
    shutil.copytree(tmp_path / "journal", tmp_path / "s/journal")
    (note,) = rebuild(tmp_path / "s").notes
    assert "has more than the journal ever had" in note


@pytest.mark.parametrize("how", ["a file is missing", "manifest damaged", "of an earlier state"])
def test_a_ledger_that_is_not_whole_is_neither_merged_nor_compacted_by(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "s"
    with opened(path, compact_every_seconds=None) as store:
        store.put_many((b"%03d" % number, b"first") for number in range(200))
        rolled(store)
        flush(store)
        earlier = killed(store, tmp_path / "earlier")
        store.delete_many(b"%03d" % number for number in range(100, 200))
        store.put("last", b"second")
        rolled(store)
        flush(store)
        store.compact()
        assert store._running.inker.actor.manifest.horizon > 200  # of the deletes some are gone
        held_then = dict(store.items())
    if how == "a file is missing":
        next((path / "ledger").glob("*.sst")).unlink()
    elif how == "manifest damaged":
        for log in (path / "ledger" / "manifest").glob("*.log"):
            raw = bytearray(log.read_bytes())
            raw[-1] ^= 0xFF
            log.write_bytes(raw)
    else:
        shutil.rmtree(path / "ledger")
        shutil.copytree(earlier / "ledger", path / "ledger")
    before = sorted(path.rglob("*.sst")) + sorted(path.rglob("*.cdb"))
    for work in (merge, lambda path: offline_journal.compacted(RealDisk, str(path), Run())):
        with pytest.raises(octavo.Corruption, match="rebuild"):
            work(path)
    assert sorted(path.rglob("*.sst")) + sorted(path.rglob("*.cdb")) == before
    rebuild(path)
    merge(path)
    with octavo.open(path) as store:
        assert dict(store.items()) == held_then
        assert store.verify().ok


@pytest.mark.parametrize("left", [400, 310, 290, 100])
def test_what_a_damaged_file_has_lost_at_its_end_takes_no_other_record_with_it(
    tmp_path: Path, left: int
) -> None:
    """Its tables are gone, too. Each task reads a part of it, and the last one another file."""
    with opened(tmp_path / "made", roll_count=1 << 16, compact_every_seconds=None) as store:
        store.put_many((b"%03d" % number, b"sealed") for number in range(400))
        active = store._running.inker.actor.active
        assert active is not None
        begins = list(active.offsets)
        rolled(store)
        settle(store)
        store.put_many((b"x%02d" % number, b"sealed") for number in range(50))
        image = killed(store, tmp_path / "killed")
    (file,) = (image / "journal").glob("*.cdb")
    raw = file.read_bytes()
    file.write_bytes(raw[: begins[left]] + b"\xff" * (len(raw) - begins[left]))
    expected = merged_down(ledger_of(str(own(image))))
    done = rebuild(image)
    assert ledger_of(str(image)) == expected
    assert done.records == done.rows == left + 50 == len(expected)
    assert len([note for note in done.damaged if "read record by record" in note]) == 1
    with octavo.open(image) as store:
        assert len(store) == left + 50


def test_tasks_that_fail_leave_the_store_as_it_was(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        fill(store, random.Random(SEED + 4), 600)
    before = {path.name for path in (tmp_path / "s" / "ledger").rglob("*")}

    class Failing(Run):
        def __call__(self, work, tasks):  # type: ignore[no-untyped-def]
            work(tasks[0])
            raise RuntimeError("the rest of the tasks failed")

    for begun in (partial(offline._rebuild, merge=True), offline._merge):
        with pytest.raises(RuntimeError, match="the rest"):
            begun(RealDisk, str(tmp_path / "s"), Failing())
        assert {path.name for path in (tmp_path / "s" / "ledger").rglob("*")} == before


def test_a_task_of_spark_that_finds_no_room_says_so_in_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def here(spark: object, work: Callable[[int], int], tasks: list[int]) -> list[int]:
        return [work(task) for task in tasks]

    def full(task: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.sst")

    monkeypatch.setattr(offline.spark_tasks, "results", here)
    monkeypatch.setattr(offline.spark_tasks, "session_of", id)
    monkeypatch.setattr(offline.spark_tasks, "parallelism", id)
    run = offline.on_spark(None)
    assert run(abs, [-1, 2]) == [1, 2]
    with pytest.raises(octavo.StorageFull, match=r"a\.sst.*free some space"):
        run(full, [1])


def test_a_ledger_whose_install_fails_once_it_is_durable_is_whole(tmp_path: Path) -> None:
    """There is no other one of a head-only store."""
    rows = [(b"k%d" % number, b"%d" % number) for number in range(300)]
    with opened(tmp_path / "s", mode="head_only") as store:
        for key, value in rows:
            store.head_bucket("").put(key, value)
        flush(store)
        store.trim()

    class Failing(RealDisk):
        def exists(self, path: str) -> bool:
            if path.endswith(REBUILD):
                raise OSError(errno.EIO, "the disk fails", path)
            return super().exists(path)

    with pytest.raises(OSError, match="the disk fails"):
        offline._merge(Failing, str(tmp_path / "s"), Run())
    with octavo.open(tmp_path / "s") as store:
        assert [store.head_bucket("").get(key) for key, _ in rows] == [value for _, value in rows]
        assert store.verify().ok


# ---------------------------------------------------------------- power cuts


def filled() -> tuple[SimDisk, dict[bytes, bytes]]:
    """A closed store of several levels and journal files, and what is in it."""
    rng = random.Random(SEED)
    model = {}
    disk = SimDisk()
    with opened("/s", disk, compact_every_seconds=None, push_rows=64) as store:
        for number in range(300):
            key = b"k%d" % rng.randrange(60)
            model[key] = b"%d" % number
            store.put(key, model[key])
            if number % 9 == 0:
                store.delete(key)
                del model[key]
            if number % 50 == 0:
                rolled(store)
                flush(store)
    return disk.after_crash("all", SEED), model


def worked(disk: SimDisk, kind: str) -> bool:
    """Whether it came to its end."""
    try:
        if kind == "merge":
            offline._merge(lambda: disk, "/s", Run())
        else:
            offline._rebuild(lambda: disk, "/s", Run(), merge=kind == "rebuild and merge")
    except SimCrash:
        for ref in ActorRegistry.get_all():
            ActorRegistry.unregister(ref)
        return False
    return True


@pytest.mark.parametrize("kind", ["rebuild", "rebuild and merge", "merge"])
@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_at_any_operation_leaves_a_whole_store(
    mode: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "STRETCH_SQNS", 90)
    monkeypatch.setattr(offline, "RANGE_ROWS", 40)
    filled_disk, model = filled()
    whole = filled_disk.after_crash("all", SEED)
    assert worked(whole, kind)
    step = int(os.environ.get("OCTAVO_CRASH_STEP", "2"))
    points = range(1 + MODES.index(mode) % step, whole.ops + 1, step)
    print(f"OCTAVO_SEED={SEED}: {len(points)} crash points of {kind}, mode {mode}")
    assert len(points) * step > 15
    for point in points:
        disk = filled_disk.after_crash("all", SEED)
        disk.crash_at(point)
        assert not worked(disk, kind)
        image = disk.after_crash(mode, SEED + point)
        with opened("/s", image, compact_every_seconds=None) as store:
            assert dict(store.items()) == model, point
            report = store.verify()
            assert report.ok, report.problems[:3]
        ledger = {name for name in image.listdir("/s/ledger") if name.endswith(".sst")}
        named = {e.name for level in manifest_of("/s", image).levels for e in level}
        assert ledger == named, point
