"""Operations become the records that record.encode makes of them."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import lz4.block
import pytest
from beside import seeded

from octavo.actors.writing.operation import Operation, encoded
from octavo.files.journal import record


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("atomic", [False, True])
def test_each_is_encoded_for_its_place(number: int, atomic: bool) -> None:
    rng = seeded(f"operations {number}")
    buckets = [b"", b"b", b"a longer name"]
    operations: list[Operation] = []
    small: dict[int, bytes] = {}
    for _ in range(rng.choice([1, 2, 200])):
        deletes, told = rng.random() < 0.2, rng.random() < 0.2
        value = b"" if deletes else rng.randbytes(rng.choice([0, 1, 50])) + bytes(100)
        packed = not deletes and rng.random() < 0.3
        operations.append(
            Operation(
                record.DELETE if deletes else record.PUT,
                rng.choice([111, 112]),
                rng.choice(buckets),
                rng.randbytes(rng.choice([1, 8, 300])),
                value,
                expiry_ms=rng.choice([0, 1 << 40]) if told else 0,
                metadata=rng.choice([b"", b"m" * 40]) if told else b"",
                index_changes=rng.choice([b"", b"entries"]) if told else b"",
            )
        )
        if packed:
            small[len(operations) - 1] = lz4.block.compress(value, store_size=False)
    file: Any = SimpleNamespace(seed=rng.getrandbits(64), offsets=array("I", [2048, 2100, 2500]))
    parts, ends = encoded(file, operations, small, 1_700_000_000_000, atomic)
    at, wanted = 2500, b""
    for place, (operation, end) in enumerate(zip(operations, ends, strict=True)):
        kind, tag, bucket, key, value, expiry_ms, metadata, index = operation
        raw_bytes = len(value) if place in small else None
        value = small.get(place, value)
        wanted += record.encode(
            2 + place, file.seed ^ at, kind, tag, bucket, key, value, 1_700_000_000_000,
            expiry_ms=expiry_ms, metadata=metadata, index=index, raw_bytes=raw_bytes,
            batch=(place, len(operations)) if atomic else None,
        )  # fmt: skip
        at = 2500 + len(wanted)
        assert end == at
    assert b"".join(parts) == wanted
