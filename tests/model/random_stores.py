"""Random histories of a store, and what Spark or the store itself reads of it, to be compared."""

from __future__ import annotations

import random
from typing import Any

from whole_store import NEVER_MS, flush

import octavo

Row = tuple[Any, ...]
Rows = dict[tuple[bytes, bytes], Row]
"""(bucket, key): (value, sqn, size, metadata, written at, expires at)."""
COLUMNS = "bucket,key,value,sqn,size,metadata,written_at,expires_at"


def fill(
    store: octavo.Store, rng: random.Random, operations: int = 1500, flushing: float = 0.003
) -> None:
    """Overwrites, deletes, expiries, batches, several buckets, values of all sizes."""
    names = [b"", b"b", b"b\x00c", b"\xff"]
    for _ in range(operations):
        bucket = store.bucket(rng.choice(names))
        key = rng.choice([b"k%03d", b"\x00%d\x00", b"%d\xff"]) % rng.randrange(200)
        kind = rng.random()
        value = rng.randbytes(rng.choice([0, 1, 4, 11, 12, 13, 100, 3000])) * rng.choice([1, 1, 40])
        if kind < 0.2:
            bucket.delete(key)
        elif kind < 0.3:
            bucket.put(key, value, expires_at=rng.choice([1000, NEVER_MS]))
        elif kind < 0.4:
            bucket.put(key, value, metadata=rng.randbytes(rng.randrange(1, 40)))
        elif kind < 0.5:
            with store.batch() as batch:
                batch.put(bucket.name, key, value)
                batch.put(bucket.name, key + b"2", value)
        else:
            bucket.put(key, value)
        if rng.random() < flushing:
            flush(store)


def held(snap: octavo.Snapshot) -> Rows:
    """What the store says."""
    out = {}
    for name in snap.buckets():
        bucket = snap.bucket(name)
        for key, head in bucket.heads():
            rest = (head.sqn, head.size, head.metadata or None, head.written_at, head.expires_at)
            out[name, key] = (bucket[key], *rest)
    return out


def read(frame: Any) -> Rows:
    """What Spark says, of a frame with COLUMNS."""
    exact = frame.selectExpr(
        "bucket", "key", "value", "sqn", "size", "metadata", "unix_millis(written_at) as w",
        "unix_millis(expires_at) as e",
    )  # fmt: skip
    rows = exact.collect()
    found = {
        (bytes(r.bucket), bytes(r.key)): (
            bytes(r.value), r.sqn, r.size, None if r.metadata is None else bytes(r.metadata),
            r.w, r.e,
        )
        for r in rows
    }  # fmt: skip
    assert len(found) == len(rows)
    return found


def load(spark: Any, store: octavo.Store, **options: str) -> Any:
    """A frame of the store."""
    return spark.read.format("octavo").options(**options).load(store.path)
