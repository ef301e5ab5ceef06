"""The hot path of a head: what a put's record says of its value, read without the value."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.journal import record, short_value

Found = tuple[int, bytes, int, int | None]
"""Bytes of the value as given, metadata, write time, expiry (None: never); ms UTC."""


def head_of(
    buffer: bytes | memoryview, check: int, bucket_and_key: bytes, plain: bytes, now_ms: int
) -> Found | None:
    """The head of this key's put, which is the whole buffer, its header's checksum verified; None,
    and the arguments, as in short_value.value_of. The value is not looked at."""
    end, raw_at = short_value.header_end(buffer, 0, len(buffer), bucket_and_key, plain, now_ms)
    if not end or xxh3(buffer[:end], check) & record.LOW_32 != record.unpack_u32(buffer, end)[0]:
        return None
    if raw_at:
        (size,) = record.unpack_u32(buffer, raw_at)
    else:
        size = record.unpack_u32(buffer, 4)[0] + 8 - end
    (time_ms,) = record.unpack_u64(buffer, 26)
    flags, at = buffer[21], record.FIXED_BYTES
    metadata, expiry = b"", None
    if flags & record.EXPIRY:
        (expiry,) = record.unpack_u64(buffer, at)
        at += 8
    if flags & record.METADATA:
        (length,) = record.unpack_u32(buffer, at)
        if flags & record.INDEX:  # index changes stand behind it
            end -= record.unpack_u32(buffer, at + 4)[0]
        metadata = bytes(buffer[end - length : end])
    return size, metadata, time_ms, expiry
