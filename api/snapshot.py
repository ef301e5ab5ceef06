"""A snapshot: the store as it was at one sequence number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from octavo.actors.bookie import Bookie
from octavo.actors.identity import Identity
from octavo.actors.reader import Reader
from octavo.actors.tags import STANDARD
from octavo.actors.view import Head
from octavo.arguments import Key, to_bucket, to_flag, to_lease
from octavo.files import ledger_key
from octavo.files.errors import Misuse
from octavo.head_only import SnapshotHeadBucket
from octavo.reading import REFUSED, Reading


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
        identity: Identity,
        name: bytes,
        *,
        text: bool = False,
        tag: str = STANDARD,
    ) -> None:
        tags = identity.tags
        super().__init__(name, text, tags.number(tag), tags.functions.get(tag))
        if identity.head_only:
            self._refuse(REFUSED)
        self._shared = reader
        self._identity = identity

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

    def __init__(self, bookie: Bookie, identity: Identity, lease_seconds: float) -> None:
        super().__init__(_Shared(bookie, to_lease(lease_seconds)), identity, b"")

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
            self._shared, self._identity, to_bucket(name), text=to_flag("text", text), tag=tag
        )

    def buckets(self, *, tag: str = STANDARD) -> Iterator[bytes]:
        """Names of the buckets that held a key of a type, in byte order. Raises Misuse."""
        if self._identity.head_only:
            return self._shared.buckets(ledger_key.HEAD_ONLY)
        return self._shared.buckets(self._identity.tags.number(tag))

    def head_bucket(self, name: Key) -> SnapshotHeadBucket:
        """A bucket of a head-only store, as it was. Raises Misuse."""
        if not self._identity.head_only:
            raise Misuse("head_bucket is for head-only stores; this is a standard one")
        return SnapshotHeadBucket(to_bucket(name), self._identity.lookup, self._shared)

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
