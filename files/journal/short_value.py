"""The hot path of a get: finds a put's value in its record without decoding the rest."""

from __future__ import annotations

from functools import lru_cache
from mmap import mmap
from typing import TypeAlias

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.journal.record import (
    BATCH,
    EXPIRY,
    FIXED_BYTES,
    INDEX,
    LOW_32,
    LZ4,
    METADATA,
    OPTIONAL_FIELDS,
    PUT,
    SUMS_BYTES,
    decompress,
    unpack_u32,
    unpack_u64,
)

ALL_EXPIRED = 1 << 64
"""As ``now_ms``: a moment by which all that ever expires has expired."""
_FIELDS_OF_A_PUT = EXPIRY | METADATA | INDEX | BATCH | LZ4
Buffer: TypeAlias = bytes | memoryview | mmap


def plain_fields(tag: int, bucket: bytes) -> bytes:
    """Bytes 19 to 24 of the record of a put of this bucket without optional fields."""
    return bytes((PUT, tag, 0)) + len(bucket).to_bytes(2, "little")


Form = tuple[int, tuple[int, ...], int, bool]
"""How a put's record is laid out: bytes of its optional fields; where in the record the lengths of
what stands behind the key are; where that of the value before compression is (0: it is not
compressed); whether the put expires."""


@lru_cache(maxsize=1024)
def forms(plain: bytes) -> dict[bytes, Form]:
    """What a put of a bucket may look like, by bytes 19 to 24 of its record. ``plain`` is
    plain_fields of the bucket. The dict is not to be changed."""
    found: dict[bytes, Form] = {}
    for flags in range(_FIELDS_OF_A_PUT + 1):
        places: dict[int, int] = {}
        end = FIXED_BYTES
        for flag, size in OPTIONAL_FIELDS:
            if flags & flag:
                places[flag] = end
                end += size
        lengths = tuple(places[flag] for flag in (METADATA, INDEX) if flag in places)
        form = end - FIXED_BYTES, lengths, places.get(LZ4, 0), EXPIRY in places
        found[plain[:2] + bytes((flags,)) + plain[3:]] = form
    return found


def header_end(
    buffer: Buffer,
    at: int,
    end: int,
    bucket_and_key: bytes,
    plain: bytes,
    now_ms: int,
) -> tuple[int, int]:
    """(where in ``buffer`` the header of this key's put ends, where it tells the length of the
    value before compression; 0: it does not). (0, 0): the record, which is [at, end), is no put of
    this key, or has expired by ``now_ms``. ``plain`` is plain_fields of the bucket."""
    fields = buffer[at + 19 : at + 24]
    key_at, raw_at = at + FIXED_BYTES, 0
    key_end = key_at + len(bucket_and_key)
    if end > len(buffer):
        return 0, 0
    if fields == plain:
        header = key_end
    else:
        form = forms(plain).get(bytes(fields))
        if form is None or key_end + form[0] > end:
            return 0, 0
        more, lengths, raw_at, expires = form
        if expires and now_ms >= unpack_u64(buffer, key_at)[0]:
            return 0, 0
        key_at += more
        key_end += more
        raw_at += at if raw_at else 0
        header = key_end
        for place in lengths:
            header += unpack_u32(buffer, at + place)[0]
    if header + SUMS_BYTES > end or buffer[key_at:key_end] != bucket_and_key:
        return 0, 0
    return header, raw_at


def value_of(
    buffer: Buffer,
    at: int,
    end: int,
    check: int,
    bucket_and_key: bytes,
    plain: bytes,
    now_ms: int = ALL_EXPIRED,
) -> bytes | None:
    """The value of this key's put, whose record is [at, end) of ``buffer``; or None.

    ``plain`` is plain_fields of the bucket. None means "take the long way" (another key, one that
    has expired by ``now_ms``, or damage): the caller decodes the record in full and learns which.
    Exactly one copy of the value beyond ``buffer``. Only the value's checksum is compared: its seed
    is what the header hashes to, so it covers both.
    """
    header, raw_at = header_end(buffer, at, end, bucket_and_key, plain, now_ms)
    if not header:
        return None
    h = xxh3(buffer[at:header], check)
    stored = buffer[header + SUMS_BYTES : end]
    if xxh3(stored, h) & LOW_32 != unpack_u32(buffer, header + 4)[0]:
        return None
    if not raw_at:
        return bytes(stored)
    try:
        return decompress(stored, unpack_u32(buffer, raw_at)[0])
    except ValueError:
        return None
