"""The journal of a store as a reader in another process sees it: without its owner, and durable.

What is read is the directory and the manifest's log. A record counts once it is whole, its batch
too, and the reader itself has synced its file. Files of a commit that no manifest names yet bound
what a reader may see: nothing at or above them, until the commit is decided.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import mmap
from typing import TypeVar

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.door.disk import Disk, refuse_links
from octavo.files.errors import Busy, Corruption, HistoryCompacted, storage_error
from octavo.files.journal import cdb, journal_names, record
from octavo.manifest import adoption, change_log, recovery, store_identity, unsynced, update_mark
from octavo.manifest.journal_manifest import JournalManifest
from octavo.pipeline.places import Places, sealed_places, whole_records

_TRIES = 20
_LOOKS = 400
"""Looks of some milliseconds each: where files come and go that often, most may meet one that
does."""
_TABLES = 4
"""Of sealed files, how many are kept; others are read again when they are asked for again."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JournalPart:
    """A stretch of one journal file: its records of sqns in [first, last], both inclusive."""

    name: str
    base: int
    seed: int
    first: int
    last: int
    start: int
    end: int
    """Bytes in which they stand."""


class JournalLook:
    """A journal, looked at again and again; cheap where nothing changed."""

    def __init__(self, disk: Disk, store: str) -> None:
        self._disk = disk
        self._store, self._folder = store, f"{store}/journal"
        self._names: frozenset[str] | None = None
        self._settled = False
        self.manifest = JournalManifest.empty()
        self._files: list[tuple[int, int, str]] = []  # (base, seed, name), ascending
        self._unlisted: list[tuple[int, int, str]] = []  # those that the manifest does not name
        self._bound = 0  # readers may see nothing at or above this sqn; 0: no bound
        self._bounds: list[int] = []  # where files of commits begin that no manifest names yet
        self._places: dict[str, tuple[int, Places]] = {}  # of files that grow
        self._lengths: dict[str, int] = {}  # of those that grow, when they were last read
        self._named: set[str] = set()  # files whose names are durable
        self._tables: dict[str, Places] = {}  # the last ones that were asked for

    @property
    def horizon(self) -> int:
        """The journal is complete above this sqn, as of the last look."""
        return self.manifest.horizon

    # ------------------------------------------------------------ looking

    def look(self) -> None:
        """See which files there are. One listing where nothing changed. Raises Misuse where there
        is no store, Busy where others came and went each time, Corruption, StorageFailed."""
        try:
            with _reading(self._folder):
                self._look()
        except FileNotFoundError as gone:
            if self._disk.exists(self._folder):
                raise storage_error(gone, self._store) from gone
            raise store_identity.without_journal(self._disk, self._store) from gone

    def _look(self) -> None:
        refuse_links(self._disk, self._folder, f"{self._folder}/manifest")
        if self._names is None and not self._disk.exists(self._folder):
            raise store_identity.without_journal(self._disk, self._store)
        for _ in range(_LOOKS):
            names = frozenset(self._disk.listdir(self._folder))
            if names == self._names and self._settled:
                return
            found = change_log.recover_whole(self._disk, f"{self._folder}/manifest")
            manifest = JournalManifest.replayed(found.snapshot, found.changes)
            unlisted = update_mark.unlisted(self._disk, self._folder, names, manifest)
            try:
                adoption.refuse_earlier(self._disk, self._folder, unlisted, found.state_epoch)
                adoption.refuse_older(self._disk, self._folder, unlisted, manifest, self._folder)
            except FileNotFoundError:
                continue  # it was sealed, or compacted away
            if _only_went_on(names, frozenset(self._disk.listdir(self._folder)), manifest):
                with unsynced.marking(self._disk, self._folder):
                    change_log.settle(self._disk, f"{self._folder}/manifest")
                self._take(names, manifest, unlisted)
                try:
                    if not self._bound or self._decided():
                        return
                except FileNotFoundError:
                    continue
        raise Busy(f"{self._folder} changed {_LOOKS} times while it was being read; try again")

    def _take(self, names: frozenset[str], manifest: JournalManifest, unlisted: set[str]) -> None:
        self._names, self.manifest = names, manifest
        self._settled = True
        self._bounds = []
        listed = [(entry.base_sqn, entry.seed, entry.name) for entry in manifest.entries]
        files = []
        for name in unlisted:
            who = journal_names.identity(name)
            if who is None or manifest.find(who[0]) is not None:
                continue
            if journal_names.is_sealed_too(name, names):
                continue
            if name.endswith(journal_names.SEALED):
                self._settled = False  # the manifest will tell of it soon
                path = f"{self._folder}/{name}"
                header = cdb.read_header(self._disk.pread(path, cdb.RECORDS_AT, 0), path)
                if header.base_sqn == 0:
                    self._bounds.append(who[0])
                    continue
            files.append((who[0], who[1], name))
        self._unlisted = sorted(files)
        self._files = sorted(listed + files)
        self._bound = min(self._bounds, default=0)
        kept = {name for _, _, name in self._files}
        self._tables = {name: found for name, found in self._tables.items() if name in kept}
        self._places = {name: found for name, found in self._places.items() if name in kept}
        self._lengths = {name: size for name, size in self._lengths.items() if name in kept}
        self._named = {path for path in self._named if path.rpartition("/")[2] in kept}

    def _decided(self) -> bool:
        """Lift the bounds of commits that failed and whose files could not be removed: the owner
        has given a number behind theirs to somebody else. False: the manifest has changed since,
        and may name them, so that all is to be looked at again."""
        newest = self._newest(bounded=False)
        if newest < self._bound:
            return True
        # Read after that: what the manifest does not name by now it never will.
        found = change_log.recover_whole(self._disk, f"{self._folder}/manifest")
        manifest = JournalManifest.replayed(found.snapshot, found.changes)
        if manifest.version != self.manifest.version:
            return False
        self._bound = min((base for base in self._bounds if base > newest), default=0)
        return True

    def newest(self) -> int:
        """The newest sqn that readers may see; durable on return. 0: none. Raises Corruption."""
        self.look()
        return self._steady(self._newest)

    def _steady(self, ask: Callable[[], T]) -> T:
        """What ``ask`` finds, asked again where compaction took a file since the last look."""
        for _ in range(_TRIES):
            try:
                with _reading(self._folder):
                    return ask()
            except FileNotFoundError as missing:
                gone = str(missing.filename or self._folder)
                self.look()
        raise Corruption(gone, 0, "a journal file is missing")

    def _newest(self, *, bounded: bool = True) -> int:
        bound = self._bound if bounded else 0
        manifest = self.manifest
        last = bisect_left(manifest.bases, bound) if bound else len(manifest.entries)
        newest = manifest.entries[last - 1].last_sqn if last else 0
        for base, seed, name in self._unlisted:
            if bound and base >= bound:
                break
            places = self._grown(seed, name)
            if places:  # a file that compaction is about to put in may end lower
                newest = max(newest, base + places.numbers[-1])
        return newest

    def _grown(self, seed: int, name: str) -> Places:
        """Records of a file, whole and durable. Only what came since the last look is read. Raises
        Corruption."""
        if name.endswith(journal_names.SEALED):
            return self._sealed(name)
        path = f"{self._folder}/{name}"
        reached, places = self._places.get(name, (cdb.RECORDS_AT, Places()))
        above = places.numbers[-1] if places else -1
        try:
            length = self._disk.size(path)
            if length == self._lengths.get(name) and not self._goes_on(path, reached, length):
                return places
            more, end = recovery.steadily(lambda: self._behind(path, seed, reached, length, above))
        except FileNotFoundError:  # sealed meanwhile, with the same records at the same places
            return self._sealed(journal_names.when_sealed(name))
        if more:
            self._sync(path)
        places.add(more)
        self._places[name] = (end, places)
        self._lengths[name] = length
        return places

    def _behind(
        self, path: str, seed: int, reached: int, length: int, above: int
    ) -> tuple[Places, int]:
        buffer = self._disk.map_growing(path, reached)
        return whole_records(buffer, reached, min(length, len(buffer)), seed, path, above=above)

    def _goes_on(self, path: str, reached: int, length: int) -> bool:
        """Whether a file as long as before may have another record, in the room that it was given
        ahead."""
        if length - reached > cdb.AHEAD_BYTES:
            return False  # a fragment; what completes it lengthens the file
        return any(self._disk.pread(path, record.FIXED_BYTES, reached))

    def _sync(self, path: str) -> None:
        with unsynced.marking(self._disk, self._folder):
            journal_names.by_either_name(path, self._disk.sync_file)
            if path not in self._named:  # its owner may never have made its name durable
                self._disk.sync_dir(self._folder)
                self._named.add(path)

    def _sealed(self, name: str) -> Places:
        found = self._tables.pop(name, None)
        if found is None:
            path = f"{self._folder}/{name}"
            found = sealed_places(memoryview(self._disk.map(path)), path)
        self._tables[name] = found
        if len(self._tables) > _TABLES:
            del self._tables[next(iter(self._tables))]
        return found

    # ------------------------------------------------------------ planning

    def parts(self, since: int, upto: int, split_bytes: int) -> list[JournalPart]:
        """The records of (since, upto] as stretches of about so many bytes, in order. The horizon
        may then be higher than before. Raises Corruption."""
        return self._steady(lambda: self._parts(since, upto, split_bytes))

    def _parts(self, since: int, upto: int, split_bytes: int) -> list[JournalPart]:
        parts: list[JournalPart] = []
        for base, seed, name in self._files:
            if base > upto or (self._bound and base >= self._bound):
                break
            entry = self.manifest.find(base)
            if entry is not None and entry.last_sqn <= since:
                continue
            places = self._grown(seed, name)
            here = places.within(since - base, upto - base)
            while here:
                at = places.reaching(here, split_bytes)
                while at < here.stop and at in places.follows:
                    at += 1
                stop = min(at + 1, here.stop)
                parts.append(
                    JournalPart(
                        name, base, seed,
                        base + places.numbers[here.start], base + places.numbers[stop - 1],
                        places.starts[here.start], places.ends[stop - 1],
                    )
                )  # fmt: skip
                here = range(stop, here.stop)
        return parts

    def end_of(self, since: int, records: int, size: int) -> int:
        """The sqn, inclusive, up to which a reader from ``since`` (exclusive) takes so many records
        or bytes (0: no bound): to a batch's end, and at least one; ``newest`` if that comes
        first."""
        newest = self.newest()
        if not records and not size:
            return newest
        return self._steady(lambda: self._end_of(since, newest, records, size))

    def _end_of(self, since: int, newest: int, records: int, size: int) -> int:
        taken = held = 0
        for base, seed, name in self._files:
            entry = self.manifest.find(base)
            if base > newest or (entry is not None and entry.last_sqn <= since):
                continue
            places = self._grown(seed, name)
            here = places.within(since - base, newest - base)
            at = here.stop
            if records:
                at = min(at, max(here.start + records - taken - 1, here.start))
            if size:
                at = min(at, places.reaching(here, size - held))
            while at < here.stop and self._follows(name, seed, places, at):
                at += 1
            if at < here.stop:
                return base + places.numbers[at]
            taken += len(here)
            held += places.ends[here.stop - 1] - places.starts[here.start] if here else 0
        return newest

    def _follows(self, name: str, seed: int, places: Places, at: int) -> int:
        """How many records of its batch come after this one."""
        if not name.endswith(journal_names.SEALED):
            if self._places.get(name, (0, None))[1] is places:
                return places.follows.get(at, 0)
            name = journal_names.when_sealed(name)  # sealed since the look: its places do not tell
        head = self._header(name, seed, places, at)
        return 0 if head.batch is None else head.batch[1] - head.batch[0] - 1

    def _header(self, name: str, seed: int, places: Places, at: int) -> record.Header:
        path = f"{self._folder}/{name}"
        start, size = places.starts[at], places.ends[at] - places.starts[at]
        data = self._disk.pread(path, min(size, record.MAX_HEADER_BYTES), start)
        try:
            return record.parse_header(data, seed ^ start, size)
        except record.NotARecord as wrong:
            raise Corruption(path, start, f"journal record: {wrong}") from None

    def mark(self, sqn: int) -> str:
        """The mark of the record of an sqn: its time and key, which compaction leaves as they are,
        and which differ in another history of the store. "" where there is no record. Reads one
        header. Raises Corruption."""
        return self._steady(lambda: self._mark(sqn))

    def _mark(self, sqn: int) -> str:
        for base, seed, name in reversed(self._files):
            if base > sqn:
                continue
            places = self._grown(seed, name)
            at = places.of(sqn - base)
            if at is None:
                break
            head = self._header(name, seed, places, at)
            key = b"%d,%d,%s%s" % (head.tag, len(head.bucket), head.bucket, head.key)
            return f"{head.time_ms:x}-{xxh3(key):016x}"
        return ""


def _only_went_on(names: frozenset[str], later: frozenset[str], manifest: JournalManifest) -> bool:
    """Whether the listing ``names`` is whole, as the ``later`` one shows, with the manifest read in
    between: since then only files that it has were sealed, and others begun behind all that there
    were. A file that was missed while it was being sealed would be sealed in the later one, and
    under neither name in the first."""
    sealed = {journal_names.when_sealed(name) for name in (names - later) & _logs(names)}
    begun = later - names - sealed
    if not (names - later <= _logs(names) and sealed <= later and begun <= _logs(later)):
        return False
    there = [who[0] for who in map(journal_names.identity, names) if who is not None]
    last = max([*there, *(entry.last_sqn for entry in manifest.entries[-1:])], default=0)
    return all(who is not None and who[0] > last for who in map(journal_names.identity, begun))


def _logs(names: frozenset[str]) -> set[str]:
    """Journal files that are not sealed."""
    logs = {name for name in names if name.endswith(journal_names.LOG)}
    return {name for name in logs if journal_names.identity(name) is not None}


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Context in which a read error is StorageFailed, or StorageFull for want of descriptors."""
    try:
        yield
    except FileNotFoundError:
        raise  # it went meanwhile
    except OSError as error:
        raise storage_error(error, f"{error.filename or path} cannot be read") from error


@dataclass(frozen=True, slots=True)
class Opened:
    """Some records of one file."""

    path: str
    mapped: mmap | bytes
    base: int
    seed: int
    places: Places
    here: range
    """Which of the places."""

    def read(self, at: int) -> record.Record:
        """The record at a place, verified. Raises Corruption."""
        start = self.places.starts[at]
        # A hole may follow it.
        end = start + 16 + int.from_bytes(self.mapped[start + 4 : start + 8], "little")
        data = memoryview(self.mapped)[start:end]
        return record.decode(data, self.seed ^ start, self.base, self.path, start)

    def of(self, sqn: int) -> record.Record:
        """The record of an sqn that is here, verified. Raises Corruption."""
        at = self.places.of(sqn - self.base)
        if at is None:
            raise Corruption(self.path, 0, f"no record of sqn {sqn}")
        return self.read(at)


def opened(disk: Disk, store: str, part: JournalPart, horizon: int) -> Iterator[Opened]:
    """The files in which the records of a stretch stand. ``horizon``: that of the journal when it
    was planned.

    Raises HistoryCompacted where compaction took some away since; Corruption.
    """
    there = f"{store}/journal/{part.name}"
    for path in dict.fromkeys((there, journal_names.when_sealed(there))):
        try:
            with _reading(path):
                buffer = disk.map(path)
        except FileNotFoundError:
            continue  # it was sealed meanwhile, or compacted away
        break
    else:
        yield from _moved(disk, store, part, horizon)
        return
    first, last = part.first - part.base, part.last - part.base
    if path.endswith(journal_names.SEALED):
        places = sealed_places(memoryview(buffer), path)
    else:
        places, _ = whole_records(
            buffer, part.start, part.end, part.seed, path, first=first, last=last
        )
    yield Opened(path, buffer, part.base, part.seed, places, places.within(first - 1, last))


def records(disk: Disk, store: str, part: JournalPart, horizon: int) -> Iterator[record.Record]:
    """The records of a stretch, verified, one by one. Raises as ``opened``."""
    for file in opened(disk, store, part, horizon):
        yield from map(file.read, file.here)


def _moved(disk: Disk, store: str, part: JournalPart, horizon: int) -> Iterator[Opened]:
    """What ``opened`` gives, for a stretch whose file compaction replaced."""
    look = JournalLook(disk, store)
    look.look()
    if look.horizon > max(horizon, part.first - 1):
        raise HistoryCompacted(
            f"{store}: compaction took away changes above sqn {part.first - 1} while they were "
            f"being read; the journal is complete above {look.horizon}. A durable consumer "
            "(consumerId) holds compaction back"
        )
    for other in look.parts(part.first - 1, part.last, 1 << 62):
        yield from opened(disk, store, other, horizon)
