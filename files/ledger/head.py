"""The head of a key: what is known of its value without reading it."""

from __future__ import annotations

from typing import NamedTuple


class Head(NamedTuple):
    """What is known of a value without reading it.

    ``sqn``: Sequence number of the put; what ``if_sqn`` compares with.
    ``size``: Bytes of the value, before compression.
    ``metadata``: The metadata that the put was given.
    ``written_at``: When it was put, ms UTC.
    ``expires_at``: Moment from which the key reads as absent, ms UTC; None: never.
    """

    sqn: int
    size: int
    metadata: bytes
    written_at: int
    expires_at: int | None
