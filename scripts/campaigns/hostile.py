"""Stores and backups that a forger made, with right checksums over lies: bounded, and stays inside.

At most 256 MiB above what the modules take, 5 s of CPU time, no path outside, nothing unpickled.
"""

from __future__ import annotations

from visits import visited

BATCH = 250
FILES = 4_000


def case(seed: int, number: int) -> dict[str, int]:
    """A batch of forged stores, and one of single files."""
    visited("hostile", seed, number * BATCH, BATCH)
    visited("files", seed, number * FILES, FILES)
    return {"forged stores": BATCH, "hostile files": FILES}
