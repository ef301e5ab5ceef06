"""Encodes and decodes JSON with a checksum of its own: the last field, over all others."""

from __future__ import annotations

import json
from typing import Any

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption, UnsupportedFormat
from octavo.files.unbroken import need_room

_ROOM = 60
"""More calls within each other than JSON of a few levels takes."""


def checksum(told: dict[str, Any]) -> str:
    """16 hexadecimal digits: xxh3-64 of the fields but itself, as JSON with sorted keys."""
    return f"{xxh3(json.dumps(told, sort_keys=True).encode()):016x}"


def encoded(told: dict[str, Any]) -> bytes:
    """The fields, and behind them their checksum, as JSON."""
    return json.dumps({**told, "checksum": checksum(told)}).encode()


def decoded(text: bytes, file: str, what: str, version: int | None = None) -> dict[str, Any]:
    """The fields that ``encoded`` was given. ``file``, and ``what`` it tells of: for messages.
    Raises Corruption; UnsupportedFormat if a ``version`` is given and the format is another."""
    need_room(_ROOM)  # so a RecursionError below means damaged text, not a deep stack
    try:
        told: dict[str, Any] = json.loads(text)
        if version is not None and told["format"] != version:
            raise UnsupportedFormat(
                f"{file}: {what} of format {told['format']!r:.40}; "
                f"this release knows format {version}"
            )
        claimed, expected = told.pop("checksum"), checksum(told)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Corruption(file, 0, f"does not tell of {what}") from None
    if claimed != expected:
        raise Corruption(file, 0, "checksum", expected=expected, found=f"{claimed!r:.80}")
    return told
