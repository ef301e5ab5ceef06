"""Write maps from the first kilobytes of a journal file on, where they begin at a MiB, and for as
long as they have room: in files as small as those of tests a put would hardly ever meet one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from octavo.actors.writing import room_ahead

_SIZES = {"WIDE_FROM_BYTES": 2000, "WIDE_STEP": 4096, "_WIDE_SHIFT": 0, "_OPEN_MS": 1 << 40}


@contextmanager
def early_maps(there: bool = True) -> Iterator[None]:
    """Within it they do; or, unless ``there``, all is as it was."""
    before = {name: getattr(room_ahead, name) for name in _SIZES}
    for name, size in _SIZES.items() if there else ():
        setattr(room_ahead, name, size)
    try:
        yield
    finally:
        for name, size in before.items():
            setattr(room_ahead, name, size)
