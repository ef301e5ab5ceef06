"""Committing what a job has staged, whether the store is open elsewhere or not."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from typing import Any

from octavo.actors.ingest import Ingested
from octavo.files import errors, inbox
from octavo.files.disk import RealDisk
from octavo.files.errors import AskTimeout, OctavoError, StorageFailed, StoreLocked
from octavo.files.staging import INBOX

_LOOK_SECONDS = 0.02
_OPEN_SECONDS = 1.0


def commit(
    path: str | os.PathLike[str],
    job_id: str,
    attempts: Sequence[str],
    *,
    stream: str = "",
    batch: int = 0,
    timeout_seconds: float = 600.0,
    **options: Any,
) -> Ingested:
    """As ``Store.ingest``, on the store at ``path``: opened for it with ``options``, or, where it
    is open in this or another process, by asking its owner.

    A commit that was interrupted may be repeated: what was done is not done again. Raises as
    ``octavo.open`` and ``Store.ingest``, but not StoreLocked; AskTimeout.
    """
    from octavo.store import open as open_store

    where = os.path.abspath(os.fsdecode(os.fspath(path)))
    disk = RealDisk()
    asked = {"job": job_id, "attempts": list(attempts), "stream": stream, "batch": batch}
    stem = f"{time.time_ns() // 1_000_000:012x}-{secrets.randbits(64):016x}"
    deadline = time.monotonic() + timeout_seconds
    try:
        while True:
            try:
                with open_store(where, create=False, **options) as store:
                    return store.ingest(job_id, attempts, stream=stream, batch=batch)
            except StoreLocked:
                pass
            if not disk.exists(f"{where}/{INBOX}/{stem}{inbox.REQUEST}"):
                inbox.write(disk, where, stem + inbox.REQUEST, asked)
            again = time.monotonic() + _OPEN_SECONDS
            while time.monotonic() < again:
                answer = inbox.read(disk, where, stem + inbox.ANSWER)
                if answer is not None:
                    return _understood(answer)
                time.sleep(_LOOK_SECONDS)
            if time.monotonic() > deadline:
                raise AskTimeout(
                    f"{where} is open elsewhere, and its owner did not take in job {job_id!r} "
                    f"within {timeout_seconds:g} s; repeat the commit when it does"
                )
    finally:
        inbox.remove(disk, where, stem + inbox.REQUEST, stem + inbox.ANSWER)


def _understood(answer: dict[str, Any]) -> Ingested:
    told = answer.get("error")
    if told is not None:
        kind = getattr(errors, str(told), None)
        message = str(answer.get("message"))
        if kind is errors.Corruption:
            raise errors.Corruption(message, 0, "in the store's owner")
        if isinstance(kind, type) and issubclass(kind, OctavoError):
            raise kind(message)
        raise StorageFailed(f"the store's owner: {told}: {message}")
    return Ingested(answer["first_sqn"], answer["last_sqn"], answer["repeated"])
