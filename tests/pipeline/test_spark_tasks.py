"""Tasks of a session, on its context and, as through Spark Connect, as a frame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.files.errors import Misuse
from octavo.pipeline import fold, rebuild, spark_tasks


@pytest.fixture(params=[False, True], ids=["context", "frame"])
def session(request: pytest.FixtureRequest, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The frames of a session with a context are those of one without, but for who runs them."""

    def is_remote(spark: Any) -> bool:
        return bool(request.param)

    monkeypatch.setattr(spark_tasks, "is_remote", is_remote)
    return spark


def test_results_come_in_the_order_of_the_tasks_whatever_they_are(session: Any) -> None:
    given: list[Any] = [b"\0", "two", (3, None), {"four": [4.0]}, range(5)]
    assert spark_tasks.results(session, lambda task: [task], given) == [[task] for task in given]


def test_without_tasks_there_are_no_results(session: Any) -> None:
    assert spark_tasks.results(session, len, []) == []


def test_what_a_task_raises_is_told(session: Any) -> None:
    def divided(task: int) -> float:
        return 1 / task

    with pytest.raises(Exception, match="ZeroDivisionError"):
        spark_tasks.results(session, divided, [1, 0])


def test_so_many_tasks_run_at_once_as_the_session_has_threads(session: Any) -> None:
    assert spark_tasks.parallelism(session) == 2


def test_a_fold_and_a_rebuild_run_on_either(session: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    with octavo.open(path) as store:
        store.put_many((b"%03d" % n, b"x" * n) for n in range(300))
        store.delete(b"007")

    def added(state: int, bucket: bytes, key: bytes, value: bytes) -> int:
        return state + len(value)

    plus: Callable[[int, int], int] = int.__add__
    wanted = sum(range(300)) - 7
    assert fold(path, added, plus, 0, spark=session, split_bytes=4096) == wanted
    assert rebuild(path, session).rows > 0
    assert fold(path, added, plus, 0, spark=session) == wanted


def test_a_session_of_spark_connect_is_known_by_where_its_class_is_from(spark: Any) -> None:
    class Session:
        pass

    Session.__module__ = "pyspark.sql.connect.session"
    assert spark_tasks.is_remote(Session())
    assert not spark_tasks.is_remote(spark)


def test_no_session_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    with pytest.raises(Misuse, match="there is no active Spark session"):
        spark_tasks.session_of(None)
