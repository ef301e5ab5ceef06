"""Spark's Python workers."""

from __future__ import annotations

import gc
from typing import Any

from octavo.files.kernels.freed_memory import keep_freed
from octavo.pipeline.python_worker import settle


def settled(_: int) -> int:
    settle()
    return gc.get_freeze_count()


def test_what_a_worker_has_loaded_is_not_collected_task_after_task(spark: Any) -> None:
    before = gc.get_freeze_count()  # some hundreds where 3.12 begins
    assert settled(0) == before  # this is no worker
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: settled(0)).first() > 10_000


def kept(_: int) -> int:
    settle()
    return keep_freed.cache_info().currsize


def test_a_worker_keeps_the_memory_of_one_batch_for_the_next(spark: Any) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(kept).first() == 1
