"""A sync that fails while a Ctrl-C waits to be heard: the failure is known all the same."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from errno import EIO
from pathlib import Path
from types import FrameType

import pytest
from behind_calls import heard_by
from whole_store import opened

import octavo
from octavo.files.door import own_disk
from octavo.files.door.open_file import RealFile


def interrupted_and_failed(*_: object) -> None:
    """As a system call that a signal came during, and that failed: Python hears of the signal at
    the next call, which is not the one that raises."""
    failure = OSError(EIO, os.strerror(EIO))
    send: Callable[[int], int] = getattr(ctypes.PyDLL(None), "raise")
    for _sent in map(send, [signal.SIGINT]):  # a step that CPython looks for no signal after
        raise failure


def interrupted_and_failed_by_name(*_: object) -> None:
    """As that in a call that closes what it opened: Python hears of the signal as it does so."""
    try:
        interrupted_and_failed()
    finally:
        os.getpid()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    made = opened(tmp_path / "s")
    made.put(b"a", b"1")
    yield made
    with pytest.raises(octavo.StorageFailed):
        made.close()


def nothing_is_believed_after(
    store: octavo.Store,
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    call: str,
    failing: Callable[..., None] = interrupted_and_failed,
    heard: type[BaseException] = KeyboardInterrupt,
) -> None:
    """Neither by who asks for a sync nor, from then on, by any other write."""
    with monkeypatch.context() as patched:
        patched.setattr(where, call, failing)
        with pytest.raises(heard):
            store.sync()
    with pytest.raises(octavo.StorageFailed, match="sync failed"):
        store.put(b"b", b"2")
    with pytest.raises(octavo.StorageFailed):
        store.put(b"b", b"2", sync=True)
    with pytest.raises(octavo.StorageFailed):
        store.sync()
    assert store.get(b"a") == b"1"


def test_a_sync_of_a_file_that_fails_under_a_ctrl_c_is_known(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_is_believed_after(store, monkeypatch, RealFile, "sync")


def test_a_sync_of_a_files_name_that_fails_under_a_ctrl_c_is_known(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_is_believed_after(
        store, monkeypatch, own_disk, "sync_directory", interrupted_and_failed_by_name
    )


def test_a_ctrl_c_that_follows_an_error_of_the_callers_own_fails_no_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with opened(tmp_path / "s") as store:
        store.put(b"a", b"1")
        try:
            raise OSError(EIO, os.strerror(EIO))
        except OSError:
            with monkeypatch.context() as patched:
                patched.setattr(RealFile, "sync", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    store.sync()
        store.sync()


def test_a_sync_that_a_caller_has_recursed_too_far_for_is_none_that_failed(tmp_path: Path) -> None:
    limit = sys.getrecursionlimit()

    def deeper(left: int) -> int:
        return deeper(left - 1) if left else store.put(b"deep", b"1", sync=True)

    with opened(tmp_path / "s") as store:
        refused = 0
        for left in range(limit - 100, limit):
            try:
                deeper(left)
            except RecursionError:
                refused += 1
        assert refused > 20
        store.put(b"a", b"1", sync=True)
    with opened(tmp_path / "s") as store:
        assert store.get(b"a") == b"1"


def test_a_sync_that_fails_under_a_handler_that_raises_a_timeout_is_known(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(number: int, frame: object) -> None:
        raise TimeoutError("too late")

    failing, heard = interrupted_and_failed_by_name, octavo.StorageFailed
    with heard_by(too_late, signal.SIGINT):
        nothing_is_believed_after(store, monkeypatch, own_disk, "sync_directory", failing, heard)


def raised_over_its_own(raised: type[BaseException]) -> Callable[[int, FrameType | None], None]:
    """A handler that meets an error of its own, and raises another one for that."""

    def handler(number: int, frame: object) -> None:
        try:
            {}[number]
        except KeyError:
            raise raised from None

    return handler


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError, ArithmeticError])
def test_a_sync_that_fails_under_a_handler_that_met_an_error_of_its_own_is_known(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    failing = interrupted_and_failed_by_name
    heard = octavo.StorageFailed if issubclass(raised, Exception) else raised
    with heard_by(raised_over_its_own(raised), signal.SIGINT):
        nothing_is_believed_after(store, monkeypatch, own_disk, "sync_directory", failing, heard)


def test_a_handler_that_met_an_error_of_its_own_fails_no_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    handler = raised_over_its_own(TimeoutError)
    with opened(tmp_path / "s") as store, heard_by(handler, signal.SIGINT):
        store.put(b"a", b"1")
        with monkeypatch.context() as patched:
            patched.setattr(RealFile, "sync", interrupted)
            with pytest.raises(TimeoutError):
                store.sync()
        store.put(b"b", b"2", sync=True)
