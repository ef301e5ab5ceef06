"""Ctrl-C at chosen steps of opening, closing, backups and compaction: nothing stays locked.

Random moments of all calls: scripts/campaign interrupts.
"""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from interrupted import Interrupted
from whole_store import SMALL

import octavo
from octavo.actors.opening import shutdown
from octavo.files.door import file_lock

KEEPS_STILL = {**SMALL, "compact_every_seconds": None}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with octavo.open(tmp_path / "s", **KEEPS_STILL) as store:
        store.put_many((b"%d" % n, b"v") for n in range(300))
        yield store


class Ringing:
    """Wraps a call; the first one is followed by a Ctrl-C before its answer is known."""

    def __init__(self, call: Callable[..., object]) -> None:
        self.call = call
        self.rang = False

    def __call__(self, *given: object, **named: object) -> object:
        answer = self.call(*given, **named)
        if not self.rang:
            self.rang = True
            signal.raise_signal(signal.SIGINT)
        return answer


@pytest.mark.parametrize(
    ("where", "name"),
    [(fcntl, "flock"), (file_lock, "_without_workers")],
    ids=["file", "directory"],
)
def test_an_interrupted_opening_leaves_no_lock(
    where: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    octavo.open(tmp_path / "s", **KEEPS_STILL).close()  # a new one tries locks before
    monkeypatch.setattr(file_lock, "_LONGEST_WAIT", 0)
    monkeypatch.setattr(where, name, Ringing(getattr(where, name)))
    with pytest.raises(KeyboardInterrupt):
        octavo.open(tmp_path / "s", **KEEPS_STILL)
    with octavo.open(tmp_path / "s", **KEEPS_STILL) as store:
        assert store.put(b"k", b"v")


def test_an_opening_that_is_interrupted_at_its_end_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: octavo.Store, running: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(octavo.Store, "__init__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            octavo.open(tmp_path / "s", **KEEPS_STILL)
    with octavo.open(tmp_path / "s", **KEEPS_STILL) as store:
        assert store.put(b"k", b"v")


def test_an_opening_that_is_interrupted_as_it_returns_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def interrupted(name: str, path: str) -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("octavo.store.usable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            octavo.open(tmp_path / "s", **KEEPS_STILL)
    with octavo.open(tmp_path / "s", **KEEPS_STILL) as store:
        assert store.put(b"k", b"v")


def test_an_interrupted_backup_leaves_no_lock(
    tmp_path: Path, store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", Ringing(fcntl.flock))
    with pytest.raises(KeyboardInterrupt):
        store.backup(tmp_path / "b")
    store.backup(tmp_path / "b")
    with octavo.open(tmp_path / "b", **KEEPS_STILL) as copy:
        assert len(copy) == 300


def test_an_interrupted_compaction_is_not_under_way(store: octavo.Store) -> None:
    clerk = store._running.inker_clerk.actor
    real = clerk._busy

    class Busy:
        acquire = Ringing(real.acquire)
        release = real.release

    clerk._busy = Busy()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        store.compact()
    assert store.compact().files_after > 0


def test_an_interrupted_close_lets_the_next_opener_in(
    tmp_path: Path, store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(running: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutdown, "stop", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.close()
    with pytest.raises(octavo.Closed):
        store.put(b"k", b"v")
    with octavo.open(tmp_path / "s", **KEEPS_STILL) as again:
        assert len(again) == 300
        assert again.verify().ok


@pytest.mark.parametrize("seed", [1, 2])
def test_an_interrupt_at_any_step_of_any_call_leaves_a_store_that_goes_on(
    tmp_path: Path, seed: int
) -> None:
    print("seed", seed)
    interrupted = Interrupted(tmp_path, seed, by_steps=True)
    try:
        interrupted.run(60)
    finally:
        interrupted.store.close()
    assert sum(interrupted.hits.values()) > 30
