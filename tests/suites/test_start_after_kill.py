"""A store whose process is killed again and again, at any moment of any work."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from beside import LITTLE, SEED, Content, same, seeded

import octavo

WORK = """
import json, random, sys, octavo
path, seed, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
rng = random.Random(seed)
with octavo.open(path, **options) as store:
    buckets = [store.bucket(name) for name in ("", "a", "b")]
    while True:
        which, key = rng.randrange(3), "%03d" % rng.randrange(300)
        what = "" if rng.randrange(5) == 0 else "%032x" % rng.getrandbits(128)
        kind = rng.randrange(300)
        # Said before and after: only what was said after is acknowledged.
        print(json.dumps([0, which, key, what]), flush=True)
        if what:
            buckets[which].put(key, what, sync=True if kind == 0 else None)
        else:
            buckets[which].delete(key)
        if kind == 1:
            with store.snapshot() as snapshot:
                len(snapshot)
        print(json.dumps([1, which, key, what]), flush=True)
"""
NAMES = (b"", b"a", b"b")


def killed_after(path: Path, seed: str, lines: int, options: dict[str, int]) -> list[list[object]]:
    """What the program said before SIGKILL; a line that was cut off is left out."""
    program = subprocess.Popen(
        [sys.executable, "-c", WORK, str(path), seed, json.dumps(options)], stdout=subprocess.PIPE
    )
    assert program.stdout is not None
    said = [program.stdout.readline() for _ in range(lines)]
    program.send_signal(signal.SIGKILL)
    said += program.stdout.readlines()
    program.stdout.close()
    program.wait()
    return [json.loads(line) for line in said if line.endswith(b"\n")]


@pytest.mark.parametrize("options", [{}, LITTLE], ids=["ordinary files", "little files"])
def test_each_life_has_what_all_lives_before_acknowledged(
    tmp_path: Path, options: dict[str, int]
) -> None:
    rng = seeded(sorted(options))
    content: Content = {}
    for life in range(4):
        said = killed_after(tmp_path / "store", f"{SEED}-{life}", rng.randrange(2, 2000), options)
        done = [step for step in said if step[0] == 1]
        for _, which, key, what in done:
            place = NAMES[int(str(which))], str(key).encode()
            if what:
                content[place] = str(what).encode()
            else:
                content.pop(place, None)
        with octavo.open(tmp_path / "store", **options) as store:
            if said[-1][0] == 0:  # begun and not acknowledged: it is there, or it is not
                place = NAMES[int(str(said[-1][1]))], str(said[-1][2]).encode()
                found = store.bucket(place[0]).get(place[1])
                new = str(said[-1][3]).encode() or None
                assert found in (new, content.get(place))
                if found is None:
                    content.pop(place, None)
                else:
                    content[place] = found
            same(store, content)
            assert store.verify().ok
        print("life", life, "acknowledged", len(done), "holds", len(content))
