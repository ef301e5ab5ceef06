"""A store with a dict beside it, through the public API only; what the suites have in common."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import octavo

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))

LITTLE: dict[str, Any] = {"roll_count": 256, "push_rows": 64, "push_bytes": 64 << 10}
"""Options with which a few thousand puts make dozens of files."""
Content = dict[tuple[bytes, bytes], bytes]
"""(bucket, key): value."""


def seeded(name: object) -> random.Random:
    """Random numbers that OCTAVO_SEED repeats; the seed is printed."""
    print(f"OCTAVO_SEED={SEED} of {name}")
    return random.Random(f"{SEED}-{name}")


def value(rng: random.Random, size: int) -> bytes:
    """Bytes of which half can be compressed away."""
    return rng.randbytes(size // 2) + bytes(size - size // 2)


def until(holds: Callable[[], bool], what: str, seconds: float = 600.0) -> None:
    """Return when it holds; the store's threads get the processor meanwhile."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        os.sched_yield()


class Beside:
    """Writes to a store and to a dict, and compares the two."""

    def __init__(self, path: Path | str, **options: Any) -> None:
        self.path = path
        self.options = options
        self.store = octavo.open(path, **options)
        self.content: Content = {}

    def put(self, bucket: bytes, key: bytes, what: bytes, **more: Any) -> int:
        sqn = self.store.bucket(bucket).put(key, what, **more)
        self.content[bucket, key] = what
        return sqn

    def put_many(self, bucket: bytes, pairs: list[tuple[bytes, bytes]]) -> int:
        sqn = self.store.bucket(bucket).put_many(pairs)
        self.content.update(((bucket, key), what) for key, what in pairs)
        return sqn

    def delete(self, bucket: bytes, key: bytes) -> int:
        sqn = self.store.bucket(bucket).delete(key)
        self.content.pop((bucket, key), None)
        return sqn

    def of(self, bucket: bytes) -> dict[bytes, bytes]:
        """What a bucket should hold, in the order of keys."""
        return {key: what for (name, key), what in sorted(self.content.items()) if name == bucket}

    def reopen(self, **options: Any) -> None:
        """Close and open, with other options where they are given."""
        self.store.close()
        self.store = octavo.open(self.path, **{**self.options, **options})

    def check(self, absent: set[tuple[bytes, bytes]] | None = None) -> None:
        """The store holds exactly what the dict does, by every way of reading."""
        same(self.store, self.content)
        for bucket, key in (absent or set()) - self.content.keys():
            assert self.store.bucket(bucket).get(key) is None
            assert key not in self.store.bucket(bucket)

    def sound(self) -> None:
        """Every checksum and invariant of the store holds."""
        report = self.store.verify()
        assert report.ok, report.problems[:5]

    def __enter__(self) -> Beside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.store.close()


def same(source: octavo.Store | octavo.Snapshot, content: Content) -> None:
    """A store or a snapshot of it holds exactly ``content``."""
    names = sorted({bucket for bucket, _ in content})
    assert list(source.buckets()) == names
    for name in names:
        bucket = source.bucket(name)
        expected = {key: what for (of, key), what in sorted(content.items()) if of == name}
        assert list(bucket.keys()) == list(expected)
        assert list(bucket.items()) == list(expected.items())
        assert len(bucket) == len(expected)
        for key, what in expected.items():
            assert bucket.get(key) == what
            head = bucket.head(key)
            assert head is not None
            assert head.size == len(what)
