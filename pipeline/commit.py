"""Commits what tasks staged: in the driver's planner process, through the public face."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from octavo.files.door.disk import RealDisk
from octavo.manifest import store_identity

_LOOK_SECONDS = 0.02
_MADE_SECONDS = 30.0
"""Longer than another process takes to make a store."""


def made_store(path: str) -> str:
    """See that a store that takes in files is at this path; returns its absolute path. Raises
    Misuse, Corruption."""
    import octavo

    where = os.path.abspath(path)
    deadline = time.monotonic() + _MADE_SECONDS
    while True:
        try:
            with octavo.open(path) as store:
                where = store.path
            break
        except octavo.StoreLocked:
            if RealDisk().exists(f"{where}/{store_identity.IDENTITY}"):
                break
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_SECONDS)  # it is just being made there
    if store_identity.is_head_only(store_identity.fields_of(RealDisk(), where)):
        raise octavo.Misuse("a head-only store takes in no files: it keeps values in its ledger")
    return where


def committed(path: str, job: str, attempts: Sequence[str], stream: str, batch: int) -> None:
    """Take in these attempts all at once. Raises what ``octavo.commit`` raises."""
    import octavo

    octavo.commit(path, job, attempts, stream=stream, batch=batch)


def consumer_at(path: str, consumer: str, sqn: int) -> int:
    """Move a durable consumer of the store's change feed to ``sqn``, unless it is farther already;
    returns its position."""
    import octavo

    return octavo.acknowledge(path, consumer, sqn)
