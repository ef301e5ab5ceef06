"""Handlers of the program that raise: messages come in the middle of changes, which go on."""

from __future__ import annotations

import errno
import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import octavo

MIB = 1 << 20


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("octavo")
    before = found.level, list(found.handlers)
    found.setLevel(logging.DEBUG)
    yield found
    found.setLevel(before[0])
    found.handlers[:] = before[1]


class Raising(logging.Handler):
    """What each message does, and what it came to."""

    def __init__(self, store: octavo.Store | None = None) -> None:
        super().__init__()
        self.store = store
        self.said: list[str] = []
        self.raised: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        try:
            if self.store is None:
                raise ValueError("of the handler's own")
            self.store.put("said", record.getMessage())
        except Exception as error:
            self.raised.append(error)
            raise


def filled(store: octavo.Store) -> dict[bytes, bytes]:
    """Puts that fill journal files and memory."""
    wanted = {b"k%04d" % n: b"%04d" % n * 1000 for n in range(1500)}
    for key, value in wanted.items():
        store.put(key, value)
    return wanted


def test_a_store_opens_writes_and_closes_beside_a_handler_that_raises(
    tmp_path: Path, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = Raising()
    logger.addHandler(handler)
    with octavo.open(
        tmp_path / "s", roll_size_bytes=MIB, compression="none", worker=False
    ) as store:
        wanted = filled(store)
        store.compact()
        store.backup(tmp_path / "b")
        assert dict(store) == wanted
        assert store.verify().ok
    logger.removeHandler(handler)
    assert sum(" is full" in one for one in handler.said) > 3
    assert len(handler.raised) == len(handler.said)
    assert "of the handler's own" in capsys.readouterr().err
    with octavo.open(tmp_path / "s") as store:
        assert dict(store) == wanted


class Full(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


class Closed(io.StringIO):
    def write(self, _: str) -> int:
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize("stderr", [Full(), Closed()], ids=["full", "closed"])
def test_a_store_goes_on_where_standard_error_takes_nothing_of_that_either(
    tmp_path: Path,
    logger: logging.Logger,
    stderr: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = Raising()
    logger.addHandler(handler)
    monkeypatch.setattr(sys, "stderr", stderr)
    with octavo.open(
        tmp_path / "s", roll_size_bytes=MIB, compression="none", worker=False
    ) as store:
        wanted = filled(store)
        assert dict(store) == wanted
    assert len(handler.raised) == len(handler.said) > 3


def test_a_handler_that_writes_to_the_store_stops_no_put(
    tmp_path: Path, logger: logging.Logger
) -> None:
    with octavo.open(
        tmp_path / "s", roll_size_bytes=MIB, compression="none", worker=False
    ) as store:
        handler = Raising(store)
        inker = logging.getLogger("octavo.inker")  # these come in the turn of a put
        inker.addHandler(handler)
        try:
            wanted = filled(store)
        finally:
            inker.removeHandler(handler)
        assert any(isinstance(one, octavo.AskCycle) for one in handler.raised)
        store.delete("said")
        assert dict(store) == wanted


def test_a_message_says_where_it_comes_from(
    tmp_path: Path, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    with octavo.open(tmp_path / "s"):
        pass
    (opened,) = [one for one in caplog.records if " is open" in one.getMessage()]
    assert (opened.name, opened.filename) != ("octavo", "messages.py")
    assert opened.funcName != "log"
