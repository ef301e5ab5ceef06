"""What jobs leave that were killed goes once it is old, and stands in the way of nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.handover import staging
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms


def staged(store: Path, job: str, now_ms: int) -> None:
    writer = StagedWriter(RealDisk(), str(store), job, "a", now_ms=now_ms)
    writer.put_many(b"", [job.encode()], [b"v"])
    writer.finish()


def test_they_go_with_a_later_commit_while_the_store_stays_open(tmp_path: Path) -> None:
    now = wall_clock_ms()
    with octavo.open(tmp_path) as store:
        staged(tmp_path, "killed", now - staging.KEPT_MS - 60_000)
        staged(tmp_path, "younger", now - staging.KEPT_MS + 600_000)
        staged(tmp_path, "job", now)
        store.ingest("job", ["a"])
        assert os.listdir(tmp_path / "staging") == ["younger"]
        assert list(store) == [b"job"]


def test_the_files_of_a_task_that_writes_for_more_than_a_day_stay(tmp_path: Path) -> None:
    disk, now = RealDisk(), [1000]
    with octavo.open(tmp_path) as store:
        writer = StagedWriter(
            disk, str(tmp_path), "j", "a", now_ms=1000, clock_ms=lambda: now[0], file_records=1
        )
        for number in range(3):
            writer.put_many(b"", [b"%d" % number], [b"v"])
            now[0] += staging.KEPT_MS
            assert staging.sweep(disk, str(tmp_path), now[0]) == []
        writer.finish()
        store.ingest("j", ["a"])
        assert len(store) == 3


def test_what_an_attempt_has_staged_stays_beside_what_an_earlier_one_left(tmp_path: Path) -> None:
    now = wall_clock_ms()
    with octavo.open(tmp_path) as store:
        for attempt, began in (("early", now - staging.KEPT_MS - 60_000), ("late", now)):
            writer = StagedWriter(RealDisk(), str(tmp_path), "slow", attempt, now_ms=began)
            writer.put_many(b"", [attempt.encode()], [b"v"])
            writer.finish()
        staged(tmp_path, "job", now)
        store.ingest("job", ["a"])
        store.ingest("slow", ["late"])
        assert list(store) == [b"job", b"late"]


def test_the_folder_goes_in_which_a_killed_task_had_made_nothing_yet(tmp_path: Path) -> None:
    octavo.open(tmp_path).close()
    RealDisk().mkdir_within(str(tmp_path), "staging/killed")
    octavo.open(tmp_path).close()
    assert os.listdir(tmp_path / "staging") == []


class Removing(RealDisk):
    """A disk on which each folder of a job goes again as it is made: another attempt's end, or an
    opening of the store, found it empty."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: list[str] = []

    def mkdir_within(self, store: str, inner: str) -> None:
        super().mkdir_within(store, inner)
        if self.removed.count(inner) < 2:
            self.removed.append(inner)
            self.rmdir(f"{store}/{inner}")


@pytest.mark.parametrize("rows", [0, 3])
def test_an_attempt_whose_folder_is_removed_while_it_is_empty_makes_it_again(
    tmp_path: Path, rows: int
) -> None:
    with octavo.open(tmp_path) as store:
        disk = Removing()
        writer = StagedWriter(disk, str(tmp_path), "j", "a", now_ms=wall_clock_ms())
        writer.put_many(b"", [b"%d" % row for row in range(rows)], [b"v"] * rows)
        writer.finish()
        assert len(disk.removed) == 2
        store.ingest("j", ["a"])
        assert len(store) == rows


def test_a_job_that_removes_its_own_meanwhile_keeps_no_store_from_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    octavo.open(tmp_path).close()
    for job in ("aborted", "killed"):
        staged(tmp_path, job, 1000)
    real = RealDisk.is_link

    def is_link(disk: RealDisk, path: str) -> bool:
        found = real(disk, path)
        if path.endswith("/aborted"):
            monkeypatch.setattr(RealDisk, "is_link", real)
            staging.empty(disk, str(tmp_path), "aborted")
        return found

    monkeypatch.setattr(RealDisk, "is_link", is_link)
    octavo.open(tmp_path).close()
    assert os.listdir(tmp_path / "staging") == []


def test_a_file_that_is_no_job_keeps_no_store_from_being_opened(tmp_path: Path) -> None:
    octavo.open(tmp_path).close()
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "note").write_bytes(b"")
    octavo.open(tmp_path).close()
    assert os.listdir(tmp_path / "staging") == ["note"]
