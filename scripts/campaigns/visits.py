"""A batch of damaged or forged stores, or of single files, in a process of its own: runs
tests/model/visiting.py or single_files.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "tests" / "model"
ROOM_BYTES = 256 << 20
EXTRA_MIB = 256
"""Address space of a visit, above what its modules take."""


def visited(kind: str, seed: int, first: int, count: int) -> dict[str, int]:
    """Visit ``count`` of them, from number ``first`` on. Raises AssertionError with what was wrong
    and how to see it again."""
    sys.path.insert(0, str(MODEL))
    from in_memory import place
    from specimens import Specimens

    with tempfile.TemporaryDirectory(prefix="octavo-visits-", dir=place(ROOM_BYTES)) as work:
        home = Path(work) / "home"
        home.mkdir()
        Specimens(home).save()
        # Threads of libraries reserve address space, which is what is limited.
        told = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
        told |= {"PYTHONDONTWRITEBYTECODE": "1"}
        arguments = [str(home), kind, str(seed), str(first), str(count), str(EXTRA_MIB)]
        program = "single_files.py" if kind == "files" else "visiting.py"
        done = subprocess.run(
            [sys.executable, str(MODEL / program), *arguments],
            env=told, capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    wrong = [row for row in rows if "error" in row]
    ends = [row for row in rows if "done" in row]
    if done.returncode or not ends:
        raise AssertionError(f"{kind} {first} to {first + count}: {done.stderr[-3000:]}")
    if wrong:
        for row in wrong[:3]:
            print(f"{kind} {row['number']}: {row['what']}\n{row['error'][-1500:]}", file=sys.stderr)
        row = wrong[0]
        raise AssertionError(
            f"{len(wrong)} of {count} {kind} went wrong, first number {row['number']} of seed "
            f"{seed}: {row['what']}: {row['error'].strip().splitlines()[-1]}"
        )
    return {"ms of processor at most": int(1000 * float(ends[0]["longest"])), "done": count}
