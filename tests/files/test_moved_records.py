"""Records that compaction moves many at a time are those that it would move one by one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Corruption
from octavo.files.journal import cdb, record
from octavo.files.journal.journal_writer import Mover, SealedWriter
from octavo.files.kernels.byte_strings import Ints

SEED = 20261127
BASE, OLD_SEED, NEW_SEED = 1000, 0x1234567890ABCDEF, 0xFEDCBA0987654321


class Records:
    """Some of every kind end to end, with gaps between them, and where each of them is."""

    def __init__(self, rng: random.Random, count: int, longest: int) -> None:
        blob = bytearray(b"in front")
        self.rows: list[tuple[int, int, int, int]] = []
        for number in range(count):
            value = rng.randbytes(rng.choice((0, 1, 30, 100, longest)))
            start = len(blob)
            encoded = record.encode(
                number, OLD_SEED ^ start, rng.choice((record.PUT, record.DELETE)), 0x6F,
                rng.choice((b"", b"bucket")), rng.randbytes(rng.choice((1, 16, 60))), value,
                1_700_000_000_000 + number,
                expiry_ms=rng.choice((0, 4_000_000_000_000)),
                metadata=rng.choice((b"", b"m" * rng.randrange(9))),
                raw_bytes=rng.choice((None, 999)) if value else None,
            )  # fmt: skip
            blob += encoded
            head = record.parse_header(memoryview(encoded), OLD_SEED ^ start, len(encoded))
            if rng.random() < 0.8:
                self.rows.append(
                    (BASE + 3 * number, start, start + head.header_bytes, head.value_bytes)
                )
        self.blob = blob

    def mover(self) -> Mover:
        return Mover(memoryview(bytes(self.blob)), OLD_SEED, "the file", False)

    def columns(self) -> list[Ints]:
        return [np.array(column, dtype=np.int64) for column in zip(*self.rows, strict=True)]


def writer(home: Path, name: str) -> SealedWriter:
    (home / name).mkdir()
    return SealedWriter(RealDisk(), str(home / name), BASE, NEW_SEED, 1, 0)


@pytest.mark.parametrize(("count", "longest"), [(1, 5), (40, 255), (3000, 100), (2000, 5000)])
def test_many_at_a_time_are_as_one_by_one(tmp_path: Path, count: int, longest: int) -> None:
    print(f"seed {SEED} {count}")
    rng = random.Random(f"{SEED} {count}")
    records = Records(rng, count, longest)
    while not records.rows:
        records = Records(rng, count, longest)
    files = []
    for name in ("one by one", "many"):
        made = writer(tmp_path, name)
        for low in range(0, len(records.rows), 700):  # to places that are not the first, too
            if name == "many":
                some = [column[low : low + 700] for column in records.columns()]
                records.mover().columns(made, *some)
            else:
                records.mover().many(made, records.rows[low : low + 700])
        whole = (
            tmp_path
            / name
            / str(
                made.finish(BASE + 3 * count, cdb.Origin(1, BASE, BASE + 3 * count, 0, 0))["name"]
            )
        )
        files.append(whole.read_bytes())
    assert files[0] == files[1]


def test_a_damaged_value_among_many_is_told_by_where_it_is(tmp_path: Path) -> None:
    records = Records(random.Random(SEED), 600, 100)
    row = next(row for row in records.rows[300:] if row[3])
    at = row[2] + record.SUMS_BYTES
    records.blob[at + row[3] - 1] ^= 4
    with pytest.raises(Corruption, match=f"{at}.*value checksum"):
        records.mover().columns(writer(tmp_path, "w"), *records.columns())
