"""A store that holds a little of everything."""

from __future__ import annotations

import random

from whole_store import NEVER_MS

import octavo

NAMES = (b"", b"b", b"b\x00", b"other")


def churn(store: octavo.Store, rng: random.Random, count: int) -> None:
    """Every kind of record, overwritten, deleted and expired, in several buckets."""
    for _ in range(count):
        bucket = store.bucket(rng.choice(NAMES))
        key = b"k%03d" % rng.randrange(150) + rng.choice([b"", b"\x00", b"\xff" * 9])
        value = rng.choice([b"", rng.randbytes(5), b"compressible " * 400, rng.randbytes(6000)])
        kind = rng.randrange(8)
        if kind == 0:
            bucket.delete(key)
        elif kind == 1:
            bucket.put(key, value, expires_at=5)
        elif kind == 2:
            bucket.put(key, value, metadata=rng.randbytes(2), expires_at=NEVER_MS, index={"f": 1})
        elif kind == 3:
            with store.batch() as batch:
                batch.put(bucket.name, key, value)
                batch.put(bucket.name, key + b"+", value)
        else:
            bucket.put(key, value)
