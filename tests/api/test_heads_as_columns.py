"""Heads of what is still in memory, read many at a time, are those of single reads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from whole_store import Clock, flush, opened

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.scanning import batches

NOW = 1_700_000_000_000
COLUMNS = ["key", "sqn", "size", "metadata", "written_at", "expires_at"]


def columns(snapshot: octavo.Snapshot) -> list[tuple[Any, ...]]:
    table = snapshot.to_arrow(columns=COLUMNS).read_all()
    rows = zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
    return [(*row[:4], *(moment and moment.timestamp() for moment in row[4:])) for row in rows]


def one_by_one(snapshot: octavo.Snapshot) -> list[tuple[Any, ...]]:
    out = []
    for key in list(snapshot.keys()):
        head = snapshot.head(key)
        assert head is not None
        expires = None if head.expires_at is None else head.expires_at / 1000
        meta = head.metadata or None
        out.append((key, head.sqn, head.size, meta, head.written_at / 1000, expires))
    return out


def write_some(store: octavo.Store, clock: Clock, seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    for number in range(300):
        clock.now += 1
        key = b"%03d" % chance.randrange(200)
        kind = chance.randrange(5)
        value = chance.choice((b"", b"v" * chance.randrange(40), b"v" * 9000))
        if kind == 0:
            store.delete(key)
        elif kind == 1:
            store.put(key, value, metadata=b"m" * chance.randrange(50))
        elif kind == 2:
            store.put(key, value, ttl=chance.choice((0.001, 1000)))
        elif kind == 3:
            store.put(key, value, metadata=b"some", ttl=1000, index={"field": [number]})
        else:
            store.put(key, value)


@pytest.mark.parametrize("seed", range(4))
def test_columns_of_memory_are_those_of_single_reads(tmp_path: Path, seed: int) -> None:
    clock = Clock(NOW)
    with opened(
        tmp_path / "s", clock_ms=lambda: int(clock.now), push_rows=1 << 16, push_bytes=1 << 30
    ) as store:
        write_some(store, clock, seed)
        with store.snapshot() as snapshot:
            write_some(store, clock, seed + 100)  # of some keys older versions are asked for
            found = columns(snapshot)
            assert len(found) > batches._MANY
            assert found == one_by_one(snapshot)
            store._running.bookie.call(Bookie.push)
            assert columns(snapshot) == found
            flush(store)
            assert columns(snapshot) == found


def test_a_damaged_header_is_told_as_by_a_single_read(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, push_bytes=1 << 30) as store:
        for number in range(100):
            store.put(b"%03d" % number, b"v" * 100)
        (name,) = (tmp_path / "s" / "journal").glob("*.log")
        with name.open("r+b") as file:
            whole = file.read()
            file.seek(whole.index(b"050") - 5)
            file.write(b"\xff")
        with store.snapshot() as snapshot:
            with pytest.raises(octavo.Corruption) as by_columns:
                columns(snapshot)
            with pytest.raises(octavo.Corruption) as by_one:
                snapshot.head(b"050")
        assert str(by_columns.value) == str(by_one.value)
