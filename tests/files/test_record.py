"""The journal record: what goes in comes out, and every wrong byte is seen."""

from __future__ import annotations

import lz4.block
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.files.errors import Corruption, UnsupportedFormat
from octavo.files.journal import record

CHECK = 0x1122334455667788

fields = st.fixed_dictionaries(
    {
        "relative_sqn": st.integers(0, 1 << 26),
        "kind": st.sampled_from([record.PUT, record.DELETE]),
        "tag": st.integers(0, 255),
        "bucket": st.binary(max_size=20),
        "key": st.binary(min_size=1, max_size=40),
        "value": st.binary(max_size=200),
        "time_ms": st.integers(0, 1 << 48),
        "expiry_ms": st.integers(0, 1 << 48),
        "metadata": st.binary(max_size=20),
        "index": st.binary(max_size=20),
        "batch": st.none() | st.tuples(st.integers(0, 9), st.integers(1, 10)),
        "sub_key": st.binary(max_size=10),
    }
)


def encoded(parts: dict) -> bytes:
    rest = dict(parts)
    positional = [
        rest.pop(n) for n in ("relative_sqn", "kind", "tag", "bucket", "key", "value", "time_ms")
    ]
    relative, *others = positional
    return record.encode(relative, CHECK, *others, **rest)


@given(fields)
@settings(derandomize=True, max_examples=200)
def test_a_record_decodes_to_what_was_encoded(parts: dict) -> None:
    found = record.decode(encoded(parts), CHECK, 1000, "f", 0)
    assert found.sqn == 1000 + parts["relative_sqn"]
    for name in ("kind", "tag", "bucket", "key", "value", "time_ms", "expiry_ms", "metadata"):
        assert getattr(found, name) == parts[name]
    assert (found.index_changes, found.batch, found.sub_key) == (
        parts["index"],
        parts["batch"],
        parts["sub_key"],
    )


def test_every_flipped_bit_of_a_record_is_detected() -> None:
    whole = record.encode(
        7,
        CHECK,
        record.PUT,
        0x6F,
        b"b",
        b"key",
        b"value" * 4,
        12345,
        expiry_ms=9,
        metadata=b"m",
        batch=(0, 2),
    )
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises((Corruption, UnsupportedFormat)):
            record.decode(bytes(damaged), CHECK, 0, "f", 0)


def test_a_record_read_at_another_place_is_detected() -> None:
    whole = record.encode(7, CHECK, record.PUT, 0x6F, b"", b"key", b"value", 1)
    with pytest.raises(Corruption, match="header checksum"):
        record.decode(whole, CHECK ^ 8, 0, "f", 0)


def test_a_value_swapped_for_another_records_value_is_detected() -> None:
    one = record.encode(1, CHECK, record.PUT, 0x6F, b"", b"key", b"value-1", 1)
    two = record.encode(2, CHECK, record.PUT, 0x6F, b"", b"key", b"value-2", 1)
    at = record.FIXED_BYTES + 3 + 4
    with pytest.raises(Corruption, match="value checksum"):
        record.decode(one[:at] + two[at:], CHECK, 0, "f", 0)


def test_a_key_of_64_kib_round_trips() -> None:
    whole = record.encode(0, CHECK, record.PUT, 0x6F, b"", b"k" * 65536, b"v", 1)
    assert record.decode(whole, CHECK, 0, "f", 0).key == b"k" * 65536


def test_a_small_frame_cannot_ask_for_a_large_allocation() -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        record.decompress(b"\x00" * 100, 200 << 20)
    with pytest.raises(ValueError, match="cannot hold"):
        record.decompress_all([b"\x00" * 100], [200 << 20])


@pytest.mark.parametrize("size", [999, 1001])
def test_a_block_of_another_length_than_its_record_says_is_no_value(size: int) -> None:
    block = lz4.block.compress(b"v" * 1000, store_size=False)
    with pytest.raises(ValueError, match=r"decompressed to|orrupt|ecompress"):
        record.decompress(block, size)
    with pytest.raises(ValueError, match=r"another length|orrupt|ecompress"):
        record.decompress_all([block, block], [1000, size])


@pytest.mark.parametrize(("at", "value"), [(18, 2), (19, 4)])
def test_a_newer_version_or_kind_is_refused_by_name(at: int, value: int) -> None:
    from xxhash import xxh3_64_intdigest as xxh3

    whole = record.encode(0, CHECK, record.PUT, 0x6F, b"", b"key", b"", 1)
    head = bytearray(whole[: record.FIXED_BYTES + 3])
    head[at] = value
    h = xxh3(bytes(head), CHECK)
    forged = bytes(head) + record.pack_sums(h & record.LOW_32, xxh3(b"", h) & record.LOW_32)
    with pytest.raises(UnsupportedFormat, match=r"version|kind"):
        record.decode(forged, CHECK, 0, "f", 0)
