"""Records of many operations by array kernels: byte for byte as they are encoded one by one."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from staged_rows import StagedRow, operations
from whole_store import SEED

from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.journal import cdb, record
from octavo.files.journal.record_batch import Operations, Place, encoded
from octavo.files.kernels.columns import ByteColumn


@pytest.fixture
def rng() -> random.Random:
    print(f"OCTAVO_SEED={SEED}")
    return random.Random(SEED)


def one_by_one(place: Place, rows: Sequence[StagedRow]) -> list[bytes]:
    out: list[bytes] = []
    at = place.at
    for number, row in enumerate(rows, place.number):
        check, kind = place.seed ^ at, record.DELETE if row.value is None else record.PUT
        encode = partial(record.encode, number, check, kind, place.tag, row.bucket, row.key)
        more: dict[str, Any] = {"expiry_ms": row.expiry_ms, "metadata": row.metadata}
        out.append(encode(row.value or b"", place.now_ms, **more))
        at += len(out[-1])
    return out


def any_place(rng: random.Random) -> Place:
    number = rng.randrange(1 << 20)
    return Place(rng.randrange(1 << 32), number, rng.getrandbits(64), 111, 1_790_000_000_000)


def compared(place: Place, rows: Sequence[StagedRow]) -> None:
    found, wanted = operations(rows), one_by_one(place, rows)
    assert encoded(place, found).tobytes() == b"".join(wanted)
    assert found.record_sizes().tolist() == list(map(len, wanted))


@pytest.mark.parametrize("bucket", [b"", b"b", b"a longer bucket"])
@pytest.mark.parametrize("most", [0, 40, 20_000])
def test_plain_puts_are_as_encoded_one_by_one(rng: random.Random, bucket: bytes, most: int) -> None:
    for count in (1, 2, 70):
        rows = [
            StagedRow(
                bucket, rng.randbytes(rng.randrange(1, 40)), rng.randbytes(rng.randrange(most + 1))
            )
            for _ in range(count)
        ]
        compared(any_place(rng), rows)


@pytest.mark.parametrize("count", [1, 2, 70, 2000])
def test_others_are_as_encoded_one_by_one(rng: random.Random, count: int) -> None:
    rows = []
    for _ in range(count):
        row = StagedRow(
            rng.choice((b"", b"b", b"c\0", b"a longer bucket")),
            rng.randbytes(rng.randrange(1, 9)),
            rng.randbytes(rng.choice((0, 1, 30))),
            rng.choice((0, 1, 1 << 60)),
            rng.randbytes(rng.choice((0, 0, 1, 30))),
        )
        rows.append(StagedRow(row.bucket, row.key, None) if rng.random() < 0.3 else row)
    compared(any_place(rng), rows)


@pytest.mark.parametrize("bucket", [b"", b"b"])
@pytest.mark.parametrize("metadata", [0, 5])
@pytest.mark.parametrize("expires", [False, True])
@pytest.mark.parametrize("size", [0, 21])
def test_such_as_are_alike_are_as_encoded_one_by_one(
    rng: random.Random, bucket: bytes, metadata: int, expires: bool, size: int
) -> None:
    for count in (1, 600):
        rows = [
            StagedRow(
                bucket, b"%04d" % number, rng.randbytes(size),
                rng.randrange(1, 1 << 60) if expires else 0, rng.randbytes(metadata),
            )
            for number in range(count)
        ]  # fmt: skip
        compared(any_place(rng), rows)


def test_keys_of_the_greatest_length_fit(rng: random.Random) -> None:
    rows = [StagedRow(b"", rng.randbytes(1 << 16), b""), StagedRow(b"", b"k", b"v")]
    compared(Place(0, 0, 5, 111, 1), rows)


def test_a_part_of_the_columns_is_taken(rng: random.Random) -> None:
    rows = [
        StagedRow(
            rng.choice((b"a", b"b")), rng.randbytes(rng.randrange(1, 9)),
            rng.randbytes(rng.randrange(9)) if rng.random() < 0.8 else None,
        )
        for _ in range(50)
    ]  # fmt: skip
    rows = [
        row if row.value is None else row._replace(expiry_ms=number, metadata=b"m" * (number % 3))
        for number, row in enumerate(rows)
    ]
    place = Place(2114, 7, 99, 111, 3)
    found = encoded(place, operations(rows).between(20, 30))
    assert found.tobytes() == b"".join(one_by_one(place, rows[20:30]))


def test_of_nothing_nothing_is_made() -> None:
    empty = ByteColumn(np.zeros(0, np.uint8), np.zeros(1, np.int64))
    assert len(encoded(Place(0, 0, 0, 1, 0), Operations(empty, empty, (b"",)))) == 0


@pytest.mark.parametrize(
    "limits",
    [{"file_records": 7}, {"file_bytes": 4000}, {"file_records": 7, "file_bytes": 3000}],
    ids=str,
)
def test_staged_files_are_cut_where_they_are_row_by_row(
    tmp_path: Path, rng: random.Random, limits: dict[str, int]
) -> None:
    rows = [(rng.randbytes(rng.randrange(1, 9)), rng.randbytes(rng.randrange(500)))
            for _ in range(100)]  # fmt: skip
    made: dict[str, list[tuple[int, list[bytes]]]] = {}
    for how in ("many", "rows"):
        home = tmp_path / how
        home.mkdir()
        writer = StagedWriter(RealDisk(), str(home), "j", "0", now_ms=5, **limits)
        if how == "many":
            for low, high in ((0, 1), (1, 60), (60, 60), (60, 100)):
                part = rows[low:high]
                writer.put_many(b"b", [key for key, _ in part], [value for _, value in part])
        else:
            for key, value in rows:
                writer.add(operations([StagedRow(b"b", key, value)]))
        attempt = writer.finish()
        made[how] = []
        for journal in attempt.journals:
            image = (home / "staging" / "j" / journal.name).read_bytes()
            trailer, offsets = cdb.sealed_offsets(image, journal.name)
            table = array("I", offsets[:])
            keys = [
                record.decode(image[a:b], trailer.seed ^ a, 0, "", a).key
                for a, b in pairwise(table)
            ]
            assert sum(ledger.rows for ledger in journal.ledgers) == len(set(keys))
            made[how].append((trailer.tables_at, keys))
    assert made["many"] == made["rows"]
    assert len(made["rows"]) > 3
    assert [key for _, keys in made["rows"] for key in keys] == [key for key, _ in rows]
