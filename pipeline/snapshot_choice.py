"""Chooses the published snapshot that is read; if none is asked for, pins one now."""

from __future__ import annotations

from octavo.files.door.disk import RealDisk
from octavo.files.errors import READ_ONLY, Misuse, usable
from octavo.files.ledger.ledger_key import HEAD_ONLY
from octavo.files.wall_clock import utc, wall_clock_ms
from octavo.manifest import pinning, published
from octavo.manifest.published import Published
from octavo.pipeline.read_options import ReadOptions


def is_head_only(path: str) -> bool:
    """Whether a published snapshot is of a head-only store. Raises SnapshotExpired, Corruption."""
    return HEAD_ONLY in published.read(RealDisk(), path).counts


def start_path(options: ReadOptions) -> str | None:
    """The directory of the snapshot from which changes are read; None: all is read. Raises
    Misuse, SnapshotExpired, Corruption."""
    if options.start_snapshot is None:
        return None
    now_ms = wall_clock_ms()
    return published.found(RealDisk(), options.path, options.start_snapshot, now_ms).path


def chosen(options: ReadOptions) -> Published:
    """The snapshot to read: that of the option, maybe without its files, or one that is pinned
    now. Raises Misuse, SnapshotExpired, Corruption, and what ``pinned`` does."""
    disk, now_ms = RealDisk(), wall_clock_ms()
    wishes = {
        "snapshot": options.snapshot,
        "sqnAsOf": options.sqn_as_of,
        "timestampAsOf": options.timestamp_as_of,
    }
    given = [name for name, wish in wishes.items() if wish is not None]
    if len(given) > 1:
        raise Misuse(f"{given[0]} and {given[1]}: each says which snapshot; give one of them")
    if options.snapshot is not None:
        return published.found(disk, options.path, options.snapshot, now_ms)
    if not given:
        return pinned(options.path, int(options.lease_seconds * 1000))
    live = [each for each in published.listed(disk, options.path) if now_ms < each.expires_at]
    fitting = [
        each
        for each in live
        if (options.sqn_as_of is None or each.sqn <= options.sqn_as_of)
        and (options.timestamp_as_of is None or each.taken_at <= options.timestamp_as_of)
    ]
    if not fitting:
        there = ", ".join(f"{each.id} (sqn {each.sqn}, {utc(each.taken_at)})" for each in live)
        wish = wishes[given[0]]
        asked = wish if options.timestamp_as_of is None else utc(options.timestamp_as_of)
        raise Misuse(
            f"{given[0]}={asked}: no published snapshot is as old; there are: {there or 'none'}"
        )
    return max(fitting, key=lambda each: (each.sqn, each.taken_at))


def pinned(
    path: str, lease_ms: int, instead: str = "name a snapshot that its owner published, or "
) -> Published:
    """Pin the newest state of the store, which tasks read by links. Raises Misuse if it cannot be
    used, or no links can be made there (then the message advises ``instead``, or a copy); Busy,
    Corruption, StorageFailed, OSError."""
    try:
        with usable("path", path):
            return pinning.pin(RealDisk(), path, lease_ms, wall_clock_ms())
    except Misuse as refused:
        cause, there = refused.__cause__, f"{path}/{published.SNAPSHOTS}"
        if not isinstance(cause, OSError) or cause.errno not in READ_ONLY:
            raise
        if there not in f"{cause.filename} {cause.filename2}":
            raise  # the store cannot be read either
        raise Misuse(
            f"path={path!r}: no links can be made there ({cause.strerror}), and Spark's tasks read "
            f"a store by links; {instead}copy the store"
        ) from cause
