"""The register of live snapshots: who still reads which manifest, and for how long.

A snapshot in memory is a lease on a manifest's version. A file that a newer manifest does without
waits in delete_pending until no lease on an older version is left. Leases run by the given
monotonic clock, so no change of the wall clock ends or prolongs one.

All of it is thread-safe. None of it may be called from a finalizer: the collector may run while
this very thread holds the lock. A Ctrl-C leaves it whole: what belongs together changes in lines
that call nothing, since CPython looks for one only after calls; heaps may have leases and versions
that are gone.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from octavo.files.errors import Misuse, SnapshotExpired
from octavo.files.locks import new_lock
from octavo.files.messages import messages_of

log = messages_of("octavo.snapshots")

_SLACK = 64


class Live(NamedTuple):
    """A live snapshot, as ``SnapshotRegister.live`` shows it."""

    number: int
    version: int
    age_seconds: float
    left_seconds: float
    """Until the lease ends, unless it is renewed."""


@dataclass(slots=True)
class _Lease:
    version: int
    since: float
    ends: float  # exclusive: at this moment it is over


class SnapshotRegister:
    """Leases of snapshots on manifest versions."""

    def __init__(self, clock: Callable[[], float], store: str = "") -> None:
        """``clock``: monotonic seconds. ``store``: its path, for messages."""
        self._clock = clock
        self._store = store
        self._lock = new_lock()
        self._leases: dict[int, _Lease] = {}
        self.numbers = count(1)
        """Of leases to come; none recurs. A caller that takes one before it registers can release
        the lease however far that came."""
        self._counts: dict[int, int] = {}  # leases of each version
        # Heaps whose tops may be out of date, and are then thrown away when they are met.
        self._versions: list[int] = []
        self._ends: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """Leases that were neither released nor seen to be over."""
        return len(self._leases)

    def register(self, version: int, lease_seconds: float, number: int | None = None) -> int:
        """Lease a manifest's version. Returns the number of the lease: ``number``, if one was
        taken.

        The caller sees to it that the version is still whole: it reads the version and
        registers in one turn of whoever decides that files go. O(log leases), some 2 us.
        Raises Misuse.
        """
        seconds = _checked(lease_seconds)
        with self._lock:
            now = self._clock()
            if number is None:
                number = next(self.numbers)
            heapq.heappush(self._ends, (now + seconds, number))
            before = self._counts.get(version, 0)
            if not before:
                heapq.heappush(self._versions, version)
            lease = _Lease(version, now, now + seconds)
            try:
                self._leases[number] = lease
                self._counts[version] = before + 1
            except BaseException:
                if self._counts.get(version, 0) == before:  # an uncounted lease would never end
                    self._leases.pop(number, None)
                raise
            self._prune()
            return number

    def renew(self, number: int, lease_seconds: float) -> None:
        """Begin the lease anew, to end ``lease_seconds`` from now; that may be earlier than before.

        O(1), or O(log leases) where it becomes shorter.

        Raises SnapshotExpired where it was released or is over, Misuse.
        """
        seconds = _checked(lease_seconds)
        with self._lock:
            lease = self._leases.get(number)
            now = self._clock()
            if lease is None or lease.ends <= now:
                raise SnapshotExpired(f"snapshot {number} is over: its lease ended or was released")
            ends = now + seconds
            if ends < lease.ends:
                heapq.heappush(self._ends, (ends, number))
            lease.ends = ends
            self._prune()

    def release(self, number: int) -> None:
        """End a lease. Idempotent; a number that was never given is ignored too. O(1)."""
        with self._lock:
            self._drop(number)

    def left(self, number: int) -> float:
        """Seconds until the lease ends; 0 or less once it is over, and from then on. O(1)."""
        lease = self._leases.get(number)
        return 0.0 if lease is None else lease.ends - self._clock()

    def expire(self) -> list[int]:
        """Drop the leases that are over, and return their numbers.

        O(those that are over or were renewed since).
        """
        with self._lock:
            over = self._over(self._clock())
        if over:
            told = "%s: the leases of %d snapshots ran out; what they held may go"
            log.warning(told, self._store, len(over))
        return over

    def _over(self, moment: float) -> list[int]:
        over = []
        while self._ends and self._ends[0][0] <= moment:
            number = self._ends[0][1]
            lease = self._leases.get(number)
            if lease is not None and lease.ends > moment:
                heapq.heapreplace(self._ends, (lease.ends, number))
                continue
            if lease is not None:
                self._drop(number)
                over.append(number)
            heapq.heappop(self._ends)
        return over

    def needed(self, removed_at_version: int) -> bool:
        """Whether a file that manifests no longer have from ``removed_at_version`` on must stay:
        whether a lease on an older version is left, over or not. O(1), amortised."""
        with self._lock:
            return self._oldest() < removed_at_version

    def _oldest(self) -> float:
        """The oldest version with a lease; infinity where there is none."""
        versions = self._versions
        while versions and versions[0] not in self._counts:
            heapq.heappop(versions)
        return versions[0] if versions else math.inf

    @property
    def live(self) -> list[Live]:
        """The leases that still run, oldest first. O(leases)."""
        with self._lock:
            return self._live(self._clock())

    def _live(self, now: float) -> list[Live]:
        return [
            Live(number, lease.version, now - lease.since, lease.ends - now)
            for number, lease in self._leases.items()
            if lease.ends > now
        ]

    def _drop(self, number: int) -> None:
        lease = self._leases.get(number)
        if lease is None:
            return
        left = self._counts[lease.version] - 1
        del self._leases[number]
        if left:
            self._counts[lease.version] = left
        else:
            del self._counts[lease.version]

    def _prune(self) -> None:
        """Build a heap anew of which more than half is out of date. O(1), amortised."""
        if len(self._ends) > 2 * len(self._leases) + _SLACK:
            ends = [(lease.ends, number) for number, lease in self._leases.items()]
            heapq.heapify(ends)
            self._ends = ends
        if len(self._versions) > 2 * len(self._counts) + _SLACK:
            self._versions = sorted(self._counts)


def _checked(lease_seconds: float) -> float:
    if not 0 < lease_seconds < math.inf:
        raise Misuse(f"lease_seconds={lease_seconds!r}: must be above 0 and finite")
    return lease_seconds
