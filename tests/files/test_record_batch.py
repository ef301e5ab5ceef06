"""Records of many puts by array kernels: byte for byte as they are encoded one by one."""

from __future__ import annotations

import random
from array import array
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from ledger_rows import column
from whole_store import SEED

from octavo.files import cdb, record
from octavo.files.disk import RealDisk
from octavo.files.record_batch import Place, encoded_puts, record_sizes
from octavo.files.rows import ByteColumn
from octavo.files.staged_writer import StagedRow, StagedWriter


@pytest.fixture
def rng() -> random.Random:
    print(f"OCTAVO_SEED={SEED}")
    return random.Random(SEED)


def one_by_one(place: Place, keys: list[bytes], values: list[bytes]) -> list[bytes]:
    out: list[bytes] = []
    at = place.at
    for number, (key, value) in enumerate(zip(keys, values, strict=True), place.number):
        check, bucket = place.seed ^ at, place.bucket
        encode = partial(record.encode, number, check, record.PUT, place.tag, bucket)
        out.append(encode(key, value, place.now_ms))
        at += len(out[-1])
    return out


@pytest.mark.parametrize("bucket", [b"", b"b", b"a longer bucket"])
@pytest.mark.parametrize("most", [0, 40, 20_000])
def test_they_are_as_encoded_one_by_one(rng: random.Random, bucket: bytes, most: int) -> None:
    for count in (1, 2, 70):
        keys = [rng.randbytes(rng.randrange(1, 40)) for _ in range(count)]
        values = [rng.randbytes(rng.randrange(most + 1)) for _ in range(count)]
        place = Place(rng.randrange(1 << 32), rng.randrange(1 << 20), rng.getrandbits(64), 111,
                      bucket, 1_790_000_000_000)  # fmt: skip
        wanted = one_by_one(place, keys, values)
        assert encoded_puts(place, column(keys), column(values)).tobytes() == b"".join(wanted)
        sizes = record_sizes(bucket, column(keys), column(values)).tolist()
        assert sizes == list(map(len, wanted))


def test_keys_of_the_greatest_length_fit(rng: random.Random) -> None:
    keys, values = [rng.randbytes(1 << 16), b"k"], [b"", b"v"]
    place = Place(0, 0, 5, 111, b"", 1)
    found = encoded_puts(place, column(keys), column(values)).tobytes()
    assert found == b"".join(one_by_one(place, keys, values))


def test_a_part_of_a_column_is_taken(rng: random.Random) -> None:
    keys = [rng.randbytes(rng.randrange(1, 9)) for _ in range(50)]
    values = [rng.randbytes(rng.randrange(9)) for _ in range(50)]
    whole, theirs = column(keys), column(values)
    place = Place(2114, 7, 99, 111, b"b", 3)
    found = encoded_puts(
        place,
        ByteColumn(whole.blob, whole.offsets[20:31]),
        ByteColumn(theirs.blob, theirs.offsets[20:31]),
    )
    assert found.tobytes() == b"".join(one_by_one(place, keys[20:30], values[20:30]))


def test_of_nothing_nothing_is_made() -> None:
    empty = ByteColumn(np.zeros(0, np.uint8), np.zeros(1, np.int64))
    assert len(encoded_puts(Place(0, 0, 0, 1, b"", 0), empty, empty)) == 0


@pytest.mark.parametrize(
    "limits",
    [{"file_records": 7}, {"file_bytes": 4000}, {"file_records": 7, "file_bytes": 3000}],
    ids=str,
)
def test_staged_files_are_cut_where_they_are_with_row_by_row(
    tmp_path: Path, rng: random.Random, limits: dict[str, int]
) -> None:
    rows = [(rng.randbytes(rng.randrange(1, 9)), rng.randbytes(rng.randrange(500)))
            for _ in range(100)]  # fmt: skip
    made: dict[str, list[tuple[int, list[bytes]]]] = {}
    for how in ("columns", "rows"):
        home = tmp_path / how
        writer = StagedWriter(RealDisk(), str(home), "j", "0", now_ms=5, **limits)
        if how == "columns":
            for low, high in ((0, 1), (1, 60), (60, 60), (60, 100)):
                part = rows[low:high]
                writer.put_many(b"b", [key for key, _ in part], [value for _, value in part])
        else:
            for key, value in rows:
                writer.add(StagedRow(b"b", key, value))
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
    assert made["columns"] == made["rows"]
    assert len(made["rows"]) > 3
    assert [key for _, keys in made["rows"] for key in keys] == [key for key, _ in rows]
