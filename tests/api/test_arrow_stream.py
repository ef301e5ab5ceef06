"""Snapshots as Arrow streams: against plain iteration, and read by those who read Arrow."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest
from churned import NAMES, churn
from whole_store import NEVER_MS, SEED, flush, opened

import octavo
from octavo.actors.scanning import batch_values
from octavo.files.kernels.arrow import pyarrow
from octavo.files.ledger import chosen_rows, live_batches

COLUMNS = ["bucket", "key", "sqn", "size", "metadata", "written_at", "expires_at", "value"]


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def by_iteration(snap: octavo.Snapshot, name: bytes, *bounds: Any, **more: Any) -> list[dict]:
    bucket = snap.bucket(name)
    return [
        {
            "bucket": name, "key": key, "sqn": head.sqn, "size": head.size,
            "metadata": head.metadata or None, "written_at": moment(head.written_at),
            "expires_at": moment(head.expires_at), "value": bucket[key],
        }
        for key, head in bucket.heads(*bounds, **more)
    ]  # fmt: skip


@pytest.fixture(params=[0, 1, 2])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[octavo.Store]:
    """Everything in memory, everything in the ledger, and some of both."""
    rng = random.Random(SEED + request.param)
    rows = {0: 1 << 20, 1: 64, 2: 64}[request.param]
    with opened(tmp_path / "s", push_rows=rows, push_bytes=1 << 30, roll_count=256) as found:
        churn(found, rng, 700)
        if request.param == 1:
            flush(found)
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "s") as found:
        found.put_many((b"k%03d" % at, b"%d" % at) for at in range(300))
        found.bucket("docs").put("a", b"A", metadata="m", expires_at=NEVER_MS)
        yield found


def test_a_stream_holds_what_iteration_gives(store: octavo.Store) -> None:
    with store.snapshot() as snap:
        churn(store, random.Random(1), 50)  # the snapshot does not see it
        table = snap.to_arrow(batch_rows=37).read_all()
        table.validate(full=True)
        assert table.column_names == COLUMNS
        expected = [row for name in snap.buckets() for row in by_iteration(snap, name)]
        assert table.to_pylist() == expected
        for name in NAMES:
            assert snap.bucket(name).to_arrow().read_all().to_pylist() == by_iteration(snap, name)


def test_a_stream_of_a_range_holds_the_range(store: octavo.Store) -> None:
    with store.snapshot() as snap:
        bucket = snap.bucket("b")
        for bounds, more in (
            ((b"k05", b"k10"), {}), ((b"k05",), {}), ((None, b"k1"), {}),
            ((), {"prefix": b"k01"}), ((b"k011",), {"prefix": b"k01"}), ((b"z",), {}),
        ):  # fmt: skip
            found = bucket.to_arrow(None, *bounds, **more).read_all().to_pylist()
            assert found == by_iteration(snap, b"b", *bounds, **more)


@pytest.mark.parametrize("few", [0, 1000], ids=["searched", "filtered"])
def test_a_stream_of_a_range_of_all_buckets_holds_it_of_each(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(chosen_rows, "_ROWS_A_BUCKET", few)
    with store.snapshot() as snap:
        for bounds, more in (
            ((b"k05", b"k10"), {}), ((b"k05",), {}), ((None, b"k1"), {}), ((b"k1", b"k05"), {}),
            ((), {"prefix": b"k01"}), ((b"k011",), {"prefix": b"k01"}), ((b"z",), {}),
            ((b"k011", b"k015"), {"prefix": b"k01"}), ((b"",), {"prefix": b"\xff"}),
        ):  # fmt: skip
            found = snap.to_arrow(None, *bounds, **more).read_all().to_pylist()
            assert found == [
                row for name in snap.buckets() for row in by_iteration(snap, name, *bounds, **more)
            ]


def test_any_columns_in_any_order(store: octavo.Store) -> None:
    rng = random.Random(SEED)
    with store.snapshot() as snap:
        whole = snap.to_arrow().read_all()
        for _ in range(20):
            names = rng.sample(COLUMNS, rng.randrange(1, 8))
            assert snap.to_arrow(names).read_all() == whole.select(names)


def test_keys_and_sqns_are_given_without_looking_into_the_journal(tmp_path: Path) -> None:
    with opened(tmp_path / "s", roll_count=1 << 20) as store:
        churn(store, random.Random(SEED), 100)
        flush(store)
        store.put_many((b"n%03d" % at, b"v") for at in range(60))
        with store.snapshot() as snap:
            names = ["key", "sqn", "bucket", "expires_at"]
            expected = snap.to_arrow(names).read_all()
            for file in store._running.inker.actor.view.files:
                with open(file.path, "r+b") as raw:
                    raw.write(bytes(file.offsets[-1]))
            assert snap.to_arrow(names).read_all() == expected


def test_batches_are_as_large_as_asked_and_no_larger(small: octavo.Store) -> None:
    with small.snapshot() as snap:
        assert max(batch.num_rows for batch in snap.to_arrow(batch_rows=100)) == 100
        assert {batch.num_rows for batch in snap.to_arrow(batch_rows=1)} == {1}


def test_a_batch_holds_16_mib_of_values_or_one_value(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_bytes=1 << 30) as store:
        for at in range(5):
            store.put(b"k%d" % at, bytes([at]) * (7 << 20))
        store.put(b"k9", random.Random(SEED).randbytes(17 << 20))
        with store.snapshot() as snap:
            rows = [batch.num_rows for batch in snap.to_arrow()]
            assert rows == [2, 2, 1, 1]


def test_values_of_one_length_or_many_come_whatever_way_they_are_moved(tmp_path: Path) -> None:
    # Of one length or few they are moved by length; of many, or compressed, one by one.
    rng = random.Random(SEED)
    shapes = {
        b"one": [rng.randbytes(100) for _ in range(400)],
        b"few": [rng.randbytes(90 + n % 3) for n in range(400)],
        b"many": [rng.randbytes(n) for n in range(400)],
        b"empty": [b""] * 400,
        b"packed": [bytes(4096), *(rng.randbytes(100) for _ in range(399))],
    }
    with opened(tmp_path / "s") as store:
        for name, values in shapes.items():
            store.bucket(name).put_many((b"%03d" % n, value) for n, value in enumerate(values))
    with octavo.open(tmp_path / "s") as store, store.snapshot() as snap:
        for name, values in shapes.items():
            assert snap.bucket(name).to_arrow(["value"]).read_all()[0].to_pylist() == values
        whole = dict.fromkeys(sorted(shapes))
        assert snap.to_arrow(["value"]).read_all()[0].to_pylist() == [
            value for name in whole for value in shapes[name]
        ]


def test_values_of_like_keys_in_two_buckets_are_those_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_batches, "_NAMES_BYTES", 1)  # located bucket by bucket
    rng, keys = random.Random(1), [b"%03d" % n for n in range(40)]
    with opened(tmp_path / "s", roll_count=1 << 10) as store:
        for key in reversed(keys):  # far apart in the file, and not in the order of the keys
            for name in ("a", "b"):
                store.bucket(name).put(key, name.encode() + key)
                store.bucket("c").put(name.encode() + key, rng.randbytes(4000))
    with octavo.open(tmp_path / "s") as store, store.snapshot() as snap:
        found = snap.to_arrow(["value"]).read_all()[0].to_pylist()
        assert found[:80] == [name + key for name in (b"a", b"b") for key in keys]


def test_values_of_many_small_buckets_are_located_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Mock(wraps=batch_values.places_at)
    monkeypatch.setattr(batch_values, "places_at", looked)
    wanted = {(b"", b"k"): b"default"}
    with opened(tmp_path / "s", tags={"person": octavo.Tag()}) as store:
        store.put("k", b"default")
        with store.batch() as batch:
            for at in range(600):
                wanted[b"%03d" % at, b"k"] = b"%d" % at
                batch.put(b"%03d" % at, "k", b"%d" % at)
        store.bucket("000", tag="person").put("k", b"of a person")
        store.bucket("700", tag="person").put("k", b"of another")
        with store.snapshot() as snap:
            table = snap.to_arrow(["bucket", "key", "value"]).read_all()
            found = [tuple(row.values()) for row in table.to_pylist()]
            assert found == [(*at, value) for at, value in sorted(wanted.items())]
            assert looked.call_count == 1
            one = snap.merkle(256, by="value")
            assert looked.call_count == 3  # and once a type
            monkeypatch.setattr(
                live_batches, "_NAMES_BYTES", 1
            )  # their names are too long for that
            assert snap.to_arrow(["bucket", "key", "value"]).read_all().equals(table)
            assert looked.call_count > 600
        store.bucket("599").put("k", b"598")
        with store.snapshot() as snap:
            assert len(snap.merkle(256, by="value").differences(one)) == 1


# ---------------------------------------------------------------- those who read Arrow


def test_duckdb_reads_a_snapshot(small: octavo.Store) -> None:
    with small.snapshot() as snap:
        found = duckdb.sql("select bucket, count(*), sum(size) from snap group by 1 order by 1")
        assert found.fetchall() == [(b"", 300, 790), (b"docs", 1, 1)]
        stream = snap.to_arrow(["key", "expires_at"])
        found = duckdb.sql("select key from stream where expires_at is not null")
        assert found.fetchall() == [(b"a",)]
        assert stream is not None


def test_polars_reads_a_snapshot(small: octavo.Store) -> None:
    with small.snapshot() as snap:
        frame = polars.DataFrame(snap.to_arrow())
        assert frame.columns == COLUMNS
        assert frame["value"].to_list() == [*(b"%d" % at for at in range(300)), b"A"]
        assert frame["metadata"].null_count() == 300
        assert polars.DataFrame(snap.to_arrow(["key"]))["key"].to_list()[-1] == b"a"


def test_pandas_reads_a_snapshot(small: octavo.Store) -> None:
    with small.snapshot() as snap:
        frame = snap.to_arrow(["key", "size", "written_at"]).read_pandas()
        assert isinstance(frame, pandas.DataFrame)
        assert len(frame) == 301
        assert str(frame["written_at"].dtype) == "datetime64[ms, UTC]"
        if hasattr(pandas.DataFrame, "from_arrow"):  # from 3.0 on
            assert pandas.DataFrame.from_arrow(snap.bucket("docs"))["key"].tolist() == [b"a"]


def test_pyarrow_takes_a_snapshot_for_a_stream(small: octavo.Store) -> None:
    with small.snapshot() as snap:
        assert pa.table(snap) == snap.to_arrow().read_all()
        wanted = pa.schema([("value", pa.binary()), ("sqn", pa.int64())])
        found = pa.table(snap, schema=wanted)
        assert found.schema == wanted
        assert found.num_rows == 301


def test_a_schema_that_cannot_be_is_refused(small: octavo.Store) -> None:
    with small.snapshot() as snap:
        for schema in (
            pa.schema([("price", pa.int64())]),
            pa.schema([("sqn", pa.list_(pa.int8()))]),
        ):
            with pytest.raises(octavo.Misuse):
                snap.__arrow_c_stream__(schema.__arrow_c_schema__())
        with pytest.raises(octavo.Misuse, match="requested_schema"):
            snap.__arrow_c_stream__("schema")


# ---------------------------------------------------------------- leases, errors


def test_a_stream_outlives_the_snapshot_that_nobody_holds(small: octavo.Store) -> None:
    snap = small.snapshot()
    stream = snap.to_arrow(batch_rows=10)
    first = stream.read_next_batch()
    del snap
    gc.collect()
    small.put_many((b"k%03d" % at, b"new") for at in range(300))
    flush(small)
    rest = stream.read_all()
    assert first.num_rows + rest.num_rows == 301
    assert b"new" not in rest["value"].to_pylist()
    assert small._bookie._pinned_tables
    del stream, rest, first
    gc.collect()
    small.put(b"k", b"v")
    small._bookie._release_ended()
    assert not small._bookie._pinned_tables


def test_an_expired_lease_ends_a_stream_with_its_error(tmp_path: Path) -> None:
    seconds = [0.0]
    with opened(tmp_path / "s", monotonic=lambda: seconds[0]) as store:
        store.put_many((b"k%03d" % at, b"v") for at in range(100))
        snap = store.snapshot(lease_seconds=5)
        stream = snap.to_arrow(batch_rows=10)
        capsule = pa.RecordBatchReader.from_stream(snap)
        stream.read_next_batch()
        seconds[0] = 6
        with pytest.raises(octavo.SnapshotExpired):
            stream.read_next_batch()
        with pytest.raises(Exception, match="lease"):  # through C only its words come
            capsule.read_all()
        with pytest.raises(octavo.SnapshotExpired):
            snap.to_arrow()


def test_a_closed_snapshot_ends_its_streams(small: octavo.Store) -> None:
    with small.snapshot() as snap:
        stream = snap.to_arrow(batch_rows=10)
        stream.read_next_batch()
    with pytest.raises(octavo.Closed):
        stream.read_next_batch()


@pytest.mark.parametrize("how", ["value", "header", "record"])
@pytest.mark.parametrize(
    "value",
    [b"value", b"much of one kind " * 2000, random.Random(SEED).randbytes(30_000)],
    ids=["small", "large", "incompressible"],
)
def test_damage_in_the_journal_is_named_and_never_given(
    tmp_path: Path, value: bytes, how: str
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 20, roll_count=1 << 20) as store:
        store.put_many((b"k%03d" % at, value + b" %d" % at) for at in range(100))
        with store.snapshot() as snap:
            given = snap.to_arrow(["value"]).read_all()["value"].to_pylist()
        assert given == [value + b" %d" % at for at in range(100)]
        sqn = store.head(b"k050").sqn
        file = store._running.inker.actor.view.file_of(sqn)
        at = sqn - file.base
        start, end, after = file.offsets[at : at + 3]
        image = bytearray(Path(file.path).read_bytes())
        if how == "value":
            image[end - 1] ^= 1
        elif how == "header":
            image[start + 27] ^= 1
        else:  # a whole record, of another key
            image[start:end] = image[end : end + (end - start)]
        with open(file.path, "r+b") as raw:
            raw.write(image)
        assert after > end
        with store.snapshot() as snap, pytest.raises(octavo.Corruption):
            snap.to_arrow(["value"]).read_all()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"columns": ["price"]}, "price"), ({"columns": "key"}, "columns"),
        ({"columns": []}, "columns"), ({"columns": ["key", "key"]}, "once"),
        ({"columns": [7]}, "7"), ({"batch_rows": 0}, "batch_rows"),
        ({"batch_rows": True}, "batch_rows"), ({"start": 1.5}, "start"),
        ({"tag": "person"}, "person"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(
    small: octavo.Store, arguments: dict[str, Any], named: str
) -> None:
    with small.snapshot() as snap, pytest.raises(octavo.Misuse, match=named):
        snap.to_arrow(**arguments)


def test_without_pyarrow_the_message_says_what_to_install(
    small: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with small.snapshot() as snap:
        with pytest.raises(octavo.Misuse, match=r"pip install 'octavo\[arrow\]'"):
            snap.to_arrow()
        with pytest.raises(octavo.Misuse, match=r"pip install 'octavo\[arrow\]'"):
            snap.__arrow_c_stream__()


def test_objects_of_another_type_have_their_own_stream(tmp_path: Path) -> None:
    with opened(tmp_path / "s", tags={"person": octavo.Tag()}) as store:
        store.put(b"k", b"standard", index={"f": 1})
        store.bucket("x", tag="person").put(b"p", b"person", index={"f": 2})
        with store.snapshot() as snap:
            assert snap.to_arrow(["value"]).read_all()["value"].to_pylist() == [b"standard"]
            people = snap.to_arrow(["bucket", "value"], tag="person").read_all().to_pylist()
            assert people == [{"bucket": b"x", "value": b"person"}]
            assert snap.bucket("x", tag="person").to_arrow(["key"]).read_all().num_rows == 1


def test_an_empty_snapshot_is_an_empty_stream(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store, store.snapshot() as snap:
        assert snap.to_arrow().read_all().num_rows == 0
        assert polars.DataFrame(snap.to_arrow()).shape == (0, 8)


def test_a_batch_counts_the_name_of_its_bucket_for_each_row(tmp_path: Path) -> None:
    name = b"b" * 60_000
    with octavo.open(tmp_path / "s") as store:
        store.bucket(name).put_many((b"%04d" % n, b"v") for n in range(1000))
        with store.snapshot() as snap:
            keys = list(snap.to_arrow(["key"]))
            batches = list(snap.to_arrow(["bucket", "key"]))
    assert [batch.num_rows for batch in keys] == [1000]
    assert max(batch.nbytes for batch in batches) <= 16 << 20
    rows = pa.Table.from_batches(batches).to_pylist()
    assert [row["key"] for row in rows] == [b"%04d" % n for n in range(1000)]
    assert {row["bucket"] for row in rows} == {name}


def test_a_batch_counts_the_metadata_of_each_row(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        for number in range(20):
            store.put(b"%02d" % number, b"v", metadata=bytes((number,)) * (1 << 20))
        with store.snapshot() as snap:  # of rows in memory, which no window of a file bounds
            batches = list(snap.to_arrow(["key", "metadata"]))
    assert max(batch.nbytes for batch in batches) <= 16 << 20
    rows = pa.Table.from_batches(batches).to_pylist()
    assert [row["key"] for row in rows] == [b"%02d" % number for number in range(20)]
    assert [row["metadata"][-1] for row in rows] == list(range(20))
