"""A snapshot: the store as it was at one sequence number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from octavo.actors.bookie import Bookie
from octavo.actors.reader import Reader
from octavo.actors.tags import STANDARD, Tags
from octavo.actors.view import Head
from octavo.arguments import Key, to_bucket, to_flag, to_lease
from octavo.reading import Reading


class _Shared(Reader):
    """The snapshot's one reader, as each of its scans holds it: a scan's end does not end it."""

    def close(self) -> None:
        pass

    def really_close(self) -> None:
        super().close()


class SnapshotBucket(Reading, Mapping[Any, Any]):  # type: ignore[misc]  # iterators with ranges, not views
    """A bucket as it was at the snapshot's sqn; a read-only mapping."""

    def __init__(
        self,
        reader: _Shared,
        tags: Tags,
        name: bytes,
        *,
        text: bool = False,
        tag: str = STANDARD,
    ) -> None:
        super().__init__(name, text, tags.number(tag), tags.functions.get(tag))
        self._shared = reader
        self._tags = tags

    def _reader(self) -> Reader:
        self._shared.check()
        return self._shared

    def _get(self, key: bytes) -> bytes | None:
        return self._shared.get(self._prefix + key)

    def _head(self, key: bytes) -> Head | None:
        return self._shared.head(self._prefix + key)

    def _index_of(self, key: bytes) -> bytes | None:
        return self._shared.index_of(self._prefix + key)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Snapshot(SnapshotBucket):
    """A state of the whole store that later writes do not touch; itself its default bucket.

    Taking one copies nothing. It holds the files it needs until it is closed (by ``with``, by
    ``close()``, or by garbage collection) or its lease runs out: then reads raise
    SnapshotExpired. What had expired when it was taken is absent, what had not is there.
    """

    def __init__(self, bookie: Bookie, tags: Tags, lease_seconds: float) -> None:
        super().__init__(_Shared(bookie, to_lease(lease_seconds)), tags, b"")

    @property
    def sqn(self) -> int:
        """The last sequence number that is in it."""
        return self._shared.sqn

    @property
    def taken_at(self) -> int:
        """The moment it was taken, ms UTC; what expired by then is absent."""
        return self._shared.now_ms

    def bucket(self, name: Key, *, text: bool = False, tag: str = STANDARD) -> SnapshotBucket:
        """A bucket as it was, its objects of one type; an unknown one is empty. Raises Misuse."""
        return SnapshotBucket(
            self._shared, self._tags, to_bucket(name), text=to_flag("text", text), tag=tag
        )

    def buckets(self, *, tag: str = STANDARD) -> Iterator[bytes]:
        """Names of the buckets that held a key of a type, in byte order. Raises Misuse."""
        return self._shared.buckets(self._tags.number(tag))

    def renew(self, lease_seconds: float | None = None) -> None:
        """Begin the lease anew, now. Raises SnapshotExpired if it had ended."""
        self._shared.renew(None if lease_seconds is None else to_lease(lease_seconds))

    def close(self) -> None:
        """Let go of what the snapshot holds. Idempotent."""
        self._shared.really_close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
