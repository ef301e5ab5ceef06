"""Every bit of every file of small stores flipped, and sectors zeroed, cut, doubled and exchanged.

Each kind of file gets the same share, and so does each part of a kind. A store must give right
values or a named error, and report what is lost, in at most 256 MiB and 5 s of CPU time.
"""

from __future__ import annotations

from visits import visited

BATCH = 250


def case(seed: int, number: int) -> dict[str, int]:
    """A batch of bits, then one of splices."""
    kind = ("bits", "splices")[number % 2]
    visited(kind, seed, number // 2 * BATCH, BATCH)
    return {("bits flipped", "splices")[number % 2]: BATCH}
