"""A head-only store under Ctrl-C, as interrupted.py has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from interrupted import Interrupted


class InterruptedHeads(Interrupted):
    """Its rows have a key, of which the last digit is their sub-key, too."""

    kind: ClassVar[dict[str, object]] = {"mode": "head_only"}

    def drawn(self) -> Callable[[Any], None]:
        return self.rng.choices(CALLS, WEIGHTS)[0]

    def put_one(self, key: bytes, value: bytes) -> None:
        self.store.head_bucket(b"").put(key, value, sub_key=key[-1:])

    def value_of(self, key: bytes) -> bytes | None:
        return self.store.head_bucket(b"").get(key, key[-1:])

    def contents(self, source: Any) -> dict[bytes, bytes]:
        return {row.key: row.value for row in source.head_bucket(b"").rows()}

    # ------------------------------------------------------------ the calls

    def put(self) -> None:
        key, value = self.fresh()
        ttl = self.rng.choice((None, 1e9))
        bucket = self.store.head_bucket(b"")

        def call() -> None:
            bucket.put(key, value or b"", sub_key=key[-1:], ttl=ttl)

        self.wrote("put", call, {key: value}, whole=True)

    def put_if(self) -> None:
        """It names the version that is there."""
        key, value = self.fresh()
        bucket = self.store.head_bucket(b"")
        row = bucket.head(key, key[-1:])

        def call() -> None:
            bucket.put(key, value or b"", sub_key=key[-1:], if_sqn=row.sqn if row else 0)

        self.wrote("put_if", call, {key: value}, whole=True)

    def delete(self) -> None:
        key, _ = self.fresh()
        bucket = self.store.head_bucket(b"")
        self.wrote("delete", lambda: bucket.delete(key, sub_key=key[-1:]), {key: None}, whole=True)

    def batch(self) -> None:
        changes: dict[bytes, bytes | None] = {}
        for _ in range(self.rng.randrange(1, 40)):
            key, value = self.fresh()
            changes[key] = value if self.rng.random() < 0.8 else None

        def call() -> None:
            with self.store.head_batch() as made:
                for key, value in changes.items():
                    if value is None:
                        made.delete(b"", key, sub_key=key[-1:])
                    else:
                        made.put(b"", key, value, sub_key=key[-1:])

        self.wrote("batch", call, changes, whole=True)

    def read(self) -> None:
        key, _ = self.fresh()

        def call() -> None:
            for _ in range(50):
                assert self.value_of(key) == self.known.get(key)

        self.cut("get", call)

    def few(self) -> None:
        few, reverse = self.rng.randrange(1, 40), self.rng.random() < 0.5
        items = sorted(self.known.items(), reverse=reverse)
        key, _ = self.fresh()

        def call() -> None:
            bucket = self.store.head_bucket(b"")
            rows = bucket.rows(reverse=reverse, limit=few)
            assert [(row.key, row.value) for row in rows] == items[:few]
            assert [row.value for row in bucket.sub_keys(key)] == [
                value for known, value in items if known == key
            ]

        self.cut("few", call)

    def snapshot(self) -> None:
        def call() -> None:
            with self.store.snapshot() as snapshot:
                assert self.contents(snapshot) == self.known
                snapshot.merkle(256)

        self.cut("snapshot", call)

    def trim(self) -> None:
        self.cut("trim", self.store.trim)

    def trim_beside(self) -> None:
        """A snapshot has what it had, whatever is let go of."""
        before = dict(self.known)
        with self.store.snapshot() as snapshot:
            self.put()
            self.cut("trim", self.store.trim)
            assert self.contents(snapshot) == before

    def follow(self) -> None:
        """What the feed still has."""

        def call() -> None:
            told = {change.key: change for change in self.store.changes(0, compacted=True)}
            for key, change in told.items():
                assert change.value == self.known.get(key)

        self.cut("follow", call)


CALLS: tuple[Callable[[InterruptedHeads], None], ...] = (
    InterruptedHeads.put, InterruptedHeads.put_if, InterruptedHeads.delete, InterruptedHeads.batch,
    InterruptedHeads.read, InterruptedHeads.few, InterruptedHeads.scan, InterruptedHeads.snapshot,
    InterruptedHeads.trim, InterruptedHeads.trim_beside, InterruptedHeads.follow,
    InterruptedHeads.publish, InterruptedHeads.lease, InterruptedHeads.backup,
    InterruptedHeads.restore, InterruptedHeads.beside, InterruptedHeads.verify,
    InterruptedHeads.reopen, InterruptedHeads.tell, InterruptedHeads.mend, InterruptedHeads.destroy,
)  # fmt: skip
WEIGHTS = (20, 8, 8, 25, 6, 8, 4, 6, 8, 6, 4, 3, 3, 4, 3, 4, 3, 6, 2, 3, 2)
