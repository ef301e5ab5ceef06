"""The hot reads of a record: they give what is there, and leave all else to the long way."""

from __future__ import annotations

from typing import Any

import lz4.block
import pytest

from octavo.files.journal import record, short_value
from octavo.files.journal.short_head import head_of

CHECK = 0x1122334455667788


def value_of(whole: bytes, check: int, named: bytes, fields: bytes, *moment: int) -> bytes | None:
    """What the hot read gives of these bytes, by themselves and among others."""
    found = short_value.value_of(whole, 0, len(whole), check, named, fields, *moment)
    among = b"before" + whole + named + fields
    inside = short_value.value_of(among, 6, 6 + len(whole), check, named, fields, *moment)
    assert inside == found
    return found


def test_the_hot_read_gives_the_value_of_a_plain_and_of_a_compressed_put() -> None:
    plain = record.encode(0, CHECK, record.PUT, 0x6F, b"bk", b"key", b"value", 1)
    assert value_of(plain, CHECK, b"bkkey", short_value.plain_fields(0x6F, b"bk")) == b"value"
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
    assert value_of(packed, CHECK, b"bkkey", short_value.plain_fields(0x6F, b"bk")) == raw


def test_the_hot_read_leaves_every_damaged_record_to_the_long_way() -> None:
    whole = record.encode(0, CHECK, record.PUT, 0x6F, b"", b"key", b"value-of-it", 1)
    fields = short_value.plain_fields(0x6F, b"")
    for cut in range(len(whole)):
        assert value_of(whole[:cut], CHECK, b"key", fields) is None
    # CDB's lengths, the number and the version are in what the header hashes to, which seeds the
    # value's checksum; all are seen. No value depends on the header's own sum.
    own_sum = range(record.FIXED_BYTES + 3, record.FIXED_BYTES + 7)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        expected = b"value-of-it" if at in own_sum else None
        assert value_of(bytes(damaged), CHECK, b"key", fields) == expected


def test_the_hot_read_does_not_take_a_bucket_for_a_part_of_the_key() -> None:
    whole = record.encode(0, CHECK, record.PUT, 0x6F, b"a", b"bkey", b"v", 1)
    assert value_of(whole, CHECK, b"abkey", short_value.plain_fields(0x6F, b"ab")) is None


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
    asked = (CHECK, b"bkkey", short_value.plain_fields(0x6F, b"bk"))

    def encoded(**others: Any) -> bytes:
        return record.encode(
            0, CHECK, record.PUT, 0x6F, b"bk", b"key", stored, 77, **(more | others)
        )

    whole = encoded()
    assert value_of(whole, *asked) == value
    assert head_of(whole, *asked, 999) == (len(value), metadata, 77, None)
    expiring = encoded(expiry_ms=1000)
    assert head_of(expiring, *asked, 999) == (len(value), metadata, 77, 1000)
    assert value_of(expiring, *asked, 999) == value
    assert value_of(expiring, *asked, 1000) is None
    for other in (expiring, encoded(sub_key=b"s")):
        assert value_of(other, *asked) is None
        assert head_of(other, *asked, 1000) is None
    for cut in range(len(expiring)):
        assert value_of(expiring[:cut], *asked, 999) is None
        if cut < len(expiring) - len(stored):
            assert head_of(expiring[:cut], *asked, 999) is None
    for cut in range(len(whole)):
        assert value_of(whole[:cut], *asked) is None
    head_end = len(whole) - len(stored) - record.SUMS_BYTES
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        if not head_end <= at < head_end + 4:  # no value depends on the header's own sum
            assert value_of(bytes(damaged), *asked) is None
        if at < head_end + 4:
            assert head_of(bytes(damaged), *asked, 999) is None
