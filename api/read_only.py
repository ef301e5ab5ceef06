"""Opens a store for reading only, whether another process has it open or none."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from octavo import changes as feed
from octavo.actors.open_files import OpenFiles
from octavo.actors.opening.identity import read as identity_of
from octavo.actors.progress import untold
from octavo.actors.published_reader import PublishedReader
from octavo.actors.turns.interpreter import refuse_unfit
from octavo.arguments import to_flag, to_lease
from octavo.changes import Change
from octavo.files.argument_checks import to_sqn, to_whole
from octavo.files.door.disk import Disk
from octavo.files.door.file_lock import FileLock
from octavo.files.door.held_disk import NO_LINKS, HeldDisk
from octavo.files.door.passing_disk import passing
from octavo.files.errors import Misuse, SnapshotExpired, usable
from octavo.files.journal.journal_names import LOG
from octavo.files.later import Later
from octavo.files.messages import messages_of
from octavo.files.wall_clock import wall_clock_ms
from octavo.head_only import SnapshotHeadBucket
from octavo.manifest import pinning, published
from octavo.manifest.consumers import Progress, known_of
from octavo.manifest.published import Published
from octavo.manifest.store_identity import FORMAT_VERSION, IDENTITY
from octavo.published import PublishedSnapshot, published_of
from octavo.registry import at_end, end_with_process
from octavo.snapshot import Snapshot, SnapshotBucket
from octavo.stats import consumers_of, levels_of, records_above
from octavo.type_parameters import Out, Told

if TYPE_CHECKING:
    from octavo import verify as verifying
else:
    verifying = Later("octavo.verify")

log = messages_of("octavo.published")

LEASE_SECONDS = 3600.0
_FOR_EVER_MS = 1 << 42
"""139 years."""
_WRITES = frozenset(
    {
        "put", "put_many", "delete", "delete_many", "batch", "sync", "compact", "trim", "backup",
        "head_batch", "stats_prometheus", "inspect_html", "consumer",
        "ingest", "clear", "pop", "popitem", "setdefault", "update",
    }
)  # fmt: skip
_open: weakref.WeakSet[PublishedReader] = weakref.WeakSet()
"""The readers of these stores and of what was obtained from them, which may outlive them."""
_dropped: deque[tuple[Disk, str, weakref.ref[OpenFiles]]] = deque()
"""The directories of readers that nobody closed, and what they hold open until the collector
runs."""


class _NoWrite(Misuse, AttributeError):  # noqa: N818 - as its bases
    """A method that only a store opened for writing has: ``hasattr`` says so, too."""


def _refuse(what: str) -> NoReturn:
    raise _NoWrite(
        f"{what} is not for a store opened with read_only=True, which is read as it was at that "
        "moment; the process that opens it for writing can do it"
    )


class _Refusing:
    """Refuses what only a store opened for writing can do."""

    if not TYPE_CHECKING:  # for type checkers, a missing attribute is an error anyway

        def __getattr__(self, name: str) -> Any:
            if name in _WRITES:
                _refuse(name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __setitem__(self, key: object, value: object) -> None:
            _refuse("put")

        def __delitem__(self, key: object) -> None:
            _refuse("delete")


class ReadOnlyBucket(_Refusing, SnapshotBucket[Out, Told]):  # type: ignore[misc]  # as its base
    """A bucket of a store opened with ``read_only=True``."""


class ReadOnlyHeadBucket(_Refusing, SnapshotHeadBucket):
    """A bucket of a head-only store opened with ``read_only=True``."""


class _Unpublished(_Refusing, Snapshot):  # type: ignore[misc]  # as its base
    _OF_BUCKETS = ReadOnlyBucket
    _OF_HEADS = ReadOnlyHeadBucket

    def publish(self, *_: object, **__: object) -> NoReturn:
        """Only the owner publishes. Raises Misuse."""
        _refuse("publish")


class ReadOnlyStore(_Unpublished):
    """The store as it was when it was opened with ``read_only=True``; itself a snapshot.

    Nothing its owner does changes what is read here; ``newest`` gives a newer state. Its lease is
    an hour, and reads renew it; after a longer pause they raise SnapshotExpired. Close it: the
    links of a reader that was only dropped go at this process's next opening (or ``newest``) or at
    its end; those of a killed one when the owner next looks for work. If the files could not be
    linked they are held open, and there is no lease. ``PublishedSnapshot.open`` also returns one,
    of an earlier state.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        max_open_files: int | None = None,
        before: Published | None = None,
        of: str | None = None,
    ) -> None:
        """``of``: the directory of a published snapshot to read instead of the newest state."""
        self._path, self._max_open_files, self._of = path, max_open_files, of
        identity = identity_of(disk, path) if disk.exists(f"{path}/{IDENTITY}") else None
        if identity is None:
            raise Misuse(f"path={path!r} holds no store, and read_only=True makes none")
        disk, self._found, alive = _pinned(disk, path, before, of)
        self._disk, found = disk, self._found
        try:
            files = OpenFiles(max_open_files)
            let_go = partial(_dropped.append, (disk, found.path, weakref.ref(files)))
            self._pinned = PublishedReader(disk, found, wall_clock_ms, files, let_go, path, alive)
            reader: Any = self._pinned
            SnapshotBucket.__init__(self, reader, identity, b"")
            _open.add(self._pinned)
            end_with_process()
            for note in self._notes() if before is None else ():
                log.warning("%s", note)
        except BaseException:
            published.remove(disk, found.path)
            raise

    @property
    def path(self) -> str:
        """The store's directory, absolute."""
        return self._path

    @property
    def last_sqn(self) -> int:
        """The last sequence number in it."""
        return self.sqn

    @property
    def read_only(self) -> bool:
        """True."""
        return True

    def _notes(self) -> list[str]:
        """Notes of what is not as it should be, though each file is whole."""
        journal = self._found.journal
        newest = max([self._found.sqn, *(entry.last_sqn for entry in journal.entries)])
        told = journal.gone_told(f"{self._path}/journal", newest)
        return [told] if told else []

    def snapshot(self, lease_seconds: float = LEASE_SECONDS) -> Snapshot:
        """This same state. Closing the snapshot leaves the store open; both have the same lease."""
        to_lease(lease_seconds)
        return _Again(self)

    def newest(self) -> ReadOnlyStore:
        """The store as it is now, opened as this one is; this one stays as it was.

        To look again and again, this costs less than another ``octavo.open``: of the journal file
        being written only what was added is read, unless this one's lease ended. Close each, or
        drop it. Raises as ``octavo.open``, and Closed.
        """
        with suppress(SnapshotExpired):
            self._pinned.check()
        _remove_dropped()  # here, too: a program that calls this again and again may open nothing
        with usable("path", self._path):
            before = self._found if self._of is None else None  # only if it is of a newest state
            return ReadOnlyStore(self._disk, self._path, self._max_open_files, before)

    def published(self, wanted: str | None = None) -> list[PublishedSnapshot]:
        """The store's published snapshots as they are now, except the one this reader reads: see
        ``Store.published``. Raises Misuse, SnapshotExpired."""
        self._shared.check()
        found = published_of(self._disk, self._path, wanted, wall_clock_ms)
        return [one for one in found if one.id != self._found.id]

    def changes(self, since: int = 0, *, compacted: bool = False) -> Iterator[Change]:
        """The journal's events above ``since`` (exclusive) up to ``last_sqn``: see
        ``Store.changes``. Raises Misuse, HistoryCompacted."""
        self._shared.check()
        since = to_sqn(since)
        feed.refuse_gap(
            since, self._found.journal.horizon, compacted=to_flag("compacted", compacted)
        )
        return feed.changes_of(self._shared, since, self._identity.tags.names())

    def consumers(self) -> dict[str, int]:
        """The durable consumers, by name, as they are now, each with the newest sqn it has
        acknowledged. Raises Corruption."""
        return {name: progress.position for name, progress in self._consumers().items()}

    def _consumers(self) -> dict[str, Progress]:
        self._shared.check()
        with usable("path", self._path):
            return known_of(self._disk, self._path)

    def stats(self, *, score: bool = False) -> dict[str, Any]:
        """What the store's files say, as plain values: a part of what the owner's ``stats`` gives,
        since only the owner knows what is measured or in memory. O(files). Raises Misuse for
        ``score``, which the owner's worker does."""
        self._shared.check()
        if to_flag("score", score):
            _refuse("stats(score=True)")
        levels = levels_of(self._shared.view.ledger)
        entries = self._found.journal.entries
        sealed = [entry for entry in entries if not entry.name.endswith(LOG)]
        younger = [(entry.last_sqn, entry.count) for entry in entries if entry.name.endswith(LOG)]
        return {
            "path": self._path,
            "id": self._identity.id,
            "format": FORMAT_VERSION,
            "read_only": True,
            "now_ms": wall_clock_ms(),
            "last_sqn": self.sqn,
            "journal": {
                "files": len(entries),
                "bytes": sum(entry.bytes for entry in entries),
                "records": sum(entry.count for entry in entries),
                "complete_above_sqn": self._found.journal.horizon,
            },
            "ledger": {
                "files": sum(level["files"] for level in levels),
                "bytes": sum(level["bytes"] for level in levels),
                "levels": levels,
            },
            "consumers": consumers_of(
                self._consumers(),
                sealed,
                younger,
                partial(records_above, self._disk, self._found.path, []),
            ),
            "notes": self._notes(),
        }

    def verify(self, progress: Callable[[str, int, int], None] | None = None) -> verifying.Report:
        """Read everything in it, and check it: see ``Store.verify``. Changes nothing of the store,
        which may be a backup, or open elsewhere. Raises Closed, SnapshotExpired, StorageFull,
        StorageFailed."""
        self._pinned.check()
        found = self._found
        what = verifying.Verified(self._disk, self._identity, found.journal, found.path)
        report = verifying.verified(what, self._pinned, progress or untold)
        report.problems = [self._pinned.named(problem) for problem in report.problems]
        report.problems += self._notes()
        return report

    def __repr__(self) -> str:
        told = " (closed)" if self.closed else ""
        return f"<octavo.ReadOnlyStore {self._path!r} at sqn {self.sqn}{told}>"


def _pinned(
    disk: Disk, path: str, before: Published | None, of: str | None
) -> tuple[Disk, Published, FileLock | None]:
    """Pin a state. Returns (the disk to read it by, what was pinned, the lock that shows its reader
    is alive). It is pinned by links, with a lease that others can see; or, if none can be made, by
    open files, which stay as long as this process has them."""
    now_ms = wall_clock_ms()

    def pinned(disk: Disk, lease_ms: int) -> Published:
        if of is not None:
            return pinning.pin_again(disk, path, of, lease_ms, now_ms)
        return pinning.pin(disk, path, lease_ms, now_ms, before)

    if not isinstance(disk, HeldDisk):
        disk = passing(disk)
        try:
            found = pinned(disk, int(LEASE_SECONDS * 1000))
            try:
                return disk, found, published.hold(disk, f"{found.path}/{published.READING}")
            except BaseException:
                published.remove(disk, found.path)
                raise
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            log.info("%s: its files are held open, for they cannot be linked: %s", path, error)
        disk = HeldDisk()
    return disk, pinned(disk, _FOR_EVER_MS), None


class _Again(_Unpublished):
    def __init__(self, store: ReadOnlyStore) -> None:
        SnapshotBucket.__init__(self, store._shared, store._identity, b"")
        self._store = store

    def close(self) -> None:
        """The store stays open."""


def opened(disk: Disk, path: str, options: Mapping[str, object]) -> ReadOnlyStore:
    """See ``octavo.open``. Raises Misuse for an option that says how to write."""
    refuse_unfit()
    _remove_dropped()
    for name in options:
        if name not in ("max_open_files", "create"):
            raise Misuse(f"{name}= is for a store opened for writing; this one is read_only=True")
    limit = options.get("max_open_files")
    if limit is not None:
        limit = to_whole("max_open_files", limit, "are numbers from 8 to 100000", 8, 100_000)
    to_flag("create", options.get("create", False))
    return ReadOnlyStore(disk, path, limit)


def opened_published(disk: Disk, path: str, of: str) -> ReadOnlyStore:
    """See ``PublishedSnapshot.open``."""
    refuse_unfit()
    _remove_dropped()
    return ReadOnlyStore(disk, path, of=of)


def _remove_dropped() -> None:
    """Remove the links of readers that were dropped without being closed. If that fails, they stay
    until their leases end."""
    with suppress(IndexError):
        while True:
            disk, path, files = _dropped.popleft()
            if (left := files()) is not None:
                left.let_go()
            try:
                published.remove(disk, path)
            except OSError as error:
                log.warning("%s cannot be removed: %s", path, error)


def _close_all() -> None:
    with ExitStack() as closing:  # closes all of them, whatever one raises
        closing.callback(_remove_dropped)
        for reader in list(_open):
            closing.callback(reader.really_close)


def _forked() -> None:
    """In a forked child: forget what the parent pinned, which only the parent may let go of."""
    _dropped.clear()
    for reader in list(_open):
        reader.forked()


at_end(_close_all)
os.register_at_fork(after_in_child=_forked)
