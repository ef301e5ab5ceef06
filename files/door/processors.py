"""How many processors this process may use."""

from __future__ import annotations

import math
import os
from contextlib import suppress

_QUOTA = "/sys/fs/cgroup/cpu.max"
"""In a container: how much of the processors' time it may take, and of how much (cgroup v2)."""


def usable_processors(quota: str = _QUOTA) -> int:
    """Those of the machine, or the fewer that the process is bound to, or that its container leaves
    it; a part of one counts as one, as Java counts. At least 1. Some 10 us."""
    bound = getattr(os, "sched_getaffinity", None)  # macOS has none
    count = len(bound(0)) if bound else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no container, or "max": no limit
        with open(quota, encoding="ascii") as file:
            allowed, period = map(int, file.read(100).split())
        if allowed > 0 and period > 0:
            count = min(count, math.ceil(allowed / period))
    return count
