"""Many threads on few keys: for each key there is an order of its calls that explains every answer.

Beside compaction, a backup, snapshots and merges.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from calling_threads import OPTIONS, Threads
from histories import wrong

import octavo


def case(seed: int, number: int) -> dict[str, int]:
    home = Path(tempfile.mkdtemp(prefix="octavo-threads-"))
    try:
        with octavo.open(home / "s", **OPTIONS) as store:
            history = Threads(store, f"{seed} {number}").run(
                [store.compact, lambda: store.backup(home / "b"), store.compact]
            )
            problems = wrong(history)
            if problems:
                raise AssertionError("; ".join(problems[:5]))
            report = store.verify()
            if not report.ok:
                raise AssertionError(f"verify: {report.problems}")
        return {"calls": len(history)}
    finally:
        shutil.rmtree(home, ignore_errors=True)
