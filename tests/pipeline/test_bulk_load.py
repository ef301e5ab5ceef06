"""``df.write.format("octavo")``: what comes in, what is refused, and that nothing comes twice."""

from __future__ import annotations

import errno
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import octavo
from octavo.files.door.disk import RealDisk
from octavo.pipeline.commit import made_store
from octavo.pipeline.source import DefaultSource
from octavo.pipeline.writing import checked, forget, staged, write_options


@pytest.fixture
def session(spark: Any) -> Any:
    spark.dataSource.register(DefaultSource)
    return spark


def save(frame: Any, path: Path, **options: str) -> None:
    frame.write.format("octavo").mode("append").options(**options).save(str(path))


def items(path: Path, bucket: str = "") -> dict[bytes, bytes]:
    with octavo.open(path) as store:
        return dict(store.bucket(bucket).items())


def left_over(path: Path) -> list[str]:
    staging = path / "staging"
    return [name for _, _, names in os.walk(staging) for name in names]


def test_a_frame_becomes_a_store(session: Any, tmp_path: Path) -> None:
    frame = session.range(2000).selectExpr(
        "cast(id as string) as key", "cast(concat('v', id) as binary) as value"
    )
    save(frame.repartition(3), tmp_path / "s t ö")
    assert not (tmp_path / "s t ö" / "snapshots").exists()
    assert items(tmp_path / "s t ö") == {b"%d" % n: b"v%d" % n for n in range(2000)}
    assert left_over(tmp_path / "s t ö") == []


def test_an_open_store_takes_it_in(session: Any, tmp_path: Path) -> None:
    frame = session.createDataFrame([("a", "1"), ("b", "2")], "key string, value string")
    with octavo.open(tmp_path / "s") as store:
        store.put(b"a", b"old")
        save(frame, tmp_path / "s")
        assert dict(store.items()) == {b"a": b"1", b"b": b"2"}


def test_a_job_id_comes_once(session: Any, tmp_path: Path) -> None:
    for value in ("1", "2"):
        frame = session.createDataFrame([("a", value)], "key string, value string")
        save(frame, tmp_path / "s", jobId="load-7")
    assert items(tmp_path / "s") == {b"a": b"1"}
    assert left_over(tmp_path / "s") == []


def test_all_columns_come_along(session: Any, tmp_path: Path) -> None:
    frame = session.createDataFrame(
        [("b", "k", "v", "m", 4_000_000_000_000), ("b", "gone", None, None, None)],
        "bucket string, key string, value string, metadata string, expires_at bigint",
    )
    with octavo.open(tmp_path / "s") as store:
        store.bucket("b").put("gone", "x")
    save(frame, tmp_path / "s")
    with octavo.open(tmp_path / "s") as store:
        head = store.bucket("b").head("k")
        assert head is not None
        assert (head.metadata, head.expires_at) == (b"m", 4_000_000_000_000)
        assert list(store.bucket("b").keys()) == [b"k"]


def test_all_that_is_read_of_a_store_can_be_written(session: Any, tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.bucket("b").put("k", "v", metadata=b"m", expires_at=4_000_000_000_000)
        store.put("empty", b"")
    save(session.read.format("octavo").load(str(tmp_path / "s")), tmp_path / "copy")
    with octavo.open(tmp_path / "copy") as store:
        head = store.bucket("b").head("k")
        assert head is not None
        assert (head.size, head.metadata, head.expires_at) == (1, b"m", 4_000_000_000_000)
        assert dict(store.items()) == {b"empty": b""}


@pytest.mark.parametrize(
    ("schema", "row", "told"),
    [
        ("k string, value string", ("a", "b"), "no column 'key'"),
        ("key int, value string", (1, "b"), "column 'key' is of type int; allowed: binary or"),
        ("key string, value struct<a:int>", ("a", (1,)), "or string; to_json makes a string"),
        ("key string, value double", ("a", 1.0), "column 'value' is of type double"),
        ("key string, value void", ("a", None), r"binary or string: lit\(None\).cast\('binary'\)"),
        (
            "key string, value string, expires_at timestamp_ntz",
            ("a", "b", datetime(2100, 1, 1)),
            "is of type timestamp_ntz; allowed: timestamp or bigint; cast it to timestamp_ltz",
        ),
        (
            "key string, value timestamp_ntz",
            ("a", datetime(2100, 1, 1)),
            r"is of type timestamp_ntz; allowed: binary or string; cast it(?! to)",
        ),
        (
            "key string, value string, expires_at array<int>",
            ("a", "b", [1]),
            "allowed: timestamp or bigint; cast it",
        ),
        ("key string, value string, colour string", ("a", "b", "c"), "column 'colour': not one"),
        ("key string, value string", (None, "b"), "column 'key': row 0 is null"),
        ("key string, value string", ("", "b"), "column 'key': row 0 is empty"),
    ],
)
def test_what_cannot_be_written_is_named(
    session: Any, tmp_path: Path, schema: str, row: tuple[Any, ...], told: str
) -> None:
    frame = session.createDataFrame([row], schema)
    with pytest.raises(Exception, match=told):
        save(frame, tmp_path / "s")
    assert left_over(tmp_path / "s") == []


def test_names_of_columns_have_the_case_that_the_session_says(session: Any, tmp_path: Path) -> None:
    schema = "KEY string, Value string, BUCKET string, Size int, At int"
    rows = [("a", "1", "b", 1, 2), ("a", "2", "b", 1, 1)]
    frame = session.createDataFrame(rows, schema).coalesce(1)
    save(frame, tmp_path / "s", orderColumn="AT")
    assert items(tmp_path / "s", "b") == {b"a": b"1"}
    session.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(Exception, match=r"column 'KEY': spark\.sql\.caseSensitive is true"):
            save(frame.drop("At"), tmp_path / "exact")
        both = session.createDataFrame([("a", "1", "x")], "key string, value string, KEY string")
        with pytest.raises(Exception, match="column 'KEY': not one that is stored"):
            save(both, tmp_path / "exact")
        exact = session.createDataFrame([("a", "1")], "key string, value string")
        save(exact, tmp_path / "exact")
    finally:
        session.conf.unset("spark.sql.caseSensitive")
    assert items(tmp_path / "exact") == {b"a": b"1"}
    assert left_over(tmp_path / "exact") == []


def test_overwriting_is_refused_with_what_to_do(session: Any, tmp_path: Path) -> None:
    frame = session.createDataFrame([("a", "1")], "key string, value string")
    with pytest.raises(Exception, match=r"octavo\.destroy"):
        frame.write.format("octavo").mode("overwrite").save(str(tmp_path / "s"))


def test_of_two_that_say_the_bucket_none_is_left_unheard() -> None:
    schema = StructType([StructField(name, StringType()) for name in ("bucket", "key", "value")])
    with pytest.raises(octavo.Misuse, match="bucket='other', and a column 'bucket'"):
        checked({"path": "/x", "Bucket": "other"}, schema)
    assert checked({"path": "/x"}, schema).bucket == b""
    assert checked({"path": "/x", "bucket": "other"}, StructType(schema[1:])).bucket == b"other"


def test_a_bucket_of_bytes_is_refused_and_not_written_as_python_spells_it(tmp_path: Path) -> None:
    with pytest.raises(octavo.Misuse, match="give str, or a column bucket"):
        write_options({"path": str(tmp_path), "bucket": str(b"docs")})


@pytest.mark.parametrize("name", ["jobId", "orderColumn"])
def test_an_option_that_a_variable_left_empty_is_not_taken_for_left_out(name: str) -> None:
    with pytest.raises(octavo.Misuse, match=f"{name}='' is empty"):
        write_options({"path": "/x", name: ""})


def pairs(session: Any) -> Any:
    rows = [("a", "1", 3), ("b", "x", 1), ("a", "2", 1), ("a", "3", 2)]
    return session.createDataFrame(rows, "key string, value string, at int").coalesce(1)


def test_of_duplicates_the_last_counts_unless_said_otherwise(session: Any, tmp_path: Path) -> None:
    frame = pairs(session)
    save(frame.drop("at"), tmp_path / "last")
    assert items(tmp_path / "last")[b"a"] == b"3"
    save(frame.drop("at"), tmp_path / "first", duplicates="first")
    assert items(tmp_path / "first")[b"a"] == b"1"
    save(frame, tmp_path / "order", orderColumn="at")
    assert items(tmp_path / "order")[b"a"] == b"1"


def test_duplicates_can_be_an_error(session: Any, tmp_path: Path) -> None:
    frame = pairs(session).drop("at")
    for parts in (frame, frame.repartition(4)):
        with pytest.raises(Exception, match="in the job twice; nothing was written"):
            save(parts, tmp_path / "s", duplicates="error")
    assert items(tmp_path / "s") == {}
    save(frame.dropDuplicates(["key"]), tmp_path / "s", duplicates="error")
    assert items(tmp_path / "s").keys() == {b"a", b"b"}


def test_an_order_over_partitions_asks_for_a_repartition(session: Any, tmp_path: Path) -> None:
    rows = [("a", "1", n) for n in range(4)]
    frame = session.createDataFrame(rows, "key string, value string, at int").repartition(4, "at")
    with pytest.raises(Exception, match="repartition"):
        save(frame, tmp_path / "s", orderColumn="at")
    save(frame.repartition("key"), tmp_path / "s", orderColumn="at")


def test_a_task_that_fails_first_leaves_nothing(session: Any, tmp_path: Path) -> None:
    marks = str(tmp_path)

    def shaky(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            yield batch
            if context is not None and context.attemptNumber() == 0:
                raise RuntimeError(f"the first attempt fails, as told in {marks}")

    frame = session.range(500, numPartitions=2).selectExpr(
        "cast(id as string) as key", "cast(id as string) as value"
    )
    save(frame.mapInArrow(shaky, "key string, value string"), tmp_path / "s")
    assert len(items(tmp_path / "s")) == 500
    with octavo.open(tmp_path / "s") as store:
        assert store.last_sqn == 500
    assert left_over(tmp_path / "s") == []


@pytest.mark.parametrize("call", ["mkdir_within", "create", "sync_dir", "write_atomically"])
@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, (octavo.StorageFull, "free some space")),
        (errno.EIO, (octavo.StorageFailed, "Input/output error")),
        (errno.EACCES, (octavo.StorageFailed, "Permission denied")),
    ],
)
def test_a_task_that_cannot_write_says_so_in_an_error_of_ours_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    told: tuple[type[Exception], str],
) -> None:
    octavo.open(tmp_path / "s").close()
    rows = pa.record_batch({"key": pa.array([b"a"]), "value": pa.array([b"b"])})

    def fails(self: RealDisk, path: str, *more: object) -> None:
        raise OSError(number, os.strerror(number), path)

    options = write_options({"path": str(tmp_path / "s")})
    monkeypatch.setattr(RealDisk, call, fails)
    with pytest.raises(told[0], match=told[1]):
        staged(iter([rows]), options, "job")
    assert left_over(tmp_path / "s") == []


def test_what_spark_hands_to_a_task_is_no_file_of_the_store(tmp_path: Path) -> None:
    octavo.open(tmp_path / "s").close()

    def broken() -> Any:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        yield

    with pytest.raises(BrokenPipeError):
        staged(broken(), write_options({"path": str(tmp_path / "s")}), "job")


def test_a_head_only_store_is_refused_before_any_task_runs(tmp_path: Path) -> None:
    octavo.open(tmp_path / "s", mode="head_only").close()
    with pytest.raises(octavo.Misuse, match="head-only store takes in no files"):
        made_store(str(tmp_path / "s"))


def test_a_store_that_was_destroyed_during_a_job_leaves_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s"
    (store / "staging" / "job-1").mkdir(parents=True)
    (store / "staging" / "job-1" / "part.cdb").touch()
    forget(str(store), "job-1")
    assert not store.exists()
    octavo.open(store).close()
    (store / "staging" / "job-2").mkdir(parents=True)
    forget(str(store), "job-2")
    octavo.open(store).close()


def test_a_job_id_of_a_stream_would_say_nothing() -> None:
    schema = StructType([StructField(name, StringType()) for name in ("key", "value")])
    source = DefaultSource({"path": "/x", "jobId": "j"})
    with pytest.raises(octavo.Misuse, match="jobId is for a batch write"):
        source.streamWriter(schema, False)


def test_the_state_of_an_aggregate_goes_another_way(session: Any, tmp_path: Path) -> None:
    """Spark refuses "update" for any sink in Python, and says only that it does."""
    source = DefaultSource({"path": str(tmp_path / "s")})
    with pytest.raises(octavo.Misuse, match=r'"append", or foreachBatch'):
        source.streamWriter(StructType([]), True)


def test_of_a_view_whose_value_is_not_null_an_insert_without_one_is_refused(
    session: Any, tmp_path: Path
) -> None:
    made = "CREATE OR REPLACE TEMPORARY VIEW inserted (key string, value string{}) USING octavo"
    made += f" OPTIONS (path '{tmp_path}/s')"
    session.sql(made.format(" NOT NULL"))
    session.sql("INSERT INTO inserted VALUES ('a', '1'), ('b', '2')")
    for told in ("(key) VALUES ('a')", "VALUES ('a', null)"):
        with pytest.raises(Exception, match=r"CANNOT_FIND_DATA|NOT_NULL_ASSERT"):
            session.sql(f"INSERT INTO inserted {told}")
    assert sorted(session.table("inserted").collect()) == [("a", "1"), ("b", "2")]
    session.sql(made.format(""))
    session.sql("INSERT INTO inserted (key) VALUES ('a')")  # Spark makes null of it, which deletes
    assert items(tmp_path / "s") == {b"b": b"2"}
    session.catalog.dropTempView("inserted")
