"""The rows of a small ledger that are kept as columns give what its files give."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from beside import seeded
from churned import churn
from whole_store import Clock, flush, opened

import octavo
from octavo.actors.reading import kept_rows
from octavo.actors.reading.kept_rows import KeptRows
from octavo.actors.scanning.batches import batches
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.live_batches import keys_of, merged
from octavo.files.ledger.rows import Columns

NOW_MS = 2_000_000_000_000


def kept(store: octavo.Store) -> KeptRows:
    """Of the newest ledger, from now on."""
    found: KeptRows = store._bookie.view.guide.kept
    found.given = 1 << 30
    return found


def of_range(store: octavo.Store, bound: Bounds, window_rows: int) -> list[tuple[bytes, int]]:
    """(key, sqn) of what lives there, as columns tell it."""
    out: list[tuple[bytes, int]] = []
    view, take = store._bookie.view, store._bookie.slice
    for batch in batches(view, 1 << 62, NOW_MS, bound, take, heads=False, window_rows=window_rows):
        sqns = batch.columns.sqns[batch.rows].tolist()
        out += zip(keys_of(batch), sqns, strict=True)
    return out


@pytest.mark.parametrize("in_memory", [False, True], ids=["ledger", "memory"])
def test_any_range_in_any_windows_is_what_the_files_give(in_memory: bool, tmp_path: Path) -> None:
    rng = seeded(f"test_kept_rows {in_memory}")
    with opened(tmp_path / "s", push_rows=64, push_bytes=1 << 30, roll_count=256) as store:
        churn(store, rng, 700)
        flush(store)
        if in_memory:
            churn(store, rng, 30)
        fresh = store._bookie.view.guide.kept
        cases = []
        for _ in range(60):
            prefix = rng.choice([b"\x00", b"\x00b\x00\x00", b"\x00\x00\x00", b"\x01", b""])
            low, high = sorted(prefix + b"k%03d" % rng.randrange(400) for _ in range(2))
            low, high = rng.choice([low, b"", prefix]), rng.choice([high, None, b"\xff"])
            bound = Bounds(b"", low, high, rng.random() < 0.5)
            fresh.given = 0  # so that nothing is kept
            cases.append((bound, of_range(store, bound, 1 << 16)))
        assert fresh._columns is None
        for bound, expected in cases:
            kept(store)
            assert of_range(store, bound, rng.choice([1, 7, 1 << 16])) == expected
        assert fresh._columns is not None
        assert sum(map(len, (expected for _, expected in cases))) > 500


def test_a_small_ledger_is_kept_once_as_many_rows_were_given_and_given_as_it_stands(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"k%04d" % at, b"v" * at) for at in range(500))
        flush(store)
        with store.snapshot() as snap:
            tables = [snap.to_arrow(["key", "sqn", "size"]).read_all() for _ in range(4)]
            assert tables[1:] == tables[:-1]
            assert store._bookie.view.guide.kept.given == 500

        def places(table: pa.Table) -> list[int]:
            return [table[name].chunk(0).buffers()[-1].address for name in table.column_names]

        assert places(tables[2]) == places(tables[3])
        assert places(tables[0]) != places(tables[3])
        for name in ("key", "sqn", "size"):
            assert not tables[3][name].chunk(0).buffers()[-1].is_mutable


def test_what_is_kept_cannot_be_changed_through_what_is_given(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for at in range(100):
            store.put(b"k%04d" % at, b"v", metadata=b"m%04d" % at, expires_at=NOW_MS << 1)
        flush(store)
        kept(store)
        with store.snapshot() as snap:
            for name in ("key", "sqn", "size", "metadata", "written_at", "expires_at"):
                buffer = snap.to_arrow([name]).read_all()[name].chunk(0).buffers()[-1]
                assert not buffer.is_mutable, name
        assert store._bookie.view.guide.kept._columns is not None


@pytest.mark.parametrize("what", ["_MOST_ROWS", "_MOST_BYTES"])
def test_of_a_larger_ledger_nothing_is_kept(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, what, 400)
    with opened(tmp_path / "s") as store:
        store.put_many((b"k%04d" % at, b"v") for at in range(500))
        flush(store)
        found = kept(store)
        with store.snapshot() as snap:
            assert snap.to_arrow(["key"]).read_all().num_rows == 500
        assert found.columns() is None


def test_of_a_ledger_of_deletes_nothing_is_given(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for at in range(100):
            store.delete(b"k%04d" % at)
        flush(store)
        kept(store)
        with store.snapshot() as snap:
            assert snap.to_arrow(["key"]).read_all().num_rows == 0


def test_what_is_kept_expires_at_its_moment(tmp_path: Path) -> None:
    clock = Clock(NOW_MS)
    with opened(tmp_path / "s", clock_ms=clock) as store:
        for at in range(100):
            store.put(b"k%04d" % at, b"v", expires_at=NOW_MS + 1000 * at + 1)
        flush(store)
        kept(store)
        for seconds in (0, 1, 50, 100):
            clock.now = NOW_MS + 1000 * seconds
            with store.snapshot() as snap:
                found = snap.to_arrow(["key", "expires_at"]).read_all()
            assert found.num_rows == 100 - seconds
            moments = found["expires_at"].to_numpy().astype(np.int64)
            assert moments.tolist() == [NOW_MS + 1000 * at + 1 for at in range(seconds, 100)]
        assert store._bookie.view.guide.kept._columns is not None


def test_a_snapshot_keeps_giving_its_own_rows_beside_writes_and_merges(tmp_path: Path) -> None:
    rng = seeded("test_kept_rows beside")
    with opened(tmp_path / "s") as store:
        for _ in range(6):
            churn(store, rng, 150)
            if rng.random() < 0.5:
                flush(store)
            kept(store)
            with store.snapshot() as snap:
                expected = [snap.to_arrow().read_all() for _ in range(2)]
                assert expected[0] == expected[1]
                churn(store, random.Random(rng.random()), 150)
                kept(store)
                assert snap.to_arrow().read_all() == expected[0]


def test_rows_of_which_none_lives_are_put_in_order_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def counted(columns: list[Columns]) -> tuple[Columns, npt.NDArray[np.int64]]:
        looks.append(len(columns))
        return merged(columns)

    with opened(tmp_path / "s") as store, store.snapshot():  # which keeps deletes in the ledger
        store.put(b"below", b"1")
        flush(store)
        store.delete(b"below")
        flush(store)
        monkeypatch.setattr(kept_rows, "merged", counted)
        rows = kept(store)
        assert [rows.columns(), rows.columns()] == [None, None]
        assert len(looks) == 1
