"""Lookups of many keys at once against lookups one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from octavo.files.door.disk import RealDisk
from octavo.files.kernels.byte_strings import column_of
from octavo.files.ledger import ledger_key, merge
from octavo.files.ledger.find_many import Level, find_many, newest
from octavo.files.ledger.hashing import hash_column, hash_of
from octavo.files.ledger.rows import Rows
from octavo.files.ledger.sst import Sst

SEED = 20261121


def rows_of(keys: Sequence[bytes], first_sqn: int = 1) -> Rows:
    column = column_of(keys)
    count = len(keys)
    return Rows(
        keys=column,
        hashes=hash_column(column),
        sqns=np.arange(first_sqn, first_sqn + count, dtype=np.uint64),
        flags=np.zeros(count, np.uint8),
        sizes=np.zeros(count, np.uint32),
        times=np.zeros(count, np.uint64),
    )


def files_of(path: Path, stem: str, rows: Rows, max_rows: int = 1 << 20) -> list[Sst]:
    disk = RealDisk()
    numbers = iter(range(10_000))
    found = merge.write_rows(
        disk,
        str(path),
        lambda: f"{stem}-{next(numbers)}.sst",
        rows,
        max_rows=max_rows,
        max_bytes=1 << 30,
    )
    return [Sst(disk.map(f"{path}/{each.name}"), each.name) for each in found]


def some_keys(rng: random.Random, count: int) -> list[bytes]:
    """Distinct ledger keys of several tags, buckets and lengths, some beginnings of others."""
    out: set[bytes] = set()
    buckets = [b"", b"b", b"b\x00", b"bucket"]
    while len(out) < count:
        tag = rng.choice((ledger_key.STANDARD, ledger_key.INDEX))
        key = rng.randbytes(rng.choice((1, 2, 3, 8, 30)))
        prefix = ledger_key.prefix(tag, rng.choice(buckets))
        out.add(prefix + key)
        if rng.random() < 0.3:
            out.add(prefix + key + b"\x00" * rng.randrange(1, 9))
    return rng.sample(sorted(out), count)


@pytest.mark.parametrize("count", [1, 7, 300, 5000])
def test_agrees_with_one_by_one(tmp_path: Path, count: int) -> None:
    rng = random.Random(SEED + count)
    keys = some_keys(rng, 2 * count)
    (sst,) = files_of(tmp_path, "a", rows_of(keys[:count]))
    column = column_of(keys)
    found = find_many(sst, column, hash_column(column))
    assert found.tolist() == [sst.find(key, hash_of(key)) for key in keys]
    assert int((found[:count] >= 0).sum()) == count
    assert int((found[count:] >= 0).sum()) == 0


def test_only_the_keys_that_are_asked_for_are_looked_up(tmp_path: Path) -> None:
    keys = some_keys(random.Random(SEED), 100)
    (sst,) = files_of(tmp_path, "a", rows_of(keys))
    column = column_of(keys)
    which = np.array([5, 99, 0], dtype=np.int64)
    found = find_many(sst, column, hash_column(column), which)
    assert [sst.ledger_key(row) for row in found.tolist()] == [keys[i] for i in (5, 99, 0)]


def test_keys_of_one_hash_are_told_apart(tmp_path: Path) -> None:
    # As if all hashes were the same: only comparing keys in full can tell.
    keys = some_keys(random.Random(SEED + 1), 50)
    rows = rows_of(keys)
    rows.hashes[:] = 0xDEADBEEF
    (sst,) = files_of(tmp_path, "a", rows)
    column = column_of([*keys, *(key + b"!" for key in keys)])
    found = find_many(sst, column, np.full(100, 0xDEADBEEF, np.uint32))
    assert [sst.ledger_key(row) for row in found[:50].tolist()] == keys
    assert (found[50:] == -1).all()


def test_the_newest_version_decides_over_levels_of_several_files(tmp_path: Path) -> None:
    rng = random.Random(SEED + 2)
    keys = some_keys(rng, 4000)
    model: dict[bytes, int] = {}
    levels: list[Level] = []
    first = 1
    for depth, count in reversed(list(enumerate((300, 200, 1000, 3000)))):
        chosen = rng.sample(keys, count)
        rows = rows_of(chosen, first)
        model |= dict(zip(chosen, range(first, first + count), strict=True))
        first += count
        files = files_of(tmp_path, f"l{depth}", rows, max_rows=150 if depth > 1 else 1 << 20)
        levels.insert(0, [(sst, 0) for sst in files])
    # The two newest are of level zero: they overlap, the newest first.
    levels = [[*levels[0], *levels[1]], *levels[2:]]
    column = column_of(keys)
    found = {}
    for sst, base, which, at in newest(levels, column, hash_column(column)):
        for key, row in zip(which.tolist(), at.tolist(), strict=True):
            assert keys[key] not in found
            found[keys[key]] = sst.sqns[row] + base
    assert found == model


def test_damage_is_never_an_answer(tmp_path: Path) -> None:
    from octavo.files.errors import Corruption

    keys = some_keys(random.Random(SEED + 3), 500)
    (sst,) = files_of(tmp_path, "a", rows_of(keys))
    path = tmp_path / sst.name
    image = bytearray(path.read_bytes())
    image[len(image) // 2] ^= 1
    column = column_of(keys)
    with pytest.raises(Corruption):
        find_many(Sst(bytes(image), "damaged"), column, hash_column(column))
