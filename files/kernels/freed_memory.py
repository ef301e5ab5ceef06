"""Keeps memory in the process that is freed and soon asked for again."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

MUCH_BYTES = 128 << 10
"""Code that makes and drops so much at once calls ``keep_freed``."""
_BLOCK_BYTES = 24 << 20


@cache
def keep_freed() -> None:
    """Have malloc keep some of what is freed: for those who make and drop many large values
    or arrays.

    glibc hands what is free at the end of its memory to the system as soon as that is 128 KiB, and
    new memory comes as pages to be cleared: at 64 KiB that is half of what a scan takes. Once a
    larger block was freed, it keeps twice as much as that had: here what the columns of a window
    of four files take. So one is made and freed, 10 us, once a process; its pages are never
    touched. Where there is no room for it, nothing is kept.
    """
    with suppress(MemoryError):
        bytes(_BLOCK_BYTES)
