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
"""Buckets kept for callers that ask for them again; with what their puts need, 2 KB each."""
_LONGEST_KEPT = 256
"""A bucket whose name has more bytes is not kept."""


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
    """Open the store in the directory ``path``, creating it if there is none.

    One opener at a time, in any process; others get StoreLocked. Options, with their defaults and
    bounds: ``help("octavo.actors.opening.options.Options")``, or docs/options.md. Opening replays
    what the journal has and the ledger lacks; how long that takes does not depend on the store's
    size.

    With ``read_only`` the store may be open elsewhere. Returns a ReadOnlyStore: a snapshot of the
    newest durable state, read through a directory of hard links below the store's, which is removed
    at ``close``; nothing else is changed there. Takes as long as reading the journal file being
    written. Where no links can be made (a read-only mount, another user's store) the files are held
    open instead, one descriptor each.

    Raises StoreLocked, Misuse (a bad option, a path that cannot be used), UnsupportedFormat,
    Corruption, StorageFull, StorageFailed, OSError; read-only also Busy, if the store changed again
    and again meanwhile.
    """
    where = to_path("path", path)
    if to_flag("read_only", read_only):
        with usable("path", where):
            return readers.opened(RealDisk(), where, options)
    return opened_to_write(where, options)


def opened_to_write(where: str, options: OpenOptions, *, briefly: bool = False) -> Store:
    """See ``open``. ``briefly``: only for one change, so no merge is begun unasked."""
    chosen = checked_options(options)
    refuse_unfit()
    running = None
    try:
        with usable("path", where):
            running = startup.start(where, chosen, RealDisk(), briefly=briefly)
        return Store(running)
    except BaseException:  # a Ctrl-C: nobody has the store yet, so nobody else could close it
        if running is not None:
            shutdown.abandon(running)
        raise


class Store(Bucket[bytes, Head], Closing):  # type: ignore[misc]  # as its base
    """An open store, which is also its own default bucket (the one with the empty name).

    Close it, or use it in a ``with`` block. Several threads may use it. A forked child may not: its
    copy refuses every call.
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
        """The newest sequence number given or, after a kill, skipped; 0 if there was none."""
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
        """The bucket of that name, which need not be created. With ``text`` keys and values are
        returned as str. ``tag``: the type of its objects; objects of different types are different
        objects, even under equal keys. Raises Misuse."""
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
        """Names of the buckets that hold a key of this type, in byte order. Raises Misuse."""
        self._refuse_if_closed()
        number = self._running.identity.tag_of(tag)
        return _buckets(Reader(self._bookie), number)

    def batch(self, *, sync: bool | None = None) -> Batch:
        """A batch of operations on any buckets, written all or none, and with ``sync`` durably: see
        Batch. Raises Misuse (always in a head-only store), Closed."""
        self._refuse_if_closed()
        self._check_mode()
        return Batch(self._running, sync=sync)

    def head_bucket(self, name: Key) -> HeadBucket:
        """A bucket of a head-only store, which need not be created. Raises Misuse in a standard
        store."""
        self._refuse_if_not_head_only("head_bucket")
        return HeadBucket(self._running, to_bucket(name))

    def head_batch(self, *, sync: bool | None = None) -> HeadBatch:
        """As ``batch``, for a head-only store: see HeadBatch. Raises Misuse (always in a standard
        store), Closed."""
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
        """The store as it is now, readable for ``lease_seconds`` (900 s; at most a year), or longer
        if renewed. O(1): copies nothing, stops no writer. See Snapshot. Raises Misuse, Closed."""
        return Snapshot(self._bookie, self._running.identity, lease_seconds)

    def published(self, wanted: str | None = None) -> list[PublishedSnapshot]:
        """The published snapshots of this store whose lease has not ended, oldest first; with
        ``wanted`` only the one with that id or name. Those without a name may belong to other
        processes, which read the store through them and remove them when done: releasing one ends
        that reading. One that cannot be read is left out, with a warning in the log. O(snapshots).
        Raises Misuse or SnapshotExpired if there is none as ``wanted``, StorageFull, StorageFailed.
        """
        self._refuse_if_closed()
        return published_of(self._running.disk, self.path, wanted, self._bookie.clock_ms)

    def changes(self, since: int = 0, *, compacted: bool = False) -> Iterator[Change]:
        """The journal's events above ``since`` (exclusive), deletes included, in sqn order, up to
        the newest now. Only durable events are given: what is not durable yet is synced first.

        If compaction dropped any of them, HistoryCompacted is raised. With ``compacted`` what is
        left is given instead: at least the newest version of every live key; in a trimmed head-only
        store, only what was written since. One journal read for each change. Raises Misuse,
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
        """The durable consumer of that name, at the position it has reached. A new one begins after
        ``since`` or, without it, with what is written from now on. Compaction waits for it: see
        Consumer.

        Raises HistoryCompacted if a new one is to begin where the journal no longer has everything
        after ``since``; Misuse, StorageFull, StorageFailed, Closed.
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
        """Return once everything written so far is durable. At most one fsync for each file that is
        not. Raises StorageFailed, AskTimeout (another thread's fsync hangs for 600 s), Closed."""
        self._refuse_if_closed()
        self._inker.make_durable(self._inker.last_sqn)

    def stats(self, *, score: bool = False) -> Stats:
        """Figures of the store as plain, JSON-ready values: see Stats. O(files).

        With ``score`` the sealed journal files are first sampled again for garbage, unless a
        compaction is going on: a job of O(files) in the worker process. Raises Misuse, Closed.
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
        """One HTML page with all that ``stats`` says, as pictures and tables. It needs no network
        and runs no script. O(files). ``score`` and errors as for ``stats``."""
        self._refuse_if_closed()
        with unbroken, loading:
            from octavo.pictures.inspection import inspect
            from octavo.pictures.page import page
        return page(inspect(self._running, score=to_flag("score", score)))

    def verify(self, progress: Callable[[str, int, int], None] | None = None) -> Report:
        """Read everything; check every checksum and invariant, and the journal against the ledger.

        Damage is in the report, not raised. ``progress(what, done, total)`` is called as files are
        finished. O(bytes). If there are more than two million records, scratch files on the disk
        take 60 bytes a record meanwhile. Raises Closed; StorageFull if descriptors, memory or disk
        space ran out; StorageFailed if a scratch file is lost.
        """
        self._refuse_if_closed()
        return verify(self._running, progress or untold)

    def compact(self, progress: Callable[[str, int, int], None] | None = None) -> Compacted:
        """Give back the space that replaced and deleted versions take in the journal.

        Rewrites, oldest first, files of which more than a tenth is garbage or would be saved by
        compression; what is in memory is saved first. Expired versions go an hour after they
        expired, since a clock set back by less would bring them back. Reads, writes and snapshots
        go on meanwhile; a file that a snapshot reads is removed when the snapshot ends. On a full
        disk, a file whose live records find no room waits until others have given some back.
        ``progress(what, done, total)`` is called before each step, in bytes. Interrupting it loses
        nothing. O(bytes of those files).

        Waits for a compaction that the store began by itself. Raises Busy if another call is
        compacting, Misuse in a head-only store, StorageFull, Corruption (of the ledger), Closed.
        """
        self._refuse_if_closed()
        if self._running.identity.head_only:
            raise Misuse("compact is for standard stores; this one is head-only: use trim")
        clerk = self._running.inker_clerk.actor
        way = partial(compaction.compact, clerk, progress or untold)
        return self._running.with_reserve(way, COMPACTION)

    def ingest(
        self, job_id: str, attempts: Sequence[str], *, stream: str = "", batch: int = 0
    ) -> Ingested:
        """Take in the files that the tasks of a job have staged, all at once or not at all.

        ``attempts``: names of the finished attempts that count; the rest of the job's folder in
        ``staging`` is removed. What they bring is newer than everything in the store. A ``job_id``
        that was taken in before changes nothing, and gets the answer it got then; so does, with
        ``stream``, any ``batch`` of that stream up to the newest taken in. Writers wait while the
        little that is in memory is saved. O(files + what memory holds).

        Raises Misuse, Corruption (nothing was taken in), Busy, StorageFull, StorageFailed, Closed.
        """
        self._refuse_if_closed()
        return ingest(self._running, job_id, attempts, stream=stream, batch=batch)

    def trim(self) -> int:
        """In a head-only store: save everything written so far in the ledger, then drop the
        journal; returns the bytes given back. Saving memory does this by itself, too.

        A file that a snapshot reads is removed when the snapshot ends. Raises Misuse in a standard
        store, Busy, StorageFull, StorageFailed, Corruption (of the ledger; nothing is dropped
        then).
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
        """Back up the store, as it is now, into the directory ``path``; the same path again brings
        that backup up to date.

        The active journal file is sealed and a new one begun; then the files get second names (hard
        links) in ``path``. So no value is read or written, writers are never stopped, and later
        changes here do not touch the backup. A backup is a store: open it, or ``restore`` from it.
        A crash meanwhile leaves the old backup or the new one. With ``ledger=False`` the ledger is
        left out, and rebuilt when the backup is opened; a head-only store's is always there. To
        another file system files can only be copied, which ``copy`` allows. ``progress(what, done,
        total)`` is called before each step, in files. O(files).

        Raises Misuse if ``path`` cannot be linked to, or holds anything but a backup of this store:
        that of a copy, and a copy itself, are refused, too; StoreLocked if the backup is open;
        Corruption if a file is missing; StorageFull, StorageFailed, Closed.
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

        Waits until calls of other threads have let go of the store, even if a disk hangs: nobody
        else may have it before. Later calls raise Closed. Raises StorageFailed if acknowledged
        writes may not be durable (the store is closed all the same); AskCycle in a signal handler
        that interrupted a write of its own thread (the store stays open).
        """
        with self._closing:  # an RLock: a signal handler may call close in the middle of this
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
            finally:  # only now: a child forked meanwhile has to let go of its copy
                OPEN.discard(self)
            log.info("%s is closed", self.path)

    def _forked(self) -> None:
        """In a forked child: this copy must never write."""
        self._closed = True
        self._closing = new_rlock()  # a thread that is gone may hold the old one
        shutdown.forked(self._running)

    def __repr__(self) -> str:
        return f"<octavo.Store {self.path!r}{' (closed)' if self._closed else ''}>"


def _buckets(reader: Reader, tag: int) -> Iterator[bytes]:
    yield from reader.buckets(tag)
    reader.close()  # not in a finally: the collector may end this, and must not ask for a turn


# After all imports: so stores are closed before the pool and the locks that they need are gone.
at_end(close_all)
os.register_at_fork(after_in_child=forked)
