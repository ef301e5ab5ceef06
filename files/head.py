"""What is told of a key without its value."""

from __future__ import annotations

from typing import NamedTuple


class Head(NamedTuple):
    """What is known of a value without reading it."""

    sqn: int
    """Sequence number of the put; what ``if_sqn`` compares with."""
    size: int
    """Bytes of the value, as given."""
    metadata: bytes
    """What the put was given as ``metadata``."""
    written_at: int
    """Moment of the put, ms UTC."""
    expires_at: int | None
    """Moment from which the key reads as absent, ms UTC; None: never."""
