"""A snapshot: the store as it was at one sequence number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from octavo.actors.bookie import Bookie
from octavo.actors.identity import Identity
from octavo.actors.reader import Reader
from octavo.actors.scan import HEAD_ROWS, OBJECTS, Bounds
from octavo.actors.tags import STANDARD
from octavo.actors.trees import tree_of
from octavo.actors.view import Head
from octavo.arguments import Key, to_bucket, to_flag, to_lease
from octavo.files import ledger_key
from octavo.files.errors import Misuse
from octavo.files.merkle import By, MerkleTree, bits_of, to_by
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

    def merkle(self, segments: int = 1 << 16, *, by: By = "sqn") -> MerkleTree:
        """A merkle tree of the whole store; ``bucket(name).merkle()`` is of one bucket.

        Of all types of objects, or of a head-only store's entries; index entries follow from
        their objects and are left out.

        ``segments``: a power of two from 256 to 1,048,576. ``by`` says what tells versions apart:

        - ``"sqn"``: sequence numbers. For copies of one store: backups, followers. Exact.
        - ``"head"``: size, metadata and expiry. For stores that were written apart, where sqns
          and moments of writing never agree; values of one size and metadata look the same, so
          keep a version or a digest in the metadata.
        - ``"value"``: as ``"head"``, and what the values hold. Exact; reads all of them.

        0.1 us a key of the ledger, 3 us of memory by ``"head"``; no value is read but by
        ``"value"``. See ``octavo.compare``. Raises Misuse, SnapshotExpired, Corruption.
        """
        bits_of(segments)
        return tree_of(self._shared, self._everything(), segments, to_by(by))

    def _everything(self) -> Bounds:
        """The ledger keys of all objects of all types, or of all head-only entries."""
        return HEAD_ROWS if self._identity.head_only else OBJECTS

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
