"""Real full disks of growing size: clear answers, reads go on, nothing acknowledged is lost.

Case N is a disk of 64 KiB and N % 64 times 48 KiB more; in every second run of 64 cases, write
maps begin early. Needs root.
"""

from __future__ import annotations

import logging

from full_disk import Filling, SmallDisk

from octavo.actors.writing import reserve

SIZES = 64


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.WARNING)
    reserve.RESERVE_BYTES, reserve.SHARE = 128 << 10, 4
    disk = SmallDisk(64 + 48 * (number % SIZES))
    try:
        maps = number // SIZES % 2 == 1
        return Filling(disk, f"{seed} {number}", worker=number % 8 == 7, maps=maps).run()
    finally:
        disk.close()
