"""Compaction of a closed store's journal by many tasks: nothing that can be read is lost, whatever
moment it is cut off at."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compacted_store import SMALL_FILES, check, overwritten
from pykka import ActorRegistry
from simdisk import MODES, SimCrash, SimDisk
from whole_store import flush, opened, rolled

import octavo
import octavo.pipeline
from octavo.files.door.disk import RealDisk
from octavo.manifest.closed_store import ClosedStore, closed_store
from octavo.manifest.journal_manifest import JournalEntry
from octavo.pipeline import offline_journal
from octavo.pipeline.offline import Run
from octavo.pipeline.offline_journal import CompactReport, compacted

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))
Model = dict[bytes, bytes]


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small store has several."""
    monkeypatch.setattr(offline_journal, "RUN_BYTES", 200 << 10)


def compact(path: Path | str) -> CompactReport:
    return compacted(RealDisk, str(path), Run())


def made(path: Path, **options: Any) -> Model:
    print(f"OCTAVO_SEED={SEED}")
    with opened(path, compact_every_seconds=None, **SMALL_FILES, **options) as store:
        model = overwritten(store, random.Random(SEED), keys=300, rounds=8)
        rolled(store)
        flush(store)
    return model


def sealed(path: Path) -> set[str]:
    """What is in the journal's directory beside the active file and the manifest."""
    names = {each.name for each in (path / "journal").iterdir() if each.is_file()}
    return {name for name in names if not name.endswith(".log")}


def read(path: Path, model: Model) -> None:
    """It is there, with the ledger that is there and with a new one."""
    for again in range(2):
        with octavo.open(path, compact_every_seconds=None) as store:
            check(store, model)
            assert not [note for note in store.stats()["notes"] if "left over" in note]
        if not again:
            shutil.rmtree(path / "ledger")


def test_what_was_replaced_goes_and_what_lives_stays(tmp_path: Path) -> None:
    model = made(tmp_path / "s")
    done = compact(tmp_path / "s")
    assert done.tasks > 2
    assert done.bytes_after < 0.5 * done.bytes_before
    assert done.records_dropped > 1500
    assert done.skipped == ()
    assert len(sealed(tmp_path / "s")) == done.files_after
    read(tmp_path / "s", model)


def test_many_small_files_take_few_descriptors(tmp_path: Path) -> None:
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        for number in range(300):
            store.put(b"k%d" % (number % 50), b"v%d" % number)
            rolled(store)
        flush(store)
    code = (
        "import resource\n"
        "from octavo.files.door.disk import RealDisk\n"
        "from octavo.pipeline.offline import Run\n"
        "from octavo.pipeline.offline_journal import compacted\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        f"print(compacted(RealDisk, {str(tmp_path / 's')!r}, Run()).records_dropped)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.strip() == "250", done.stderr
    read(tmp_path / "s", {b"k%d" % n: b"v%d" % (250 + n) for n in range(50)})


def test_a_second_one_takes_the_deletes(tmp_path: Path) -> None:
    model = made(tmp_path / "s")
    compact(tmp_path / "s")
    assert compact(tmp_path / "s").records_dropped >= 150
    assert compact(tmp_path / "s").records_dropped == 0
    read(tmp_path / "s", model)


def kept(path: Path, model: Model) -> set[tuple[bytes, int, str]]:
    """What the journal has of the keys that live."""
    with octavo.open(path, compact_every_seconds=None) as store:
        changes = store.changes(compacted=True)
        return {(c.key, c.sqn, c.kind) for c in changes if c.key in model}


def test_key_deltas_are_kept_as_the_store_keeps_them(tmp_path: Path) -> None:
    model = made(tmp_path / "s", strategies={"standard": "retain"})
    shutil.copytree(tmp_path / "s", tmp_path / "own")
    with octavo.open(tmp_path / "own", compact_every_seconds=None) as store:
        store.compact()
    compact(tmp_path / "s")
    found = kept(tmp_path / "s", model)
    assert found == kept(tmp_path / "own", model)
    assert "delta" in {kind for _, _, kind in found}


def test_what_each_task_tells_is_in_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That files are not clean, or deletes would go before what they hide; the highest of what was
    dropped by any; and, before that goes, up to when what expired stays so."""
    model = made(tmp_path / "s")
    told: list[dict[str, Any]] = []

    class Told(Run):
        def __call__(self, work: Any, tasks: Any) -> Any:
            found = super().__call__(work, tasks)
            told[:] = [each for each in found if each.get("files")]
            for number, each in enumerate(told):
                each |= {"clean": False, "expired_ms": 5000 - number}
                each |= {"highest_dropped": 1} if number else {}
            return found

    expired: list[int] = []
    plain = ClosedStore.replace_journal_files

    def replaced(store: ClosedStore, *args: Any) -> None:
        assert store.ledger is not None
        expired.append(store.ledger.expired_ms)
        plain(store, *args)

    monkeypatch.setattr(ClosedStore, "replace_journal_files", replaced)
    compacted(RealDisk, str(tmp_path / "s"), Told())
    assert len(told) > 1
    assert expired == [5000]
    with closed_store(RealDisk(), str(tmp_path / "s")) as store:
        made_anew = {row["name"] for each in told for row in each["files"]}
        clean = {e.clean_sqn for e in store.journal.entries if e.name in made_anew}
        assert clean == {0}
        assert store.journal.horizon == told[0]["highest_dropped"] > 1
    read(tmp_path / "s", model)


def test_a_run_has_no_more_numbers_than_a_file_can_tell_apart() -> None:
    entries = [JournalEntry(f"{n}", 1 + (n << 30), (n + 1) << 30, 9, 9, 7) for n in range(5)]
    found = [[entry.name for entry in each] for each in offline_journal.runs_of(entries)]
    assert found == [["0", "1"], ["2", "3"], ["4"]]


def test_a_consumer_holds_its_part_back(tmp_path: Path) -> None:
    made(tmp_path / "s")
    with octavo.open(tmp_path / "s", compact_every_seconds=None) as store:
        store.consumer("reader", since=0)
        sqns = [change.sqn for change in store.changes()]
    assert compact(tmp_path / "s").records_dropped == 0
    with octavo.open(tmp_path / "s", compact_every_seconds=None) as store:
        assert [change.sqn for change in store.changes()] == sqns


def test_whoever_compacts_is_told_that_the_consumers_are_lost(tmp_path: Path) -> None:
    made(tmp_path / "s")
    with octavo.open(tmp_path / "s", compact_every_seconds=None) as store:
        store.consumer("reader", since=0)
    (tmp_path / "s" / "CONSUMERS").write_bytes(b"damaged")
    done = compact(tmp_path / "s")
    assert done.records_dropped
    assert any("the consumers of the change feed are lost" in note for note in done.notes)


def test_an_open_store_is_left_alone(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s"), pytest.raises(octavo.StoreLocked):
        compact(tmp_path / "s")


class Doubled(Run):
    """Of each task two attempts come to their end, and the second counts."""

    def __call__(self, work: Any, tasks: Any) -> Any:
        super().__call__(work, tasks)
        return super().__call__(work, tasks)


def test_what_attempts_made_that_do_not_count_goes(tmp_path: Path) -> None:
    model = made(tmp_path / "s", strategies={"standard": "retain"})
    done = compacted(RealDisk, str(tmp_path / "s"), Doubled())
    assert done.records_dropped > 1
    assert len(sealed(tmp_path / "s")) == done.files_after
    read(tmp_path / "s", model)


def test_tasks_that_fail_leave_the_journal_as_it_was(tmp_path: Path) -> None:
    class Failing(Run):
        def __call__(self, work: Any, tasks: Any) -> Any:
            work(tasks[0])
            raise RuntimeError("the rest of the tasks failed")

    model = made(tmp_path / "s")
    before = sealed(tmp_path / "s")
    with pytest.raises(RuntimeError, match="the rest"):
        compacted(RealDisk, str(tmp_path / "s"), Failing())
    assert sealed(tmp_path / "s") == before
    read(tmp_path / "s", model)


def test_an_attempt_that_is_cut_off_takes_nothing_from_the_one_that_counts(tmp_path: Path) -> None:
    """As Spark ends the slower of two attempts of a task, at any moment."""
    cut_off = []

    class Cutting(RealDisk):
        def create(self, path: str) -> Any:
            if cut_off:
                raise OSError(errno.EIO, "the attempt is cut off", path)
            return super().create(path)

    class Slower(Run):
        def __call__(self, work: Any, tasks: Any) -> Any:
            done = super().__call__(work, tasks)
            cut_off.append(tasks)
            with pytest.raises(OSError, match="cut off"):
                work(tasks[0])
            cut_off.clear()
            return done

    model = made(tmp_path / "s", strategies={"standard": "retain"})
    assert compacted(Cutting, str(tmp_path / "s"), Slower()).records_dropped > 1
    read(tmp_path / "s", model)


def test_a_head_only_store_is_refused(tmp_path: Path) -> None:
    octavo.open(tmp_path / "s", mode="head_only").close()
    with pytest.raises(octavo.Misuse, match="head-only"):
        compact(tmp_path / "s")


def test_a_damaged_file_stays_and_is_named(tmp_path: Path) -> None:
    made(tmp_path / "s")
    file = sorted((tmp_path / "s" / "journal").glob("*.cdb"))[0]
    raw = bytearray(file.read_bytes())
    raw[-100:] = bytes(100)
    file.write_bytes(raw)
    done = compact(tmp_path / "s")
    assert [file.name in text for text in done.skipped] == [True]
    assert file.exists()
    assert done.records_dropped > 500


def test_on_spark(spark: Any, tmp_path: Path) -> None:
    model = made(tmp_path / "s")
    done = octavo.pipeline.compact(str(tmp_path / "s"), spark)
    assert done.tasks > 2
    assert done.records_dropped > 1500
    read(tmp_path / "s", model)


# ---------------------------------------------------------------- power cuts


def filled() -> tuple[SimDisk, Model]:
    rng = random.Random(SEED)
    model: Model = {}
    disk = SimDisk()
    with opened("/s", disk, compact_every_seconds=None) as store:
        for number in range(200):
            key = b"k%d" % rng.randrange(30)
            model[key] = b"%d" % number
            store.put(key, model[key])
            if number % 9 == 0:
                store.delete(key)
                del model[key]
            if number % 40 == 39:
                rolled(store)
                flush(store)
    return disk.after_crash("all", SEED), model


def worked(disk: SimDisk) -> bool:
    """Whether it came to its end."""
    try:
        compacted(lambda: disk, "/s", Run())
    except SimCrash:
        for ref in ActorRegistry.get_all():
            ActorRegistry.unregister(ref)
        return False
    return True


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_at_any_operation_loses_nothing(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_journal, "RUN_BYTES", 8 << 10)
    filled_disk, model = filled()
    whole = filled_disk.after_crash("all", SEED)
    before = set(whole.listdir("/s/journal"))
    assert worked(whole)
    assert len(before - set(whole.listdir("/s/journal"))) > 2
    step = int(os.environ.get("OCTAVO_CRASH_STEP", "4"))
    points = range(1 + MODES.index(mode) % step, whole.ops + 1, step)
    print(f"OCTAVO_SEED={SEED}: {len(points)} crash points, mode {mode}")
    for point in points:
        disk = filled_disk.after_crash("all", SEED)
        disk.crash_at(point)
        assert not worked(disk)
        image = disk.after_crash(mode, SEED + point)
        for again in range(2):
            with opened("/s", image, compact_every_seconds=None) as store:
                assert dict(store.items()) == model, point
                report = store.verify()
                assert report.ok, (point, report.problems[:3])
            if not again:
                for directory in ("/s/ledger", "/s/ledger/manifest"):
                    for name in image.listdir(directory):
                        if name != "manifest":
                            image.unlink(f"{directory}/{name}")
