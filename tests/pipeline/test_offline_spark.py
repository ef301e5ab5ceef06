"""``octavo.pipeline.rebuild`` and ``merge`` on Spark: the same as without, whatever tasks do."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from ledger_of import ledger_of, manifest_of, merged_down
from random_stores import fill, held
from whole_store import flush, opened

import octavo
import octavo.pipeline
from octavo.files.door.disk import RealDisk
from octavo.pipeline import offline

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))


@pytest.fixture
def store_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A closed store, and few rows a task."""
    print(f"OCTAVO_SEED={SEED}")
    monkeypatch.setattr(offline, "STRETCH_SQNS", 600)
    monkeypatch.setattr(offline, "RANGE_ROWS", 350)
    path = tmp_path / "s t ö"
    with opened(path) as store:
        fill(store, random.Random(SEED), 1200)
        for number in range(200):
            store.put(b"i%d" % (number % 50), b"x", index={"f": number % 7})
        flush(store)
    return str(path)


def named(path: str) -> set[str]:
    return {entry.name for level in manifest_of(path).levels for entry in level}


def test_a_rebuild_and_a_merge_on_spark(spark: Any, store_path: str) -> None:
    with octavo.open(store_path) as store, store.snapshot() as snap:
        expected = held(snap)
    done = octavo.pipeline.rebuild(store_path, spark, merge=False)
    every = ledger_of(store_path)
    assert done.tasks > 2
    merged = octavo.pipeline.merge(f"file://{store_path}")  # in the active session
    assert merged.tasks > 2
    assert ledger_of(store_path) == merged_down(every)
    octavo.pipeline.rebuild(store_path)
    assert ledger_of(store_path) == merged_down(every)
    with octavo.open(store_path) as store, store.snapshot() as snap:
        assert held(snap) == expected
        assert store.verify().ok


def test_tasks_that_fail_first_leave_nothing(spark: Any, store_path: str) -> None:
    class Flaky(offline.Run):
        parallelism = 2

        def __call__(self, work: Any, tasks: Any) -> Any:
            def twice(task: Any) -> Any:
                from pyspark import TaskContext

                done = work(task)
                context = TaskContext.get()
                if context is not None and context.attemptNumber() == 0:
                    raise RuntimeError("the first attempt fails, its files being written")
                return done

            return offline.on_spark(spark)(twice, tasks)

    before = merged_down(ledger_of(store_path))
    offline._rebuild(RealDisk, store_path, Flaky(), merge=True)
    assert ledger_of(store_path) == before
    there = {name for name in os.listdir(f"{store_path}/ledger") if name.endswith(".sst")}
    assert there == named(store_path)
