"""A real store in a process whose system calls strace makes fail, one at a time, or kills in one.

The process says on a pipe what was answered; then the store is opened as it was left, and must
hold that. What fails may be the interpreter's own business: then the process ends, as it may.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import octavo

STEPS = 120
WRITER = """
import os, random, sys
import octavo
path, steps, worker = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
def say(what):
    os.write(1, what + b"\\n")
store = octavo.open(path + "/s", push_rows=64, roll_count=256, worker=worker)
say(b"open")
failed = False
for n in range(steps):
    try:
        if n % 10 == 9:
            with store.batch(sync=True) as batch:
                for part in range(5):
                    batch.put(b"", b"b%d-%d" % (n, part), b"%d" % n * 50)
        else:
            store.put_many([(b"m%d-%d" % (n, part), b"%d" % n) for part in range(8)])
            if n % 10 == 5:
                store.put(b"l%d" % n, random.Random(n).randbytes(20_000))
            store.put(b"k%d" % n, b"%d" % n * 50, sync=True)
        if failed:
            say(b"wrong: a write went well after StorageFailed")
        say(b"%d" % n)
        if n % 40 == 30:
            store.compact()
        if n % 40 == 20:
            store.backup(path + "/b")
    except octavo.StorageFailed as error:
        failed = failed or store._running.inker.actor.failed is not None
        say(b"failed")
    except octavo.OctavoError:
        say(b"told")
try:
    store.close()
    say(b"closed")
except octavo.OctavoError:
    say(b"told")
"""
CALLS = {
    "fsync": ("EIO", "ENOSPC", "SIGKILL"),
    "fdatasync": ("EIO", "ENOSPC", "SIGKILL"),
    "write": ("EIO", "ENOSPC", "EINTR", "SIGKILL"),
    "pwrite64": ("EIO", "ENOSPC", "EINTR", "SIGKILL"),
    "pwritev2": ("EIO", "ENOSPC", "EINTR", "SIGKILL"),
    "openat": ("EMFILE", "EIO", "SIGKILL"),
    "link": ("EIO", "EMLINK", "SIGKILL"),
    "rename": ("EIO", "ENOSPC", "SIGKILL"),
    "unlink": ("EIO", "SIGKILL"),
    "mmap": ("ENOMEM", "SIGKILL"),
}
MOST = {"write": 150, "openat": 400, "mmap": 300, "fsync": 60, "fdatasync": 200, "pwrite64": 400,
        "pwritev2": 12}  # fmt: skip


class NoStraceError(Exception):
    """No strace, or it may not trace."""


def check() -> None:
    """Raises NoStraceError."""
    if shutil.which("strace") is None:
        raise NoStraceError("there is no strace")
    tried = subprocess.run(
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=1", "true"],
        capture_output=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        raise NoStraceError(tried.stderr.decode(errors="replace").strip()[:200])


def injected(home: Path, seed: object) -> dict[str, int]:
    """One life with one fault; raises AssertionError where the store is not as it was told."""
    rng = random.Random(f"strace {seed}")
    call = rng.choice(list(CALLS))
    kind = rng.choice(CALLS[call])
    place = rng.randint(1, MOST.get(call, 25))
    what = f"signal={kind}" if kind.startswith("SIG") else f"error={kind}"
    fault = f"{call}:{what}:when={place}"
    log = home / "strace.log"
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={call}", "-e", f"inject={fault}",
         sys.executable, "-c", WRITER, str(home), str(STEPS), str(rng.random() < 0.3)],
        capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    said = done.stdout.split(b"\n")
    if done.stdout and not done.stdout.endswith(b"\n"):
        said.pop()
    assert not [each for each in said if each.startswith(b"wrong")], f"{fault}: {said}"
    hit = "INJECTED" in log.read_text(errors="replace") or b"closed" not in said
    answered = [int(each) for each in said if each.isdigit()]
    if b"open" in said:
        with octavo.open(home / "s", worker=False) as store:
            for n in answered:
                if n % 10 == 9:
                    keys = {b"b%d-%d" % (n, part): b"%d" % n * 50 for part in range(5)}
                else:
                    keys = {b"m%d-%d" % (n, part): b"%d" % n for part in range(8)}
                    keys[b"k%d" % n] = b"%d" % n * 50
                    if n % 10 == 5:
                        keys[b"l%d" % n] = random.Random(n).randbytes(20_000)
                for key, value in keys.items():
                    assert store.get(key) == value, f"{fault}: {key!r} is lost; {done.stderr!r}"
            for n in range(9, STEPS, 10):
                parts = sum(b"b%d-%d" % (n, part) in store for part in range(5))
                assert parts in (0, 5), f"{fault}: the batch of step {n} is torn"
            report = store.verify()
            assert report.ok, f"{fault}: {report.problems[:3]}"
    return {"lives": 1, "faults": int(hit), "steps answered": len(answered)}
