"""A reader bound to one state of the store: what snapshots and live iterators read through."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors import scan
from octavo.actors.batches import batches
from octavo.actors.bookie import Bookie
from octavo.actors.journal_file import JournalFile
from octavo.actors.penciller import Penciller
from octavo.actors.view import Head
from octavo.files import ledger_key, record
from octavo.files.errors import Closed, Corruption, SnapshotExpired
from octavo.files.live_batches import Batch, Segments

LEASE_SECONDS = 900.0
STEP = 256
"""Rows that a scan gives between two looks at its lease."""


class Mark(Protocol):
    """Where a reading stands."""

    last: bytes | None


class Reader:
    """Everything at or below ``sqn``, as of its making. Reads in the caller's thread.

    Holds a lease: until it ends, no file that is needed goes. Released by close(), by garbage
    collection, or by expiry; after that every read raises, it never gives other data.
    """

    def __init__(self, bookie: Bookie, lease_seconds: float, *, renewing: bool = False) -> None:
        self._bookie = bookie
        self._register = bookie.register
        self._lease = lease_seconds
        self._renewing = renewing
        self._closed = False
        self.number, self.view, self.sqn, self.now_ms = bookie.snapshot(lease_seconds)
        # Only an append: a collector may run inside any turn, so it must not ask for one.
        self._finalizer = weakref.finalize(self, bookie.ended.append, self.number)
        self._finalizer.atexit = False

    def check(self) -> None:
        """Raise Closed or SnapshotExpired if this may no longer be read."""
        if self._closed:
            raise Closed("the snapshot was closed")
        if self._bookie.closed:
            raise Closed("the store is closed")
        if not self._register.is_live(self.number):
            raise SnapshotExpired(
                f"the snapshot's lease of {self._lease:g} s ran out; "
                "take a new one, or renew in time"
            )

    def renew(self, lease_seconds: float | None = None) -> None:
        """The lease begins anew. Raises SnapshotExpired if it had ended."""
        self.check()
        self._lease = lease_seconds or self._lease
        self._register.renew(self.number, self._lease)

    def get(self, key: bytes) -> bytes | None:
        """Value of a live ledger key, or None."""
        with self.reading():
            found = self.view.get(key, self.sqn, self.now_ms)
        return None if found is None else found[0]

    def index_of(self, key: bytes) -> bytes | None:
        """Packed index entries of a live ledger key's version, or None."""
        with self.reading():
            return self.view.index_of(key, self.sqn, self.now_ms)

    def head(self, key: bytes) -> Head | None:
        """Head of a live ledger key, or None."""
        with self.reading():
            return self.view.head(key, self.sqn, self.now_ms)

    def windows(
        self, bound: scan.Bounds, first: int = scan.FIRST_WINDOW
    ) -> Iterator[scan.Window]:
        """Windows of live rows: see scan.windows."""
        found = scan.windows(
            self.view, self.sqn, self.now_ms, bound, self._bookie.slice, first
        )
        while True:
            with self.reading():
                window = next(found, None)
            if window is None:
                return
            self.step()
            yield window

    def batches(
        self, bound: scan.Bounds, segments: Segments | None = None, *, heads: bool
    ) -> Iterator[Batch]:
        """The live rows of a range as columns: see batches.batches."""
        found = batches(
            self.view, self.sqn, self.now_ms, bound, self._bookie.slice, segments, heads=heads
        )
        while True:
            with self.reading():
                batch = next(found, None)
            if batch is None:
                return
            self.step()
            yield batch

    def step(self) -> None:
        """A scan goes on: see that the lease runs, and let that of a live scan begin anew."""
        self.check()
        if self._renewing:
            self._register.renew(self.number, self._lease)

    def steps(self, keys: list[bytes]) -> Iterator[list[bytes]]:
        """A window's keys in stretches, each as long as one look at the lease is good for."""
        for low in range(0, len(keys), STEP):
            self.step()
            yield keys[low : low + STEP]

    def values(
        self,
        bucket: bytes,
        keys: list[bytes],
        sqns: list[int],
        mark: Mark,
        tag: int = ledger_key.STANDARD,
    ) -> Iterator[bytes]:
        """Values of the rows of a window, in their order. One journal read each. The key of each
        is noted in ``mark`` once its value has been read."""
        bases, files = self.view.journal
        blen = len(bucket)
        plain = record.plain_fields(tag, bucket)
        name_at, key_at = record.FIXED_BYTES, record.FIXED_BYTES + blen
        sums, low_32 = record.unpack_sums, record.LOW_32
        left = 0
        try:
            for key, sqn in zip(keys, sqns, strict=True):
                if not left:
                    self.step()
                    left = STEP
                left -= 1
                file = files[bisect_right(bases, sqn) - 1]
                mapped, offsets = file.reading
                relative = sqn - file.base
                if mapped is None or relative < 0:  # below the first file: file_of says so
                    data, at = self.view.journal.file_of(sqn).raw(relative)
                else:
                    try:
                        at = offsets[relative]
                        data = mapped[at : offsets[relative + 1]]
                    except IndexError:
                        data, at = file.raw(relative)  # which tells what is missing
                # record.value_of, written out for the plainest records: no call, no tuple.
                head_end = key_at + len(key)
                if (
                    data[19:24] == plain
                    and data[name_at:head_end] == bucket + key
                    and len(data) >= head_end + record.SUMS_BYTES
                ):
                    h = xxh3(data[:head_end], file.seed ^ at)
                    head_sum, value_sum = sums(data, head_end)
                    value = data[head_end + 8 :]
                    if h & low_32 == head_sum and xxh3(value, h) & low_32 == value_sum:
                        mark.last = key
                        yield bytes(value)
                        continue
                found = record.value_of(data, file.seed ^ at, bucket + key, plain)
                if found is None:
                    found = self._value_with_care(file, sqn, key)
                mark.last = key
                yield found
        except FileNotFoundError:
            self.check()
            raise

    @staticmethod
    def _value_with_care(file: JournalFile, sqn: int, key: bytes) -> bytes:
        whole = file.read(sqn)
        if whole.key != key:
            raise Corruption(
                file.path,
                0,
                f"sqn {sqn} is of another key than the ledger says",
                expected=key[:80],
                found=whole.key[:80],
            )
        if whole.kind != record.PUT:
            raise Corruption(
                file.path, 0, f"sqn {sqn} is no put, as the ledger says: did the clock go back?"
            )
        return whole.value

    def buckets(self, tag: int = ledger_key.STANDARD) -> Iterator[bytes]:
        """Names of the buckets that hold a live key of the type, in byte order. O(buckets) for
        the ledger, O(keys) for memory."""
        prefixes: set[bytes] = set()
        with self.reading():
            for table in (self.view.recent, *self.view.frozen):
                for key in list(table.rows):
                    prefixes.add(key[: ledger_key.end_of_prefix(key)])
            for level in self.view.ledger.levels:
                for entry in level:
                    prefixes.update(prefix for prefix, _, _ in entry.file.reader().groups())
        for prefix in sorted(prefixes):
            if prefix[0] != tag:
                continue
            bound = scan.bounds(prefix, None, None, None, False)
            if next(self.windows(bound), None) is not None:
                yield ledger_key.split(prefix)[1]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around reads of the view: what stops them is told as it is meant."""
        self.check()
        try:
            yield
        except FileNotFoundError as missing:
            # Only an expired lease lets a file go that this view names.
            self.check()
            raise Corruption(str(missing.filename), 0, "the file is missing") from missing
        except Corruption as damage:
            self._bookie.penciller.send(Penciller.reported, damage)
            raise

    def close(self) -> None:
        """Let go. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._finalizer.detach() is not None:
                self._bookie.release(self.number)
