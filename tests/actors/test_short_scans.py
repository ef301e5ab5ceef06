"""The first windows of a scan, found in one go, give what the windows merged from chunks give."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice

import ledger_rows
import pytest
from beside import seeded
from ledger_rows import Row
from simdisk import SimDisk

from octavo.actors.memory_table import MemoryTable
from octavo.actors.scanning.kept_scans import Stretches
from octavo.actors.scanning.ledger_order import LedgerOrder, files_of
from octavo.actors.scanning.scan import windows
from octavo.actors.scanning.short_scans import short_windows
from octavo.actors.view import JournalView, View
from octavo.files.errors import Corruption
from octavo.files.ledger.bounds import Bounds, bounds
from octavo.files.ledger.ledger_key import prefix
from octavo.files.ledger.sst import Sst
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import LedgerManifest

BUCKETS = [b"", b"a", b"ab"]
NAMES = [b"%03d" % at + b"x" * (at % 4) for at in range(900)]
NOW_MS = 1_700_000_000_000
Rows = list[tuple[bytes, int]]


@dataclass
class File:
    """Takes a ledger file's place."""

    sst: Sst

    def reader(self) -> Sst:
        return self.sst


def chosen(rng: random.Random, rows: int, share: float) -> list[bytes]:
    """Ledger keys, in order; of some stores only of a part of the range."""
    low, high = sorted(rng.sample(range(len(NAMES)), 2)) if share < 1 else (0, len(NAMES))
    every = [ledger_rows.key(name, bucket) for bucket in BUCKETS for name in NAMES[low:high]]
    return sorted(rng.sample(every, min(rows, len(every))))


def row(rng: random.Random, key: bytes, sqn: int, expiring: bool) -> Row:
    kind = rng.randrange(6)
    if kind == 0:
        return Row(key, sqn, deleted=True)
    if kind == 1 and expiring:
        return Row(key, sqn, expiry=NOW_MS + rng.choice([-1, 0, 1, 1000]))
    return Row(key, sqn)


class Made:
    """A view of a few sources of random rows, oldest made first, and what it holds."""

    def __init__(self, rng: random.Random, *, expiring: bool) -> None:
        self._rng, self._expiring = rng, expiring
        self._disk = SimDisk()
        self._disk.mkdir(ledger_rows.DIRECTORY)
        self._names = ledger_rows.names()
        self._sqns = count(1)
        self.live: dict[bytes, int] = {}
        entries: list[LedgerEntry] = []
        for level in rng.choice([[], [0], [1], [0, 0], [2, 1], [2, 1, 0, 0], [1, 0, 0, 0]]):
            entries += self._level(level)
        self.ledger = LedgerManifest().edit(entries, persisted_sqn=10**9)
        tables = [self._table() for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        tables += [] if tables else [MemoryTable(0)]
        self.upper = next(self._sqns) - 1
        for key in chosen(rng, rng.choice([0, 40]), 1):  # after the snapshot
            tables[-1].pin(1, self.upper)
            tables[-1].keep(key)
            tables[-1].rows[key] = next(self._sqns) * rng.choice([1, -1])
        frozen = tuple(tables[-2::-1])
        self.view = View(tables[-1], frozen, self.ledger, JournalView((), ()))

    def order(self, kept_bytes: int) -> LedgerOrder | None:
        """All rows of the ledger in order; None where it has none."""
        for level in self.ledger.levels:
            for entry in level:
                entry.file.reader().ensure_whole()
        files = files_of(self.ledger, 1 << 30)
        return None if files is None else LedgerOrder(files, kept_bytes)

    def _know(self, rows: list[Row]) -> None:
        for found in rows:
            self.live.pop(found.key, None)
            if not found.deleted and not 0 < found.expiry <= NOW_MS:
                self.live[found.key] = found.sqn

    def _some(self, most: int) -> list[Row]:
        rng = self._rng
        keys = chosen(rng, rng.choice([1, 30, most]), rng.choice([0.5, 1]))
        return [row(rng, key, next(self._sqns), self._expiring) for key in keys]

    def _level(self, level: int) -> Iterator[LedgerEntry]:
        rows = self._some(1500)
        self._know(rows)
        most = self._rng.choice([40, 400]) if level else 1 << 18
        for made in ledger_rows.write(self._disk, rows, self._names, max_rows=most):
            file = File(ledger_rows.opened(self._disk, made.name))
            yield LedgerEntry(level=level, sqn_base=0, file=file, **asdict(made))

    def _table(self) -> MemoryTable:
        table = MemoryTable(0)
        rows = self._some(400)
        self._know(rows)
        for found in rows:
            table.rows[found.key] = -found.sqn if found.deleted or found.expiry else found.sqn
            if found.expiry:
                table.expiring[found.sqn] = found.expiry
        return table


def take(
    table: MemoryTable, low: bytes, high: bytes | None, limit: int, reverse: bool
) -> list[bytes]:
    return table.slice(low, high, limit, reverse=reverse)


def some_range(rng: random.Random) -> Bounds:
    low, high = sorted(rng.sample(NAMES, 2))
    start, end = rng.choice([(None, None), (low, None), (None, high), (low, high)])
    begins = rng.choice([None, None, low[:1], low[:2]])
    return bounds(prefix(0x6F, rng.choice(BUCKETS)), start, end, begins, rng.random() < 0.5)


@pytest.mark.parametrize("expiring", [False, True], ids=["", "some expire"])
@pytest.mark.parametrize("number", range(40))
def test_short_windows_give_what_lives(number: int, *, expiring: bool) -> None:
    rng = seeded(f"test_short_scans {number} {expiring}")
    made = Made(rng, expiring=expiring)
    view, upper = made.view, made.upper
    kept = Stretches(made.ledger, rng.choice([2_000, 30_000, 1 << 20]))
    ordered = Stretches(made.ledger, 0)
    ordered.order = made.order(rng.choice([0, 20_000, 1 << 20]))
    for step in range(25):
        bound = some_range(rng)
        first = rng.choice([1, 16, 96, 300])
        known = rng.choice([None, kept, kept, ordered, ordered])
        expected = sorted(
            ((key[len(bound.prefix) :], sqn) for key, sqn in made.live.items()
             if key.startswith(bound.prefix) and bound.low <= key < (bound.high or b"")),
            reverse=bound.reverse,
        )  # fmt: skip
        found: Rows = []
        wanted = rng.choice([1, 50, 200, 10_000])
        for window in short_windows(view, upper, NOW_MS, bound, take, first, known):
            assert window.keys
            found += zip(window.keys, window.sqns(), strict=True)
            if len(found) >= wanted:
                break
        assert found == expected[: max(len(found), wanted)], (step, bound)
        whole: Rows = []
        for window in windows(view, upper, NOW_MS, bound, take, first):
            whole += zip(window.keys, window.sqns(), strict=True)
        assert whole == expected


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_a_file_that_lies_about_its_order_gives_no_row_twice(reverse: bool) -> None:
    sst, made = ledger_rows.lying(b"k14", b"z14") if reverse else ledger_rows.lying(b"k04", b"j04")
    entry = LedgerEntry(level=1, sqn_base=0, file=File(sst), **asdict(made))
    ledger = LedgerManifest().edit([entry], persisted_sqn=20)
    view = View(MemoryTable(0), (), ledger, JournalView((), ()))
    start, end = (None, b"k17") if reverse else (b"k02", None)
    bound = bounds(prefix(0x6F, b""), start, end, None, reverse)
    with pytest.raises(Corruption, match="keys out of order"):
        list(islice(short_windows(view, 20, NOW_MS, bound, take, 3), 9))
