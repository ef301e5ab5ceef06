"""What Spark reads of a snapshot, against what the store itself gives."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from random_stores import COLUMNS, fill, held, load, read
from whole_store import SEED, flush, opened

import octavo
from octavo.files.door.disk import RealDisk
from octavo.manifest import pinning, published
from octavo.pipeline.batch_reader import SnapshotReader
from octavo.pipeline.feed import feed_options
from octavo.pipeline.read_options import parsed
from octavo.pipeline.snapshot_choice import chosen
from octavo.pipeline.source import DefaultSource
from octavo.pipeline.writing import write_options


@pytest.fixture(autouse=True)
def says_its_seed() -> None:
    print(f"OCTAVO_SEED={SEED}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "störe 1 %41") as store:
        yield store


@pytest.mark.parametrize("number", range(2))
def test_a_published_snapshot_reads_as_in_the_store(
    spark: Any, store: octavo.Store, number: int
) -> None:
    fill(store, random.Random(SEED + number))
    with store.snapshot() as snap:
        made = snap.publish()
        want = held(snap)
        store.put(b"later", b"x")
        frame = load(spark, store, snapshot=made.id, splitBytes="60k", columns=COLUMNS)
        assert read(frame) == want
        assert frame.rdd.getNumPartitions() > 3
        assert made.keys == len(want)


def test_a_bare_load_pins_a_store_that_is_open(spark: Any, store: octavo.Store) -> None:
    fill(store, random.Random(SEED))
    store.put(b"unflushed", b"in the active file")
    frame = load(spark, store)
    with store.snapshot() as snap:
        want = held(snap)
    for key in list(store.keys()):
        store.delete(key)
    flush(store)
    store.compact()
    assert read(frame) == want
    assert read(frame) == want  # the same state for every action


def test_a_closed_store_is_read_too(spark: Any, tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        fill(store, random.Random(SEED + 9))
        with store.snapshot() as snap:
            want = held(snap)
    assert read(load(spark, store)) == want


def test_an_empty_store_gives_no_rows(spark: Any, store: octavo.Store) -> None:
    assert load(spark, store).count() == 0
    made = store.snapshot().publish()
    assert load(spark, store, snapshot=made.id).collect() == []


def test_ranges_and_columns(spark: Any, store: octavo.Store) -> None:
    fill(store, random.Random(SEED))
    with store.snapshot() as snap:
        want = list(snap.bucket("b").keys(b"k05", b"k15", prefix=b"k"))
    options = {"keyStart": "k05", "keyEndHex": b"k15".hex(), "prefix": "k", "columns": "sqn, key"}
    frame = load(spark, store, bucket="b", splitBytes="1k", **options)
    assert frame.columns == ["sqn", "key"]
    assert sorted(bytes(row.key) for row in frame.collect()) == want
    assert load(spark, store, **options).select("key").distinct().count() >= len(want)


def test_a_schema_of_the_users_picks_columns_and_text(spark: Any, store: octavo.Store) -> None:
    store.put("ä", "ö")
    reader = spark.read.format("octavo").schema("value string, key string not null")
    assert [tuple(row) for row in reader.load(store.path).collect()] == [("ö", "ä")]
    store.put("ä", b"\xff")
    with pytest.raises(Exception, match="column 'value' is binary, the schema wants string"):
        reader.load(store.path).collect()
    with pytest.raises(Exception, match="the schema names 'other'"):
        spark.read.format("octavo").schema("other long").load(store.path).collect()


@pytest.mark.parametrize(
    ("options", "columns", "wanted"),
    [
        ({}, "KEY string, Value string", ("k", "v")),
        ({"columns": "key,size"}, "SIZE int, KEY string", (1, "k")),
        ({"prefix": "k"}, "KEY string, Sqn int", ("k", 1)),
        ({"startSnapshot": "first"}, "KEY string, _CHANGE_TYPE string", ("k", "put")),
        ({"readChangeFeed": True}, "KEY string, _Change_Type string", ("k", "put")),
    ],
)
def test_columns_of_a_schema_may_be_spelled_in_capitals(
    spark: Any, store: octavo.Store, options: dict[str, Any], columns: str, wanted: tuple[Any, ...]
) -> None:
    store.snapshot().publish("first")
    store.put("k", "v")
    frame = spark.read.format("octavo").options(**options).schema(columns).load(store.path)
    assert frame.columns == [each.split()[0] for each in columns.split(", ")]
    assert [tuple(row) for row in frame.collect()] == [wanted]
    assert frame.where("key = 'k'").count() == 1


def test_a_schema_with_columns_that_the_option_leaves_out_is_refused(
    spark: Any, store: octavo.Store
) -> None:
    reader = spark.read.format("octavo").option("columns", "key, size")
    with pytest.raises(Exception, match="names 'value', and columns='key,size' leaves it out"):
        reader.schema("key binary, value binary").load(store.path).collect()


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("written_at date", "is timestamp, the schema wants date"),
        ("written_at timestamp_ntz", "is timestamp, the schema wants timestamp_ntz"),
        ("expires_at bigint", "is timestamp, the schema wants bigint"),
        ("key int", "is binary, the schema wants int"),
        ("expires_at timestamp not null", "may be null"),
        ("sqn interval day to second", "is bigint, the schema wants interval day to second"),
        ("key string, key binary", "names 'key' twice"),
        (StructType([]), "the schema names no column"),
    ],
)
def test_a_schema_by_which_spark_would_show_something_else_is_refused(
    spark: Any, store: octavo.Store, schema: Any, told: str
) -> None:
    store.put(b"7", b"v")
    with pytest.raises(Exception, match=told):
        spark.read.format("octavo").schema(schema).load(store.path).collect()


def test_a_frame_with_a_schema_is_of_the_moment_of_its_first_action(
    spark: Any, store: octavo.Store
) -> None:
    """Before that Spark (4.3) asks nothing of a data source that is told its schema."""
    frame = spark.read.format("octavo").schema("key binary").load(store.path)
    store.put("before", b"")
    assert frame.where("key = cast('before' as binary)").count() == 1
    store.put("behind", b"")
    assert frame.where("key = cast('behind' as binary)").count() == 0
    columns = f"(key string, value string) USING octavo OPTIONS (path '{store.path}')"
    counts = []
    for how in ("CREATE", "CREATE OR REPLACE"):
        spark.sql(f"{how} TEMPORARY VIEW written {columns}")
        counts.append(spark.table("written").count())
        spark.sql(f"INSERT INTO written VALUES ('{how}', 'v')")
        assert spark.table("written").count() == counts[-1]
        assert store[how] == b"v"
    assert counts[1] == counts[0] + 1
    spark.catalog.dropTempView("written")


def test_types_of_a_schema_may_say_more(spark: Any, store: octavo.Store) -> None:
    sqn = store.put(b"7", b"v")
    frame = spark.read.format("octavo").schema("key string collate UTF8_LCASE, sqn decimal(20,0)")
    assert frame.load(store.path).collect() == [("7", sqn)]


def test_a_frame_that_is_said_to_be_no_feed_stays_as_it_was(
    spark: Any, store: octavo.Store
) -> None:
    store.put(b"a", b"1")
    reader = spark.read.format("octavo").option("readChangeFeed", False).schema("key binary")
    frame = reader.load(store.path)
    assert frame.count() == 1
    store.put(b"b", b"2")
    assert frame.count() == 1
    assert len(os.listdir(f"{store.path}/snapshots")) == 1


@pytest.mark.parametrize(("feed", "pins"), [("false", 1), ("true", 0)])
def test_a_source_of_the_state_is_pinned_before_it_is_pickled(
    store: octavo.Store, feed: str, pins: int
) -> None:
    """Where the schema is the user's nothing else pins it, and each use would by itself."""
    store.put(b"a", b"1")
    source = DefaultSource({"path": store.path, "readChangeFeed": feed})
    for _ in range(2):
        source = copy(source)  # by the state that is pickled
        assert len(list(Path(store.path, "snapshots").glob("*/manifest"))) == pins


def test_spark_knows_which_columns_are_never_null(spark: Any, store: octavo.Store) -> None:
    store.put(b"empty", b"")
    every = load(spark, store, columns="bucket,key,sqn,size,metadata,written_at,expires_at,value")
    assert [field.name for field in every.schema if field.nullable] == [
        "metadata", "written_at", "expires_at",
    ]  # fmt: skip
    assert every.where("value is null or key is null").count() == 0
    chosen = spark.read.format("octavo").schema("key binary, value binary").load(store.path)
    assert [field.nullable for field in chosen.schema] == [True, True]
    assert [tuple(row) for row in chosen.collect()] == [(b"empty", b"")]


@pytest.mark.parametrize(
    ("source", "options", "column"),
    [
        ("octavo", {}, "written_at"),
        ("octavo", {"startSnapshot": "first"}, "_commit_timestamp"),
        ("octavo", {"readChangeFeed": True}, "_commit_timestamp"),
        ("octavo-metadata", {}, "taken_at"),
    ],
)
def test_a_session_whose_timestamps_have_no_zone_reads_all(
    spark: Any, store: octavo.Store, source: str, options: dict[str, Any], column: str
) -> None:
    store.snapshot().publish("first")
    store.put(b"a", b"1", expires_at=4_000_000_000_000)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = spark.read.format(source).options(**options).load(store.path)
        assert dict(frame.dtypes)[column] == "timestamp"  # with a zone: the other is timestamp_ntz
        assert frame.selectExpr(f"max(unix_millis({column})) > 0").first()[0]
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_one_range_with_ten_times_the_bytes_is_cut_finer(spark: Any, store: octavo.Store) -> None:
    rng = random.Random(SEED)
    for number in range(400):
        store.put(b"k%03d" % number, rng.randbytes(50 if number < 360 else 5000))
    frame = load(spark, store, splitBytes="25k")
    sizes = frame.selectExpr("spark_partition_id() p", "size").groupBy("p").sum("size").collect()
    assert len(sizes) > 5
    assert max(row[1] for row in sizes) < 60_000


def test_time_travel_takes_the_newest_published_snapshot_of_that_age(
    spark: Any, store: octavo.Store
) -> None:
    for number in range(3):
        store.put("n", str(number))
        store.snapshot().publish(f"at {number}")
    second = store.published("at 1")[0]
    rows = load(spark, store, sqnAsOf=str(second.sqn)).collect()
    assert bytes(rows[0].value) == b"1"
    first = store.published("at 0")[0]
    row = load(spark, store, timestampAsOf=str(first.taken_at)).collect()[0]
    assert bytes(row.value) in (b"0", b"1", b"2")  # taken within one millisecond, perhaps
    with pytest.raises(Exception, match="sqnAsOf=0: no published snapshot is as old"):
        load(spark, store, sqnAsOf="0")
    asked = r"timestampAsOf=2001-02-03T04:05:06\.000\+00:00: .* \(sqn 2, 20\d\d-\d\d-\d\dT"
    with pytest.raises(Exception, match=asked):
        load(spark, store, timestampAsOf="2001-02-03 04:05:06")


def test_an_expired_lease_is_told_and_gives_no_rows(spark: Any, store: octavo.Store) -> None:
    fill(store, random.Random(SEED), 300)
    made = store.snapshot().publish()
    frame = load(spark, store, snapshot=made.id)
    assert frame.count() == made.keys
    made.release()
    with pytest.raises(Exception, match=f"SnapshotExpired.*{made.id}"):
        frame.collect()
    with pytest.raises(Exception, match="SnapshotExpired"):
        load(spark, store, snapshot=made.id)


def test_damage_in_a_value_is_told(spark: Any, store: octavo.Store) -> None:
    store.put("a", b"x" * 1000)
    made = store.snapshot().publish()
    file = next(Path(made.path).glob("*.cdb"))
    stored = file.read_bytes()
    file.unlink()  # it is linked to the store's own
    file.write_bytes(stored.replace(b"x" * 1000, b"x" * 999 + b"y"))
    with pytest.raises(Exception, match=r"Corruption.*value checksum"):
        load(spark, store, snapshot=made.id).collect()


def test_a_task_that_is_retried_reads_the_same_rows(
    spark: Any, store: octavo.Store, tmp_path: Path
) -> None:
    fill(store, random.Random(SEED), 800)
    made = store.snapshot().publish()
    marks = str(tmp_path / "marks")
    Path(marks).mkdir()

    def fails_once(rows: Any) -> Any:
        import os

        from pyspark import TaskContext

        for number, row in enumerate(rows):
            yield row.sqn
            if number == 3:
                try:
                    os.mkdir(f"{marks}/{TaskContext.get().partitionId()}")
                except FileExistsError:
                    continue
                raise RuntimeError("a task fails")

    frame = load(spark, store, snapshot=made.id, splitBytes="100k")
    found = frame.rdd.mapPartitions(fails_once).collect()
    assert len(list(Path(marks).iterdir())) > 1
    with store.snapshot() as snap:
        assert sorted(found) == sorted(row[1] for row in held(snap).values())


def test_pushdown_narrows_what_is_read(spark: Any, store: octavo.Store) -> None:
    fill(store, random.Random(SEED), 600)
    flush(store)
    every = read(load(spark, store, columns=COLUMNS)).items()
    reader = spark.read.format("octavo").options(pushdown="once", splitBytes="200")

    def frame(schema: str) -> Any:  # anew for each query
        return reader.schema(schema).load(store.path)

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for schema, filters, wanted in (
            ("bucket binary, key binary", "key >= x'6b303530' and key < x'6b303630'", b"k05"),
            ("bucket binary, key string", "key like 'k05%'", b"k05"),
            ("bucket binary, key binary", "key in (x'6b303530', x'6b303531')", (b"k050", b"k051")),
        ):
            whole = frame(schema).rdd.getNumPartitions()
            few = frame(schema).where(filters)
            assert few.rdd.getNumPartitions() < whole
            found = {(bytes(row.bucket), row.key) for row in few.collect()}
            found = {(name, key if isinstance(key, bytes) else key.encode()) for name, key in found}
            exact = isinstance(wanted, tuple)
            want = {at for at, _ in every if (at[1] in wanted if exact else at[1][:3] == wanted)}
            assert found == want
            assert want
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "no path"),
        ({"path": "/x", "perfix": "a"}, "unknown option 'perfix'; did you mean 'prefix'?"),
        ({"path": "/x", "whatever": "a"}, "unknown option 'whatever'; allowed are path, bucket"),
        ({"path": "/x", "startingsqn": "5"}, "'startingSqn' is for changes"),
        ({"path": "s3://x"}, "file:"),
        ({"path": "/x", "columns": "key,nothing"}, "'nothing'"),
        ({"path": "/x", "columns": "key,key"}, "each once"),
        ({"path": "/x", "splitBytes": "many"}, "splitBytes='many'"),
        ({"path": "/x", "keyStart": "a", "keyStartHex": "61"}, "one option"),
        ({"path": "/x", "keyStartHex": "zz"}, "hexadecimal"),
        ({"path": "/x", "bucket": str(b"docs")}, "give str, or bucketHex"),
        ({"path": "/x", "keystart": str(b"it's\n")}, "give str, or keyStartHex"),
        ({"path": "/x", "prefix": str(bytearray(b"\xff"))}, "give str, or prefixHex"),
        ({"path": "/x", "snapshot": ""}, "snapshot='' is empty"),
        ({"path": "/x", "startsnapshot": ""}, "startSnapshot='' is empty"),
        ({"path": "/x", "startSnapshot": "a", "endSnapshot": ""}, "endSnapshot='' is empty"),
        ({"path": "/x", "sqnAsOf": "-1"}, "whole numbers"),
        ({"path": "/x", "timestampAsOf": "soon"}, "ISO 8601"),
        ({"path": "/x", "leaseSeconds": "9" * 19}, "up to a hundred years"),
        ({"path": "/x", "leaseSeconds": "30m"}, "leaseSeconds='30m': allowed are whole numbers"),
        ({"path": "/x", "leaseSeconds": "9" * 5000}, "leaseSeconds='99"),
        ({"path": "/x", "sqnAsOf": "9" * 5000}, "sqnAsOf='99"),
        ({"path": "/x", "timestampAsOf": "9" * 5000}, "timestampAsOf='99"),
        ({"path": "/x", "splitBytes": "9" * 5000 + "g"}, "splitBytes='99"),
        ({"path": "/x", "splitBytes": "9" * 400}, "splitBytes='99"),
        ({"path": "/x", "checksums": "maybe"}, "true and false"),
        ({"path": "/x", "pushdown": "true"}, "allowed are false and once"),
    ],
)
def test_options_are_checked(options: dict[str, str], why: str) -> None:
    with pytest.raises(octavo.Misuse, match=why):
        parsed(options)


def test_what_only_looks_like_bytes_is_text() -> None:
    for text in ("b'", "b", "'b'", "ab'c'", "b'c' d"):
        assert parsed({"path": "/x", "bucket": text}).bucket == text.encode()
    assert parsed({"path": "/x", "bucketHex": b"b'docs'".hex()}).bucket == b"b'docs'"


def test_paths_may_be_uris() -> None:
    assert parsed({"path": "file:///a%20b/c/"}).path == "/a b/c"
    assert parsed({"path": "/a%20b"}).path == "/a%20b"


@pytest.mark.parametrize(
    "of",
    [
        lambda given: parsed(given).path,
        lambda given: feed_options(given).path,
        lambda given: write_options(given).path,
    ],
    ids=["read", "feed", "write"],
)
def test_whoever_reads_or_writes_takes_the_same_paths(
    of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert of({"path": "s"}) == str(tmp_path / "s")
    assert of({"path": "file:///a%20b/c/"}) == "/a b/c"
    assert of({"path": "/a/"}) == "/a"
    for wrong in (
        "", "s3a://bucket/s", "dbfs:/s", "file://host/s", "file:///a#b", "file:///a?b", "~/s",
        ":memory:",
    ):  # fmt: skip
        with pytest.raises(octavo.Misuse, match="path"):
            of({"path": wrong})
    with pytest.raises(octavo.Misuse, match="unknown option 'pahts'; did you mean 'path'"):
        of({"path": "s", "pahts": "a"})
    with pytest.raises(octavo.Misuse, match=r'several paths \(\["s","t"\]\): a frame is of one'):
        of({"paths": '["s","t"]'})
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "default")  # as where there is no Spark Connect
    assert of({"path": "s"}) == str(tmp_path / "s")


@pytest.mark.parametrize("path", ["s", "./s", "file:s"])
def test_a_relative_path_is_refused_where_spark_works_in_a_directory_that_goes_away(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "1f95e053-6ada-4bb4-b4e6-2b4da2770a11")
    for of in (parsed, feed_options, write_options):
        with pytest.raises(octavo.Misuse, match="relative: Spark Connect"):
            of({"path": path})
        assert of({"path": "/a"}).path == "/a"


def test_what_spark_says_for_itself_is_no_unknown_option() -> None:
    given = {"path": "/s", "checkpointLocation": "/c", "queryName": "q", "__partition": "x"}
    own = {"asyncProgressTrackingEnabled": "true", "spark.something": "1"}
    assert write_options(given | own).path == "/s"
    assert parsed({"path": "/s", "owner": "of a table", "option.prefix": "k"}).prefix is None


def test_a_path_without_a_store_is_told(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no store at"):
        spark.read.format("octavo").load(str(tmp_path))


def test_what_was_pinned_is_swept_when_it_expired(spark: Any, store: octavo.Store) -> None:
    store.put("a", "b")
    load(spark, store, leaseSeconds="1000").count()
    (path,) = published.directories(store._running.disk, store.path)
    found = published.read(store._running.disk, path)
    assert found.sqn == 1
    assert published.sweep(
        store._running.disk, store.path, found.expires_at + published.GRACE_MS
    ) == [found.id]


def test_a_store_where_nothing_can_be_pinned_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", f"{tmp_path}/snapshots/1")

    monkeypatch.setattr(pinning, "pin", refused)
    with pytest.raises(octavo.Misuse, match=r"Read-only .*that its owner published"):
        chosen(parsed({"path": str(tmp_path)}))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_published_snapshot_is_read_where_nothing_can_be_written(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner did not count the keys, and so did not write down which numbers are live."""

    def refused(_: object, path: str, __: bytes) -> None:
        raise OSError(number, os.strerror(number), path)

    with octavo.open(tmp_path / "s") as store:
        store.put_many((f"{n}", f"value {n}") for n in range(100))
        path = store.snapshot().publish(count=False).path
        wanted = dict(store.items())
    options = parsed({"path": str(tmp_path / "s"), "columns": "key,value"})
    schema = StructType([StructField(name, BinaryType(), False) for name in options.columns])
    monkeypatch.setattr(RealDisk, "write_atomically", refused)
    reader = SnapshotReader(options, path, None, schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    table = pa.Table.from_batches(batches)
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == wanted
