"""The change log loses power at every operation: what was promised is there, and no more than
was begun."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from logged_value import LoggedValue, value_of
from simdisk import MODES, SimCrash, SimDisk

from octavo.files.errors import OctavoError
from octavo.manifest.change_log import Limits, recover

HERE = "/log"
LIMITS = Limits(file_bytes=700, snapshot_changes=1 << 30)
SEEDS = range(5)


def plain(value: LoggedValue) -> None:
    """Changes, full files, snapshots."""
    for number in range(12):
        value.add(number, padding=number * 37 % 200)
        if number % 5 == 4:
            value.snapshot()


def full_files(value: LoggedValue) -> None:
    """Most changes begin a file."""
    for number in range(24):
        value.add(number, padding=number * 131 % 600)
        if number == 15:
            value.snapshot()
    value.log.close()


def reopening(value: LoggedValue) -> None:
    """Three lives."""
    disk = value.log._disk
    for _ in range(3):
        value.add(len(value.value))
        value.add(len(value.value), padding=600)
        value.log.close()
        again = LoggedValue(disk, HERE, LIMITS)
        value.log, value.durable = again.log, again.durable


def failing(value: LoggedValue) -> None:
    """Writes and syncs fail in between."""
    disk = value.log._disk
    assert isinstance(disk, SimDisk)
    for number in range(12):
        for op_name in ("write", "sync", "sync_dir", "create")[: number % 5]:
            disk.fail(op_name, 1 + number % 3, errno.ENOSPC)
        try:
            value.add(number, padding=number * 37 % 300)
            if number % 5 == 4:
                value.snapshot()
        except OctavoError:
            pass
    disk.heal()
    value.log.close()


Workload = Callable[[LoggedValue], None]
WORKLOADS: list[Workload] = [plain, full_files, reopening, failing]


def run(workload: Workload, crash_at: int) -> tuple[SimDisk, LoggedValue | None]:
    """The disk at the crash, and the value as its owner knew it."""
    disk = SimDisk()
    disk.mkdir(HERE)
    disk.crash_at(disk.ops + crash_at)
    value = None
    try:
        value = LoggedValue(disk, HERE, LIMITS)
        workload(value)
    except SimCrash:
        pass
    return disk, value


def expect(disk: SimDisk, value: LoggedValue | None, what: str) -> None:
    found = recover(disk, HERE)
    state = value_of(found)
    assert not found.damaged, (what, found.notes)
    if value is None:
        assert state == [], what
        return
    # The change that was under way may be there too; one that failed before must not be.
    known = value.value
    assert state[: value.durable] == known[: value.durable], (what, found.notes)
    assert state[: len(known)] == known[: len(state)], (what, found.notes)
    assert len(state) <= len(known) + 1, what


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_at_every_operation_keeps_every_promise(workload: Workload, mode: str) -> None:
    crash_at = 0
    while True:
        crash_at += 1
        disk, value = run(workload, crash_at)
        for seed in SEEDS:
            what = f"{workload.__name__} cut at operation {crash_at}, {mode}, seed {seed}"
            expect(disk.after_crash(mode, seed), value, what)
        if not disk.crashed:
            break
    assert crash_at > 30


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut_while_the_log_is_begun_again_changes_nothing(mode: str) -> None:
    for first in range(1, 200, 7):
        disk, value = run(plain, first)
        left = disk.after_crash(mode, first)
        before = value_of(recover(left, HERE))
        expect(left, value, f"cut at {first}, {mode}")
        for second in range(1, 40):
            again = left.after_crash("all")
            again.crash_at(again.ops + second)
            try:
                LoggedValue(again, HERE, LIMITS)
            except SimCrash:
                pass
            found = recover(again.after_crash(mode, second), HERE)
            assert value_of(found) == before, (first, second, mode)
            assert not found.damaged
            if not again.crashed:
                break
        if not disk.crashed:
            break
