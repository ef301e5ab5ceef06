"""Forged stores and backups, right checksums over lies: memory and time bounded, no path outside.

At most 256 MiB above what the modules take, at most 5 s of CPU time, and nothing is unpickled.
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
