"""What a person sees of workers that are killed each time, as in a container that is short of
memory, and that it goes on by itself once they are not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_store import opened, settle

import octavo
from octavo.actors import penciller_clerk
from octavo.actors.bookie import Bookie
from octavo.actors.worker import JobRunner

Asked = Callable[..., dict[str, Any]]


def fill(store: octavo.Store, beginning: str) -> None:
    for number in range(40):
        store.put(f"{beginning}-{number}", b"value")


def looked(store: octavo.Store) -> None:
    """Return when the clerk has done what it was woken for."""
    store._running.penciller.call(lambda _: None)
    store._running.clerk.call(lambda _: None)


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs whose workers were killed; as long as "none" is not among them, each is."""
    killed: list[str] = []
    ask: Asked = JobRunner._ask

    def asked(self: JobRunner, process: subprocess.Popen[bytes], job: str, *rest: Any) -> Any:
        if "none" not in killed:
            process.kill()
            killed.append(job)
        return ask(self, process, job, *rest)

    monkeypatch.setattr(JobRunner, "_ask", asked)
    return killed


def test_workers_that_are_killed_each_time_are_told_of_and_tried_again_later(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    killing: list[str],
) -> None:
    monkeypatch.setattr(penciller_clerk, "_AGAIN_MS", 1 << 40)
    with opened(tmp_path / "s", worker=True, push_rows=1 << 16) as store:
        fill(store, "a")
        store._running.bookie.call(Bookie.push)
        looked(store)
        totals = store.stats()["jobs"]["totals"]["level_zero"]
        tries = len(killing)
        assert tries
        assert not tries % 3
        assert totals["failed_in_a_row"] == totals["failures"] == tries
        assert "killed by SIGKILL, as a system does that is short of memory" in (
            totals["last_failure"] or ""
        )
        last = store.stats()["jobs"]["recent"][-1]
        assert (last["why"], last["began_ms"]) == (
            totals["last_failure"], totals["last_failed_ms"],
        )  # fmt: skip
        told = store.stats_prometheus()
        assert f'failed_in_a_row{{store="{tmp_path}/s",kind="level_zero"}} {tries}' in told
        assert "octavo_job_failed_timestamp_seconds{" in told
        assert "failed: the worker process was killed by SIGKILL" in store.inspect_html()
        assert [
            (r.name, r.levelname) for r in caplog.records if r.levelname in ("WARNING", "ERROR")
        ] == [("octavo.clerk", "WARNING")]

        fill(store, "b")  # too soon for another try
        store._running.bookie.call(Bookie.attend)
        looked(store)
        assert killing.count("level_zero") == tries

        killing.append("none")
        monkeypatch.setattr(penciller_clerk, "_AGAIN_MS", 0)
        store._running.bookie.call(Bookie.attend)  # as every few hundred puts, without a push
        settle(store)
        assert store.stats()["merging"]["waiting_tables"] == 0
        totals = store.stats()["jobs"]["totals"]["level_zero"]
        assert (totals["failed_in_a_row"], totals["failures"]) == (0, tries)
        assert len(store) == 80
        assert store.verify().ok
