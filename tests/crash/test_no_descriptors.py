"""A process that has no file descriptor left, as a server has none under load: what the store has
open goes on, and nothing that was written while there was none is lost, or half known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, random, resource, sys
import octavo

path, how = sys.argv[1:]
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
draw = random.Random(1).randbytes

def left(number):
    spare = os.dup(0)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + number, hard))

wanted = {}
def write(store, name):
    pairs = {b"%s/%04d" % (name, n): draw(9000) for n in range(300)}  # 2.7 MB: some files full
    if how == "put":
        for key, value in pairs.items():
            store.put(key, value)
    elif how == "put_many":
        store.put_many(pairs)
    else:
        with store.batch() as batch:
            for key, value in pairs.items():
                batch.put("", key, value)
    wanted.update(pairs)

with octavo.open(path, roll_size_bytes=1 << 20) as store:
    assert store.verify().ok and store.stats()  # so all is imported that needs a descriptor for it
    for number in range(6):
        left(number)
        write(store, b"with %d" % number)
        assert store.last_sqn == len(wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        files = store.stats()["journal"]["files"]
        write(store, b"after %d" % number)
        assert store.stats()["journal"]["files"] > files
        assert dict(store.items()) == wanted
    assert store.verify().ok
with octavo.open(path) as store:
    assert dict(store.items()) == wanted
    assert store.verify().ok and not store.stats()["notes"], store.stats()["notes"]
"""


@pytest.mark.parametrize("how", ["put", "put_many", "batch"])
def test_writes_go_on_without_a_descriptor_for_the_next_file(tmp_path: Path, how: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "s"), how],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
