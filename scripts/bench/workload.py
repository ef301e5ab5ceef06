"""What the benches share: keys and values that are the same in each run, a place for stores, and
waiting for a store to come to rest."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

_ODD = 0x9E3779B97F4A7C15
_NOISE_BYTES = 4 << 20
_LOOKS = 6


def directory(path: str) -> str:
    """Make the directory if it is not there, and return it: the type of an argument."""
    Path(path).mkdir(parents=True, exist_ok=True)
    return path


def key(number: int) -> bytes:
    """The key of a number; the keys come in an order that looks random."""
    return b"%016x" % (number * _ODD % (1 << 64))


class Values:
    """Values of one size: half noise, half text."""

    def __init__(self, size: int) -> None:
        self._half = size // 2
        self._noise = random.Random(1).randbytes(_NOISE_BYTES + self._half)
        text = b"the quick brown fox jumps over the lazy dog " * (size // 44 + 2)
        self._text = text[: size - self._half]

    def of(self, number: int) -> bytes:
        """The value of that number."""
        start = number * 7919 % _NOISE_BYTES
        return self._noise[start : start + self._half] + self._text


def settle(store: Any, look_seconds: float = 0.5) -> None:
    """Wait until nothing is left to be merged or sealed: no job ends between six looks."""
    calm = 0
    while calm < _LOOKS:
        before = store.stats()["jobs"]["totals"]
        time.sleep(look_seconds)
        calm = calm + 1 if store.stats()["jobs"]["totals"] == before else 0
