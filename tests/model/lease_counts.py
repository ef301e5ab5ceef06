"""What of a register of leases has to agree at any moment."""

from __future__ import annotations

import math
from collections import Counter

from octavo.manifest.register import SnapshotRegister


def check(register: SnapshotRegister) -> None:
    """The heaps cover the leases, and the counts are theirs."""
    leases = register._leases
    assert register._counts == Counter(lease.version for lease in leases.values())
    assert register._counts.keys() <= set(register._versions)
    first: dict[int, float] = {}
    for ends, number in register._ends:
        first[number] = min(ends, first.get(number, math.inf))
    late = [number for number, lease in leases.items() if first.get(number, math.inf) > lease.ends]
    assert late == []
