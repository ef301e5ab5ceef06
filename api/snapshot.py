"""A snapshot: the store as it was at one sequence number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    overload,
)

from octavo.actors.bookie import Bookie
from octavo.actors.keeping import publishing
from octavo.actors.opening.identity import Identity
from octavo.actors.opening.tags import STANDARD
from octavo.actors.reader import Reader
from octavo.actors.scanning import journal_order
from octavo.actors.scanning.merkle_trees import tree_of
from octavo.actors.scanning.row_parts import to_ask
from octavo.arguments import OF_HEADS, Key, to_bound, to_bucket, to_bytes, to_flag, to_lease
from octavo.files.argument_checks import to_sqn
from octavo.files.errors import Misuse
from octavo.files.journal.short_value import plain_fields
from octavo.files.later import Later
from octavo.files.ledger.bounds import HEAD_ROWS, OBJECTS, Bounds, of_bucket, of_type
from octavo.files.ledger.chosen_rows import Asked, Span
from octavo.files.ledger.head import Head
from octavo.files.ledger.merkle import By, MerkleTree
from octavo.filters import to_limit
from octavo.handles import Closing
from octavo.head_only import SnapshotHeadBucket
from octavo.published import PUBLISHED_SECONDS, PublishedSnapshot, to_name
from octavo.reading import Reading
from octavo.type_parameters import Out, Told

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo import arrow_stream
else:
    pa, arrow_stream = Later("pyarrow"), Later("octavo.arrow_stream")

T = TypeVar("T")
BATCH_ROWS = 1 << 16


class Item(NamedTuple, Generic[Out]):
    """A live key and its value.

    ``sqn``: Sequence number of the put.
    ``bucket``: Name of its bucket.
    ``key``: Its key.
    ``value``: Its value.
    """

    sqn: int
    bucket: bytes
    key: Out
    value: Out


class _Shared(Reader):
    """The snapshot's one reader, shared by all its scans: the end of a scan does not close it."""

    def close(self) -> None:
        pass

    def really_close(self) -> None:
        super().close()


class SnapshotBucket(Reading[Out, Told], Mapping[Out, Out]):  # type: ignore[misc]  # iterators with ranges, not views
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
            self._refuse(OF_HEADS)
        self._shared = reader
        self._identity = identity
        self._plain = plain_fields(self._tag, name)

    def _reader(self) -> Reader:
        self._shared.check()
        return self._shared

    def _get(self, key: bytes) -> bytes | None:
        return self._shared.value(self._prefix + key, self._name + key, self._plain)

    def _ask_for(self, keys: list[bytes]) -> None:
        self._shared.ask_for(self._shared.view, map(self._prefix.__add__, keys))

    def _head(self, key: bytes) -> Head | None:
        return self._shared.head(self._prefix + key, self._name + key, self._plain)

    def _index_of(self, key: bytes) -> bytes | None:
        return self._shared.index_of(self._prefix + key)

    def items_by_sqn(self, since: int = 0, *, limit: int | None = None) -> Iterator[Item[Out]]:
        """The live items in the order in which they were written, those above ``since``
        (exclusive), at most ``limit``.

        Overwritten, deleted and expired versions are left out (``store.changes`` has those that the
        journal still holds). The journal is read from front to back: 1.5 us an item, and its
        bytes. Before that each call takes some 0.1 us for each key there is, to find which are
        live: so one iterator is quicker than pages. Memory: 8 KiB for 65,536 consecutive sqns. To
        go on later, pass the last item's sqn as ``since``.

        Raises Misuse, SnapshotExpired, Corruption.
        """
        return self._by_sqn(of_bucket(self._prefix), since, limit)

    def heads_by_sqn(
        self, since: int = 0, *, limit: int | None = None
    ) -> Iterator[tuple[bytes, Out, Head]]:
        """(bucket, key, Head) in the order of ``items_by_sqn``, with its arguments and errors. No
        value is read; 4 us each."""
        return self._heads_by_sqn(of_bucket(self._prefix), since, limit)

    def _by_sqn(self, bound: Bounds, since: object, limit: object) -> Iterator[Item[Any]]:
        above, most = to_sqn(since), to_limit(limit)
        self._reader()
        self._check_mode()
        rows = journal_order.items(self._shared, bound, above)
        found: Iterator[Item[Any]] = map(Item._make, rows)
        return _first(most, found if self._text is None else map(self._decoded, found))

    def _decoded(self, item: Item[Any]) -> Item[Any]:
        return item._replace(key=self._out(item.key), value=self._out(item.value))

    def _heads_by_sqn(
        self, bound: Bounds, since: object, limit: object
    ) -> Iterator[tuple[bytes, Any, Head]]:
        above, most = to_sqn(since), to_limit(limit)
        self._reader()
        self._check_mode()
        found = journal_order.heads(self._shared, bound, above)
        return _first(most, ((name, self._out(key), head) for name, key, head in found))

    def merkle(self, segments: int = 1 << 16, *, by: By = "sqn") -> MerkleTree:
        """A merkle tree of the bucket's live keys: see ``Snapshot.merkle``, also for costs and
        errors."""
        self._check_mode()
        return tree_of(self._shared, of_bucket(self._prefix), segments, by)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        batch_rows: int = BATCH_ROWS,
    ) -> pa.RecordBatchReader:
        """The live rows as a stream of Arrow record batches, in key order.

        ``columns``: any of bucket, key, sqn, size, metadata, written_at, expires_at and value,
        in the order wanted; all of them by default. Only what is asked for is read: keys and
        sqns cost some 0.1 us a row, values some 1 us and their bytes. The range is as in
        ``keys``. A batch has at most ``batch_rows`` rows and 16 MiB, or a single row. DuckDB,
        pandas and pyarrow also read the snapshot itself::

            with store.snapshot() as snap:
                duckdb.sql("select bucket, count(*), sum(size) from snap group by 1")
                polars.DataFrame(snap.to_arrow(columns=["key", "size"]))

        Types: binary, value large_binary, sqn uint64, size uint32, moments timestamp[ms, UTC];
        metadata and expires_at are null if there is none. The stream reads through this
        snapshot, and keeps it alive; once that is closed or its lease ran out, the next batch
        raises Closed or SnapshotExpired. Columns other than the value may be views of a mapped
        ledger file: while they are kept, so is its room on disk, even once it was merged away.

        Raises Misuse, also where pyarrow is not installed (``pip install 'octavo[arrow]'``).
        """
        asked = to_ask(self._shared, self._tag, self._name, _to_span(start, end, prefix))
        return self._stream(asked, columns, batch_rows)

    def _stream(
        self, asked: Asked, columns: Sequence[str] | None, batch_rows: object
    ) -> pa.RecordBatchReader:
        if self._identity.head_only:
            raise Misuse(
                "a head-only store gives no Arrow stream: head_bucket(name).rows() lists its "
                "entries, and Spark reads them as data frames"
            )
        wanted = arrow_stream.to_columns(columns)
        return arrow_stream.stream(self._shared, asked, wanted, batch_rows)

    def __repr__(self) -> str:
        reader = self._shared
        return f"<octavo.{type(self).__name__} {self._name!r} at sqn {reader.sqn}>"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All columns as a PyCapsule of an Arrow stream; or those of ``requested_schema``, cast
        to its types. See ``to_arrow``. Raises Misuse."""
        return arrow_stream.capsule(self.to_arrow, requested_schema)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def _to_span(start: object, end: object, prefix: object) -> Span:
    """The span of keys that is wanted. Raises Misuse."""
    begins = None if prefix is None else to_bytes("prefix", prefix)
    return Span(to_bound("start", start), to_bound("end", end), begins)


def _first(most: int | None, found: Iterator[T]) -> Iterator[T]:
    """The first ``most`` of what is found, as a generator, which refuses a second thread and goes
    on. A bare ``islice`` would let go of what the first thread is running, and CPython crash."""
    yield from found if most is None else islice(found, most)


class Snapshot(SnapshotBucket[bytes, Head], Closing):  # type: ignore[misc]  # as its base
    """The whole store as it was at one sequence number; itself its default bucket.

    Taking one copies nothing, and later writes do not change it. It holds the files it needs until
    it is closed (by ``with`` or ``close()``) or its lease runs out; then reads raise
    SnapshotExpired. If nothing refers to it any more, the next snapshot or scan, or some writes,
    let go of its files. Reads do not prolong the lease, ``renew`` does. What had expired when it
    was taken is absent; what expires later stays.
    """

    _OF_BUCKETS: ClassVar[type[SnapshotBucket[Any, Any]]] = SnapshotBucket
    _OF_HEADS: ClassVar[type[SnapshotHeadBucket]] = SnapshotHeadBucket

    def __init__(self, bookie: Bookie, identity: Identity, lease_seconds: float) -> None:
        reader = _Shared(bookie, to_lease(lease_seconds), renewing=False)
        super().__init__(reader, identity, b"")

    @property
    def sqn(self) -> int:
        """The last sequence number in it."""
        return self._shared.sqn

    @property
    def taken_at(self) -> int:
        """When it was taken, ms UTC; what had expired by then is absent."""
        return self._shared.now_ms

    @overload
    def bucket(self, name: Key, *, text: Literal[False] = ...) -> SnapshotBucket: ...
    @overload
    def bucket(self, name: Key, *, text: Literal[True]) -> SnapshotBucket[str]: ...
    @overload
    def bucket(
        self, name: Key, *, text: Literal[False] = ..., tag: str
    ) -> SnapshotBucket[bytes, Any]: ...
    @overload
    def bucket(
        self, name: Key, *, text: bool = ..., tag: str = ...
    ) -> SnapshotBucket[Any, Any]: ...
    def bucket(
        self, name: Key, *, text: bool = False, tag: str = STANDARD
    ) -> SnapshotBucket[Any, Any]:
        """A bucket as it was, with its objects of one type; empty if there is none of that name.
        Raises Misuse."""
        return self._OF_BUCKETS(
            self._shared, self._identity, to_bucket(name), text=to_flag("text", text), tag=tag
        )

    def buckets(self, *, tag: str = STANDARD) -> Iterator[bytes]:
        """Names of the buckets that held a key of a type, in byte order. Raises Misuse."""
        return self._shared.buckets(self._identity.tag_of(tag))

    def head_bucket(self, name: Key) -> SnapshotHeadBucket:
        """A bucket of a head-only store, as it was. Raises Misuse."""
        if not self._identity.head_only:
            raise Misuse("head_bucket is for head-only stores; this is a standard one")
        return self._OF_HEADS(to_bucket(name), self._identity.lookup, self._shared)

    def merkle(self, segments: int = 1 << 16, *, by: By = "sqn") -> MerkleTree:
        """A merkle tree of the whole store; ``bucket(name).merkle()`` is of one bucket.

        It covers objects of all types, or a head-only store's entries; index entries follow from
        their objects and are left out.

        ``segments``: a power of two from 256 to 1,048,576. ``by`` says what tells versions apart:

        - ``"sqn"``: sequence numbers. For copies of one store, such as backups. Exact, unless
          several of them were written to since they were parted: two versions may have one sqn
          then.
        - ``"head"``: size, metadata and expiry. For stores that were written separately, where sqns
          and write times never agree. Values of equal size and metadata look the same, so keep a
          version or a digest in the metadata.
        - ``"value"``: as ``"head"``, and what the values hold. Exact; reads all of them.

        0.1 us a key of the ledger; by ``"head"`` 3 us a key in memory. No value is read, but by
        ``"value"``. See ``octavo.compare``. Raises Misuse, SnapshotExpired, Corruption.
        """
        return tree_of(self._shared, self._everything(), segments, by)

    def _everything(self) -> Bounds:
        """The ledger keys of all objects of all types, or of all head-only entries."""
        return HEAD_ROWS if self._identity.head_only else OBJECTS

    def items_by_sqn(
        self, since: int = 0, *, limit: int | None = None, tag: str = STANDARD
    ) -> Iterator[Item[bytes]]:
        """The live items of one type in all buckets, in the order in which they were written;
        otherwise as ``SnapshotBucket.items_by_sqn``."""
        return self._by_sqn(self._of_type(tag), since, limit)

    def heads_by_sqn(
        self, since: int = 0, *, limit: int | None = None, tag: str = STANDARD
    ) -> Iterator[tuple[bytes, bytes, Head]]:
        """(bucket, key, Head) in the order of ``items_by_sqn``, with its arguments and errors. No
        value is read; 4 us each."""
        return self._heads_by_sqn(self._of_type(tag), since, limit)

    def _of_type(self, tag: object) -> Bounds:
        """The ledger keys of all objects of a type. Raises Misuse."""
        return of_type(self._identity.tags.number(tag))

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        batch_rows: int = BATCH_ROWS,
        tag: str = STANDARD,
    ) -> pa.RecordBatchReader:
        """The live objects of one type in all buckets as a stream of Arrow record batches, by
        bucket and key; ``bucket(name).to_arrow()`` is of one bucket.

        ``start``, ``end`` and ``prefix`` choose keys in every bucket: each bucket is searched or,
        if they have fewer than some 1,000 keys each, all keys are looked at. Otherwise as
        ``SnapshotBucket.to_arrow``. Raises Misuse.
        """
        number, span = self._identity.tags.number(tag), _to_span(start, end, prefix)
        asked = to_ask(self._shared, number, None, span)
        return self._stream(asked, columns, batch_rows)

    def publish(
        self,
        name: str | None = None,
        *,
        lease_seconds: float = PUBLISHED_SECONDS,
        count: bool = True,
        replace: bool = False,
    ) -> PublishedSnapshot:
        """Make this state readable by other processes, Spark's among them: see PublishedSnapshot.

        It becomes a directory of hard links below the store's, with a side file of what was in
        memory; so it outlives this snapshot, its process, merges and compactions. Its lease runs by
        the wall clock; five minutes after its end, the next opening of the store, publishing or
        look for compaction removes it. ``count``: count all keys, 0.2 us each, in the worker
        process. Syncs, and begins a new journal file. O(files), and what was in memory.

        ``name``: only one snapshot has it at a time. ``replace`` takes it from the one that has it,
        in one step: at every moment readers find one by that name. The other then has no name, and
        can be read by its id until it is released or its lease ends.

        Raises Misuse, SnapshotExpired, StorageFull, StorageFailed, Corruption.
        """
        wanted = "" if name is None else to_name(name)
        if to_flag("replace", replace) and not wanted:
            raise Misuse("replace=True takes a name from another snapshot: give that as name=")
        lease_ms = int(to_lease(lease_seconds) * 1000)
        self._shared.check()
        bookie = self._shared._bookie
        made = publishing.publish(
            bookie, self._identity, self._shared, wanted, lease_ms,
            counted=to_flag("count", count), replacing=replace,
        )  # fmt: skip
        return PublishedSnapshot(bookie.inker.disk, made, bookie.clock_ms)

    def df(
        self,
        spark: Any,
        columns: Sequence[str] | None = None,
        *,
        lease_seconds: float = PUBLISHED_SECONDS,
        **options: Any,
    ) -> Any:
        """A Spark DataFrame of this state, which is published for ``lease_seconds``; otherwise as
        ``PublishedSnapshot.df``. Raises as ``publish``."""
        made = self.publish(lease_seconds=lease_seconds, count=False)
        try:
            return made.df(spark, columns, **options)
        except BaseException:
            made.release()
            raise

    def __repr__(self) -> str:
        return f"<octavo.Snapshot at sqn {self.sqn}{' (closed)' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called; the end of the lease does not close it."""
        return self._shared._closed

    def renew(self, lease_seconds: float | None = None) -> None:
        """Begin the lease again, now, for so many seconds, or as many as before. O(1). Raises
        Misuse, Closed, SnapshotExpired if it had ended."""
        self._shared.renew(None if lease_seconds is None else to_lease(lease_seconds))

    def close(self) -> None:
        """Release what the snapshot holds; later reads raise Closed. Idempotent."""
        self._shared.really_close()
