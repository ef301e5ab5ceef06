"""The jobs by name, as the worker process (worker.py) is asked for them.

Each is a pure function that takes a Disk, plain values and buffers, and returns plain values: so
the same function runs in the worker process or, where none can be started, on a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octavo.files.jobs import compaction, counts, key_deltas, ledger_files, scores, sealing

Job = Callable[..., dict[str, Any]]

JOBS: dict[str, Job] = {
    "check_ledger": ledger_files.check_ledger,
    "seal": sealing.seal,
    "level_zero": ledger_files.level_zero,
    "merge": ledger_files.merge_files,
    "score": scores.score,
    "compact": compaction.compact,
    "count": counts.count,
    "survey_deltas": key_deltas.survey,
}
