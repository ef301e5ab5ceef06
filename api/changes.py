"""The journal as events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from octavo.actors.inker import Inker
from octavo.files.record import PUT

_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Change:
    """One operation, as it stands in the journal."""

    sqn: int
    kind: Literal["put", "delete"]
    bucket: bytes
    key: bytes
    value: bytes | None
    """None for a delete."""
    metadata: bytes
    written_at: int
    """ms UTC."""
    expires_at: int | None
    """ms UTC; None: never."""
    batch: tuple[int, int] | None
    """(position from 0, length) of its atomic batch; None: written by itself."""


def changes(inker: Inker, since: int) -> Iterator[Change]:
    """Durable changes above ``since`` (exclusive), in sqn order, up to the newest at the start
    of the iteration. What is not yet durable is made so first."""
    upto = inker.last_sqn
    inker.make_durable(upto, _TIMEOUT_SECONDS)
    for file in inker.view.files:
        if file.base > upto:
            return
        for sqn in file.sqns(since + 1, upto):
            whole = file.read(sqn)
            put = whole.kind == PUT
            yield Change(
                sqn,
                "put" if put else "delete",
                whole.bucket,
                whole.key,
                whole.value if put else None,
                whole.metadata,
                whole.time_ms,
                whole.expiry_ms or None,
                whole.batch,
            )
