"""The ledger's manifest: which ledger files there are, level by level. An immutable value.

An edit gives a new manifest and leaves the old one as it is; both share their entries. So a
snapshot of the file set is a reference, and whoever reads needs no lock.

Packed (see packing.py), a manifest is ``OLM1``: version, persisted sqn, expired_ms, number of
entries, then the entries as columns, level by level and in the order of each level. A change is
``OLC1``: the version it leads to, the persisted sqn and expired_ms behind it, the names that go,
the entries that come. (Before version 2 there was no expired_ms.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter

from octavo.files.errors import Corruption, Misuse
from octavo.manifest.journal_manifest import MAX_SQN
from octavo.manifest.ledger_entry import MAX_LEVELS, LedgerEntry, fault_of, pack, unpack
from octavo.manifest.packing import MAX_VERSION, Packer, Unpacker

__all__ = ["MAX_LEVELS", "REBUILD", "LedgerEntry", "LedgerManifest"]

REBUILD = "REBUILD"
"""A file of this name in the ledger: the next start makes the ledger anew, since it was found
damaged, or was not fully worked out anew from the values."""
_SNAPSHOT = b"OLM1"
_CHANGE = b"OLC1"
_VERSION = 2
_LATEST_MS = 1 << 48
_first_key = attrgetter("first_key")
_by_age = attrgetter("max_sqn", "min_sqn", "name")

_FEW_CHANGES = 128
"""Up to this many, a level is edited instead of being sorted anew."""


@dataclass(frozen=True, slots=True)
class LedgerManifest:
    """The files of the ledger. ``check`` states what holds of it."""

    version: int = 0
    """Grows by one with each edit."""
    levels: tuple[tuple[LedgerEntry, ...], ...] = ()
    """Level 0: newest first, by descending max_sqn; may overlap. Others: by first_key, disjoint."""
    firsts: tuple[tuple[bytes, ...], ...] = field(default=(), compare=False, repr=False)
    """For each level its first keys, to bisect in; () for level 0."""
    persisted_sqn: int = 0
    """The journal is in the ledger up to here, inclusive."""
    expired_ms: int = 0
    """What expired up to this moment, ms UTC, inclusive, stays absent wherever the clock is set:
    merging dropped some of it, or compaction its values. Only grows."""

    @classmethod
    def empty(cls) -> LedgerManifest:
        """No file, and nothing of the journal."""
        return cls()

    def emptied(self) -> LedgerManifest:
        """What a ledger that is made anew begins with: no file, but what has expired stays so."""
        return LedgerManifest(expired_ms=self.expired_ms)

    # ------------------------------------------------------------ looking

    @property
    def entries(self) -> list[LedgerEntry]:
        """All files, level by level and in the order of each. O(files)."""
        return [entry for level in self.levels for entry in level]

    @property
    def loaded(self) -> frozenset[int]:
        """The sqns at which, in the journal, commits begin whose ledger files are still here as
        they came, not yet merged. O(files)."""
        return frozenset(entry.sqn_base for entry in self.entries if entry.sqn_base)

    def now_ms(self, clock_ms: int) -> int:
        """The moment to judge expiry by when the clock says ``clock_ms``, ms UTC both."""
        return max(clock_ms, self.expired_ms)

    def for_jobs(self) -> list[list[tuple[str, int, list[int]]]]:
        """What a job on the ledger takes of its files, level by level."""
        return [[entry.for_job() for entry in level] for level in self.levels]

    def overlapping(self, level: int, first: bytes, last: bytes) -> tuple[LedgerEntry, ...]:
        """The files of a level with keys in [first, last], both inclusive, in the level's order.

        O(files) in level 0, else O(log files + what is found).
        """
        if not 0 <= level < len(self.levels) or first > last:
            return ()
        entries = self.levels[level]
        if level == 0:
            return tuple(e for e in entries if e.first_key <= last and e.last_key >= first)
        low = bisect_right(self.firsts[level], first) - 1
        if low < 0 or entries[low].last_key < first:
            low += 1
        return entries[low : bisect_right(self.firsts[level], last)]

    # ------------------------------------------------------------ editing

    def edit(
        self,
        added: Iterable[LedgerEntry] = (),
        removed: Iterable[LedgerEntry] = (),
        persisted_sqn: int | None = None,
        expired_ms: int = 0,
    ) -> LedgerManifest:
        """A manifest without ``removed`` and with ``added``; what goes, goes first.

        A file that changes its level is removed and added. ``persisted_sqn`` None keeps it;
        ``expired_ms`` counts if it is above the present one. O(files) pointer copies of the levels
        that are touched; what goes is found in O(log files), in level 0 by going through it. Raises
        Misuse, stating why: a file that is not there, an entry that cannot be, files that overlap,
        a persisted_sqn that goes back.
        """
        try:
            return self._edited(tuple(added), tuple(removed), persisted_sqn, expired_ms)
        except ValueError as wrong:
            raise Misuse(f"edit of ledger manifest {self.version}: {wrong}") from None

    def _edited(
        self,
        added: Sequence[LedgerEntry],
        removed: Sequence[LedgerEntry],
        persisted_sqn: int | None,
        expired_ms: int,
    ) -> LedgerManifest:
        persisted = self.persisted_sqn if persisted_sqn is None else persisted_sqn
        if not self.persisted_sqn <= persisted <= MAX_SQN:
            raise ValueError(f"persisted sqn {persisted} after {self.persisted_sqn}")
        expired = max(expired_ms, self.expired_ms)
        if expired >= _LATEST_MS:
            raise ValueError(f"expired up to {expired} ms")
        gone: dict[int, set[int]] = {}
        for entry in removed:
            gone.setdefault(entry.level, set()).add(self._place(entry))
        come: dict[int, list[LedgerEntry]] = {}
        for entry in added:
            fault = fault_of(entry)
            if fault:
                raise ValueError(fault)
            come.setdefault(entry.level, []).append(entry)
        levels, firsts = list(self.levels), list(self.firsts)
        for level in sorted(gone.keys() | come.keys()):
            while len(levels) <= level:
                levels.append(())
                firsts.append(())
            levels[level], firsts[level] = _changed(
                level, levels[level], firsts[level], gone.get(level, set()), come.get(level, [])
            )
        while levels and not levels[-1]:
            levels.pop()
            firsts.pop()
        return LedgerManifest(self.version + 1, tuple(levels), tuple(firsts), persisted, expired)

    def _place(self, entry: LedgerEntry) -> int:
        """The index of an entry in its level. Raises ValueError."""
        level = entry.level
        there = self.levels[level] if level < len(self.levels) else ()
        places: Iterable[int] = range(len(there))
        if level and there:
            places = (max(bisect_right(self.firsts[level], entry.first_key) - 1, 0),)
        for at in places:
            if there[at].name == entry.name:
                return at
        raise ValueError(f"{entry.name} is not in it")

    # ------------------------------------------------------------ what holds

    def check(self) -> None:
        """Raise Corruption, stating the invariant, where one does not hold. O(files log files).

        Each entry is possible in itself; names are unique; each file stands in its level; level
        0 is in order of age, and files in it that share keys share no sqns; the others are in
        order of their keys and share none; there is no empty last level; the first keys are
        those of the entries; no file is newer than the persisted sqn; the version is not too high.
        """
        if self.version > MAX_VERSION:
            raise _wrong(f"version {self.version}")
        names: set[str] = set()
        count = 0
        for level, entries in enumerate(self.levels):
            for entry in entries:
                fault = fault_of(entry)
                if fault:
                    raise _wrong(fault)
                if entry.level != level:
                    raise _wrong(f"{entry.name} in another level", entry.level, level)
                if entry.max_sqn > self.persisted_sqn:
                    raise _wrong(
                        f"{entry.name} is newer than what is persisted",
                        self.persisted_sqn,
                        entry.max_sqn,
                    )
                names.add(entry.name)
            count += len(entries)
            try:
                ordered, firsts = _ordered(level, list(entries))
            except ValueError as wrong:
                raise _wrong(str(wrong)) from None
            if ordered != entries:
                raise _wrong(f"level {level} is not in order")
            if len(self.firsts) <= level or self.firsts[level] != firsts:
                raise _wrong(f"the first keys of level {level} are not those of its files")
        if len(names) != count:
            raise _wrong("names are not unique", count, len(names))
        if self.levels and not self.levels[-1]:
            raise _wrong("the last level is empty")
        if len(self.firsts) != len(self.levels):
            raise _wrong("first keys of so many levels", len(self.levels), len(self.firsts))
        if self.levels:
            _check_ages(self.levels[0])

    # ------------------------------------------------------------ bytes

    def encode(self) -> bytes:
        """The whole manifest; actors are left out. O(files)."""
        out = Packer(_SNAPSHOT, _VERSION)
        out.number(self.version)
        out.number(self.persisted_sqn)
        out.number(self.expired_ms)
        pack(out, self.entries)
        return out.payload()

    @classmethod
    def decode(cls, payload: bytes) -> LedgerManifest:
        """The manifest that was encoded, checked. Raises Corruption, UnsupportedFormat."""
        return cls.replayed(payload, ())

    @classmethod
    def replayed(cls, payload: bytes | None, changes: Iterable[bytes]) -> LedgerManifest:
        """An encoded manifest (None: the empty one) with changes applied in order, checked.

        O(files + what changed), however many changes. Raises Corruption, UnsupportedFormat.
        """
        version = persisted = expired = 0
        entries: list[LedgerEntry] = []
        if payload is not None:
            found = Unpacker(payload, "ledger manifest", _SNAPSHOT, _VERSION)
            version, persisted, expired = _unpack_front(found)
            entries = unpack(found)
            found.end()
        there = {entry.name: entry for entry in entries}
        if len(there) != len(entries):
            raise _wrong("names are not unique", len(entries), len(there))
        for change in changes:
            version, persisted, moment, removed, added = _unpack_change(change, version, persisted)
            expired = max(expired, moment)
            for name in removed:
                if there.pop(name, None) is None:
                    raise _wrong(f"change to version {version} removes {name}, which is not there")
            for entry in added:
                if there.setdefault(entry.name, entry) is not entry:
                    raise _wrong(f"change to version {version} adds {entry.name} again")
        return _built(version, persisted, expired, list(there.values()))

    def encode_change(
        self,
        added: Iterable[LedgerEntry] = (),
        removed: Iterable[LedgerEntry] = (),
        persisted_sqn: int | None = None,
        expired_ms: int = 0,
    ) -> bytes:
        """The change that ``edit`` with the same arguments makes. O(added + removed)."""
        out = Packer(_CHANGE, _VERSION)
        out.number(self.version + 1)
        out.number(self.persisted_sqn if persisted_sqn is None else persisted_sqn)
        out.number(max(expired_ms, self.expired_ms))
        names = [gone.name for gone in removed]
        out.number(len(names))
        out.strings([name.encode() for name in names])
        pack(out, list(added))
        return out.payload()


# ---------------------------------------------------------------- orders


def _wrong(what: str, expected: object = None, found: object = None) -> Corruption:
    return Corruption("ledger manifest", 0, what, expected=expected, found=found)


def _ordered(
    level: int, entries: list[LedgerEntry]
) -> tuple[tuple[LedgerEntry, ...], tuple[bytes, ...]]:
    """A level in its order, and its first keys. Raises ValueError where files overlap.

    O(files) where they are almost in order.
    """
    if level == 0:
        entries.sort(key=_by_age, reverse=True)
        return tuple(entries), ()
    entries.sort(key=_first_key)
    for left, right in pairwise(entries):
        if left.last_key >= right.first_key:
            raise ValueError(f"{left.name} and {right.name} overlap in level {level}")
    return tuple(entries), tuple(map(_first_key, entries))


def _changed(
    level: int,
    entries: tuple[LedgerEntry, ...],
    firsts: tuple[bytes, ...],
    gone: set[int],
    come: list[LedgerEntry],
) -> tuple[tuple[LedgerEntry, ...], tuple[bytes, ...]]:
    """A level in order, as ``_ordered``, without the indexes ``gone`` and with ``come``.

    Few changes cost copies of pointers only, and look at their neighbours only.
    """
    if level == 0 or len(gone) + len(come) > _FEW_CHANGES:
        return _ordered(level, [e for at, e in enumerate(entries) if at not in gone] + come)
    kept, keys = list(entries), list(firsts)
    for at in sorted(gone, reverse=True):
        del kept[at], keys[at]
    for entry in come:
        at = bisect_right(keys, entry.first_key)
        for left, right in ((kept[at - 1 : at], [entry]), ([entry], kept[at : at + 1])):
            if left and right and left[0].last_key >= right[0].first_key:
                raise ValueError(f"{left[0].name} and {right[0].name} overlap in level {level}")
        kept.insert(at, entry)
        keys.insert(at, entry.first_key)
    return tuple(kept), tuple(keys)


def _check_ages(entries: tuple[LedgerEntry, ...]) -> None:
    """Files of level 0 whose sqns overlap come from one run and so must share no keys: else
    nobody could tell which file has the newer version of a key."""
    group: list[LedgerEntry] = []
    lowest = 0
    for entry in (*entries, None):
        if entry is not None and group and entry.max_sqn >= lowest:
            lowest = min(lowest, entry.min_sqn)
            group.append(entry)
            continue
        group.sort(key=_first_key)
        for left, right in pairwise(group):
            if left.last_key >= right.first_key:
                raise _wrong(f"{left.name} and {right.name} of level 0 share keys and sqns")
        if entry is not None:
            group = [entry]
            lowest = entry.min_sqn


def _built(
    version: int, persisted: int, expired: int, entries: list[LedgerEntry]
) -> LedgerManifest:
    """A checked manifest of entries that may be anything."""
    entries.sort(key=attrgetter("level"))
    levels: list[tuple[LedgerEntry, ...]] = []
    firsts: list[tuple[bytes, ...]] = []
    for level, group in groupby(entries, key=attrgetter("level")):
        if level >= MAX_LEVELS:
            raise _wrong("level", f"below {MAX_LEVELS}", level)
        while len(levels) < level:
            levels.append(())
            firsts.append(())
        try:
            ordered, first_keys = _ordered(level, list(group))
        except ValueError as wrong:
            raise _wrong(str(wrong)) from None
        levels.append(ordered)
        firsts.append(first_keys)
    made = LedgerManifest(version, tuple(levels), tuple(firsts), persisted, expired)
    made.check()
    return made


def _unpack_front(found: Unpacker) -> tuple[int, int, int]:
    """(version, persisted sqn, expired_ms), of a manifest or a change."""
    version, persisted = found.number(), found.number()
    expired = found.number() if found.version > 1 else 0
    if expired >= _LATEST_MS:
        raise found.wrong("expired up to", expected=f"below {_LATEST_MS} ms", found=expired)
    return version, persisted, expired


def _unpack_change(
    change: bytes, version: int, persisted: int
) -> tuple[int, int, int, list[str], list[LedgerEntry]]:
    """(version, persisted sqn, expired_ms, names that go, entries that come) behind a change of a
    manifest of ``version`` and ``persisted``."""
    found = Unpacker(change, "ledger manifest change", _CHANGE, _VERSION)
    to_version, to_persisted, expired = _unpack_front(found)
    if to_version != version + 1:
        raise found.wrong("leads to a version", expected=version + 1, found=to_version)
    if to_persisted < persisted:
        raise found.wrong("takes the persisted sqn back", expected=persisted, found=to_persisted)
    removed = [name.decode("latin-1") for name in found.strings(found.number())]
    added = unpack(found)
    found.end()
    return to_version, to_persisted, expired, removed, added
