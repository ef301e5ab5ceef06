"""The descriptors of this process that lead to some place.

All others are left out: those of other tests are closed when the collector gets to them.
"""

from __future__ import annotations

import os
from pathlib import Path


def descriptors(place: Path | str) -> set[str]:
    """Numbers of those that lead to a file or directory, or to something below it."""
    here = os.path.realpath(place)
    found = set()
    for number in os.listdir("/dev/fd"):
        try:
            to = os.readlink(f"/dev/fd/{number}").removesuffix(" (deleted)")
        except OSError:  # the one that listed the directory
            continue
        if to == here or to.startswith(f"{here}/"):
            found.add(number)
    return found
