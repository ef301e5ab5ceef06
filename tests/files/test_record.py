"""The journal record: what goes in comes out, and every wrong byte is seen."""

from __future__ import annotations

from typing import Any

import lz4.block
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.files import record
from octavo.files.errors import Corruption, UnsupportedFormat
from octavo.files.short_head import head_of

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


def test_the_hot_read_gives_the_value_of_a_plain_and_of_a_compressed_put() -> None:
    plain = record.encode(0, CHECK, record.PUT, 0x6F, b"bk", b"key", b"value", 1)
    assert record.value_of(plain, CHECK, b"bkkey", record.plain_fields(0x6F, b"bk")) == b"value"
    raw = b"abc" * 1000
    packed = record.encode(
        0,
        CHECK,
        record.PUT,
        0x6F,
        b"bk",
        b"key",
        lz4.block.compress(raw, store_size=False),
        1,
        raw_bytes=len(raw),
    )
    assert record.value_of(packed, CHECK, b"bkkey", record.plain_fields(0x6F, b"bk")) == raw


def test_the_hot_read_leaves_every_damaged_record_to_the_long_way() -> None:
    whole = record.encode(0, CHECK, record.PUT, 0x6F, b"", b"key", b"value-of-it", 1)
    fields = record.plain_fields(0x6F, b"")
    for cut in range(len(whole)):
        assert record.value_of(whole[:cut], CHECK, b"key", fields) is None
    # CDB's lengths, the number and the version are in what the header hashes to, which seeds the
    # value's checksum; all are seen. No value depends on the header's own sum.
    own_sum = range(record.FIXED_BYTES + 3, record.FIXED_BYTES + 7)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        expected = b"value-of-it" if at in own_sum else None
        assert record.value_of(bytes(damaged), CHECK, b"key", fields) == expected


def test_the_hot_read_does_not_take_a_bucket_for_a_part_of_the_key() -> None:
    whole = record.encode(0, CHECK, record.PUT, 0x6F, b"a", b"bkey", b"v", 1)
    assert record.value_of(whole, CHECK, b"abkey", record.plain_fields(0x6F, b"ab")) is None


def test_a_small_frame_cannot_ask_for_a_large_allocation() -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        record.decompress(b"\x00" * 100, 200 << 20)


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


@pytest.mark.parametrize("value", [b"", b"value" * 200])
@pytest.mark.parametrize("metadata", [b"", b"meta"])
@pytest.mark.parametrize("index", [b"", b"terms"])
@pytest.mark.parametrize("batch", [None, (0, 2)])
@pytest.mark.parametrize("packed", [False, True])
def test_the_hot_reads_know_the_fields_of_a_put(
    value: bytes, metadata: bytes, index: bytes, batch: tuple[int, int] | None, packed: bool
) -> None:
    stored = lz4.block.compress(value, store_size=False) if packed else value
    more: dict[str, Any] = {"metadata": metadata, "index": index, "batch": batch}
    if packed:
        more["raw_bytes"] = len(value)
    asked = (CHECK, b"bkkey", record.plain_fields(0x6F, b"bk"))

    def encoded(**others: Any) -> bytes:
        return record.encode(
            0, CHECK, record.PUT, 0x6F, b"bk", b"key", stored, 77, **(more | others)
        )

    whole = encoded()
    assert record.value_of(whole, *asked) == value
    assert head_of(whole, *asked, 999) == (len(value), metadata, 77, None)
    expiring = encoded(expiry_ms=1000)
    assert head_of(expiring, *asked, 999) == (len(value), metadata, 77, 1000)
    assert record.value_of(expiring, *asked, 999) == value
    assert record.value_of(expiring, *asked, 1000) is None
    for other in (expiring, encoded(sub_key=b"s")):
        assert record.value_of(other, *asked) is None
        assert head_of(other, *asked, 1000) is None
    for cut in range(len(expiring)):
        assert record.value_of(expiring[:cut], *asked, 999) is None
        if cut < len(expiring) - len(stored):
            assert head_of(expiring[:cut], *asked, 999) is None
    for cut in range(len(whole)):
        assert record.value_of(whole[:cut], *asked) is None
    head_end = len(whole) - len(stored) - record.SUMS_BYTES
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        if not head_end <= at < head_end + 4:  # no value depends on the header's own sum
            assert record.value_of(bytes(damaged), *asked) is None
        if at < head_end + 4:
            assert head_of(bytes(damaged), *asked, 999) is None
