"""The reader, bound to one state of the store: snapshots and live iterators read through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import NoReturn

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.bookie import Bookie
from octavo.actors.penciller import Penciller
from octavo.actors.reading import bucket_names
from octavo.actors.reading.plain_heads import PlainHeads
from octavo.actors.reading.plain_reads import PlainReads
from octavo.actors.scanning import scan
from octavo.actors.scanning.batches import BatchWindow, batches
from octavo.actors.scanning.few_rows import Few
from octavo.actors.scanning.kept_items import ItemsOfBucket
from octavo.actors.scanning.scan_sources import FIRST_WINDOW, head_in_memory
from octavo.actors.scanning.scan_windows import Brief, LookedUp, Window
from octavo.actors.scanning.short_scans import short_windows
from octavo.actors.view import View
from octavo.files.errors import Closed, Corruption, SnapshotExpired
from octavo.files.journal.record import LOW_32
from octavo.files.journal.short_value import ALL_EXPIRED, plain_fields
from octavo.files.kernels.cold_pages import COLD
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import Bounds, of_bucket, of_type
from octavo.files.ledger.chosen_rows import Chosen, Prefixes
from octavo.files.ledger.head import Head
from octavo.files.ledger.live_batches import WINDOW_ROWS, Batch

LEASE_SECONDS = 900.0
STEP = 256
"""Rows that a scan gives between two looks at its lease."""
_RENEWED_AT = 0.99
"""A live scan's lease begins anew once less than this part of it is left."""
_JUDGED = 63 << 32
"""A get whose key's hash has none of these bits (one in 64) also checks whether it waits for a
device, and whether the guide should make tables; one head in 64 (_SOME), only the latter."""
_SOME = 63
_LONG = 1024
"""After so many rows of a scan it pays to find the rest as arrays."""
_LOOKED_UP, MOST_LOOKED_UP = 16, 12
"""Rows whose heads are looked up by key, at 3 us each, while finding the rows costs half as much:
so many if it is not known how many are wanted; else all, or none if more than MOST_LOOKED_UP."""
_LOOKED_UP_AT_ONCE = 4
"""Few at a time, since each may have a MiB of metadata."""
_BATCH_ROWS = 1 << 13
NOTHING: Callable[[], object] = int
"""A call that does nothing."""


class Reader(PlainReads, PlainHeads):
    """Reads the store as it was when this was made, up to ``sqn``, in the caller's thread.

    Holds a lease: until it ends, no file that is needed goes. Released by close(), by garbage
    collection, or by expiry; after that every read raises, and never gives other data.
    """

    _let_go: Callable[[], object]
    """What ``__del__`` calls: an append to ``Bookie.ended``, or NOTHING. A collector may run inside
    any turn, so it must not ask for one; and it is no Python, in which a Ctrl-C would be lost."""
    __del__ = property(attrgetter("_let_go"))

    def __init__(
        self, bookie: Bookie, lease_seconds: float = LEASE_SECONDS, *, renewing: bool = True
    ) -> None:
        """Take a snapshot. ``renewing``: each step of a scan lets the lease begin anew."""
        self._bookie = bookie
        self._register = bookie.register
        self.cache = bookie.cache
        self._lease = lease_seconds
        self._renewing = renewing
        self._closed = False
        self.number = number = next(bookie.register.numbers)
        self._let_go = partial(bookie.ended.append, number)
        snapshot = bookie.actor_ref.call(Bookie.snapshot, lease_seconds, number)
        self.view, self.sqn, self.now_ms = snapshot

    def check(self) -> None:
        """Raise Closed or SnapshotExpired if this may no longer be read."""
        if self._closed or self._bookie.closed or self._register.left(self.number) <= 0:
            self._over()

    def _over(self) -> NoReturn:
        """Raise the error that says why this may no longer be read."""
        if self._closed:
            raise Closed("the snapshot was closed")
        if self._bookie.closed:
            raise self._bookie.stopped_error()
        raise SnapshotExpired(
            f"the snapshot's lease of {self._lease:g} s ran out; take a new one, or renew in time"
        )

    def is_beside(self, other: Reader) -> bool:
        """Whether both read the same opening of a store."""
        return self._bookie is other._bookie

    def renew(self, lease_seconds: float | None = None) -> None:
        """Begin the lease anew. Raises Closed, and SnapshotExpired if it had ended."""
        self.check()
        self._lease = lease_seconds or self._lease
        self._register.renew(self.number, self._lease)

    def get(self, key: bytes) -> bytes | None:
        """Value of a live ledger key, or None."""
        with self.reading():
            found = self.view.get(key, self.sqn, self.now_ms)
        return None if found is None else found[0]

    def value(self, ledger_key: bytes, bucket_and_key: bytes, plain: bytes) -> bytes | None:
        """As ``get``, quicker: a plain put comes from the read cache, or is read as a get of the
        newest state is. ``plain``: see short_value.plain_fields."""
        self.check()
        value = self.cached().get(ledger_key)
        # The newest value, and this reader's too if is_newest() holds after the look-up.
        known = value is not None and self.is_newest()
        view = self.view
        table = view.recent
        entry = table.rows.get(ledger_key)
        if entry is None:
            for table in view.frozen:
                if (entry := table.rows.get(ledger_key)) is not None:
                    break
        if entry is not None:
            if not -self.sqn <= entry <= self.sqn:
                return self.get(ledger_key)
            if entry < 0:
                expiry_ms = table.expiring.get(-entry)
                if expiry_ms is None or expiry_ms <= self._moment_ms(view):
                    return None  # a delete, or expired
                return self._get_by_record(view, -entry, ledger_key, bucket_and_key, plain)
            if not known:
                value = self._get_from_memory(view, entry, ledger_key, bucket_and_key, plain)
        elif not known:
            h = xxh3(ledger_key)
            slots, mask, tails = view.guide.way
            steps, h32 = tails[slots[h & mask]], h & LOW_32
            if h & _JUDGED:
                return self.get_from_ledger(view, steps, h32, ledger_key, bucket_and_key, plain)
            view.guide.wanted()
            before = COLD.reads()
            value = self.get_from_ledger(view, steps, h32, ledger_key, bucket_and_key, plain)
            COLD.judge(before)
        return value

    def _get_with_care(self, ledger_key: bytes) -> bytes | None:
        return self.get(ledger_key)

    def _moment_ms(self, view: View) -> int:
        return view.ledger.now_ms(self.now_ms)

    def index_of(self, key: bytes) -> bytes | None:
        """Packed index entries of a live ledger key's version, or None."""
        with self.reading():
            return self.view.index_of(key, self.sqn, self.now_ms)

    def head(self, key: bytes, bucket_and_key: bytes = b"", plain: bytes = b"") -> Head | None:
        """Head of a live ledger key, or None. ``plain``: as in ``value``; without it, a version in
        memory is read the long way."""
        self.check()
        view = self.view
        table = view.recent
        entry = table.rows.get(key)
        if entry is None:
            for table in view.frozen:
                if (entry := table.rows.get(key)) is not None:
                    break
            else:
                if not hash(key) & _SOME:
                    self.wants_heads()
                return self.head_in_ledger(view, key)
        if not plain or not -self.sqn <= entry <= self.sqn:
            return self._head_with_care(key)
        now_ms = ALL_EXPIRED  # it does not expire
        if entry < 0:
            expiry_ms = table.expiring.get(-entry)
            if expiry_ms is None or expiry_ms <= (now_ms := self._moment_ms(view)):
                return None  # a delete, or expired
        return self._head_from_memory(view, abs(entry), key, bucket_and_key, plain, now_ms)

    def _head_with_care(self, ledger_key: bytes) -> Head | None:
        with self.reading():
            return self.view.head(ledger_key, self.sqn, self.now_ms)

    def cached(self) -> Mapping[bytes, bytes | None]:
        """The read cache: newest values of some keys, by ledger key. This reader sees such a value
        only if ``is_newest`` and its own memory table agree. Empty if known to be of no use."""
        return self._bookie.cache.entries if self.is_newest() else {}

    def kept_items(self, window: Window, prefix: bytes) -> ItemsOfBucket | None:
        """The kept items of a bucket, if this window is where two earlier scans were; or None."""
        if isinstance(window, Brief) and window.again:
            return self._bookie.kept_scans.items.of(prefix)
        return None

    def is_newest(self) -> bool:
        """Whether what was written since the snapshot, if anything, is in its own memory table."""
        return self._bookie.view is self.view

    def windows(
        self,
        bound: Bounds,
        first: int = FIRST_WINDOW,
        *,
        brief: bool = False,
        ahead: int = 1,
    ) -> Iterator[Window]:
        """Windows of live rows: see scan.windows. ``brief``: only their keys and sqns will be asked
        for; ``ahead``: see short_windows."""
        bookie, view = self._bookie, self.view
        found: Iterator[Window]
        if brief:
            # Nothing is kept of an earlier state: readers of the newest would have to begin anew.
            newest = bookie.view.ledger is view.ledger
            kept = bookie.kept_scans.of(view.ledger) if newest else None
            note = partial(bookie.stepped_over, view) if newest else None
            found = short_windows(
                view, self.sqn, self.now_ms, bound, bookie.slice, first, kept,
                bookie.empty_ranges, note, ahead,
            )  # fmt: skip
        else:
            if bound.high is not None and bookie.empty_ranges.lows:
                low, high = bookie.empty_ranges.left(
                    bound.low, bound.high, self.sqn, self.now_ms, bound.reverse
                )
                bound = bound._replace(low=low, high=high)
            found = scan.windows(
                view, self.sqn, self.now_ms, bound, bookie.slice, first, heads=True
            )
        while True:
            if self._closed or bookie.closed:
                self._over()
            try:
                window = next(found, None)
            except FileNotFoundError as missing:
                raise self.gone(missing) from missing
            except Corruption as damage:
                self.damaged(damage)
                raise
            self.step()  # or it could give what was read after the lease had ended
            if window is None:
                return
            yield window

    def head_windows(self, bound: Bounds, first: int, most: int | None) -> Iterator[Window]:
        """As ``windows``, of one bucket, for keys, sqns and heads. The first few rows are found as
        a short scan finds them, and their heads are looked up; not if so many are wanted (``most``)
        that this does not pay."""
        rest = bound
        few = _LOOKED_UP if most is None else most
        if most is None or most <= MOST_LOOKED_UP:
            for window in self.windows(bound, few, brief=True):
                window.cut(few)
                few -= len(window.keys)
                yield from self.looked_up(window, bound.prefix)
                if not few:
                    rest = bound.behind(window.keys[-1])
                    break
            else:
                return
        yield from self.long_windows(rest, first, times=True)

    def looked_up(self, window: Window, prefix: bytes) -> Iterator[Window]:
        """The rows of a window, a few at a time; their heads are looked up once they are wanted."""
        keys, sqns, look = window.keys, window.sqns(), partial(self._heads_of, prefix)
        for low in range(0, len(keys), _LOOKED_UP_AT_ONCE):
            part = slice(low, low + _LOOKED_UP_AT_ONCE)
            yield LookedUp(keys[part], sqns[part], look)

    def _heads_of(self, prefix: bytes, keys: list[bytes]) -> list[Head]:
        """Heads of live keys of one bucket. Raises Corruption if one has none."""
        view, upper = self.view, self.sqn
        tag, bucket, _ = ledger_key.split(prefix)
        plain = plain_fields(tag, bucket)
        heads: list[Head] = []
        for key in keys:
            name = prefix + key
            entry = view.recent.entry(name, upper)
            tables = iter(view.frozen)
            while entry is None and (table := next(tables, None)) is not None:
                entry = table.rows.get(name)
            if entry is None:
                head = self.head_in_ledger(view, name)
            else:
                head = head_in_memory(view, entry, bucket + key, plain)
            if head is None:
                self.check()  # if another thread closed this, memory no longer has what it needs
                raise Corruption("ledger", 0, f"no live version of {name[:80]!r}; verify the store")
            heads.append(head)
        return heads

    def no_entries(self, bound: Bounds, last: bytes) -> None:
        """Note that a scan of index entries found none valid up to ``last``, inclusive."""
        low, high = bound.low, bound.high
        if bound.reverse:
            low = bound.prefix + last
        else:
            high = bound.prefix + last + b"\x00"
        if high is not None:
            self._bookie.no_entries(self.view, self.sqn, self.now_ms, low, high, bound.reverse)

    def long_windows(self, bound: Bounds, first: int, *, times: bool) -> Iterator[Window]:
        """As ``windows``, of one bucket; after _LONG rows, when more are likely to be wanted, the
        rest comes as batches. ``times``: whether the rows' times will be asked for."""
        wanted = 0
        for window in self.windows(bound, first, brief=not times):
            wanted += len(window.keys)
            last = window.keys[-1]
            yield window
            if wanted >= _LONG:
                rest = bound.behind(last)
                found = self.batches(rest, heads=times, hashes=False, window_rows=_BATCH_ROWS)
                yield from map(BatchWindow, found)
                return

    def count(self, bound: Bounds) -> int:
        """How many live keys a range of one bucket has. Many are counted by array kernels, at 0.01
        to 0.3 us a key."""
        number = 0
        for window in self.windows(bound, brief=True):
            number += len(window.keys)
            if number >= _LONG:
                rest = bound.behind(window.keys[-1])
                batches = self.batches(rest, heads=False, hashes=False)
                return number + sum(len(batch.rows) for batch in batches)
        return number

    def batches(
        self,
        bound: Bounds,
        chosen: Chosen | None = None,
        *,
        heads: bool,
        hashes: bool = True,
        window_rows: int = WINDOW_ROWS,
    ) -> Iterator[Batch]:
        """The live rows of a range as columns: see batches.batches."""
        found = batches(
            self.view, self.sqn, self.now_ms, bound, self._bookie.slice, chosen,
            heads=heads, hashes=hashes, window_rows=window_rows,
        )  # fmt: skip
        while True:
            with self.reading():
                batch = next(found, None)
            if batch is None:
                return
            self.step()
            yield batch

    def step(self) -> None:
        """For each step of a scan: raise if the lease is over; begin a live scan's lease anew."""
        left = self._register.left(self.number)
        if self._closed or self._bookie.closed or left <= 0:
            self._over()
        if self._renewing and left < _RENEWED_AT * self._lease:
            self._register.renew(self.number, self._lease)

    def steps(self, keys: list[bytes]) -> Iterator[list[bytes]]:
        """A window's keys in stretches of STEP, with a look at the lease before each."""
        for low in range(0, len(keys), STEP):
            self.step()
            yield keys[low : low + STEP]

    def fronts(self, bound: Bounds) -> dict[bytes, bool]:
        """Prefixes of buckets that may hold a live key: see bucket_names.fronts."""
        with self.reading():
            return bucket_names.fronts(self.view, self.sqn, bound, self._bookie.slice)

    def buckets(self, tag: int = ledger_key.STANDARD) -> Iterator[bytes]:
        """Names of the buckets that hold a live key of the type, in byte order, some thousands at a
        time. O(buckets); O(keys) where the first key of most buckets is dead."""
        with self.reading():
            stretches = bucket_names.stretches(self.view, of_type(tag))
        for bound in stretches:
            lives = self.fronts(bound)
            doubtful = {prefix for prefix, live in lives.items() if not live}
            if bucket_names.in_one_pass(self.view, len(doubtful) * len(stretches)):
                for batch in self.batches(bound, Prefixes(doubtful), heads=False):
                    lives.update(dict.fromkeys(bucket_names.of_batch(batch), True))
                doubtful.clear()
            for prefix in sorted(lives):
                live = lives[prefix]
                if prefix in doubtful:
                    live = next(self.windows(of_bucket(prefix), brief=True), None) is not None
                if live:
                    yield ledger_key.split(prefix)[1]
                if bound is not stretches[-1]:  # there is more to read
                    self.step()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around reads of the view: turn what stops them into the error that it means."""
        self.check()
        try:
            yield
            self.check()  # another thread may have closed it, so memory dropped versions it needs
        except FileNotFoundError as missing:
            raise self.gone(missing) from missing
        except Corruption as damage:
            self.damaged(damage)
            raise

    def damaged(self, damage: Corruption) -> None:
        """Report damage that was met. A published reader raises SnapshotExpired if it is none."""
        self._bookie.penciller.send(Penciller.reported, damage)

    def gone(self, missing: FileNotFoundError) -> Corruption:
        """The error to raise if a file is missing. Raises SnapshotExpired, Closed instead if the
        lease ended, since only then may a file go that this view names."""
        self.check()
        return Corruption(str(missing.filename), 0, "the file is missing")

    def close(self) -> None:
        """End the lease. Idempotent."""
        self._closed = True
        if self._let_go is not NOTHING:
            self._bookie.release(self.number)
            self._let_go = NOTHING  # only now: if a Ctrl-C comes before, __del__ still releases


class Unleased(Reader):
    """Reads what belongs to a few rows that one look found. It has no lease: the files that it
    needs may go at any moment, and its errors are raised as they are."""

    _closed = _renewing = False
    _lease = 0.0
    _let_go = NOTHING

    def __init__(self, bookie: Bookie, few: Few) -> None:
        self._bookie = bookie
        self._register = bookie.register
        self.number = next(bookie.register.numbers)
        self.view, self.sqn, self.now_ms, self._window, _ = few

    def windows(self, *_: object, **__: object) -> Iterator[Window]:
        """One window, with the rows that were found."""
        yield self._window

    def step(self) -> None:
        if self._bookie.closed:
            raise self._bookie.stopped_error()

    @contextmanager
    def reading(self) -> Iterator[None]:
        yield
