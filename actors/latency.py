"""Latencies in fixed memory: a log-linear histogram, and a meter that times one call in many.

No lock anywhere: two threads that record at the same moment may count one observation for two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from time import perf_counter_ns
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_BITS = 4
_STEPS = 1 << _BITS
"""Buckets from one power of two to the next: each is at most 1/16 of its values wide."""
_OCTAVES = 43
LONGEST_NS = (1 << _OCTAVES) - 1
"""2.4 hours; anything longer counts as this."""
_BUCKETS = _STEPS * (_OCTAVES - _BITS + 1)

BOUNDS_NS = tuple((1 << bits) - 1 for bits in range(9, 36))
"""Inclusive upper bounds of what ``cumulative`` counts: 511 ns, doubling, to 34 s."""


def _bucket(ns: int) -> int:
    shift = ns.bit_length() - _BITS - 1
    return ns if shift <= 0 else (shift << _BITS) + (ns >> shift)


def _edges(bucket: int) -> tuple[int, int]:
    """Lowest and highest ns that go into a bucket; both inclusive."""
    if bucket < 2 * _STEPS:
        return bucket, bucket
    shift = (bucket >> _BITS) - 1
    low = (_STEPS + (bucket & (_STEPS - 1))) << shift
    return low, low + (1 << shift) - 1


_STRIDE = 227
_SKIPPED = 251
_SKIPS = 4  # 227 + 4 * 251 = 1,231 is a prime: of calls in a rhythm, every beat gets timed


class Latency:
    """How long something takes. 5 KiB; ``record`` costs some 0.5 us.

    A quantile is off by at most 1/32 of itself; minimum and maximum are exact.
    """

    __slots__ = ("_counts", "_smallest", "count", "longest_ns", "total_ns")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        """Observations, by weight."""
        self.total_ns = 0
        """Sum of what was recorded, each times its weight."""
        self.longest_ns = 0
        """The longest one that was recorded; 0 for none."""
        self._smallest = LONGEST_NS

    def record(self, ns: int, weight: int = 1) -> None:
        """Count one observation that stands for ``weight`` of them. Below 0, as when a clock was
        set back, it counts as 0."""
        ns = min(max(ns, 0), LONGEST_NS)
        self._counts[_bucket(ns)] += weight
        self.count += weight
        self.total_ns += ns * weight
        if ns > self.longest_ns:
            self.longest_ns = ns
        if ns < self._smallest:
            self._smallest = ns

    def quantile_ns(self, share: float) -> float | None:
        """The duration that ``share`` (0 .. 1) of the observations did not exceed; None if there
        are none."""
        counts = self._counts
        count = sum(counts)
        if not count:
            return None
        rank = max(share * count, 1.0) - 1e-9 * count
        for bucket, reached in enumerate(accumulate(counts)):
            if reached >= rank:
                low, high = _edges(bucket)
                return float(min(max((low + high) / 2, self._smallest), self.longest_ns))
        return float(self.longest_ns)  # recorded meanwhile by another thread

    def cumulative(self) -> list[int]:
        """How many were at or below each of BOUNDS_NS. O(buckets)."""
        reached = list(accumulate(self._counts))
        return [reached[_bucket(bound)] for bound in BOUNDS_NS]

    def filled(self) -> Iterator[tuple[int, int, int]]:
        """(lowest ns, highest ns, count) of every bucket that is not empty; bounds inclusive."""
        for bucket, count in enumerate(self._counts):
            if count:
                yield *_edges(bucket), count


class Meter:
    """Times the first call, then ever fewer, in the end one in 1,231; each timed call also stands
    for the untimed ones before it.

    The caller counts down, because that is cheapest: if ``left`` is 0 it takes what ``skip`` gives,
    and if that is 0, too, it has ``timed`` make the call; else it sets ``left`` one lower and goes
    on. Counts stay below 257, since CPython allocates larger numbers anew.
    """

    __slots__ = ("_longest", "_skips", "_stride", "latency", "left", "weight")

    def __init__(self, *, often: bool = False) -> None:
        """``often``: time at least one call in 16, for calls that take much longer than that."""
        self.latency = Latency()
        self._longest = 16 if often else _STRIDE
        self.left = 0
        """Calls until ``skip`` is to be asked."""
        self.weight = 1
        """Calls for which the next timed one stands, those still to be counted down included."""
        self._stride = 4
        self._skips = 0

    def skip(self) -> int:
        """How many calls to count down before asking again; 0: time this one."""
        if self._skips <= 0:
            return 0
        self._skips -= 1
        self.weight += _SKIPPED
        return _SKIPPED

    def timed(self, call: Callable[P, R], /, *args: P.args, **options: P.kwargs) -> R:
        """Make the call, time it, and return its result; a call that raises counts, too."""
        stride = self.left = self._stride
        weight, self.weight = self.weight, stride
        if stride < self._longest:
            self._stride = min(2 * stride, self._longest)
        elif stride == _STRIDE:
            self._skips = _SKIPS
        began = perf_counter_ns()
        try:
            return call(*args, **options)
        finally:
            self.latency.record(perf_counter_ns() - began, weight)

    @property
    def calls(self) -> int:
        """Calls so far, timed or not; off by a few if threads called at once."""
        return self.latency.count + max(self.weight - 1 - self.left, 0)
