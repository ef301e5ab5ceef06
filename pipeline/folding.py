"""Folds over a snapshot on Spark: leveled's idiom, a range of keys a task.

``seq`` takes in one row after the other, ``comb`` puts two states together. Both run in the
executors; the states travel between them, rows never do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, TypeVar

import pyarrow as pa

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Misuse, storage_errors
from octavo.files.ledger import index_terms, ledger_key
from octavo.files.ledger.few_maps import few_maps
from octavo.files.ledger.head_key import apart
from octavo.files.ledger.live_batches import Batch, buckets_of, heads_of, keys_of
from octavo.files.ledger.stale_entries import without_stale
from octavo.files.messages import messages_of
from octavo.manifest import published
from octavo.pipeline import spark_tasks
from octavo.pipeline.arrow_rows import record_batches
from octavo.pipeline.batch_reader import tag_number
from octavo.pipeline.partitions import KeyRange, asked_for, partitions
from octavo.pipeline.python_worker import settle
from octavo.pipeline.read_options import ReadOptions, local_path
from octavo.pipeline.snapshot_choice import pinned
from octavo.pipeline.snapshot_files import SnapshotFiles

log = messages_of("octavo.published")

S = TypeVar("S")
What = Literal["objects", "heads", "index"]
_VALUES = pa.schema([("value", pa.binary())])
_LEASE_SECONDS = 86_400.0


def fold(
    snapshot: Any,
    seq: Callable[..., S],
    comb: Callable[[S, S], S],
    zero: S,
    what: What = "objects",
    *,
    spark: Any = None,
    bucket: bytes | None = None,
    start: bytes | None = None,
    end: bytes | None = None,
    prefix: bytes | None = None,
    tag: str = "standard",
    decode: Callable[[bytes], Any] | None = None,
    split_bytes: int = 0,
) -> S:
    """Fold ``seq`` over all live rows, beginning with ``zero`` in each task; returns the final
    state.

    ``snapshot``: a Snapshot, which is published for as long as this takes; a PublishedSnapshot; or
    the path of a store, which is pinned. ``what`` says what ``seq`` is called with:

    - ``"objects"``: ``seq(state, bucket, key, value)``; the value through ``decode``, if given
    - ``"heads"``: ``seq(state, bucket, key, head)``; no value is read
    - ``"index"``: ``seq(state, bucket, field, term, key)``, for each valid index entry

    In a head-only store ``key`` is the pair of key and sub-key, and a head has no metadata.

    Within a task rows come in order of bucket and key; ``comb(left, right)`` joins states in that
    order. ``bucket``, ``start`` (inclusive), ``end`` (exclusive) and ``prefix`` choose objects as
    the options of the data source do; an index fold takes only ``bucket``. ``tag``: the type of the
    objects. ``spark``: the session; None: the active one. ``split_bytes``: about how much a task
    reads; 0: one processor's share, from 16 to 512 MiB.

    Raises Misuse, SnapshotExpired, Corruption, StorageFull, StorageFailed; what a task raises, as
    Spark reports it.
    """
    if what not in ("objects", "heads", "index"):
        raise Misuse(f"what={what!r}: allowed are 'objects', 'heads' and 'index'")
    choice = {"bucket": bucket, "start": start, "end": end, "prefix": prefix}
    for name, given in choice.items():
        if given is not None and not isinstance(given, bytes):
            raise Misuse(f"{name} is of type {type(given).__name__}: allowed are bytes, and None")
    if what == "index" and (start, end, prefix) != (None, None, None):
        raise Misuse("start, end and prefix choose objects: an index fold takes only a bucket")
    with storage_errors("a fold"):
        path, release = _published(snapshot)
    try:
        options = ReadOptions(
            path, bucket=bucket, key_start=start, key_end=end, prefix=prefix, tag=tag,
            split_bytes=split_bytes,
        )  # fmt: skip
        with storage_errors("a fold"):
            number, parts = _planned(path, what, options)
        if not parts:
            return zero
        run = partial(_task, path, what, number, decode, seq, zero)
        states = spark_tasks.results(spark_tasks.session_of(spark), run, parts)
        state: S = states[0]
        for each in states[1:]:
            state = comb(state, each)
        return state
    finally:
        if release:
            _remove(path)


def _remove(path: str) -> None:
    """Remove a snapshot that only a finished fold has read: a failure of this is none of the
    fold."""
    try:
        published.remove(RealDisk(), path)
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error)


def _planned(path: str, what: What, options: ReadOptions) -> tuple[int, list[KeyRange]]:
    """(the number of the type of objects, what each task reads)."""
    files = SnapshotFiles(path)
    number = tag_number(files, options.tag)
    rows = ledger_key.INDEX if what == "index" else number
    asked = asked_for(files, rows, options.bucket, [options.span])
    values = what == "objects"
    return number, partitions(files, asked, values=values, split_bytes=options.split_bytes)


def _published(snapshot: Any) -> tuple[str, bool]:
    """(directory of a published snapshot, whether it is to be removed after the fold)."""
    if isinstance(snapshot, str | os.PathLike):
        return pinned(local_path(os.fspath(snapshot)), int(_LEASE_SECONDS * 1000)).path, True
    if hasattr(snapshot, "store_path"):
        return str(snapshot.path), False
    if hasattr(snapshot, "publish"):
        return str(snapshot.publish(lease_seconds=_LEASE_SECONDS, count=False).path), True
    raise Misuse(
        f"snapshot={snapshot!r:.80}: allowed are a Snapshot, a PublishedSnapshot and a path"
    )


# ---------------------------------------------------------------- in an executor


def _task(
    path: str,
    what: What,
    tag: int,
    decode: Callable[[bytes], Any] | None,
    seq: Callable[..., S],
    zero: S,
    part: KeyRange,
) -> S:
    """The state of one task."""
    settle()
    files = SnapshotFiles(path)
    state = zero
    for bound in part.parts:
        batches = files.batches(bound, part.chosen)
        if what == "objects":
            rows: Iterator[tuple[Any, ...]] = _objects(files, batches, decode)
        elif what == "heads":
            rows = _heads(batches)
        else:
            rows = _entries(files, batches, tag)
        for row in rows:
            state = seq(state, *row)
    return state


def _named(batch: Batch) -> Iterator[bytes]:
    for prefix, low, high in buckets_of(batch):
        name = ledger_key.split(prefix)[1]
        for _ in range(low, high):
            yield name


def _is_head_only(batch: Batch) -> bool:
    return bool(batch.columns.prefixes[0][0] == ledger_key.HEAD_ONLY)


def _keys(batch: Batch) -> list[Any]:
    """The keys as whoever wrote them knows them."""
    return list(map(apart, keys_of(batch))) if _is_head_only(batch) else keys_of(batch)


def _objects(
    files: SnapshotFiles, batches: Iterator[Batch], decode: Callable[[bytes], Any] | None
) -> Iterator[tuple[bytes, Any, Any]]:
    for batch in batches:
        names, keys = _named(batch), iter(_keys(batch))
        for part in record_batches(files, iter((batch,)), _VALUES, checksums=True):
            for value in part.column(0).to_pylist():
                yield next(names), next(keys), value if decode is None else decode(value)


def _heads(batches: Iterator[Batch]) -> Iterator[tuple[bytes, Any, Any]]:
    for batch in batches:
        heads = heads_of(batch)
        if _is_head_only(batch):  # values stand where others have metadata
            heads = [head._replace(size=len(head.metadata), metadata=b"") for head in heads]
        yield from zip(_named(batch), _keys(batch), heads, strict=True)


def _entries(
    files: SnapshotFiles, batches: Iterator[Batch], tag: int
) -> Iterator[tuple[bytes, bytes, index_terms.Term, bytes]]:
    """Index entries that are valid: the newest version of their object has their sqn."""
    with files.reading():
        levels = few_maps(
            [
                [(partial(files.open_ledger, entry), entry.sqn_base) for entry in level]
                for level in files.found.ledger.levels
            ]
        )
    for batch in batches:
        with files.reading():
            valid = batch._replace(rows=without_stale(batch.columns, batch.rows, levels))
        for name, row in zip(_named(valid), keys_of(valid), strict=True):
            entry = index_terms.entry_of(row)
            if entry.tag == tag:
                yield name, entry.field, entry.term, entry.key
