"""Every bit of every file of small stores flipped, and sectors zeroed, cut, doubled and exchanged.

Each kind of file has the same share of it, and so has each part of a kind. Right values or a named
error, and what is lost is told; at most 256 MiB and 5 s of processor.
"""

from __future__ import annotations

from visits import visited

BATCH = 250


def case(seed: int, number: int) -> dict[str, int]:
    """A batch of bits, then one of splices."""
    kind = ("bits", "splices")[number % 2]
    visited(kind, seed, number // 2 * BATCH, BATCH)
    return {("bits flipped", "splices")[number % 2]: BATCH}
