"""Messages between a worker and its owner: what is none, or too long, is no message."""

from __future__ import annotations

import io
import struct
import threading

import pytest

from octavo.files.jobs import worker
from octavo.files.jobs.worker import Disconnected


def sent(head: dict[str, object], *blobs: bytes) -> bytes:
    stream = io.BytesIO()
    worker.send(stream, head, blobs)
    return stream.getvalue()


def test_what_is_sent_is_received() -> None:
    stream = io.BytesIO(sent({"job": "a"}, b"", b"blob") + sent({}))
    assert worker.receive(stream) == ({"job": "a"}, [b"", b"blob"])
    assert worker.receive(stream) == ({}, [])
    with pytest.raises(Disconnected):
        worker.receive(stream)


def test_one_that_ends_anywhere_is_none() -> None:
    whole = sent({"job": "a"}, b"blob", b"another")
    for length in range(len(whole)):
        with pytest.raises(Disconnected):
            worker.receive(io.BytesIO(whole[:length]))


class Counted(io.BytesIO):
    """What is asked for beyond the lengths, which a message may lie about."""

    most = 0

    def read(self, length: int | None = -1, /) -> bytes:
        self.most = max(self.most, length or 0)
        return super().read(length)


@pytest.mark.parametrize(
    "front",
    [
        struct.pack("<II", 0xFFFFFFFF, 0),
        struct.pack("<II", 2, 0xFFFFFFFF),
        struct.pack("<IIQ", 2, 1, 1 << 40),
    ],
    ids=["head", "blobs", "blob"],
)
def test_of_one_that_says_it_is_longer_than_any_nothing_is_read(front: bytes) -> None:
    stream = Counted(front + b"{}")
    with pytest.raises(Disconnected):
        worker.receive(stream)
    assert stream.most < 100


def test_an_answer_and_a_sign_of_life_are_sent_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone, beaten = list[bool](), threading.Event()

    class Stream(io.BytesIO):
        def write(self, part: object, /) -> int:
            alone.append(answers._one_message.locked())
            if threading.current_thread() is not threading.main_thread():
                beaten.set()
            return 0

    monkeypatch.setattr(worker, "BEAT_SECONDS", 0.001)
    answers = worker._Answers(Stream())
    answers.begin()
    assert beaten.wait(300)
    answers.end({"result": {}})
    assert all(alone)
    assert not answers._working.is_set()
