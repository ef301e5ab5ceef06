"""Calls on a store by its path, whether it is open elsewhere or not: committing what a job has
staged, acknowledging changes, backing up."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Unpack

from octavo.actors.compacting import joining
from octavo.actors.keeping import inbox_watch
from octavo.actors.keeping.backup import BackedUp
from octavo.actors.keeping.ingest import Ingested, checked
from octavo.actors.opening.options import OpenOptions
from octavo.actors.penciller import Merge, Penciller
from octavo.actors.penciller_clerk import PencillerClerk
from octavo.arguments import to_flag, to_path, to_timeout
from octavo.files import errors
from octavo.files.argument_checks import to_whole
from octavo.files.door.disk import RealDisk
from octavo.files.errors import AskTimeout, Misuse, OctavoError, StorageFailed, StoreLocked
from octavo.files.handover import inbox
from octavo.files.later import loading
from octavo.files.messages import messages_of
from octavo.files.unbroken import unbroken
from octavo.files.wall_clock import wall_clock_ms
from octavo.manifest.consumers import checked_name
from octavo.manifest.journal_manifest import MAX_SQN
from octavo.manifest.small_files import FEW_SMALL

if TYPE_CHECKING:
    from octavo.store import Store

log = messages_of("octavo.ingest")

_LOOK_SECONDS = 0.02
_OPEN_SECONDS = 1.0
_QUIET_SECONDS = 5.0
"""After waiting so long for a store's owner, the log says so."""
_JOINING_SECONDS = 60.0
"""Far longer than joining small journal files into one takes."""


def commit(
    path: str | os.PathLike[str],
    job_id: str,
    attempts: Sequence[str],
    *,
    stream: str = "",
    batch: int = 0,
    timeout_seconds: float = 600.0,
    **options: Unpack[OpenOptions],
) -> Ingested:
    """As ``Store.ingest``, for the store at ``path``: opens it with ``options`` or, if it is open
    in this or another process, asks its owner.

    A commit that was interrupted or raised may be repeated: what was done is not done again. If it
    opens the store, and some thirty files of earlier commits wait to be merged, it waits for that,
    too. ``timeout_seconds``: how long to wait for the owner, above 0, at most a year. Raises as
    ``octavo.open`` and ``Store.ingest``, but not StoreLocked; AskTimeout, whose message says
    whether the owner may have done it or may still do it; otherwise it never will.
    """
    for name in ("create", "read_only"):
        if name in options:
            raise Misuse(f"{name}= is not for a commit, which needs an existing store")
    attempts, batch = checked(job_id, attempts, stream, batch)
    answer = _by_owner(
        path,
        {"job": job_id, "attempts": attempts, "stream": stream, "batch": batch},
        lambda store: asdict(_ingested(store, job_id, attempts, stream, batch)),
        timeout_seconds,
        options,
    )
    return Ingested(answer["first_sqn"], answer["last_sqn"], answer["repeated"])


def _ingested(store: Store, job: str, attempts: Sequence[str], stream: str, batch: int) -> Ingested:
    """As ``Store.ingest``; but if files of earlier commits have piled up, also waits until they are
    merged and joined. An open store does that in the background, but no single commit has the store
    open long enough."""
    running = store._running
    clerk = running.inker_clerk.actor
    task = running.penciller.call(Penciller.next_task)
    merges = isinstance(task, Merge) and len(task.inputs) >= FEW_SMALL
    joins = joining.is_due(clerk)
    answer = store.ingest(job, attempts, stream=stream, batch=batch)
    try:
        if joins:
            clerk.answer(_JOINING_SECONDS)
        if merges:
            running.clerk.call(PencillerClerk.work)
    except OctavoError as error:  # the commit itself is done
        log.warning("%s: files of earlier commits stay as they are for now: %s", store.path, error)
    return answer


def acknowledge(
    path: str | os.PathLike[str], consumer: str, sqn: int, *, timeout_seconds: float = 600.0
) -> int:
    """Acknowledge the changes at or below ``sqn`` for a durable consumer, created if there is none;
    returns its position. For followers in other processes: opens the store or asks its owner, as
    ``commit``.

    Raises HistoryCompacted if a new one cannot begin there, Misuse, AskTimeout.
    """
    sqn = to_whole("sqn", sqn, "are sequence numbers", 0, MAX_SQN)
    answer = _by_owner(
        path,
        {"consumer": checked_name(consumer), "sqn": sqn},
        lambda store: {"position": inbox_watch.acknowledge(store._running, consumer, sqn)},
        timeout_seconds,
        {},
    )
    return int(answer["position"])


def backup(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    ledger: bool = True,
    timeout_seconds: float = 600.0,
) -> BackedUp:
    """As ``Store.backup``, of the store at ``path`` into the directory ``target``, by hard links:
    opens it or, if it is open in this or another process, asks its owner, for whom ``target`` must
    be the same absolute path. Suits scheduled backups.

    Raises as ``octavo.open`` and ``Store.backup``, StoreLocked if the backup at ``target`` is open;
    AskTimeout, as ``commit``.
    """
    where, ledger = to_path("target", target), to_flag("ledger", ledger)
    answer = _by_owner(
        path,
        {"backup": where, "ledger": ledger},
        lambda store: asdict(store.backup(where, ledger=ledger)),
        timeout_seconds,
        {},
    )
    return BackedUp(**answer)


def _by_owner(
    path: str | os.PathLike[str],
    asked: dict[str, Any],
    do: Callable[[Store], dict[str, Any]],
    timeout_seconds: float,
    options: OpenOptions,
) -> dict[str, Any]:
    """Open the store and ``do`` it; or, if that is open elsewhere, ask its owner (``asked``)."""
    with unbroken, loading:
        from octavo.store import opened_to_write

    where = to_path("path", path)
    request = inbox.Request(RealDisk(), where, asked, wall_clock_ms())
    deadline = time.monotonic() + to_timeout(timeout_seconds)
    tell_at = time.monotonic() + _QUIET_SECONDS
    try:
        while True:
            try:
                store = opened_to_write(where, {**options, "create": False}, briefly=True)
            except StoreLocked as locked:
                if time.monotonic() >= tell_at:
                    tell_at = math.inf
                    log.warning(
                        "%s: waiting for its owner to answer, for up to %g s: it may be stopped, "
                        "or busy; end or resume it, or interrupt this", locked, timeout_seconds,
                    )  # fmt: skip
            else:
                with store:
                    return do(store)
            with errors.storage_errors(f"a request to the owner of {where}"):
                request.ask()
                # After a while without an answer, try again to open the store.
                answer = _awaited(request, min(time.monotonic() + _OPEN_SECONDS, deadline))
            if answer is not None:
                return _understood(answer)
            if time.monotonic() >= deadline:
                break
    finally:
        with unbroken:
            begun = request.withdraw()
    told = f"{where} is open elsewhere, and its owner did not answer within {timeout_seconds:g} s"
    if begun:
        raise AskTimeout(
            f"{told}, but had begun: it may be done, or still being done; ask again to know, since "
            "nothing is done twice"
        )
    raise AskTimeout(f"{told}: nothing was done; try again when it does")


def _awaited(request: inbox.Request, until: float) -> dict[str, Any] | None:
    """The answer, if it comes by the moment ``until``; else None."""
    while True:
        answer = request.answer()
        left = until - time.monotonic()
        if answer is not None or left <= 0:
            return answer
        time.sleep(min(left, _LOOK_SECONDS))


def _understood(answer: dict[str, Any]) -> dict[str, Any]:
    told = answer.get("error")
    if told is not None:
        kind = getattr(errors, str(told), None)
        message = str(answer.get("message"))
        if kind is errors.Corruption:
            raise errors.Corruption(message, 0, "in the store's owner")
        if isinstance(kind, type) and issubclass(kind, OctavoError):
            raise kind(message)
        raise StorageFailed(f"the store's owner: {told}: {message}")
    return answer
