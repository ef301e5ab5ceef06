"""The journal of a store as a reader in another process sees it: without its owner, and durable.

What is read is the directory and the manifest's log. A record counts once it is whole, its batch
too, and its file was synced, by the reader itself. Files that were made elsewhere and that no
manifest names yet bound what may be told: nothing at or above them, until that is decided.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files import cdb, record
from octavo.files.disk import Disk, refuse_links
from octavo.files.errors import Corruption, HistoryCompacted, Misuse, storage_error
from octavo.files.sealed_records import table_of
from octavo.manifest import adoption, change_log, recovery, unsynced, update_mark
from octavo.manifest.journal_manifest import JournalManifest

_TRIES = 20
T = TypeVar("T")


class Place(NamedTuple):
    """Where a record stands in its file."""

    relative: int
    start: int
    end: int
    follows: int
    """Records of its batch that come after it; 0 where it is whole with this one."""


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
        self._folder = f"{store}/journal"
        self._names: frozenset[str] | None = None
        self._settled = False
        self.manifest = JournalManifest.empty()
        self._files: list[tuple[int, int, str]] = []  # (base, seed, name), ascending
        self._bound = 0  # nothing at or above this sqn may be told; 0: no bound
        self._places: dict[str, tuple[int, list[Place]]] = {}  # of files that grow, or grew
        self._lengths: dict[str, int] = {}  # of those that grow, when they were last read
        self._named: set[str] = set()  # files whose names are durable
        self._tables: dict[str, list[Place]] = {}

    @property
    def horizon(self) -> int:
        """The journal is complete above this sqn, as of the last look."""
        return self.manifest.horizon

    # ------------------------------------------------------------ looking

    def look(self) -> None:
        """See which files there are. One listing where nothing changed. Raises Misuse where there
        is no store, Corruption, StorageFailed."""
        with _reading(self._folder):
            self._look()

    def _look(self) -> None:
        refuse_links(self._disk, self._folder, f"{self._folder}/manifest")
        if self._names is None and not self._disk.exists(self._folder):
            raise Misuse(f"there is no store at {self._folder.removesuffix('/journal')}")
        for _ in range(_TRIES):
            names = frozenset(self._disk.listdir(self._folder))
            if names == self._names and self._settled:
                return
            found = change_log.recover(self._disk, f"{self._folder}/manifest")
            manifest = JournalManifest.replayed(found.snapshot, found.changes)
            unlisted = update_mark.unlisted(self._disk, self._folder, names, manifest)
            try:
                adoption.refuse_earlier(self._disk, self._folder, unlisted, found.state_epoch)
            except FileNotFoundError:
                continue  # it was sealed, or compacted away
            if frozenset(self._disk.listdir(self._folder)) == names:
                self._take(names, manifest, unlisted)
                return
        raise Corruption(self._folder, 0, "changes faster than it can be read; try again")

    def _take(self, names: frozenset[str], manifest: JournalManifest, unlisted: set[str]) -> None:
        self._names, self.manifest = names, manifest
        self._settled = True
        self._bound = 0
        files = [(entry.base_sqn, entry.seed, entry.name) for entry in manifest.entries]
        for name in unlisted:
            who = recovery.identity(name)
            if who is None or manifest.find(who[0]) is not None:
                continue
            if name.endswith(recovery.LOG) and f"{name[:-4]}{recovery.SEALED}" in names:
                continue
            if name.endswith(recovery.SEALED):
                self._settled = False  # the manifest will tell of it soon
                path = f"{self._folder}/{name}"
                header = cdb.read_header(self._disk.pread(path, cdb.RECORDS_AT, 0), path)
                if header.base_sqn == 0:
                    self._bound = min(self._bound or who[0], who[0])
                    continue
            files.append((who[0], who[1], name))
        self._files = sorted(files)
        kept = {name for _, _, name in self._files}
        self._tables = {name: found for name, found in self._tables.items() if name in kept}
        self._places = {
            name: found
            for name, found in self._places.items()
            if name in kept or f"{name[:-4]}{recovery.SEALED}" in kept
        }

    def newest(self) -> int:
        """The newest sqn that may be told; durable on return. 0: none. Raises Corruption."""
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

    def _newest(self) -> int:
        newest = 0
        for base, seed, name in self._files:
            if self._bound and base >= self._bound:
                break
            entry = self.manifest.find(base)
            if entry is not None:
                newest = max(newest, entry.last_sqn)
                continue
            places = self._grown(seed, name)
            if places:  # what compaction is about to put in may end below what is there
                newest = max(newest, base + places[-1].relative)
        return newest

    def _grown(self, seed: int, name: str) -> list[Place]:
        """Records of a file, whole and durable. Only what came since the last look is read."""
        if name.endswith(recovery.SEALED):
            return self._sealed(name)
        path = f"{self._folder}/{name}"
        reached, places = self._places.get(name, (cdb.RECORDS_AT, []))
        try:
            length = self._disk.size(path)
            if length == self._lengths.get(name) and not self._goes_on(path, reached, length):
                return places
            buffer = self._disk.map_growing(path, reached)
        except FileNotFoundError:  # sealed meanwhile, with the same records at the same places
            return self._sealed(f"{name[:-4]}{recovery.SEALED}")
        more, reached = whole_records(buffer, reached, min(length, len(buffer)), seed)
        if more:
            self._sync(path)
        places += more
        self._places[name] = (reached, places)
        self._lengths[name] = length
        return places

    def _goes_on(self, path: str, reached: int, length: int) -> bool:
        """Whether there may be another record in a file as long as before: in the room that it was
        given ahead."""
        if length - reached > cdb.AHEAD_BYTES:
            return False  # a fragment; what completes it lengthens the file
        return any(self._disk.pread(path, record.FIXED_BYTES, reached))

    def _sync(self, path: str) -> None:
        with unsynced.marking(self._disk, self._folder):
            try:
                self._disk.sync_file(path)
            except FileNotFoundError:
                self._disk.sync_file(f"{path[:-4]}{recovery.SEALED}")
            if path not in self._named:  # its owner may never have made its name durable
                self._disk.sync_dir(self._folder)
                self._named.add(path)
        unsynced.refuse(self._disk, self._folder)  # behind it: its owner may have failed before

    def _sealed(self, name: str) -> list[Place]:
        found = self._tables.get(name)
        if found is None:
            path = f"{self._folder}/{name}"
            view = memoryview(self._disk.map(path))
            table = table_of(view, path)
            starts = table.starts.tolist()
            found = [
                Place(number, start, end, 0)
                for number, start, end in zip(
                    table.numbers.tolist(), starts, starts[1:], strict=False
                )
            ]
            self._tables[name] = found
        return found

    # ------------------------------------------------------------ planning

    def parts(self, since: int, upto: int, split_bytes: int) -> list[JournalPart]:
        """The records of (since, upto] as stretches of about so many bytes, in order. What the
        horizon is then may be above what it was before. Raises Corruption."""
        return self._steady(lambda: self._parts(since, upto, split_bytes))

    def _parts(self, since: int, upto: int, split_bytes: int) -> list[JournalPart]:
        parts: list[JournalPart] = []
        for base, seed, name in self._files:
            if base > upto or (self._bound and base >= self._bound):
                break
            entry = self.manifest.find(base)
            if entry is not None and entry.last_sqn <= since:
                continue
            group: list[Place] = []
            for place in self._grown(seed, name):
                if not since < base + place.relative <= upto:
                    continue
                group.append(place)
                if place.end - group[0].start >= split_bytes and not place.follows:
                    parts.append(_part(name, base, seed, group))
                    group = []
            if group:
                parts.append(_part(name, base, seed, group))
        return parts

    def end_of(self, since: int, records: int, size: int) -> int:
        """The sqn behind which a reader from ``since`` (exclusive) stops for so many records or
        bytes (0: no bound), at a batch's end and at least one; ``newest`` if that comes first."""
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
            for place in self._grown(seed, name):
                sqn = base + place.relative
                if sqn <= since:
                    continue
                if sqn > newest:
                    return newest
                taken += 1
                held += place.end - place.start
                full = (records and taken >= records) or (size and held >= size)
                if full and not self._follows(name, seed, place):
                    return sqn
        return newest

    def _follows(self, name: str, seed: int, place: Place) -> int:
        """How many records of its batch come after this one."""
        if not name.endswith(recovery.SEALED):
            return place.follows
        head = self._header(name, seed, place)
        return 0 if head.batch is None else head.batch[1] - head.batch[0] - 1

    def _header(self, name: str, seed: int, place: Place) -> record.Header:
        path = f"{self._folder}/{name}"
        length = min(place.end - place.start, record.MAX_HEADER_BYTES)
        data = self._disk.pread(path, length, place.start)
        try:
            return record.parse_header(data, seed ^ place.start, place.end - place.start)
        except record.NotARecord as wrong:
            raise Corruption(path, place.start, f"journal record: {wrong}") from None

    def mark(self, sqn: int) -> str:
        """What tells the record of a sqn from the one that another history of the store has under
        that number: its time and key, which compaction leaves as they are. "" where there is none.
        One header. Raises Corruption."""
        return self._steady(lambda: self._mark(sqn))

    def _mark(self, sqn: int) -> str:
        for base, seed, name in reversed(self._files):
            if base > sqn:
                continue
            places = self._grown(seed, name)
            at = bisect_left(places, sqn - base, key=lambda place: place.relative)
            if at == len(places) or places[at].relative != sqn - base:
                break
            head = self._header(name, seed, places[at])
            key = b"%d,%d,%s%s" % (head.tag, len(head.bucket), head.bucket, head.key)
            return f"{head.time_ms:x}-{xxh3(key):016x}"
        return ""


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Within it a read error is StorageFailed, or StorageFull for want of descriptors."""
    try:
        yield
    except FileNotFoundError:
        raise  # it went meanwhile
    except OSError as error:
        raise storage_error(error, f"{error.filename or path} cannot be read") from error


def _part(name: str, base: int, seed: int, group: list[Place]) -> JournalPart:
    return JournalPart(
        name,
        base,
        seed,
        base + group[0].relative,
        base + group[-1].relative,
        group[0].start,
        group[-1].end,
    )


def whole_records(
    buffer: object, start: int, end: int, seed: int, first: int = -1, last: int = -1
) -> tuple[list[Place], int]:
    """(records in [start, end) of a file that may still grow, where to go on).

    A batch that is not whole is left out: at the end it may still come, before that it never
    will. ``first``, ``last``: relative numbers of records whose batches are known to be whole,
    though they may begin before ``start``, or end behind ``end``. O(bytes).
    """
    places: list[Place] = []
    batch: list[Place] = []
    before = 0  # records of the batch that stand before ``start``
    reached = start
    damages: list[cdb.Damage] = []
    for row in cdb.scan(buffer, start, end, seed, damages):  # type: ignore[arg-type]
        if row.batch is None:
            batch = []
            places.append(Place(row.relative_sqn, row.at, row.end, 0))
            reached = row.end
            continue
        position, of = row.batch
        expected = before + len(batch)
        if position != expected or (batch and batch[-1].relative + 1 != row.relative_sqn):
            batch = []
        if not batch:
            before = position if row.relative_sqn == first else 0
        if position == before + len(batch):
            batch.append(Place(row.relative_sqn, row.at, row.end, of - position - 1))
        if batch and (before + len(batch) == of or row.relative_sqn == last):
            places += batch
            batch = []
            reached = row.end
    return places, reached


def records(disk: Disk, store: str, part: JournalPart, horizon: int) -> Iterator[record.Record]:
    """The records of a stretch, verified. ``horizon``: that of the journal when it was planned.

    Raises HistoryCompacted where compaction took some away since; Corruption.
    """
    path = f"{store}/journal/{part.name}"
    try:
        with _reading(path):
            buffer = disk.map(path)
    except FileNotFoundError:
        sealed = path.removesuffix(recovery.LOG) + recovery.SEALED
        if not disk.exists(sealed):
            yield from _moved(disk, store, part, horizon)
            return
        with _reading(sealed):
            path, buffer = sealed, disk.map(sealed)
    view = memoryview(buffer)
    if path.endswith(recovery.SEALED):
        table = table_of(view, path)
        starts = table.starts.tolist()
        places = [
            Place(number, start, end, 0)
            for number, start, end in zip(table.numbers.tolist(), starts, starts[1:], strict=False)
        ]
    else:
        known = part.first - part.base, part.last - part.base
        places, _ = whole_records(buffer, part.start, part.end, part.seed, *known)
    for place in places:
        if part.first <= part.base + place.relative <= part.last:
            start, end = place.start, _end(view, place)
            yield record.decode(view[start:end], part.seed ^ start, part.base, path, start)


def _end(view: memoryview, place: Place) -> int:
    """Where a record ends: a hole may follow it."""
    return place.start + 16 + int.from_bytes(view[place.start + 4 : place.start + 8], "little")


def _moved(disk: Disk, store: str, part: JournalPart, horizon: int) -> Iterator[record.Record]:
    """The records of a stretch whose file compaction replaced."""
    look = JournalLook(disk, store)
    look.look()
    if look.horizon > max(horizon, part.first - 1):
        raise HistoryCompacted(
            f"{store}: compaction took away changes above sqn {part.first - 1} while they were "
            f"being read; the journal is complete above {look.horizon}. A durable consumer "
            "(consumerId) holds compaction back"
        )
    for other in look.parts(part.first - 1, part.last, 1 << 62):
        if other.name == part.name:
            raise Corruption(f"{store}/journal/{part.name}", 0, "a journal file is missing")
        yield from records(disk, store, other, look.horizon)
