"""The change feed on Spark: ``option("readChangeFeed", True)`` with ``read`` or ``readStream``.

An offset is ``{"sqn": n, "horizon": h, "store": id, "at": mark}``: everything up to n of that store
was read, and the record of n, if there was one, is the one that bears this mark.
A feed that begins at 0 (no ``startingSqn``) gives what the journal still has; what compaction
dropped up to ``h``, the horizon when it began, was replaced or deleted since, so a follower ends at
the same state. Above ``h`` nothing may be missing. A checkpoint cannot go on with another store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from octavo.files.door.disk import RealDisk
from octavo.files.errors import HistoryCompacted, Misuse, OctavoError, usable
from octavo.manifest import store_identity
from octavo.pipeline import commit, read_options
from octavo.pipeline.batch_reader import to_schema
from octavo.pipeline.change_arrays import change_arrays
from octavo.pipeline.feed_files import JournalLook, JournalPart, opened
from octavo.pipeline.python_worker import settle
from octavo.pipeline.read_options import (
    CHANGE_DDL,
    count_of,
    ddl_of,
    flag,
    known_of,
    local_path,
    lowered,
    refuse_empty,
    size_of,
    tag_of,
)

SCHEMA = ddl_of(CHANGE_DDL)
_OF_STREAMS = ("consumerId", "maxRecordsPerTrigger", "maxBytesPerTrigger")


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """What ``option(...)`` may say of a feed."""

    path: str
    since: int | None
    """Exclusive; None: from the beginning, whatever compaction dropped."""
    upto: int | None
    """Inclusive, of a batch read; None: the newest."""
    records: int
    """A trigger takes at most so many (0: all), but no batch is split."""
    bytes: int
    """... or so many bytes of journal."""
    fails: bool
    """Whether changes that compaction dropped are an error."""
    consumer: str
    """Durable consumer whose position holds compaction back; "": none."""
    split_bytes: int
    tag: str = "standard"
    """The type of objects."""


def is_feed(options: Mapping[str, str]) -> bool:
    """Whether a ``load`` asks for changes, not for the state. Raises Misuse."""
    return flag(lowered(options), read_options.FEED, default=False)


def feed_options(options: Mapping[str, str]) -> FeedOptions:
    """The options, checked. Raises Misuse."""
    given = known_of(options, read_options.FEED_OPTIONS)
    refuse_empty(given, "consumerId")
    first, last = count_of(given, "startingSqn", 0), count_of(given, "endingSqn", 0)
    if last and first > last + 1:  # one behind the last is fine: nothing came since
        raise Misuse(
            f"startingSqn={first} is above endingSqn={last}: the first change to read, and the last"
        )
    return FeedOptions(
        local_path(given.get("path", "")),
        first - 1 if first else None,
        last or None,
        count_of(given, "maxRecordsPerTrigger", 0),
        size_of(given, "maxBytesPerTrigger", 0),
        flag(given, "failOnDataLoss", default=True),
        given.get("consumerid", ""),
        size_of(given, "splitBytes", 64 << 20) or 1,
        given.get("tag", "standard"),
    )


def batch_options(options: Mapping[str, str]) -> FeedOptions:
    """Those of a batch read, checked. Raises Misuse."""
    given = lowered(options)
    for name in _OF_STREAMS:
        if name.lower() in given:
            raise Misuse(f"{name} is for a stream; a batch read goes from startingSqn to endingSqn")
    return feed_options(options)


def tag_number(options: FeedOptions) -> int:
    """The number of the type whose changes are read. Raises Misuse for one that there is not, and
    for a head-only store, whose keys have two parts and whose values are elsewhere."""
    fields = _fields(options.path)
    if store_identity.is_head_only(fields):
        raise Misuse("readChangeFeed is not for a head-only store: use store.changes()")
    return tag_of(options.tag, store_identity.types_of(fields))


# ---------------------------------------------------------------- rows


@dataclass
class Stretch(InputPartition):
    """What one task reads: parts of neighbouring files, in order; none, where nothing came."""

    parts: Sequence[JournalPart]
    horizon: int
    """The journal's, when this was planned."""
    store: str
    """Its id."""


def batches(
    options: FeedOptions, partition: Stretch, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The changes of a stretch, in order, as Arrow record batches. In an executor."""
    if not partition.parts:
        return
    arrow = to_schema(schema, changes=True)
    tag = tag_number(options)
    found = store_id(options.path)
    if found != partition.store:
        raise Misuse(
            f"{options.path} held the store {partition.store} when this read was planned, and now "
            f"holds {found}: load it anew"
        )
    horizon = partition.horizon if options.fails else 1 << 63
    for part in partition.parts:
        for file in opened(RealDisk(), options.path, part, horizon):
            for batch in change_arrays(file, tag, arrow):
                yield batch.rename_columns(schema.names)


def store_id(path: str) -> str:
    """Which store is there. Raises Corruption, StorageFailed."""
    return str(_fields(path)["id"])


def _fields(path: str) -> dict[str, Any]:
    with usable("path", path):
        try:
            return store_identity.fields_of(RealDisk(), path)
        except FileNotFoundError:
            raise Misuse(f"there is no store at {path}") from None


def stretches(look: JournalLook, since: int, upto: int, options: FeedOptions) -> list[Stretch]:
    """Partitions of the changes in (since, upto]; at least one, or Spark plans none."""
    store, split_bytes = store_id(options.path), options.split_bytes
    groups: list[list[JournalPart]] = [[]]
    filled = 0
    for part in look.parts(since, upto, split_bytes):
        size = part.end - part.start
        if filled and filled + size > split_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(part)  # many small files a task, which costs what reading some MiB does
        filled += size
    return [Stretch(group, look.horizon, store) for group in groups]


def refuse_gap(options: FeedOptions, since: int, allowed: int, horizon: int) -> None:
    """Raise HistoryCompacted if changes above ``since`` may be missing. ``allowed``: up to there
    they are allowed to be."""
    if options.fails and since < horizon and horizon > allowed:
        raise HistoryCompacted(
            f"{options.path}: compaction dropped changes above sqn {since}; the journal is "
            f"complete above {horizon}. Begin without startingSqn (the state, then changes) and "
            "with a new target, or set failOnDataLoss to false. A consumerId holds compaction back"
        )


def refuse_ahead(options: FeedOptions, sqn: int, newest: int, horizon: int) -> None:
    """Raise Misuse for an offset beyond what the store has come to, or has now. But a feed may
    begin wherever it was asked to."""
    reached = max(newest, horizon)
    if options.fails and sqn > reached and sqn != options.since:
        raise Misuse(
            f"the checkpoint has read up to sqn {sqn}, but the newest change at {options.path} is "
            f"{reached}: an earlier state has taken the store's place and will give the numbers "
            "above again, or the end of its journal is lost, as the owner's notes then say. Follow "
            "it with a new checkpoint into a new target, or set failOnDataLoss to false"
        )


def refuse_other(
    options: FeedOptions, offset: Mapping[str, Any], look: JournalLook, newest: int
) -> None:
    """Raise Misuse if the record that an offset ends with is not what it was: above the horizon a
    record goes only by damage, and below it none becomes another."""
    sqn, told = int(offset["sqn"]), offset.get("at")
    if not told or not options.fails or sqn > newest:
        return
    found = look.mark(sqn)
    if found != told and (found or sqn > look.horizon):
        damage = (
            "no record: either damage took it, as the owner's notes then say, and a batch with "
            "failOnDataLoss=false goes on after it; or "
        )
        raise Misuse(
            f"the checkpoint has read up to sqn {sqn}, and at {options.path} that is now "
            f"{'another record: ' if found else damage}an earlier state has taken the store's "
            "place and went on from there. Follow it with a new checkpoint into a new target, or "
            "set failOnDataLoss to false"
        )


class FeedReader(DataSourceReader):
    """``spark.read`` of changes: ``startingSqn`` to ``endingSqn``, both inclusive."""

    def __init__(self, options: FeedOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        to_schema(schema, changes=True)

    def partitions(self) -> list[Any]:
        """Stretches of about ``splitBytes`` of journal. Raises HistoryCompacted, Corruption."""
        options = self._options
        look = JournalLook(RealDisk(), options.path)
        upto = look.newest()
        tag_number(options)
        if options.upto is not None:
            upto = min(upto, options.upto)
        since = options.since or 0
        found = stretches(look, since, upto, options)
        allowed = look.horizon if options.since is None else 0
        refuse_gap(options, since, allowed, look.horizon)  # as it was when they were found
        return found

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The changes of a partition. In an executor."""
        settle()
        return batches(self._options, partition, self._schema)


class FeedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream`` of changes."""

    def __init__(self, options: FeedOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        to_schema(schema, changes=True)
        self._look = JournalLook(RealDisk(), options.path)
        self._target: int | None = None
        self._acknowledged = -1

    def _begun(self, offset: str | dict[str, Any]) -> dict[str, Any]:
        """Where to go on. Raises Misuse for the offset of another store."""
        begun = json.loads(offset) if isinstance(offset, str) else dict(offset)
        path, other = self._options.path, begun.get("store")
        found = other and store_id(path)
        if found != other:
            raise Misuse(
                f"the checkpoint is of the store {other}, but at {path} is the store {found}: "
                "follow that with a checkpoint and a target of its own"
            )
        return begun

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        since, allowed, before = self._options.since, 0, -1
        while True:
            self._look.look()
            tag_number(self._options)
            if since is None:
                allowed = self._look.horizon
            try:
                if self._options.consumer:
                    self._begin_consumer(max(since or 0, allowed))
                break
            except HistoryCompacted:
                if allowed == before:
                    raise
                before = allowed  # compaction may have gone on since the look
        store = store_id(self._options.path)
        return {"sqn": since or 0, "horizon": allowed, "store": store}

    def _begin_consumer(self, begin: int) -> None:
        """Have compaction wait for this stream. Raises Misuse where it would not."""
        path, consumer = self._options.path, self._options.consumer
        found = commit.consumer_at(path, consumer, begin)
        if found > begin:
            raise Misuse(
                f"consumerId={consumer!r} has come to sqn {found} already, for another stream or "
                f"with another checkpoint, but this stream begins after sqn {begin}, where "
                "compaction would not wait for it: name another consumer, or first drop this one "
                f"with octavo.open(path).consumer({consumer!r}).drop()"
            )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Have this query end at what is the newest change now."""
        self._target = self._look.newest()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a trigger. Spark gives it to ``latestOffset``, or else ReadAllAvailable,
        which says that the limits do not count."""
        if self._options.records:
            return ReadMaxRows(self._options.records)
        return ReadMaxBytes(self._options.bytes) if self._options.bytes else ReadAllAvailable()

    def latestOffset(self, start: Any, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next trigger reads. Two listings and a small file where nothing came."""
        begun = self._begun(start)
        since = int(begun["sqn"])
        newest = self._look.newest()
        refuse_gap(self._options, since, int(begun["horizon"]), self._look.horizon)
        refuse_ahead(self._options, since, newest, self._look.horizon)
        refuse_other(self._options, begun, self._look, newest)
        if newest <= since:
            return begun
        if isinstance(limit, ReadAllAvailable):
            upto = newest
        else:
            upto = self._look.end_of(since, self._options.records, self._options.bytes)
        if self._target is not None:
            upto = max(min(upto, self._target), since)
        return {**begun, "sqn": upto, "at": self._look.mark(upto)}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """The newest change there is."""
        return {"sqn": self._look.newest(), "horizon": 0}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """Stretches of (start, end]. Raises HistoryCompacted, Corruption, Misuse."""
        self._begun(end)
        newest = self._look.newest()
        since, upto = int(start["sqn"]), int(end["sqn"])
        if since >= upto:
            return [Stretch([], 0, "")]
        refuse_ahead(self._options, upto, newest, self._look.horizon)
        for offset in (start, end):
            refuse_other(self._options, offset, self._look, newest)
        found = stretches(self._look, since, upto, self._options)
        # The end's horizon: for a first batch that is replayed Spark asks for the beginning anew.
        refuse_gap(self._options, since, int(end["horizon"]), self._look.horizon)
        return found

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The changes of a partition. In an executor."""
        settle()
        return batches(self._options, partition, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Move the durable consumer on: all up to ``end`` was taken in."""
        sqn = int(end["sqn"])
        if self._options.consumer and sqn > self._acknowledged:
            commit.consumer_at(self._options.path, self._options.consumer, sqn)
            self._acknowledged = sqn


class _Refusal(DataSourceStreamReader):
    """A stream that cannot be: it raises what is wrong as it is first asked."""

    def __init__(self, wrong: OctavoError) -> None:
        self._wrong = wrong

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Where a new query begins. Raises what is wrong."""
        raise self._wrong

    def latestOffset(self, start: Any, limit: ReadLimit) -> NoReturn:  # noqa: N802
        """How far one with a checkpoint goes on. Raises what is wrong."""
        raise self._wrong

    def read(self, partition: Any) -> NoReturn:
        """No executor comes to this. Raises what is wrong."""
        raise self._wrong


class Following:
    """The feed's half of the data source."""

    options: Any

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader of ``spark.readStream``: only changes can be followed. What is wrong is raised
        by the reader as it is first asked: what is raised here Spark hides behind an error of its
        own."""
        try:
            if not is_feed(self.options):
                raise Misuse('a stream reads changes: .option("readChangeFeed", True)')
            options = feed_options(self.options)
            if options.upto is not None:
                raise Misuse("endingSqn is for a batch read; a stream has no end")
            return FeedStream(options, schema)
        except OctavoError as wrong:
            return _Refusal(wrong)
