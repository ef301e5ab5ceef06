"""What is written as JSON with a checksum of its own: the last field, of all others."""

from __future__ import annotations

import json
from typing import Any

from xxhash import xxh3_64_intdigest as xxh3


def checksum(told: dict[str, Any]) -> str:
    """16 hexadecimal digits: xxh3-64 of the fields but itself, as JSON with sorted keys."""
    return f"{xxh3(json.dumps(told, sort_keys=True).encode()):016x}"


def encoded(told: dict[str, Any]) -> bytes:
    """The fields, which are without it, and it."""
    return json.dumps({**told, "checksum": checksum(told)}).encode()
