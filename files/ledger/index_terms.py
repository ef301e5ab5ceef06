"""Index entries as bytes: terms that sort naturally, and the set of entries that a record carries.

An entry says that an object has a term in a field. Its ledger key is

    prefix(INDEX, bucket) + field 00 00 + term 00 00 + object's tag + object's key

where field and term have 00 written as 00 FF, so that byte order is the order of (field, term,
tag, key). A term begins with its type: 10 int, 20 bytes, 30 str. An int follows as a length byte
(80 + n, or 7F - n for a negative one) and n bytes big-endian, complemented if negative, so that
ints sort by value; bytes as they are; str in UTF-8, which sorts by code point.

A record carries the whole set of its object's entries: for each a u16 length and the part
``field 00 00 term 00 00``, in byte order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from octavo.files.errors import Corruption
from octavo.files.ledger import ledger_key

Term = int | bytes | str

MAX_FIELD_BYTES = 255
MAX_TERM_BYTES = 1024
MAX_ENTRIES = 4096
"""The most entries of one object, in all its fields."""

_INT, _BYTES, _STR = b"\x10", b"\x20", b"\x30"
_END = b"\x00\x00"
_NUL, _ESCAPED = b"\x00", b"\x00\xff"
_LENGTH = Struct("<H")
LEAST_BYTES = 6
"""The fewest bytes of an entry in a record, its length included."""
_LONGEST_INT = 126


def term_bytes(term: Term) -> bytes:
    """A term with its type in front, not yet escaped. Raises ValueError if it is too long."""
    if isinstance(term, int):
        size = (term if term >= 0 else -term - 1).bit_length() + 7 >> 3
        if size > _LONGEST_INT:
            raise ValueError(f"an int of {size} bytes: at most {_LONGEST_INT} are allowed")
        if term >= 0:
            return _INT + bytes((0x80 + size,)) + term.to_bytes(size, "big")
        magnitude = (-term - 1).to_bytes(size, "big")
        return _INT + bytes((0x7F - size,)) + bytes(255 - byte for byte in magnitude)
    found = _STR + term.encode() if isinstance(term, str) else _BYTES + term
    if len(found) > MAX_TERM_BYTES + 1:
        raise ValueError(f"a term of {len(found) - 1} bytes: at most {MAX_TERM_BYTES} are allowed")
    return found


def kind_of(term: Term) -> bytes:
    """What the stored form of a term of this type begins with."""
    return _INT if isinstance(term, int) else _STR if isinstance(term, str) else _BYTES


def term_of(found: bytes) -> Term:
    """The term that ``term_bytes`` wrote. Raises ValueError."""
    kind, rest = found[:1], found[1:]
    if kind == _STR:
        return rest.decode()
    if kind == _BYTES:
        return rest
    if kind != _INT or not rest:
        raise ValueError(f"no index term: {found[:40]!r}")
    if rest[0] >= 0x80:
        return int.from_bytes(rest[1:], "big")
    return -int.from_bytes(bytes(255 - byte for byte in rest[1:]), "big") - 1


def escaped(field: bytes) -> bytes:
    """``field 00 00``: what the entries of a field begin with, behind the bucket's prefix."""
    return field.replace(_NUL, _ESCAPED) + _END


def escaped_term(term: Term) -> bytes:
    """``term 00 00``. Raises ValueError."""
    return escaped(term_bytes(term))


def stored_terms(found: Sequence[bytes]) -> list[Term]:
    """The terms of what ``escaped_term`` gave, without the end marks; ``found`` is in order, either
    way. 0.2 us each. Raises Corruption."""
    try:
        return _stored_terms(found)
    except ValueError as wrong:
        raise Corruption("ledger", 0, f"index entries: {wrong}; verify the store") from None


def _stored_terms(found: Sequence[bytes]) -> list[Term]:
    if not found:
        return []
    low, high = min(found[0], found[-1]), max(found[0], found[-1])
    if low == high:
        return [term_of(low.replace(_ESCAPED, _NUL))] * len(found)
    if low[:1] == high[:1] == _INT and low[1:2] >= b"\x80":
        of_bytes = int.from_bytes
        return [of_bytes(stored.replace(_ESCAPED, _NUL)[2:], "big") for stored in found]
    if low[:1] == _STR:
        return [stored[1:].replace(_ESCAPED, _NUL).decode() for stored in found]
    return [term_of(stored.replace(_ESCAPED, _NUL)) for stored in found]


def _until_end(found: bytes, at: int) -> tuple[bytes, int]:
    start = at
    while True:
        at = found.index(_NUL, at)
        mark = found[at + 1 : at + 2]
        if mark == _NUL:
            return found[start:at].replace(_ESCAPED, _NUL), at + 2
        if mark != b"\xff":
            raise ValueError(f"malformed index entry {found[:40]!r}")
        at += 2


class Entry(NamedTuple):
    """An index row's key, taken apart."""

    field: bytes
    term: Term
    tag: int
    key: bytes


def entry_of(user_key: bytes) -> Entry:
    """The parts of an index row's key, behind the bucket's prefix. Raises ValueError."""
    field, at = _until_end(user_key, 0)
    term, at = _until_end(user_key, at)
    if at >= len(user_key):
        raise ValueError(f"malformed index entry {user_key[:40]!r}")
    return Entry(field, term_of(term), user_key[at], user_key[at + 1 :])


def object_of(user_key: bytes) -> tuple[int, bytes]:
    """(tag, key) of the object that an index row is of. Cheaper than ``entry_of``."""
    at = user_key.index(_END)
    # 00 00 ends a part unless the first of the two belongs to the escape before: 00 FF never
    # ends in 00, so the first 00 00 is the end.
    at = user_key.index(_END, at + 2) + 2
    return user_key[at], user_key[at + 1 :]


# ---------------------------------------------------------------- the set in a record


def packed(parts: Iterable[bytes]) -> bytes:
    """A set of entry parts as a record carries it."""
    each = set(parts)
    if len(each) == 1:
        (part,) = each
        return _LENGTH.pack(len(part)) + part
    return b"".join([_LENGTH.pack(len(part)) + part for part in sorted(each)])


def unpacked(found: bytes) -> list[bytes]:
    """The entry parts of a record. 0.15 us each. Raises ValueError."""
    out: list[bytes] = []
    length, last, least = _LENGTH.unpack_from, len(found) - 1, LEAST_BYTES - 2
    at = 0
    while at < last:
        low = at + 2
        (size,) = length(found, at)
        if size < least:
            raise ValueError("index entries cut short")
        at = low + size
        out.append(found[low:at])
    if at != last + 1:
        raise ValueError("index entries cut short")
    return out


@lru_cache(maxsize=64)
def _front(bucket: bytes) -> bytes:
    return ledger_key.prefix(ledger_key.INDEX, bucket)


def ledger_keys(tag: int, bucket: bytes, key: bytes, index: bytes) -> list[bytes]:
    """The ledger keys of a record's index entries. Raises ValueError."""
    if not index:
        return []
    front = _front(bucket)
    back = bytes((tag,)) + key
    (size,) = _LENGTH.unpack_from(index) if len(index) >= LEAST_BYTES else (-2,)
    if size == len(index) - 2:  # one entry
        return [front + index[2:] + back]
    return [front + part + back for part in unpacked(index)]


def terms_by_field(index: bytes, file: str) -> dict[bytes, list[Term]]:
    """A record's set of entries, taken apart: the terms of each field, in their order. Raises
    Corruption naming ``file``."""
    try:
        return _by_field(unpacked(index))
    except ValueError as wrong:
        raise Corruption(file, 0, f"index entries of a record: {wrong}") from None


def _by_field(parts: Sequence[bytes]) -> dict[bytes, list[Term]]:
    out: dict[bytes, list[Term]] = {}
    for part in parts:
        field, at = _until_end(part, 0)
        term, _ = _until_end(part, at)
        out.setdefault(field, []).append(term_of(term))
    return out
