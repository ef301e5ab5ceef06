"""Work on a closed store of which a call of the disk fails, the driver's or a task's: it is told in
an error of ours, and the store is as it was, or as it was to be."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from simdisk import SimDisk
from whole_store import flush, opened, rolled

import octavo
from octavo.pipeline import offline, offline_journal
from octavo.pipeline.offline import Run

WORKS: dict[str, Callable[[str], object]] = {
    "rebuild": offline.rebuild,
    "merge": offline.merge,
    "compact": offline_journal.compact,
}
REACHING = ("create", "write", "sync", "sync_file", "sync_dir", "listdir", "map", "read", "unlink")
"""Calls that reach the disk."""


def made() -> tuple[SimDisk, dict[bytes, bytes]]:
    """A closed store with garbage in several journal files, and what is in it."""
    disk = SimDisk()
    model = {}
    with opened("/s", disk, compact_every_seconds=None) as store:
        for number in range(120):
            key = b"k%d" % (number % 30)
            model[key] = b"%d" % number
            store.put(key, model[key])
            if number % 40 == 39:
                rolled(store)
                flush(store)
    return disk.after_crash("all", 1), model


def runs_on(disk: SimDisk, patch: pytest.MonkeyPatch) -> None:
    """Tasks here, one after the other, and driver and tasks on this disk."""
    for module in (offline, offline_journal):
        patch.setattr(module, "on_spark", lambda spark: Run())
        patch.setattr(module, "RealDisk", lambda: disk)


@pytest.mark.parametrize(
    ("code", "told"), [(errno.ENOSPC, octavo.StorageFull), (errno.EIO, octavo.StorageFailed)]
)
@pytest.mark.parametrize("work", WORKS)
def test_whatever_call_fails_an_error_of_ours_says_so(
    work: str, code: int, told: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, model = made()
    failed = 0
    for nth in range(1, 400):
        copy = disk.after_crash("all", 1)
        reached = SimpleNamespace(calls=0)

        def fails(operation: str, nth: int = nth, reached: SimpleNamespace = reached) -> object:
            reached.calls += operation in REACHING
            return (code, None) if operation in REACHING and reached.calls == nth else None

        copy.at_call = fails  # type: ignore[assignment]
        runs_on(copy, monkeypatch)
        said: list[Exception] = []
        try:
            WORKS[work]("/s")
        except octavo.OctavoError as error:
            said.append(error)
        assert all(isinstance(each, (told, octavo.Corruption)) for each in said), (nth, said)
        failed += len(said)
        copy.at_call = None
        with opened("/s", copy.after_crash("all", 1), compact_every_seconds=None) as store:
            assert dict(store.items()) == model, nth
        if reached.calls < nth:
            break
    assert reached.calls < nth  # every call failed once
    assert failed > nth // 2


def test_what_spark_itself_says_is_no_error_of_the_storage() -> None:
    with pytest.raises(ConnectionRefusedError), offline.told():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
