"""Turns index entries as a user states them into the parts that records and ledger keys use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from octavo.files.argument_checks import shown, whole_number
from octavo.files.errors import Misuse
from octavo.files.ledger import index_terms
from octavo.files.ledger.index_terms import MAX_FIELD_BYTES, Term

_TERMS = (str, int, bytes, bytearray, memoryview)
"""Types whose values are one term, not an iterable of terms."""
_EXACTLY = frozenset((str, int, bytes))


def field_bytes(field: object) -> bytes:
    """The name of a field; str means its UTF-8 bytes. Raises Misuse."""
    found = b""
    try:
        if isinstance(field, str):
            found = str.encode(field)
        elif isinstance(field, bytes | bytearray | memoryview):
            found = bytes(memoryview(field))
    except UnicodeEncodeError as wrong:
        raise Misuse(f"index field {shown(field)}: {wrong}") from None
    if not 0 < len(found) <= MAX_FIELD_BYTES:
        raise Misuse(
            f"index field {shown(field)}: allowed are 1 to {MAX_FIELD_BYTES} bytes, or str"
        )
    return found


def checked_term(field: object, term: object) -> Term:
    """A term, of exactly one of its three types. Raises Misuse."""
    if type(term) in _EXACTLY:
        return term  # type: ignore[return-value]
    if isinstance(term, str):
        return str.__str__(term)
    if isinstance(term, bytes | bytearray | memoryview):
        return bytes(memoryview(term))
    number = whole_number(term)
    if number is None:
        raise Misuse(
            f"index field {shown(field)}: a term is of type {type(term).__name__}; "
            "allowed are int, bytes, str"
        )
    return number


def _back(field: object, term: object) -> bytes:
    try:
        return index_terms.escaped_term(checked_term(field, term))
    except ValueError as wrong:
        raise Misuse(f"index field {shown(field)}: {wrong}") from None


def index_parts(index: object, name: str = "index") -> set[bytes]:
    """The parts of entries stated as {field: term or terms}. Raises Misuse that names ``name``."""
    if type(index) is not dict and not isinstance(index, Mapping):
        raise Misuse(f"{name}={shown(index)}: allowed is a mapping of fields to terms")
    parts: set[bytes] = set()
    for field, terms in index.items():
        front = _front_of(field) if type(field) is str else _front(field)
        for term in (terms,) if type(terms) in _EXACTLY else _listed(field, terms):
            parts.add(front + _back(field, term))
    return parts


def _front(field: object) -> bytes:
    return index_terms.escaped(field_bytes(field))


_front_of = lru_cache(maxsize=1024)(_front)
"""Cached, as a store has few fields. For str only: values of other types may be equal, yet differ
in what they mean."""


def removed_parts(index: object) -> set[bytes]:
    """As index_parts; a field with None for terms stands for all of its entries. Raises Misuse."""
    if not isinstance(index, Mapping):
        raise Misuse(f"remove={shown(index)}: allowed is a mapping of fields to terms")
    whole = [field for field, terms in index.items() if terms is None]
    parts = index_parts({field: terms for field, terms in index.items() if terms is not None})
    parts.update(map(_front, whole))
    return parts


def _listed(field: object, terms: Any) -> Iterable[object]:
    if isinstance(terms, _TERMS) or whole_number(terms) is not None:
        return (terms,)
    if not isinstance(terms, Iterable):
        raise Misuse(
            f"index field {shown(field)}: {shown(terms)}; allowed are a term (int, bytes or str; a "
            "date as its isoformat()), or an iterable of terms"
        )
    return terms
