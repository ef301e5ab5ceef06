"""What was written to a store, and so what may be found after its machine lost power.

Every value is of one version only, and says itself which index entry its object has: so what is
found tells which version it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Where = tuple[bytes, bytes]
"""(bucket, key)."""
State = dict[Where, bytes]


def value_of(number: int, filling: bytes = b"", term: int | None = None) -> bytes:
    """A value that no other version has; of an object under ``term``, if that is given."""
    return b"%d:%s:" % (number, b"" if term is None else b"%d" % term) + filling


def term_of(value: bytes) -> int | None:
    """The term of the object's index entry, or None."""
    found = value.split(b":", 2)[1]
    return int(found) if found else None


@dataclass
class Version:
    sqn: int
    value: bytes | None
    """None: a delete."""
    batch: int
    """The first sqn of its batch, or 0."""


@dataclass
class Found:
    """Everything that a store was seen to hold."""

    objects: dict[Where, tuple[bytes, int]] = field(default_factory=dict)
    """value and sqn."""
    entries: set[tuple[bytes, int, bytes]] = field(default_factory=set)
    """Index entries: (bucket, term, key)."""
    next_sqn: int = 0
    snapshots: dict[str, State] = field(default_factory=dict)
    wrong: str = ""
    """What could not be: HEAD and GET that disagree, an error, a problem of verify."""

    @property
    def state(self) -> State:
        return {where: value for where, (value, _) in self.objects.items()}


class History:
    """Every version that was acknowledged, and the operation under way."""

    def __init__(self) -> None:
        self.versions: dict[Where, list[Version]] = {}
        self.batches: dict[int, list[tuple[Where, bytes | None]]] = {}
        self.highest = 0
        """The highest sqn that was given."""
        self.durable = 0
        """Every record up to this sqn must survive."""
        self.pending: list[tuple[Where, bytes | None]] = []
        self.pending_is_batch = False
        self.number = 0
        self.snapshots: dict[str, State] = {}
        """Published snapshots by name."""
        self.pending_snapshot: str | None = None
        """One that is being published or released."""
        self.backup: State | None = None
        """The newest whole backup."""
        self.pending_backup: State | None = None
        self.may_be_gone: Callable[[bytes], bool] = lambda value: False
        """Whether the version of this value has expired at some time."""
        self.consumed: int | None = None
        """What a consumer has acknowledged; None: there is none yet."""
        self.pending_consumed: int | None = None
        self.restored: State | None = None
        self.pending_restore: State | None = None

    # ------------------------------------------------------------ writing

    def value(self, filling: bytes = b"", term: int | None = None) -> bytes:
        """The value of the next version."""
        self.number += 1
        return value_of(self.number, filling, term)

    def begin(self, *changes: tuple[Where, bytes | None], batch: bool = False) -> None:
        """An operation is under way."""
        self.pending, self.pending_is_batch = list(changes), batch

    def done(self, last_sqn: int, *, durable: bool) -> None:
        """It was acknowledged."""
        first = last_sqn - len(self.pending) + 1
        if self.pending_is_batch:
            self.batches[first] = self.pending
        for sqn, (where, value) in enumerate(self.pending, first):
            batch = first if self.pending_is_batch else 0
            self.versions.setdefault(where, []).append(Version(sqn, value, batch))
        self.pending = []
        self.highest = last_sqn
        if durable:
            self.durable = last_sqn

    def nothing_kept(self) -> None:
        """It was refused, and nothing of it is there."""
        self.pending, self.pending_is_batch = [], False
        if self.pending_snapshot not in self.snapshots:  # a release may have been done in part
            self.pending_snapshot = None
        self.pending_backup = self.pending_restore = None

    def all_durable(self) -> None:
        self.durable = self.highest

    def now(self) -> State:
        """What a reader finds now."""
        return self.at(self.highest)

    def at(self, sqn: int) -> State:
        """What a reader finds who sees all up to this sqn."""
        state = {}
        for where, versions in self.versions.items():
            seen = [each.value for each in versions if each.sqn <= sqn]
            if seen and seen[-1] is not None:
                state[where] = seen[-1]
        return state

    # ------------------------------------------------------------ judging

    def wrong(self, found: Found) -> str:
        """Why this cannot be what is left; empty if it can."""
        return (
            found.wrong
            or self._wrong_objects(found)
            or self._wrong_batches(found)
            or self._wrong_entries(found)
            or self._wrong_snapshots(found)
            or self._wrong_sqn(found)
        )

    def _wrong_objects(self, found: Found) -> str:
        coming = dict(self.pending)
        for where in {*self.versions, *coming, *found.objects}:
            versions = self.versions.get(where, [])
            first = 0
            while first < len(versions) and versions[first].sqn <= self.durable:
                first += 1
            allowed = {each.value: each.sqn for each in versions[max(first - 1, 0) :]}
            if first == 0:
                allowed.setdefault(None, 0)
            value, sqn = found.objects.get(where, (None, 0))
            if where in coming and value == coming[where]:
                if value is not None and sqn <= self.highest:
                    return f"{where}: what was under way has sqn {sqn}, given to another"
            elif value is None and any(v and self.may_be_gone(v) for v in allowed):
                continue
            elif value not in allowed:
                return f"{where}: {value!r} is found, allowed: {list(allowed)}"
            elif value is not None and allowed[value] != sqn:
                return f"{where}: {value!r} has sqn {sqn}, written as {allowed[value]}"
        return ""

    def _wrong_batches(self, found: Found) -> str:
        for first, members in self.batches.items():
            if first + len(members) - 1 > self.durable and self._is_torn(found, members, first):
                return f"the batch of sqn {first} is neither whole nor absent: {members}"
        if self.pending_is_batch and self.pending:
            seen = set()
            for where, value in self.pending:
                if value is not None:
                    seen.add(found.objects.get(where, (None, 0))[0] == value)
            if len(seen) > 1:
                return f"the batch under way is neither whole nor absent: {self.pending}"
        return ""

    def _is_torn(self, found: Found, members: list[tuple[Where, bytes | None]], first: int) -> bool:
        seen = set()
        for sqn, (where, value) in enumerate(members, first):
            if value is None:
                continue
            there = found.objects.get(where)
            if there is not None:
                if there[1] <= sqn:
                    seen.add(there[1] == sqn)
            elif (where, None) in self.pending:
                continue
            elif not any(v is None or self.may_be_gone(v) for v in self.values_of(where)):
                seen.add(False)
        return len(seen) > 1

    def values_of(self, where: Where) -> list[bytes | None]:
        return [each.value for each in self.versions[where]]

    def _wrong_entries(self, found: Found) -> str:
        expected = set()
        for (bucket, key), (value, _) in found.objects.items():
            term = term_of(value)
            if term is not None:
                expected.add((bucket, term, key))
        if expected != found.entries:
            return f"index and objects disagree: {sorted(expected ^ found.entries)[:4]}"
        return ""

    def _wrong_snapshots(self, found: Found) -> str:
        for name in {*self.snapshots, *found.snapshots}:
            if name == self.pending_snapshot and name not in found.snapshots:
                continue
            if name not in self.snapshots and name != self.pending_snapshot:
                return f"snapshot {name} is there"
            if name not in found.snapshots:
                return f"snapshot {name} is not there"
            expected = self.snapshots.get(name, self.now())
            if found.snapshots[name] != expected:
                return f"snapshot {name} is not the state at its time: {found.snapshots[name]}"
        return ""

    def _wrong_sqn(self, found: Found) -> str:
        if found.next_sqn <= self.highest:
            return f"sqn {found.next_sqn} is given again, up to {self.highest} were given"
        return ""
