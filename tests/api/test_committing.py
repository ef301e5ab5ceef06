"""Committing to a store that is open elsewhere: its owner does it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import octavo
from octavo import committing
from octavo.actors.keeping import inbox_watch
from octavo.actors.keeping.inbox_watch import Watched
from octavo.files.door.disk import RealDisk
from octavo.files.handover import inbox
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms


def staged(path: Path, job: str, value: bytes) -> None:
    writer = StagedWriter(RealDisk(), str(path), job, "0-0", now_ms=time.time_ns() // 10**6)
    writer.put_many(b"", [b"k"], [value])
    writer.finish()


def test_a_closed_store_is_opened_for_it(tmp_path: Path) -> None:
    octavo.open(tmp_path / "s").close()
    staged(tmp_path / "s", "j", b"v")
    assert octavo.commit(tmp_path / "s", "j", ["0-0"]).first_sqn == 1
    with octavo.open(tmp_path / "s") as store:
        assert store.get(b"k") == b"v"


def test_the_owner_of_an_open_store_does_it(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put(b"k", b"old")
        staged(tmp_path / "s", "j", b"v")
        found = octavo.commit(tmp_path / "s", "j", ["0-0"])
        assert (found.first_sqn, found.last_sqn, found.repeated) == (2, 2, False)
        assert store.get(b"k") == b"v"
        assert octavo.commit(tmp_path / "s", "j", ["0-0"]).repeated
    assert list((tmp_path / "s" / "inbox").iterdir()) == []


def test_who_may_not_search_a_store_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    octavo.open(tmp_path / "s").close()

    def refused(_: RealDisk, path: str) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(RealDisk, "exists", refused)
    monkeypatch.setattr(RealDisk, "unlink", refused)
    with pytest.raises(octavo.Misuse, match="user must be allowed"):
        octavo.acknowledge(tmp_path / "s", "c", 0)


def test_another_process_can_ask(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        staged(tmp_path / "s", "j", b"v")
        code = f"import octavo; print(octavo.commit({str(tmp_path / 's')!r}, 'j', ['0-0']))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
        )
        assert "repeated=False" in done.stdout
        assert store.get(b"k") == b"v"


def test_errors_of_the_owner_reach_who_asked(tmp_path: Path) -> None:
    with (
        octavo.open(tmp_path / "s"),
        pytest.raises(octavo.Misuse, match="no finished attempt '7-0'"),
    ):
        octavo.commit(tmp_path / "s", "j", ["7-0"])


def test_a_request_outlives_the_owner(tmp_path: Path) -> None:
    store = octavo.open(tmp_path / "s")
    store._watched.stop()  # type: ignore[union-attr]
    staged(tmp_path / "s", "j", b"v")
    answers: list[octavo.Ingested] = []
    asking = threading.Thread(
        target=lambda: answers.append(octavo.commit(tmp_path / "s", "j", ["0-0"]))
    )
    asking.start()
    while not inbox.waiting(RealDisk(), str(tmp_path / "s"), 0):
        pass
    store.close()
    asking.join(600)
    assert [answer.repeated for answer in answers] == [False]
    with octavo.open(tmp_path / "s") as store:
        assert store.get(b"k") == b"v"


def test_who_waits_long_for_the_owner_is_told_whom_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with octavo.open(tmp_path / "s") as store:
        octavo.backup(store.path, tmp_path / "b")
        assert "waiting" not in caplog.text
        store._watched.stop()  # type: ignore[union-attr]
        monkeypatch.setattr(committing, "_QUIET_SECONDS", 0.0)
        monkeypatch.setattr(committing, "_OPEN_SECONDS", 0.0)
        with pytest.raises(octavo.AskTimeout, match="nothing was done"):
            octavo.backup(store.path, tmp_path / "b", timeout_seconds=0.1)
    assert caplog.text.count("waiting for its owner to answer") == 1
    assert "is locked by this process" in caplog.text


def test_a_consumer_is_moved_by_the_owner_or_by_oneself(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        for n in range(9):
            store.put(b"k%d" % n, b"v")
        assert octavo.acknowledge(tmp_path / "s", "c", 3) == 3
        assert store.consumer("c").position == 3
        assert octavo.acknowledge(tmp_path / "s", "c", 2) == 3
    assert octavo.acknowledge(tmp_path / "s", "c", 7) == 7
    with octavo.open(tmp_path / "s") as store:
        assert store.consumer("c").position == 7


def test_a_damaged_request_is_answered_with_the_damage(tmp_path: Path) -> None:
    store = octavo.open(tmp_path / "s")
    disk, path = RealDisk(), str(tmp_path / "s")
    store._watched.stop()  # type: ignore[union-attr]
    name = f"{0:012x}-{1:016x}"
    inbox.write(disk, path, name + inbox.REQUEST, {"job": "j"})
    file = tmp_path / "s" / "inbox" / (name + inbox.REQUEST)
    file.write_bytes(file.read_bytes().replace(b'"j"', b'"k"'))
    from octavo.actors.keeping.inbox_watch import serve

    assert serve(store._running, 0) == 1
    told = inbox.read(disk, path, name + inbox.ANSWER)
    assert told is not None
    assert told["error"] == "Corruption"
    store.close()


@pytest.mark.parametrize(
    "told",
    [
        {"job": "j", "attempts": ["0-0"], "stream": "", "batch": float("inf")},
        {"job": "j", "attempts": 7, "stream": "", "batch": 0},
        {"job": "j", "attempts": ["0-0"], "stream": "\ud800", "batch": 0},
        {"consumer": "c", "sqn": float("inf")},
        {"of": "a release to come"},
    ],
)
def test_a_request_that_nobody_understands_is_answered_and_stops_no_other(
    tmp_path: Path, told: dict[str, object]
) -> None:
    with unwatched(tmp_path / "s") as store:
        inbox.write(RealDisk(), store.path, f"{0:012x}-{1:016x}{inbox.REQUEST}", told)
        asked = {"job": "j", "attempts": ["0-0"], "stream": "", "batch": 0}
        inbox.write(RealDisk(), store.path, f"{1:012x}-{1:016x}{inbox.REQUEST}", asked)
        assert inbox_watch.serve(store._running, 0) == 2
        answer = inbox.read(RealDisk(), store.path, f"{0:012x}-{1:016x}{inbox.ANSWER}")
        assert answer is not None
        assert "error" in answer
        assert store.get(b"k") == b"v"


def test_an_inbox_that_is_a_link_is_not_looked_into(tmp_path: Path) -> None:
    with unwatched(tmp_path / "s") as store:
        elsewhere = tmp_path / "elsewhere"
        (tmp_path / "s" / "inbox").rename(elsewhere)
        (tmp_path / "s" / "inbox").symlink_to(elsewhere)
        (elsewhere / f"{0:012x}-{1:016x}.request").write_bytes(b"of another store")
        with pytest.raises(octavo.Corruption, match="symbolic link"):
            inbox_watch.serve(store._running, wall_clock_ms())
        assert len(list(elsewhere.iterdir())) == 1


def test_an_old_request_that_cannot_be_removed_is_told_once_and_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with octavo.open(tmp_path / "s") as store:
        store._watched.stop()  # type: ignore[union-attr]
        disk, path = RealDisk(), str(tmp_path / "s")
        inbox.write(disk, path, f"{wall_clock_ms():012x}-{1:016x}.request", {"job": "j"})
        stuck = tmp_path / "s" / "inbox" / f"{0:012x}-{1:016x}.request"
        stuck.mkdir()  # no unlink removes it
        watched = Watched(store._running)
        for _ in range(20):
            watched.look()
        assert caplog.text.count(f"{stuck.name} stays") == 1
        assert "cannot be served" not in caplog.text
        assert len(list(stuck.parent.glob("*.answer"))) == 1


def test_an_inbox_that_cannot_be_served_is_told_once_and_looked_at_ever_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(tmp_path / "s") as store:
        store._watched.stop()  # type: ignore[union-attr]
        looks: list[int] = []
        failing = [True]

        def serve(*_: object) -> int:
            looks.append(1)
            if failing[0]:
                raise PermissionError(13, "no")
            return 0

        monkeypatch.setattr(inbox_watch, "serve", serve)
        watched = Watched(store._running)
        for _ in range(500):
            watched.look()
        assert 10 < len(looks) < 16
        assert caplog.text.count("cannot be served") == 1
        failing[0] = False
        for _ in range(60):
            watched.look()
        failing[0], before = True, len(looks)
        assert before > 20
        watched.look()
        assert len(looks) == before + 1
        assert caplog.text.count("cannot be served") == 2


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    ("name", "sqn"),
    [
        ("mail", 1 << 70), pytest.param("mail", 1 << 20_000, id="long"),
        ("mail", -1), ("m" * 201, 1), ("", 1),
        (5, 1), (None, 1), ("mail", "1"), ("mail", True), ("mail", 1.0), ("mail", object()),
    ],
)  # fmt: skip
def test_what_no_consumer_can_acknowledge_is_refused(
    tmp_path: Path, is_open: bool, name: Any, sqn: Any
) -> None:
    store = octavo.open(tmp_path / "s")
    store.put("k", "v")
    store.consumer("other", since=0)
    if not is_open:
        store.close()
    with pytest.raises(octavo.Misuse, match="allowed are"):
        octavo.acknowledge(tmp_path / "s", name, sqn)
    store.close()
    with octavo.open(tmp_path / "s") as store:
        assert store.consumers() == {"other": 0}


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    ("job", "attempts", "more", "told"),
    [
        (5, ["0-0"], {}, "job_id=5"),
        (object(), ["0-0"], {}, "job_id=<object"),
        ("j", "0-0", {}, "attempts='0-0'"),
        ("j", None, {}, "attempts=None"),
        ("j", [0], {}, "attempt=0"),
        ("j", ["0-0"], {"stream": 5}, "stream=5"),
        ("j", ["0-0"], {"batch": "1"}, "batch='1'"),
        ("j", ["0-0"], {"batch": True}, "batch=True"),
        ("j", ["0-0"], {"create": True}, "create= is not for a commit"),
        ("j", ["0-0"], {"read_only": True}, "read_only= is not for a commit"),
    ],
)
def test_what_is_no_commit_is_refused_whoever_has_the_store(
    tmp_path: Path, is_open: bool, job: Any, attempts: Any, more: dict[str, Any], told: str
) -> None:
    store = octavo.open(tmp_path / "s")
    staged(tmp_path / "s", "j", b"v")
    if not is_open:
        store.close()
    with pytest.raises(octavo.Misuse, match=told):
        octavo.commit(tmp_path / "s", job, attempts, **more)
    store.close()
    with octavo.open(tmp_path / "s") as store:
        assert store.last_sqn == 0


def test_numbers_of_numpy_are_numbers_to_the_owner_of_a_store(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v")
        staged(tmp_path / "s", "j", b"v")
        assert octavo.acknowledge(tmp_path / "s", "c", np.int64(1)) == 1  # type: ignore[arg-type]
        batch: Any = np.int64(3)
        octavo.commit(tmp_path / "s", "j", ("0-0",), stream="t", batch=batch)
        assert store.get(b"k") == b"v"


ASKER = "import octavo, sys; octavo.commit(sys.argv[1], 'j', ['0-0'])"
FORKING = """
import os, signal, sys, threading
import octavo
path = sys.argv[1]
threading.Thread(target=octavo.commit, args=(path, 'j', ['0-0']), daemon=True).start()
while not any(name.endswith('.request') for name in os.listdir(f'{path}/inbox')):
    pass
if os.fork():
    sys.stdin.read()
else:
    os.close(0)
    print(os.getpid(), flush=True)
    signal.pause()
"""


def unwatched(path: Path) -> octavo.Store:
    """An open store whose inbox nobody looks into, and a job that is staged there."""
    store = octavo.open(path)
    store._watched.stop()  # type: ignore[union-attr]
    store.put(b"k", b"old")
    (path / "inbox").mkdir()
    staged(path, "j", b"v")
    return store


def requests(path: Path) -> list[str]:
    return inbox.waiting(RealDisk(), str(path), 0)


@pytest.mark.parametrize("code", [ASKER, FORKING], ids=["asker", "with a child that lives on"])
def test_what_one_who_was_killed_had_asked_for_is_not_done(tmp_path: Path, code: str) -> None:
    with unwatched(tmp_path / "s") as store:
        asking = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "s")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        child = int(asking.stdout.readline()) if code is FORKING else 0  # type: ignore[union-attr]
        while not requests(tmp_path / "s"):
            pass
        asking.kill()
        try:
            asking.wait(600)
            assert inbox_watch.serve(store._running, 0) == 1
        finally:
            if child:
                os.kill(child, signal.SIGKILL)
            asking.communicate()
        assert store.get(b"k") == b"old"
        assert os.listdir(tmp_path / "s" / "inbox") == []
        assert not store.ingest("j", ["0-0"]).repeated


def test_who_gives_up_before_the_owner_begins_is_told_that_nothing_was_done(tmp_path: Path) -> None:
    with unwatched(tmp_path / "s") as store:
        with pytest.raises(octavo.AskTimeout, match="nothing was done"):
            octavo.commit(tmp_path / "s", "j", ["0-0"], timeout_seconds=0.01)
        assert os.listdir(tmp_path / "s" / "inbox") == []
        assert inbox_watch.serve(store._running, 0) == 0
        assert not store.ingest("j", ["0-0"]).repeated


@pytest.mark.parametrize("seconds", [0.003, 0.25, 2.5])
def test_who_waits_waits_no_longer_than_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    watch = SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    with unwatched(tmp_path / "s") as store:
        monkeypatch.setattr(committing, "time", watch)
        with pytest.raises(octavo.AskTimeout, match=f"within {seconds} s: nothing was done"):
            octavo.acknowledge(tmp_path / "s", "c", 0, timeout_seconds=seconds)
        assert clock[0] == pytest.approx(seconds)
        assert inbox_watch.serve(store._running, 0) == 0


@pytest.mark.parametrize("what", ["acknowledge", "_backed_up"])
def test_who_gives_up_while_the_owner_does_it_is_told_that_it_may_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """No commit, which has a last moment of its own."""
    asked: dict[str, object] = {"consumer": "c", "sqn": 0}
    if what == "_backed_up":
        asked = {"backup": str(tmp_path / "b"), "ledger": True}
    plain, told = getattr(inbox_watch, what), list[bool]()

    def given_up(*given: object) -> object:
        told.append(request.withdraw())
        return plain(*given)

    monkeypatch.setattr(inbox_watch, what, given_up)
    with unwatched(tmp_path / "s") as store:
        request = inbox.Request(RealDisk(), store.path, asked, wall_clock_ms())
        request.ask()
        assert inbox_watch.serve(store._running, 0) == 1
        assert told == [True]
        assert os.listdir(tmp_path / "s" / "inbox") == []


def test_a_request_that_is_withdrawn_as_the_owner_is_about_to_do_it_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = inbox.take
    with unwatched(tmp_path / "s") as store:
        asked = {"job": "j", "attempts": ["0-0"], "stream": "", "batch": 0}
        request = inbox.Request(RealDisk(), store.path, asked, wall_clock_ms())
        request.ask()

        def late(*given: object) -> bool:
            assert not request.withdraw()
            return take(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(inbox, "take", late)
        assert inbox_watch.serve(store._running, 0) == 1
        assert store.get(b"k") == b"old"
        assert os.listdir(tmp_path / "s" / "inbox") == []
        assert not store.ingest("j", ["0-0"]).repeated


def test_who_gives_up_when_the_owner_has_begun_is_told_and_learns_it_by_asking_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = inbox.take
    begun, told = threading.Event(), threading.Event()
    with unwatched(tmp_path / "s") as store:

        def slow(*given: object) -> bool:
            taken = take(*given)  # type: ignore[arg-type]
            begun.set()
            assert told.wait(600)
            return taken

        def serve() -> None:
            while not requests(tmp_path / "s"):
                pass
            inbox_watch.serve(store._running, 0)

        def awaited(*_: object) -> None:
            assert begun.wait(600)

        monkeypatch.setattr(inbox, "take", slow)
        monkeypatch.setattr(committing, "_awaited", awaited)
        owner = threading.Thread(target=serve)
        owner.start()
        with pytest.raises(octavo.AskTimeout, match="had begun"):
            octavo.commit(tmp_path / "s", "j", ["0-0"], timeout_seconds=0.01)
        told.set()
        owner.join(600)
        assert store.get(b"k") == b"v"
        assert store.ingest("j", ["0-0"]).repeated


@pytest.mark.parametrize("asked_ms", [None, 0], ids=["", "of days ago by the owner's clock"])
def test_who_gives_up_as_the_owner_ends_is_not_told_that_nothing_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_ms: int | None
) -> None:
    """The owner finds that nobody waits any more while who asked looks whether it had begun."""
    take = inbox.take
    begun, withdrawn = threading.Event(), threading.Event()

    class Late(RealDisk):
        def exists(self, path: str) -> bool:
            if path.endswith(inbox.TAKEN):
                withdrawn.set()
                owner.join(600)
                inbox.waiting(RealDisk(), store.path, wall_clock_ms())
            return super().exists(path)

    with unwatched(tmp_path / "s") as store:

        def slow(*given: Any) -> bool:
            taken = take(*given)
            begun.set()
            assert withdrawn.wait(600)
            return taken

        monkeypatch.setattr(inbox, "take", slow)
        asked = {"job": "j", "attempts": ["0-0"], "stream": "", "batch": 0}
        at = wall_clock_ms() if asked_ms is None else asked_ms
        request = inbox.Request(Late(), store.path, asked, at)
        request.ask()
        owner = threading.Thread(target=inbox_watch.serve, args=(store._running, at))
        owner.start()
        assert begun.wait(600)
        assert request.withdraw()
        assert store.get(b"k") == b"v"
        assert os.listdir(tmp_path / "s" / "inbox") == []


def test_a_request_that_an_owner_had_taken_as_it_was_killed_is_done_by_the_next(
    tmp_path: Path,
) -> None:
    with unwatched(tmp_path / "s") as store:
        asked = {"job": "j", "attempts": ["0-0"], "stream": "", "batch": 0}
        request = inbox.Request(RealDisk(), store.path, asked, wall_clock_ms())
        request.ask()
        (name,) = requests(tmp_path / "s")
        assert inbox.take(RealDisk(), store.path, name)
        inbox_watch.serve(store._running, 0)
        answer = request.answer()
        assert answer is not None
        assert answer["repeated"] is False
        assert request.withdraw()
        assert os.listdir(tmp_path / "s" / "inbox") == []


def test_who_waits_is_served_though_the_owners_clock_is_days_ahead(tmp_path: Path) -> None:
    with unwatched(tmp_path / "s") as store:
        asked = {"job": "j", "attempts": ["0-0"], "stream": "", "batch": 0}
        request = inbox.Request(RealDisk(), store.path, asked, 0)
        request.ask()
        for _ in range(2):
            inbox_watch.serve(store._running, wall_clock_ms())
            answer = request.answer()
            assert answer is not None
            assert answer["repeated"] is False
        request.withdraw()


def test_a_consumer_for_which_nobody_waits_any_more_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = RealDisk.is_held
    with unwatched(tmp_path / "s") as store:
        asked = {"consumer": "c", "sqn": 1}
        request = inbox.Request(RealDisk(), store.path, asked, wall_clock_ms())
        request.ask()

        def late(self: RealDisk, path: str) -> bool:
            was_held = held(self, path)
            request.withdraw()
            return was_held

        monkeypatch.setattr(type(store._running.disk), "is_held", late)
        assert inbox_watch.serve(store._running, 0) == 1
        assert store.consumers() == {}


def test_a_request_of_a_release_that_knew_of_no_lock_is_done(tmp_path: Path) -> None:
    with unwatched(tmp_path / "s") as store:
        asked = {"job": "j", "attempts": ["0-0"], "stream": "", "batch": 0}
        inbox.write(RealDisk(), store.path, f"{0:012x}-{1:016x}{inbox.REQUEST}", asked)
        assert inbox_watch.serve(store._running, 0) == 1
        assert store.get(b"k") == b"v"


@pytest.mark.parametrize(
    ("number", "raised"), [(errno.ENOSPC, octavo.StorageFull), (errno.EIO, octavo.StorageFailed)]
)
def test_a_request_that_cannot_be_written_is_told_by_an_error_of_ours_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    path = tmp_path / "s"
    with octavo.open(path):
        staged(path, "j", b"v")

        def refuse(disk: RealDisk, path: str) -> None:
            raise OSError(number, os.strerror(number), path)

        with monkeypatch.context() as patched:
            patched.setattr(RealDisk, "hold_file", refuse)
            with pytest.raises(raised):
                octavo.commit(path, "j", ["0-0"])
        assert list((path / "inbox").iterdir()) == []
        assert not octavo.commit(path, "j", ["0-0"]).repeated


def test_a_request_of_one_who_was_killed_is_not_taken_at_the_last_moment(tmp_path: Path) -> None:
    with unwatched(tmp_path / "s") as store:
        asked = {"job": "j", "attempts": ["0-0"], "stream": "", "batch": 0}
        request = inbox.Request(RealDisk(), store.path, asked, wall_clock_ms())
        request.ask()
        (name,) = requests(tmp_path / "s")
        assert request._lock is not None
        request._lock.release()  # as the system does where its process ends
        assert not inbox.take(RealDisk(), store.path, name)
        assert os.listdir(tmp_path / "s" / "inbox") == [name]
        assert not request.withdraw()


def test_a_request_is_put_there_once_however_often_it_is_asked(tmp_path: Path) -> None:
    # The owner, and who looks whether it had begun, go by the file that is locked.
    with unwatched(tmp_path / "s") as store:
        asked = {"job": "j", "attempts": ["0-0"], "stream": "", "batch": 0}
        request = inbox.Request(RealDisk(), store.path, asked, wall_clock_ms())
        request.ask()
        (name,) = requests(tmp_path / "s")
        before = os.stat(tmp_path / "s" / "inbox" / name)
        request.ask()
        assert os.stat(tmp_path / "s" / "inbox" / name) == before
        request.withdraw()
