"""Encodes ledger keys as bytes that sort as (tag, bucket, key) does.

A ledger key is (tag, bucket, key); its bytes are ``prefix(tag, bucket) + key``:

    tag      1 byte
    bucket   with 0x00 written as 0x00 0xFF, then the end mark 0x00 0x00
    key      raw

Unsigned byte order of the whole is the order of the triple, since the end mark sorts below
every continuation of a longer bucket name. The key stands raw at the end, so a ledger file
keeps the prefix once per run of rows and the user's key bytes contiguous.

Tags whose rows have more parts (an index entry's field and term, a head-only sub-key) put a
tuple in the key's place, written with the same escape, so the order holds for them too.
"""

from __future__ import annotations

STANDARD = 0x6F  # "o"
INDEX = 0x69  # "i": index entries
HEAD_ONLY = 0x68  # "h": entries of head-only stores

MAX_KEY_BYTES = 64 * 1024
"""Bucket and key together; 64 KiB inclusive."""

_END = b"\x00\x00"
ABOVE_ALL = b"\xff"
"""Behind every ledger key: no tag is 255."""


def prefix(tag: int, bucket: bytes) -> bytes:
    """The bytes that every ledger key of ``bucket`` begins with."""
    return bytes((tag,)) + bucket.replace(b"\x00", b"\x00\xff") + _END


def split(ledger_key: bytes) -> tuple[int, bytes, bytes]:
    """(tag, bucket, key) of a ledger key. Raises ValueError where there is no end mark."""
    at = end_of_prefix(ledger_key)
    return ledger_key[0], ledger_key[1 : at - 2].replace(b"\x00\xff", b"\x00"), ledger_key[at:]


def end_of_prefix(ledger_key: bytes) -> int:
    """Index of the first byte of the key part. O(length of the bucket name)."""
    at = ledger_key.index(b"\x00", 1)
    if ledger_key[at + 1 : at + 2] == b"\x00":
        return at + 2
    # A bucket named by a number is mostly NULs, none of which is to cost a step of Python.
    end = ledger_key.index(b"\x00\x00", at)
    if ledger_key.count(b"\x00", at, end) != ledger_key.count(b"\x00\xff", at, end):
        raise ValueError(f"malformed ledger key {ledger_key[:40]!r}")
    return end + 2


def after(prefix_bytes: bytes) -> bytes | None:
    """The smallest byte string above everything that begins with ``prefix_bytes``.

    None where there is none (all bytes are 0xFF, or the prefix is empty).
    """
    stripped = prefix_bytes.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
