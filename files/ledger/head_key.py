"""The keys of entries of head-only stores: a key and a sub-key encoded as one.

In a record, and behind the bucket in a ledger key, they stand as the key with 0x00 written as 0x00
0xFF, the end mark 0x00 0x00, then the sub-key as it is: so the order of the whole is that of the
pair (see ledger_key.py).
"""

from __future__ import annotations

from octavo.files.errors import Corruption
from octavo.files.ledger.ledger_key import HEAD_ONLY

_END = b"\x00\x00"


def beginning(key: bytes) -> bytes:
    """What all entries begin with whose keys begin with ``key``."""
    return key.replace(b"\x00", b"\x00\xff")


def whole(key: bytes, sub_key: bytes = b"") -> bytes:
    """A key and a sub-key as one; without a sub-key the lowest that ``key`` may have."""
    return beginning(key) + _END + sub_key


def apart(found: bytes) -> tuple[bytes, bytes]:
    """(key, sub-key) of what ``whole`` gave. Raises Corruption."""
    key, end, sub_key = found.partition(_END)
    if not end:
        raise Corruption("ledger", 0, f"no key of a head-only store: {found[:80]!r}")
    return key.replace(b"\x00\xff", b"\x00"), sub_key


def shown(tag: int, key: bytes) -> str:
    """A record's key, of whatever type, for a message: as its writer knows it."""
    if tag != HEAD_ONLY:
        return f"key {key[:80]!r}"
    name, sub_key = apart(key)
    return f"key {name[:80]!r}" + (f", sub-key {sub_key[:80]!r}" if sub_key else "")
