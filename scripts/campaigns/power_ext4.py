"""Power cuts on a real ext4: what was synced is there, batches and backups are whole.

Each case is a store on a loop device that loses its power again and again, mid-roll, mid-merge,
mid-compaction, mid-backup, as it opens and as it closes. Needs root, loop devices and mkfs.ext4.
"""

from __future__ import annotations

import killing_cases


def case(seed: int, number: int) -> dict[str, int]:
    return killing_cases.power("ext4", seed, number)
