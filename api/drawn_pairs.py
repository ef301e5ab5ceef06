"""Draws the pairs of a put_many from what the caller gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import chain
from typing import Any

from octavo.files.argument_checks import shown
from octavo.files.errors import Misuse

_NO_PAIRS = (str, bytes, bytearray, memoryview, Mapping, Set)


def plain_pairs(
    drawn: Iterator[Any], prefix: bytes, key_limit: int, value_limit: int
) -> tuple[list[tuple[bytes, bytes]], list[bytes], Iterator[Any] | None]:
    """Draw pairs that can be written as they are. Returns (pairs, prefix + key of each, None). If
    one has to be converted, or is large, drawing stops there, and the third is an iterator of all
    pairs, the rest not drawn yet: their values may share a buffer that is filled anew for each, and
    large ones would fill the memory."""
    pairs: list[tuple[bytes, bytes]] = []
    keys: list[bytes] = []
    for pair in drawn:
        try:
            key, value = pair
        except (TypeError, ValueError):
            return pairs, keys, chain(pairs, (pair,), drawn)
        if (
            type(pair) is tuple
            and type(key) is bytes is type(value)
            and 0 < len(key) < key_limit
            and len(value) < value_limit
        ):
            pairs.append(pair)
            keys.append(prefix + key)
        else:
            return pairs, keys, chain(pairs, (pair,), drawn)
    return pairs, keys, None


def to_pair(pair: Any) -> tuple[Any, Any]:
    """Key and value of a drawn pair. Raises Misuse if it is none, such as a str of two letters."""
    try:
        if type(pair) not in (tuple, list) and isinstance(pair, _NO_PAIRS):
            raise TypeError
        key, value = pair
    except (TypeError, ValueError):
        raise Misuse(f"pairs holds {shown(pair)}: allowed are (key, value)") from None
    return key, value
