"""The sync of an interval goes on for as long as nothing has failed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn, cast

import pytest

import octavo
from octavo.actors.inker import Inker
from octavo.actors.writing.interval_sync import IntervalSync
from octavo.files.errors import AskTimeout, OctavoError, StorageFailed


class Syncs:
    """Of an Inker what the interval asks for: raises these, one after the other."""

    last_sqn = 1
    directory = "/store/journal"
    is_stopped = False

    def __init__(self, *errors: OctavoError) -> None:
        self.errors = list(errors)
        self.done = threading.Event()

    def make_durable(self, sqn: int) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.done.set()


def test_one_that_took_too_long_is_not_the_last() -> None:
    syncs = Syncs(AskTimeout("no fsync ended within 600 s"))
    interval = IntervalSync(cast(Inker, syncs), 0.001)
    assert syncs.done.wait(60)
    interval.stop()


def test_one_that_failed_is(caplog: pytest.LogCaptureFixture) -> None:
    syncs = Syncs(StorageFailed("fsync failed"))
    interval = IntervalSync(cast(Inker, syncs), 0.001)
    interval._thread.join(60)
    interval.stop()
    assert not syncs.done.is_set()
    assert "/store/journal: the interval's sync failed: fsync failed" in caplog.text


def test_it_ends_with_a_store_whose_close_ctrl_c_cut_short_before_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(_: IntervalSync) -> NoReturn:
        raise KeyboardInterrupt

    store = octavo.open(tmp_path / "s", sync=0.01)
    assert store._interval is not None
    monkeypatch.setattr(IntervalSync, "stop", cut_short)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    store._interval._thread.join(60)
    assert not store._interval._thread.is_alive()
