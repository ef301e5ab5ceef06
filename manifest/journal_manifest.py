"""The journal's manifest: which journal files there are, and how far sqns are reserved.

An immutable value, as the ledger's manifest is; an edit gives a new one.

Packed (see packing.py), a manifest is ``OJM1``: version, ceiling, horizon, commits (see
commits.py), number of entries, then the entries as columns. A change is ``OJC1``: the version it
leads to, the ceiling and the horizon behind it, the commits that come, the base sqns that go, the
entries that come. (Before version 2 there was neither a horizon nor the column ``clean_sqn``,
before 3 no commit; the last column, the state, is always 1.) A change states the whole of what it
touches, so that one that is applied although its writer never learnt that it was written does no
harm.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any

from octavo.files.errors import Corruption, Misuse
from octavo.files.journal.journal_names import MAX_BASE
from octavo.manifest import commits as packed_commits
from octavo.manifest.commits import Commit
from octavo.manifest.file_name import is_plain
from octavo.manifest.packing import MAX_VERSION, Packer, Unpacker

MAX_SQN = (1 << 64) - 1
GIVEN_BACK = 1 << 17
"""If no more sqns than this are reserved, the store was closed, which gives back those that were
not given. While it is open, the last ones are never given."""

_SNAPSHOT = b"OJM1"
_CHANGE = b"OJC1"
_VERSION = 3
_SEALED = 1
_COLUMNS = ("base_sqn", "last_sqn", "count", "bytes", "seed", "clean_sqn")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What is known of a sealed journal file without opening it."""

    name: str
    base_sqn: int
    """Of its first record; no two files have the same."""
    last_sqn: int
    """Of its last record, inclusive."""
    count: int
    """Records, at most one for each sqn."""
    bytes: int
    seed: int
    """The file's random id, which its checksums begin with."""
    clean_sqn: int = 0
    """As of this sqn the file holds no put with a newer version; 0: not known."""
    file: Any = field(default=None, compare=False, repr=False)
    """The file's actor, where there is one; never persisted."""

    def for_job(self) -> dict[str, Any]:
        """What a job on the file takes of this."""
        return {
            "name": self.name,
            "seed": self.seed,
            "base_sqn": self.base_sqn,
            "last_sqn": self.last_sqn,
        }


_numbers = attrgetter(*_COLUMNS)
_base = attrgetter("base_sqn")


def fault_of(entry: JournalEntry) -> str:
    """What is wrong with an entry by itself; "" where nothing is."""
    numbers = _numbers(entry)
    if not is_plain(entry.name):
        return f"file name {entry.name!r}"
    if set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > MAX_SQN:
        return f"{entry.name}: a number that is not in [0, 2**64)"
    if entry.base_sqn < 1:
        return f"{entry.name}: base sqn {entry.base_sqn}; the first one is 1"
    if not 0 <= entry.count <= entry.last_sqn - entry.base_sqn + 1:
        return f"{entry.name}: {entry.count} records from {entry.base_sqn} to {entry.last_sqn}"
    return ""


@dataclass(frozen=True, slots=True)
class JournalManifest:
    """The sealed files of the journal. ``check`` states what holds of it."""

    version: int = 0
    """Grows by one with each edit."""
    entries: tuple[JournalEntry, ...] = ()
    """By base_sqn, oldest first; their sqns are disjoint."""
    bases: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """The entries' base sqns, to bisect in."""
    ceiling: int = 1
    """Every sqn that was ever given is below it."""
    horizon: int = 0
    """The highest sqn whose record compaction dropped or changed; above it the journal is
    complete."""
    commits: tuple[Commit, ...] = ()
    """What was taken in whole from elsewhere, oldest first."""

    @classmethod
    def empty(cls) -> JournalManifest:
        """No file; the first sqn to give is 1."""
        return cls()

    def find(self, sqn: int) -> JournalEntry | None:
        """The file that would hold this sqn. O(log files)."""
        at = bisect_right(self.bases, sqn) - 1
        if at < 0:
            return None
        entry = self.entries[at]
        return entry if sqn <= entry.last_sqn else None

    @property
    def to_give(self) -> int:
        """The first sqn that is not to be given: the last reserved ones never are, or it would look
        as if the store had been closed with more."""
        return self.ceiling - GIVEN_BACK

    def gone(self, newest: int) -> range:
        """The sqns that are missing behind ``newest``, where the journal's files, or the ledger,
        end. Only a store that was closed knows its last sqn; one that was killed had reserved
        more."""
        return range(newest + 1, self.ceiling if self.ceiling - newest <= GIVEN_BACK else 0)

    def gone_told(self, directory: str, newest: int) -> str:
        """The message about sqns that are ``gone``; "" if none are."""
        if not self.gone(newest):
            return ""
        return (
            f"{directory}: ends at sqn {newest}, and the store was closed at {self.ceiling - 1}: "
            "what was between is gone, such as a file, or an older one is in its place; bring it "
            "back, or restore a backup"
        )

    def clean_below(self, unsealed: int = MAX_SQN) -> dict[str, int]:
        """For each file, by name, the sqn as of which no older file holds a superseded put. The
        first file that is not sealed begins at ``unsealed``; nothing is known of it. O(files)."""
        found, lowest = {}, MAX_SQN
        for entry in self.entries:
            found[entry.name] = lowest if entry.base_sqn <= unsealed else 0
            lowest = min(lowest, entry.clean_sqn)
        return found

    # ------------------------------------------------------------ editing

    def edit(
        self,
        added: Iterable[JournalEntry] = (),
        removed: Iterable[str] = (),
        ceiling: int | None = None,
        horizon: int = 0,
        commits: Iterable[Commit] = (),
    ) -> JournalManifest:
        """A manifest without the files named ``removed`` and with ``added``; what goes, goes first.

        An added entry replaces the one with its base_sqn, whatever its name. The ceiling may
        also go down: a clean stop gives back what was reserved and not given. The horizon rises to
        ``horizon`` or stays. O(files). Raises Misuse, stating why.
        """
        gone = set(removed)
        missing = gone.difference([entry.name for entry in self.entries]) if gone else ()
        try:
            if missing:
                raise ValueError(f"{min(missing)} is not in it")
            return self._edited(
                added,
                gone,
                self.ceiling if ceiling is None else ceiling,
                max(self.horizon, horizon),
                commits,
            )
        except ValueError as wrong:
            raise Misuse(f"edit of journal manifest {self.version}: {wrong}") from None

    def up_to(self, sqn: int, entries: Iterable[JournalEntry], ceiling: int) -> JournalManifest:
        """The same journal up to ``sqn``, inclusive, made of these files and with this ceiling;
        version and horizon stay, and so do the commits up to there. O(files). Raises Misuse."""
        commits = [commit for commit in self.commits if commit.last_sqn <= sqn]
        made = JournalManifest.empty().edit(
            entries, ceiling=ceiling, horizon=self.horizon, commits=commits
        )
        return replace(made, version=self.version)

    def _edited(
        self,
        added: Iterable[JournalEntry],
        gone: set[str],
        ceiling: int,
        horizon: int,
        commits: Iterable[Commit],
    ) -> JournalManifest:
        if not 1 <= ceiling <= MAX_BASE:
            raise ValueError(f"ceiling {ceiling}")
        there = {entry.base_sqn: entry for entry in self.entries if entry.name not in gone}
        for entry in added:
            fault = fault_of(entry)
            if fault:
                raise ValueError(fault)
            there[entry.base_sqn] = entry
        entries = tuple(sorted(there.values(), key=_base))
        for left, right in pairwise(entries):
            if left.last_sqn >= right.base_sqn:
                raise ValueError(f"{left.name} reaches into {right.name}")
        return JournalManifest(
            self.version + 1,
            entries,
            tuple(map(_base, entries)),
            ceiling,
            horizon,
            packed_commits.merged(self.commits, commits),
        )

    # ------------------------------------------------------------ what holds

    def check(self) -> None:
        """Raise Corruption, stating the invariant, where one does not hold. O(files).

        Each entry is possible in itself; names are unique; entries are in order of their base
        sqns and share none; the base sqns are those of the entries; the ceiling is above every
        sqn, and not too high; nor is the version.
        """
        for entry in self.entries:
            if fault := fault_of(entry):
                raise _wrong(fault)
        self._check_together()

    def _check_together(self) -> None:
        if not 1 <= self.ceiling <= MAX_BASE:
            raise _wrong(f"ceiling {self.ceiling}")
        if self.version > MAX_VERSION:
            raise _wrong(f"version {self.version}")
        if len({entry.name for entry in self.entries}) != len(self.entries):
            raise _wrong("names are not unique")
        for left, right in pairwise(self.entries):
            if max(left.last_sqn, left.base_sqn) >= right.base_sqn:
                raise _wrong(f"{left.name} reaches into {right.name}")
        if self.bases != tuple(map(_base, self.entries)):
            raise _wrong("the base sqns are not those of its files")
        last = self.entries[-1] if self.entries else None
        if last is not None and last.last_sqn >= self.ceiling:
            raise _wrong(f"{last.name} reaches above the ceiling", self.ceiling, last.last_sqn)

    # ------------------------------------------------------------ bytes

    def encode(self) -> bytes:
        """The whole manifest; actors are left out. O(files)."""
        out = Packer(_SNAPSHOT, _VERSION)
        out.number(self.version)
        out.number(self.ceiling)
        out.number(self.horizon)
        packed_commits.pack(out, self.commits)
        _pack(out, self.entries)
        return out.payload()

    @classmethod
    def decode(cls, payload: bytes) -> JournalManifest:
        """The manifest that was encoded, checked. Raises Corruption, UnsupportedFormat."""
        found = Unpacker(payload, "journal manifest", _SNAPSHOT, _VERSION)
        version, ceiling = found.number(), found.number()
        horizon = found.number() if found.version > 1 else 0
        commits = packed_commits.unpack(found) if found.version > 2 else ()
        entries = _unpack(found)
        found.end()
        made = cls(version, tuple(entries), tuple(map(_base, entries)), ceiling, horizon, commits)
        made.check()
        return made

    @classmethod
    def replayed(cls, payload: bytes | None, changes: Iterable[bytes]) -> JournalManifest:
        """An encoded manifest (None: the empty one) with changes applied in order, checked.

        O(files + what changed), however many changes. Raises Corruption, UnsupportedFormat.
        """
        made = cls.empty() if payload is None else cls.decode(payload)
        version, ceiling, horizon = made.version, made.ceiling, made.horizon
        there = {entry.base_sqn: entry for entry in made.entries}
        commits: list[Commit] = []
        changed = False
        for change in changes:
            version, ceiling, higher, newer, gone, added = _unpack_change(change, len(there))
            horizon = max(horizon, higher)
            commits += newer
            for base in gone:
                there.pop(base, None)
            there.update((entry.base_sqn, entry) for entry in added)
            changed = True
        if not changed:
            return made
        entries = tuple(sorted(there.values(), key=_base))
        bases = tuple(map(_base, entries))
        known = packed_commits.merged(made.commits, commits)
        made = cls(version, entries, bases, ceiling, horizon, known)
        made._check_together()
        return made

    def change_to(self, newer: JournalManifest) -> bytes:
        """The change from this manifest to ``newer``, for ``replayed``. O(files)."""
        before = {entry.base_sqn: entry for entry in self.entries}
        added = []
        for entry in newer.entries:
            old = before.pop(entry.base_sqn, None)
            if old is not entry and old != entry:
                added.append(entry)
        out = Packer(_CHANGE, _VERSION)
        out.number(newer.version)
        out.number(newer.ceiling)
        out.number(newer.horizon)
        packed_commits.pack(out, packed_commits.added(self.commits, newer.commits))
        out.number(len(before))
        out.integers(list(before))
        _pack(out, added)
        return out.payload()


# ---------------------------------------------------------------- columns


def _wrong(what: str, expected: object = None, found: object = None) -> Corruption:
    return Corruption("journal manifest", 0, what, expected=expected, found=found)


def _pack(out: Packer, entries: Iterable[JournalEntry]) -> None:
    entries = list(entries)
    out.number(len(entries))
    out.strings([entry.name.encode() for entry in entries])
    for name in _COLUMNS:
        out.integers(list(map(attrgetter(name), entries)))
    out.integers([_SEALED] * len(entries))


def _unpack(found: Unpacker) -> list[JournalEntry]:
    """Unpack entries, each checked by itself."""
    count = found.number()
    names = [name.decode("latin-1") for name in found.strings(count)]
    columns = [found.integers(count) for _ in _COLUMNS[: 5 if found.version < 2 else None]]
    states = set(found.integers(count))
    if states - {_SEALED}:
        raise found.wrong("state of a file", found=max(states))
    made = list(map(JournalEntry, names, *columns))
    for entry in made:
        if fault := fault_of(entry):
            raise found.wrong(fault)
    return made


def _unpack_change(
    change: bytes, files: int
) -> tuple[int, int, int, tuple[Commit, ...], set[int], list[JournalEntry]]:
    """Version, ceiling, horizon, new commits, the base sqns that go, and the files that come, of a
    change to so many files."""
    found = Unpacker(change, "journal manifest change", _CHANGE, _VERSION)
    version, ceiling = found.number(), found.number()
    horizon = found.number() if found.version > 1 else 0
    commits = packed_commits.unpack(found) if found.version > 2 else ()
    count = found.number()
    if count > files:
        raise found.wrong("removes more than there is", expected=files, found=count)
    gone = set(found.integers(count))
    added = _unpack(found)
    found.end()
    return version, ceiling, horizon, commits, gone, added
