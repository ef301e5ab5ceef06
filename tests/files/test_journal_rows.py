"""Ledger rows taken out of journal records by array kernels, against a plain loop."""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption
from octavo.files.journal import cdb, journal_rows, record
from octavo.files.ledger import ledger_key
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE, Rows

SEED = 77

operation = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([record.PUT, record.PUT, record.DELETE]),
        "bucket": st.sampled_from([b"", b"", b"b", b"bb", b"\x00", b"a\x00"]),
        "key": st.binary(min_size=1, max_size=12),
        "value": st.binary(max_size=30),
        "expiry_ms": st.sampled_from([0, 0, 99]),
        "metadata": st.binary(max_size=5),
        "batch": st.sampled_from([None, None, (0, 1)]),
        "raw_bytes": st.sampled_from([None, None, 4000]),
    }
)


def written(operations: list[dict]) -> tuple[bytes, array]:
    parts = [cdb.beginning(cdb.FileHeader(1, 1, SEED, 0))]
    offsets = array("I", (cdb.RECORDS_AT,))
    for number, o in enumerate(operations):
        more = {n: o[n] for n in ("expiry_ms", "metadata", "batch", "raw_bytes")}
        parts.append(
            record.encode(
                number,
                SEED ^ offsets[-1],
                o["kind"],
                0x6F,
                o["bucket"],
                o["key"],
                o["value"],
                1000 + number,
                **more,
            )
        )
        offsets.append(offsets[-1] + len(parts[-1]))
    return b"".join(parts), offsets


def as_array(offsets: array) -> np.ndarray:
    return np.frombuffer(offsets.tobytes(), dtype=np.uint32)


@given(st.lists(operation, max_size=40))
@settings(derandomize=True, max_examples=150, deadline=None)
def test_rows_are_what_the_records_say(operations: list[dict]) -> None:
    buffer, offsets = written(operations)
    (rows,) = journal_rows.rows_of(buffer, as_array(offsets), 0, SEED, 500, "f")
    assert len(rows) == len(operations)
    for i, o in enumerate(operations):
        key = ledger_key.prefix(0x6F, o["bucket"]) + o["key"]
        a, b = rows.keys.offsets[i], rows.keys.offsets[i + 1]
        assert rows.keys.blob[a:b].tobytes() == key
        assert rows.hashes[i] == xxh3(key) & 0xFFFFFFFF
        assert rows.sqns[i] == 500 + i
        assert rows.times[i] == 1000 + i
        assert bool(rows.flags[i] & TOMBSTONE) == (o["kind"] == record.DELETE)
        assert bool(rows.flags[i] & EXPIRES) == (o["expiry_ms"] > 0)
        assert rows.sizes[i] == (o["raw_bytes"] or len(o["value"]))
        if rows.metas is not None:
            at, length = rows.metas.starts[i], rows.metas.lengths[i]
            assert rows.metas.blob[at : at + length].tobytes() == o["metadata"]
        else:
            assert not o["metadata"]
        assert (0 if rows.expiries is None else rows.expiries[i]) == o["expiry_ms"]


def test_a_stretch_from_the_middle_has_the_right_sqns_and_skips_holes() -> None:
    operations = [
        {
            "kind": 1,
            "bucket": b"",
            "key": b"k%d" % i,
            "value": b"v",
            "expiry_ms": 0,
            "metadata": b"",
            "batch": None,
            "raw_bytes": None,
        }
        for i in range(10)
    ]
    buffer, offsets = written(operations)
    offsets[6] = offsets[7]  # record 6 is a hole
    (rows,) = journal_rows.rows_of(buffer, as_array(offsets)[4:], 4, SEED, 100, "f")
    assert rows.sqns.tolist() == [104, 105, 107, 108, 109]


def test_a_flipped_byte_in_any_header_is_detected() -> None:
    operations = [
        {
            "kind": 1,
            "bucket": b"b",
            "key": b"key",
            "value": b"",
            "expiry_ms": 5,
            "metadata": b"meta",
            "batch": None,
            "raw_bytes": None,
        }
        for _ in range(3)
    ]
    buffer, offsets = written(operations)
    for at in range(offsets[1], offsets[2] - 4):
        damaged = bytearray(buffer)
        damaged[at] ^= 0x21
        with pytest.raises(Corruption):
            journal_rows.rows_of(bytes(damaged), as_array(offsets), 0, SEED, 0, "f")


@pytest.mark.parametrize("size", range(1, 40))
def test_flags_of_fields_that_end_behind_the_file_are_damage(size: int) -> None:
    plain = {"kind": record.PUT, "bucket": b"", "key": b"k", "value": bytes(size)}
    rest = {"expiry_ms": 0, "metadata": b"", "batch": None, "raw_bytes": None}
    buffer, offsets = written([{**plain, **rest}])
    damaged = bytearray(buffer)
    damaged[offsets[0] + 21] = record.KNOWN_FLAGS
    with pytest.raises(Corruption):
        journal_rows.rows_of(bytes(damaged), as_array(offsets), 0, SEED, 0, "f")


def rows_and_peak(buffer: bytes, parts: Iterable[tuple[np.ndarray, int]]) -> tuple[Rows, int]:
    """(rows of stretches of records, bytes that reading them took at most)."""

    def rows() -> Rows:
        return journal_rows.concatenated(
            [
                rows
                for part, low in parts
                for rows in journal_rows.rows_of(buffer, part, low, SEED, 500, "f")
            ]
        )

    rows()  # what is made once
    tracemalloc.start()
    try:
        return rows(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_rows_of_several_stretches_leave_metadata_where_it_is() -> None:
    row = {"kind": record.PUT, "bucket": b"b", "value": b"v", "expiry_ms": 0, "batch": None}
    operations = [
        {**row, "key": b"%03d" % n, "metadata": bytes([n]) * 8192, "raw_bytes": None}
        for n in range(200)
    ]
    buffer, offsets = written(operations)
    table = as_array(offsets)
    found, peak = rows_and_peak(buffer, [(table[n : n + 51], n) for n in (0, 50, 100, 150)])
    assert peak < len(buffer) / 4
    assert found.metas is not None
    last_first = found.metas.picked(np.arange(200, dtype=np.int64)[::-1])
    places = zip(last_first.starts.tolist(), last_first.lengths.tolist(), strict=True)
    texts = [last_first.blob[at : at + length].tobytes() for at, length in places]
    assert texts == [o["metadata"] for o in operations[::-1]]


def test_a_small_record_at_the_end_of_a_large_file_takes_no_copy_of_that() -> None:
    row = {"kind": record.PUT, "bucket": b"", "expiry_ms": 0, "metadata": b"", "batch": None}
    sizes = [*(1 << 16 for _ in range(16)), 1]
    buffer, offsets = written(
        [{**row, "key": b"%d" % n, "value": bytes(n), "raw_bytes": None} for n in sizes]
    )
    found, peak = rows_and_peak(buffer, [(as_array(offsets)[-2:], 16)])
    assert found.sqns.tolist() == [516]
    assert peak < len(buffer) / 4
