"""The death of a worker process ends nothing but that worker."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import os, signal, subprocess
from octavo.actors.worker_pipe import WorkerPipe
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
pipe = subprocess.PIPE
with subprocess.Popen(["true"], stdin=pipe, stdout=pipe, bufsize=0) as process:
    process.wait()
    try:
        WorkerPipe(process).write(b"a job")
    except BrokenPipeError:
        print("told", flush=True)
reads, writes = os.pipe()
os.close(reads)
os.write(writes, b"of the program's own")
print("not reached", flush=True)
"""


def test_it_ends_no_program_that_a_closed_pipe_would_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.stdout == "told\n"
    assert done.returncode == -signal.SIGPIPE, "of the program's own pipes it is ended, as it asked"
