"""Runs background jobs in a worker process, or on the asking thread if none can be started.

So jobs that take seconds do not hold the interpreter lock of the user's program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from queue import Empty, SimpleQueue
from typing import Any

from octavo.actors.measures import JobHistory
from octavo.actors.worker_pipe import LOOK_SECONDS, LOOKS, Silent, WorkerPipe
from octavo.files import errors
from octavo.files.door.disk import Disk, RealDisk
from octavo.files.door.file_lock import FileLock
from octavo.files.door.open_file import lead_nowhere
from octavo.files.jobs import worker
from octavo.files.later import loading
from octavo.files.locks import new_lock
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken

log = messages_of("octavo.worker")

_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 5.0
"""How long a worker may take to exit by itself before it is killed."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.001, 0.05
"""Pauses between looks at whether it has exited; each twice as long as the last."""
_FOR_NOW = (*errors.OUT_OF_MEANS, errno.EAGAIN)
"""Errors for means that may be lacking only for now: the next job tries again."""


class JobRunner:
    """Runs jobs; its process does one at a time. ``run`` blocks its (pool) thread, mostly without
    the interpreter lock, and is never called on the path of a user's read or write.

    The process starts with the first job, and exits when its input is closed: as the store closes,
    or the owner dies. A disk that is not the real one has its jobs run on the thread.
    """

    def __init__(
        self, disk: Disk, lock: FileLock, *, in_process: bool = False, niceness: int = 0
    ) -> None:
        """``lock``: the store's; the worker inherits it, which keeps the next owner out until the
        worker has exited. ``niceness``: how much lower than this process's its priority is."""
        self._disk = disk
        self._store_lock = lock
        self._lock_for_workers = lock.workers
        self._niceness = niceness
        # A frozen program's interpreter is the program: it would be started once more.
        none = not sys.executable or getattr(sys, "frozen", False)
        none = none or not hasattr(select, "poll")  # eventlet takes it away
        self._in_process = in_process or none or not isinstance(disk, RealDisk)
        self._lock = new_lock()
        self._threads: set[int] = set()
        """Idents of the threads that run a job themselves."""
        self._ended: SimpleQueue[None] = SimpleQueue()
        """Gets an item, once this is closed, from each of them that is done."""
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: WorkerPipe | None = None  # of that process
        self._closed = False
        self._proven = False  # a worker has answered
        self._mute = False  # a worker ended without even its first word
        self._job: str | None = None
        self._abandoned = ""
        self.history = JobHistory()

    def run(self, job: str, *blobs: bytes, **arguments: Any) -> dict[str, Any]:
        """Run a job; return its result. Raises what the job raised (OctavoError or OSError), and
        WorkerDied, Closed."""
        me = threading.get_ident()
        self._store_lock.refuse_replaced()  # a worker knows paths only
        try:
            with self._lock:
                if self._closed:
                    raise errors.Closed("the store is closing: no further background job starts")
                self._refuse_abandoned(job)
                process = None if self._in_process else self._started()
                if process is not None:
                    with contextlib.suppress(_Unable):
                        with self.history.timed(job, arguments) as run:
                            run.result = self._ask(process, job, blobs, arguments)
                        return run.result
                self._threads.add(me)
            with unbroken, loading:
                from octavo.files.jobs.table import JOBS
            with self.history.timed(job, arguments) as run:
                try:
                    run.result = JOBS[job](self._disk, *blobs, **arguments)
                except BaseException as error:
                    # Its frames would keep its maps, and with them the room of deleted files.
                    traceback.clear_frames(error.__traceback__)
                    raise
            return run.result
        except MemoryError as error:
            raise worker.no_memory() from error
        finally:
            self._threads.discard(me)
            if self._closed:
                self._ended.put(None)

    def abandon(self, job: str) -> None:
        """Refuse jobs of this kind from now on (Closed). If the process is running one, kill it:
        the asker gets WorkerDied. For a quick close."""
        self._abandoned = job  # before the look at what is being run: see _ask
        process = self._process
        if self._job == job and process is not None:
            _kill(process)

    def _refuse_abandoned(self, job: str) -> None:
        if job == self._abandoned:
            raise errors.Closed(f"the store is closing: {job!r} is left to its next opening")

    def close(self) -> None:
        """End the process. Waits for the current jobs, or they would change files that the next
        owner of the store has."""
        with self._lock:
            self._closed = True
            self._drop()
        me = {threading.get_ident()}  # a signal's handler may close the store in its thread's job
        while self._threads - me:
            with contextlib.suppress(Empty):  # look anyway: an interrupt may keep one from telling
                self._ended.get(timeout=_LOOK_SECONDS)

    def cut_off(self) -> None:
        """Take no more jobs, and kill the process if it is running one: the asker gets WorkerDied,
        or Closed."""
        self._closed = True
        process = self._process
        if process is not None:
            _kill(process)

    def rest(self) -> None:
        """End the process until there is another job. Waits for the current job."""
        with self._lock:
            self._drop()

    def forked(self) -> None:
        """In a forked child: give up its copies of the pipes, or the worker would not notice that
        the store's process is gone. Takes no lock. The descriptors' numbers stay in use, so that a
        call that was under way at the fork reaches no other file."""
        process, self._process = self._process, None
        self._closed = True
        self._threads = set()
        if process is None:
            return
        process.returncode = 0  # it is no child of this process: never waited for
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                number = pipe.fileno()
                pipe.close()  # or Python warns of it
                with contextlib.suppress(OSError):  # a chroot without /dev/null
                    lead_nowhere(number)

    def _started(self) -> subprocess.Popen[bytes] | None:
        asked_anew = self._pipe is None or self._pipe.answered
        if asked_anew and self._process is not None and not _left(self._process):
            return self._process
        self._drop()
        try:
            with unbroken:  # a process that nobody knows of would never exit
                self._process = subprocess.Popen(
                    [*_interpreter(), "-m", "octavo.files.jobs.worker", str(self._niceness)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,  # WorkerPipe's are the only reads and writes: see forked
                    cwd="/",
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": _import_path()},
                    pass_fds=() if self._lock_for_workers is None else (self._lock_for_workers,),
                    start_new_session=True,  # Ctrl-C is for the user's process; ours leaves by EOF
                )
        except OSError as error:
            log.warning("no worker process can be started (%s): merging on a thread", error)
            self._in_process = error.errno not in _FOR_NOW
        return self._process

    def _ask(
        self,
        process: subprocess.Popen[bytes],
        job: str,
        blobs: tuple[bytes, ...],
        arguments: dict[str, Any],
    ) -> dict[str, Any]:
        self._job = job
        try:
            if self._closed:  # closed since run() looked
                raise errors.Closed("the store is closing")
            self._refuse_abandoned(job)
            if self._pipe is None:
                self._pipe = WorkerPipe(process)
            answer = self._pipe.ask(job, blobs, arguments)
        except (worker.Disconnected, OSError) as gone:
            pipe = self._pipe
            self._drop()
            if not self._proven and (process.returncode or 0) > 0:
                self._do_without(
                    f"ended with {process.returncode} before its first answer, and its standard "
                    "error says why"
                )
                raise _Unable from gone
            if process.returncode == 0:
                self._refuse_mute(pipe)
            raise WorkerDied(
                f"the worker process {_how_it_ended(process)} during {job!r}; the next one is "
                "another: try again"
            ) from gone
        except Silent as silent:
            _kill(process)
            pipe = self._pipe
            self._drop()
            self._refuse_mute(pipe)
            raise WorkerDied(
                f"the worker process gave no sign of life for {LOOKS * LOOK_SECONDS:g} s of "
                f"{job!r}, as one does that was stopped (SIGSTOP), and was ended; the next one is "
                "another: try again"
            ) from silent
        except BaseException:
            # Interrupted in the middle of a message: what the pipe holds now answers nothing.
            _kill(process)
            self._drop()
            raise
        finally:
            self._job = None
        self._proven = True
        if "error" in answer:
            raise worker.raised(answer)
        result: dict[str, Any] = answer["result"]
        return result

    def _refuse_mute(self, pipe: WorkerPipe | None) -> None:
        """Raise _Unable for the second worker from which not even its first word came: one may have
        been stopped, two are some other program."""
        if self._proven or self._closed or pipe is None or pipe.begun:
            return
        if self._mute:
            self._do_without("said nothing, twice, as a program does that is no Python")
            raise _Unable
        self._mute = True

    def _do_without(self, why: str) -> None:
        program = sys.executable
        log.warning("the worker process cannot run: %s %s; merging on a thread", program, why)
        self._in_process = True

    def _drop(self) -> None:
        with unbroken:  # a process forgotten with its input open would never exit
            process, self._process, self._pipe = self._process, None, None
            if process is not None:
                _close_pipes(process)
        if process is not None:
            _wait_for(process)


class _Unable(Exception):  # noqa: N818 - internal: the job is done on a thread
    """No worker process can run here."""

    def __init__(self) -> None:
        super().__init__("no worker process can run here, so it is done on a thread")


class WorkerDied(errors.OctavoError):
    """The worker process ended in the middle of a job; the job may be run again."""


def _interpreter() -> list[str]:
    """The command that starts Python for a worker. It encodes names of files as this process does,
    whatever the environment says by now, and imports nothing from the directory it starts in."""
    utf8 = sys.getfilesystemencoding() == "utf-8"
    return [sys.executable, "-P", "-X", f"utf8={utf8:d}"]


def _import_path() -> str:
    """This process's import path, as a worker that starts in another directory needs it: it has to
    find the same modules, even in places that Python does not search by itself. Python's own
    modules come first: a program's resource.py must not hide Python's."""
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = ""
    own = os.path.dirname(os.__file__)
    first = [own, os.path.join(own, "lib-dynload")]
    found = [os.path.join(here, each) for each in sys.path]
    return os.pathsep.join([*first, *(each for each in found if each not in first)])


def _how_it_ended(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL, as a system does that is short of memory,"
    if code == -signal.SIGBUS:
        return "was killed by SIGBUS, as where a device cannot read a file: verify the store,"
    if code is not None and code < 0:
        return f"was killed by signal {-code}"
    return f"died with {code}"


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError as error:
                log.debug("closing a pipe of the worker: %s", error)


# A Ctrl-C in a method of ``Popen`` could leave its lock taken: then, as of CPython 3.15, its
# ``wait`` waits for ever, and its ``poll`` says that the process lives. So these are unbroken.


def _left(process: subprocess.Popen[bytes]) -> bool:
    with unbroken:
        return process.poll() is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with unbroken:
        try:
            process.kill()
        except PermissionError:  # this process gave up its rights since: end the worker's input
            if process.stdin is not None and not process.stdin.closed:
                lead_nowhere(process.stdin.fileno())


def _wait_for(process: subprocess.Popen[bytes]) -> None:
    killed_at, pause = time.monotonic() + _GRACE_SECONDS, _FIRST_PAUSE_SECONDS
    while not _left(process):
        if time.monotonic() > killed_at:
            _kill(process)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
