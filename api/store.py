"""The store: open it, use it as its default bucket, close it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from octavo import changes as feed
from octavo.actors.compacting import compaction
from octavo.actors.compacting.compaction import Compacted
from octavo.actors.keeping.backup import BackedUp, backup
from octavo.actors.keeping.inbox_watch import WATCH
from octavo.actors.keeping.ingest import Ingested, ingest
from octavo.actors.opening import shutdown, startup
from octavo.actors.opening.options import OpenOptions
from octavo.actors.opening.options import options as checked_options
from octavo.actors.opening.startup import Running
from octavo.actors.opening.tags import STANDARD
from octavo.actors.progress import untold
from octavo.actors.reader import LEASE_SECONDS, Reader
from octavo.actors.turns.interpreter import refuse_unfit
from octavo.actors.writing.interval_sync import IntervalSync
from octavo.actors.writing.reserve import COMPACTION
from octavo.arguments import Key, to_bucket, to_flag, to_path
from octavo.batch import Batch
from octavo.bucket import Bucket
from octavo.changes import Change
from octavo.consumer import Consumer
from octavo.files.argument_checks import to_sqn
from octavo.files.door.disk import RealDisk
from octavo.files.errors import Misuse, usable
from octavo.files.later import Later, loading
from octavo.files.ledger.head import Head
from octavo.files.locks import new_rlock
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken
from octavo.handles import Closing
from octavo.head_only import HeadBatch, HeadBucket
from octavo.published import PublishedSnapshot, published_of
from octavo.registry import OPEN, at_end, close_all, end_with_process, forked
from octavo.snapshot import Snapshot
from octavo.stats_types import Stats
from octavo.verify import Report, verify

log = messages_of("octavo")

if TYPE_CHECKING:
    from octavo import read_only as readers
else:
    readers = Later("octavo.read_only")

_MOST_MADE = 2048
"""Buckets that are kept for who asks for them again: with what a put of theirs needs, 2 KB each."""
_LONGEST_KEPT = 256
"""Bytes of the name of one that is."""


@overload
def open(
    path: str | os.PathLike[str],
    *,
    read_only: Literal[False] = ...,
    **options: Unpack[OpenOptions],
) -> Store: ...
@overload
def open(
    path: str | os.PathLike[str], *, read_only: Literal[True], **options: Unpack[OpenOptions]
) -> readers.ReadOnlyStore: ...
@overload
def open(
    path: str | os.PathLike[str], *, read_only: bool, **options: Unpack[OpenOptions]
) -> Store | readers.ReadOnlyStore: ...
def open(
    path: str | os.PathLike[str], *, read_only: bool = False, **options: Unpack[OpenOptions]
) -> Store | readers.ReadOnlyStore:
    """Open the store in the directory ``path``, making it if it is not there.

    One opener at a time, in any process; the rest get StoreLocked. Options, with their defaults
    and bounds: ``help("octavo.actors.opening.options.Options")``, or docs/options.md. Opening takes
    as long as what the ledger does not hold yet takes to replay, whatever the size of the store.

    With ``read_only`` the store may be open elsewhere, and is left as it is but for a directory
    of hard links below it, which goes at ``close``: what comes back is a Snapshot of its newest
    durable state, ReadOnlyStore. Takes as long as reading the journal file being written. Where
    nothing can be made (a read-only mount, another user's store) its files are held open instead,
    one descriptor each.

    Raises StoreLocked, Misuse (a bad option, a path that cannot be used), UnsupportedFormat,
    Corruption, StorageFull, StorageFailed, OSError; read-only also Busy, where the store changed
    again and again meanwhile.
    """
    where = to_path("path", path)
    if to_flag("read_only", read_only):
        with usable("path", where):
            return readers.opened(RealDisk(), where, options)
    return opened_to_write(where, options)


def opened_to_write(where: str, options: OpenOptions, *, briefly: bool = False) -> Store:
    """See ``open``. ``briefly``: for one change, so that no merge is begun unasked."""
    chosen = checked_options(options)
    refuse_unfit()
    running = None
    try:
        with usable("path", where):
            running = startup.start(where, chosen, RealDisk(), briefly=briefly)
        return Store(running)
    except BaseException:  # Ctrl-C: what nobody has, nobody could close
        if running is not None:
            shutdown.abandon(running)
        raise


class Store(Bucket[bytes, Head], Closing):  # type: ignore[misc]  # as its base
    """An open store; itself its default bucket (the one with the empty name).

    Close it, or use it in a ``with`` block. Safe to use from several threads; not after a fork:
    the child's copy refuses.
    """

    def __init__(self, running: Running) -> None:
        if not isinstance(running, Running):
            raise Misuse("a store is opened by octavo.open(path)")
        super().__init__(running, b"")
        self._closing = new_rlock()
        self._closed = False
        self._made: dict[tuple[bytes, bool, str], Bucket[Any, Any]] = {}
        self._interval: IntervalSync | None = None
        if isinstance(running.options.sync, int | float):
            self._interval = IntervalSync(running.inker.actor, float(running.options.sync))
        self._watched = WATCH.add(running) if isinstance(running.disk, RealDisk) else None
        OPEN.add(self)
        end_with_process()
        log.info("%s is open: %d records were replayed", running.path, running.replayed)

    # ------------------------------------------------------------ parts

    @property
    def path(self) -> str:
        """The store's directory, absolute."""
        return self._running.path

    @property
    def last_sqn(self) -> int:
        """The newest sequence number given, or skipped after a kill; 0 if there was none."""
        return self._inker.last_sqn

    @property
    def read_only(self) -> bool:
        """False: see ReadOnlyStore."""
        return False

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    @overload
    def bucket(self, name: Key, *, text: Literal[False] = ...) -> Bucket: ...
    @overload
    def bucket(self, name: Key, *, text: Literal[True]) -> Bucket[str]: ...
    @overload
    def bucket(self, name: Key, *, text: Literal[False] = ..., tag: str) -> Bucket[bytes, Any]: ...
    @overload
    def bucket(self, name: Key, *, text: bool = ..., tag: str = ...) -> Bucket[Any, Any]: ...
    def bucket(self, name: Key, *, text: bool = False, tag: str = STANDARD) -> Bucket[Any, Any]:
        """The bucket of that name; it needs no making. With ``text`` its keys and values come
        out as str. ``tag``: the type of its objects; objects of different types are different
        objects, whatever their keys. Raises Misuse."""
        wanted = (to_bucket(name), to_flag("text", text), tag)
        made: Bucket[Any, Any] | None = self._made.get(wanted) if isinstance(tag, str) else None
        if made is None:
            made = Bucket(self._running, wanted[0], text=text, tag=tag)
            if len(wanted[0]) <= _LONGEST_KEPT:
                if len(self._made) >= _MOST_MADE:
                    self._made.clear()
                self._made[wanted] = made
        return made

    def buckets(self, *, tag: str = STANDARD) -> Iterator[bytes]:
        """Names of the buckets that hold a key of a type, in byte order. Raises Misuse."""
        self._refuse_if_closed()
        number = self._running.identity.tag_of(tag)
        return _buckets(Reader(self._bookie), number)

    def batch(self, *, sync: bool | None = None) -> Batch:
        """Operations on any buckets that happen together or not at all, and with ``sync`` are
        durable then: see Batch. Raises Misuse, also in a head-only store, Closed."""
        self._refuse_if_closed()
        self._check_mode()
        return Batch(self._running, sync=sync)

    def head_bucket(self, name: Key) -> HeadBucket:
        """A bucket of a head-only store; it needs no making. Raises Misuse in a standard one."""
        self._refuse_if_not_head_only("head_bucket")
        return HeadBucket(self._running, to_bucket(name))

    def head_batch(self, *, sync: bool | None = None) -> HeadBatch:
        """As ``batch``, of a head-only store: see HeadBatch. Raises Misuse, also in a standard one,
        Closed."""
        self._refuse_if_not_head_only("head_batch")
        return HeadBatch(self._running, sync)

    def _refuse_if_not_head_only(self, what: str) -> None:
        self._refuse_if_closed()
        if not self._running.identity.head_only:
            raise Misuse(
                f'{what} is for head-only stores, made by octavo.open(path, mode="head_only"); '
                "this is a standard one"
            )

    def snapshot(self, lease_seconds: float = LEASE_SECONDS) -> Snapshot:
        """The store as it is now, to be read for ``lease_seconds`` (900 s; at most a year) unless
        it is renewed. O(1): copies nothing, stops no writer. See Snapshot. Raises Misuse, Closed.
        """
        return Snapshot(self._bookie, self._running.identity, lease_seconds)

    def published(self, wanted: str | None = None) -> list[PublishedSnapshot]:
        """The published snapshots of this store whose lease runs, oldest first; or only that of an
        id or name. Those without a name may be other processes', which read the store through them
        and remove them at the end: to release one ends that reading. One that cannot be read is
        left out of the list, with a warning. O(snapshots). Raises Misuse or SnapshotExpired where
        that is none, StorageFull and StorageFailed."""
        self._refuse_if_closed()
        return published_of(self._running.disk, self.path, wanted, self._bookie.clock_ms)

    def changes(self, since: int = 0, *, compacted: bool = False) -> Iterator[Change]:
        """The journal's events above ``since`` (exclusive), deletes included, in sqn order, up
        to the newest now. Only durable ones: the rest is synced first.

        Where compaction dropped any of them HistoryCompacted is raised, unless ``compacted``: then
        what is left comes, which is at least the newest version of every live key; of a head-only
        store that was trimmed only what came since. One journal read a change. Raises Misuse,
        HistoryCompacted, StorageFailed, Corruption, Closed.
        """
        self._refuse_if_closed()
        return feed.changes(
            self._bookie,
            to_sqn(since),
            compacted=to_flag("compacted", compacted),
            names=self._running.identity.tags.names(),
        )

    def consumer(self, name: str, *, since: int | None = None) -> Consumer:
        """The durable consumer of that name, which goes on where it is; a new one begins behind
        ``since``, or with what comes from now on. Compaction waits for it: see Consumer.

        Raises HistoryCompacted where the journal no longer has all that came behind ``since``,
        Misuse, StorageFull, StorageFailed, Closed.
        """
        self._refuse_if_closed()
        return Consumer(self._running, name, since)

    def consumers(self) -> dict[str, int]:
        """The durable consumers by name, each with the newest sqn it has acknowledged. Raises
        Closed."""
        self._refuse_if_closed()
        known = self._running.inker_clerk.actor.consumers.all()
        return {name: progress.position for name, progress in known.items()}

    # ------------------------------------------------------------ the whole

    def sync(self) -> None:
        """Return when everything written so far is durable. At most one fsync a file that is not.
        Raises StorageFailed, AskTimeout (another thread's fsync hangs for 600 s), Closed."""
        self._refuse_if_closed()
        self._inker.make_durable(self._inker.last_sqn)

    def stats(self, *, score: bool = False) -> Stats:
        """Figures of the store as plain values, all of them JSON: see Stats. O(files).

        With ``score`` the sealed journal files are sampled anew for their garbage, unless a
        compaction is going on; that is a job of O(files) in the worker process. Raises Misuse,
        Closed.
        """
        self._refuse_if_closed()
        with unbroken, loading:
            from octavo import stats
        if to_flag("score", score):
            stats.score(self._running)
        return stats.stats(self._running)

    def stats_prometheus(self) -> str:
        """Figures of the store in Prometheus' text format 0.0.4. O(files).

        Each sample is labelled with the store's path; counters count since it was opened. Raises
        Closed.
        """
        self._refuse_if_closed()
        with unbroken, loading:
            from octavo.prometheus import exposition
        return exposition(self._running)

    def inspect_html(self, *, score: bool = True) -> str:
        """One HTML page with pictures of all that ``stats`` says, and their tables. It needs no
        network and runs no script. O(files). ``score``, and what is raised, as in ``stats``.
        """
        self._refuse_if_closed()
        with unbroken, loading:
            from octavo.pictures.inspection import inspect
            from octavo.pictures.page import page
        return page(inspect(self._running, score=to_flag("score", score)))

    def verify(self, progress: Callable[[str, int, int], None] | None = None) -> Report:
        """Read everything and check every checksum and invariant, journal against ledger.

        ``progress(what, done, total)`` is called as files are finished. O(bytes). Damage is in the
        report, not raised. Of more than two million records 60 bytes each are put aside on the
        disk meanwhile. Raises Closed; StorageFull where descriptors, memory or room ran out,
        StorageFailed where what was put aside is lost.
        """
        self._refuse_if_closed()
        return verify(self._running, progress or untold)

    def compact(self, progress: Callable[[str, int, int], None] | None = None) -> Compacted:
        """Give back the room of versions that were replaced or deleted, in the journal.

        Files are rewritten, oldest first, of which more than a tenth is garbage or what compression
        takes off; what is in memory is saved before. What expired goes an hour later, for a clock
        that is set back by less brings it back. Reads, writes and snapshots go on meanwhile; a
        file that a snapshot reads goes when that ends. On a full disk a file for whose live records
        there is no room waits until others gave some back. ``progress(what, done, total)`` is
        called before each step, in bytes. Interrupting it loses nothing. O(bytes of those files).

        Raises Busy where another call compacts, StorageFull, Corruption (the ledger). What is
        compacted unasked at the moment is waited for.
        """
        self._refuse_if_closed()
        if self._running.identity.head_only:
            raise Misuse("compact is for standard stores; this one is head-only: trim is for those")
        clerk = self._running.inker_clerk.actor
        way = partial(compaction.compact, clerk, progress or untold)
        return self._running.with_reserve(way, COMPACTION)

    def ingest(
        self, job_id: str, attempts: Sequence[str], *, stream: str = "", batch: int = 0
    ) -> Ingested:
        """Take in, all at once or not at all, the files that tasks of a job have staged.

        ``attempts``: names of the finished ones that count; the rest of the job's folder in
        ``staging`` goes. What they bring is newer than all that is there. A ``job_id`` that was
        taken in before changes nothing and is answered as it was then; with ``stream``, a
        ``batch`` of it up to the newest one does. Writers wait while the little that is in memory
        is saved. O(files + what memory holds).

        Raises Misuse, Corruption (nothing was taken in), Busy, StorageFull, StorageFailed, Closed.
        """
        self._refuse_if_closed()
        return ingest(self._running, job_id, attempts, stream=stream, batch=batch)

    def trim(self) -> int:
        """In a head-only store: have all that was written saved in the ledger, and let go of the
        journal; the bytes given back. Happens unasked as memory is saved, too.

        A file that a snapshot reads goes when that ends. Raises Misuse in a standard store, Busy,
        StorageFull, StorageFailed, Corruption (of the ledger: nothing is let go then).
        """
        self._refuse_if_not_head_only("trim")
        clerk = self._running.inker_clerk.actor
        return self._running.with_reserve(partial(compaction.trim, clerk), COMPACTION)

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        ledger: bool = True,
        copy: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> BackedUp:
        """Back the store up into the directory ``path``, as it is now; again on the same path
        brings it up to date.

        The active journal file is begun anew and sealed; then the files get second names (hard
        links) in ``path``, so no value is read or written, writers are never stopped, and later
        changes here do not touch the backup. A backup is a store: open it, or ``restore`` from
        it. A crash meanwhile leaves the backup before or the one after. Without ``ledger`` it is
        rebuilt when the backup is opened; a head-only store's is always there. On another file
        system the files can only be copied, which ``copy`` allows. ``progress(what, done, total)``
        is called before each step, in files. O(files).

        Raises Misuse where ``path`` holds something else, be it another copy of this store or a
        backup that was made from one, or cannot be linked to; StoreLocked where it is
        open; Corruption where a file is missing; StorageFull, StorageFailed, Closed.
        """
        self._refuse_if_closed()
        return backup(
            self._running,
            to_path("path", path),
            ledger=to_flag("ledger", ledger),
            copy=to_flag("copy", copy),
            progress=progress or untold,
        )

    def close(self) -> None:
        """Make everything durable and let go of the directory. Idempotent.

        Waits for other calls' turns, also where a disk hangs: until they end nobody else may have
        the store. What other threads call afterwards raises Closed. Raises
        StorageFailed where what was acknowledged may not be durable: the store is closed then, too;
        AskCycle in a signal's handler that interrupted a write of its own thread: it stays open.
        """
        with self._closing:  # an RLock: a handler may come in the midst of this, and call it
            if self._closed:
                return
            shutdown.refuse_in_a_turn(self._running)
            try:
                self._closed = True
                if self._interval is not None:
                    self._interval.stop()
                if self._watched is not None:
                    self._watched.stop()
                shutdown.stop(self._running)
            except BaseException:
                shutdown.abandon(self._running)
                raise
            finally:  # not before: a child that is forked meanwhile has to let go of its copy
                OPEN.discard(self)
            log.info("%s is closed", self.path)

    def _forked(self) -> None:
        """In a forked child: this copy must never write."""
        self._closed = True
        self._closing = new_rlock()  # a thread that is no more may have the other
        shutdown.forked(self._running)

    def __repr__(self) -> str:
        return f"<octavo.Store {self.path!r}{' (closed)' if self._closed else ''}>"


def _buckets(reader: Reader, tag: int) -> Iterator[bytes]:
    yield from reader.buckets(tag)
    reader.close()  # one that is broken off is collected, which must not ask for a turn


# Behind all that is imported above: stores end before the pool that they need, and their locks.
at_end(close_all)
os.register_at_fork(after_in_child=forked)
