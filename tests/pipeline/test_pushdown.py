"""Which keys are read for which filters; no Spark is started for this."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import BinaryType, StructField, StructType
from whole_store import flush, opened

from octavo.files.ledger import chosen_rows
from octavo.pipeline.batch_reader import PushingReader
from octavo.pipeline.read_options import ReadOptions

SCHEMA = StructType([StructField("bucket", BinaryType()), StructField("key", BinaryType())])
KEY, BUCKET = ("key",), ("bucket",)
KEYS = [b"%02d" % number for number in range(60)]


@pytest.fixture(params=["searched", "filtered"], autouse=True)
def plan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bucket is searched, or all rows are looked at."""
    few = 0 if request.param == "searched" else 1000
    monkeypatch.setattr(chosen_rows, "_ROWS_A_BUCKET", few)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with opened(tmp_path_factory.mktemp("pushdown") / "s") as store:
        for at, name in enumerate((b"", b"b")):
            store.bucket(name).put_many((key, b"v") for key in KEYS[at * 30 :])
        flush(store)
        yield store.snapshot().publish().path


def read(path: str, *filters: Filter, **options: bytes) -> list[tuple[bytes, bytes]]:
    """Bucket and key of what is read, before Spark compares."""
    reader = PushingReader(ReadOptions(path, **options), path, None, SCHEMA)  # type: ignore[arg-type]
    assert list(reader.pushFilters(list(filters))) == list(filters)
    rows = [
        (row["bucket"], row["key"])
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    return sorted(rows)


def every(low: int, high: int) -> list[tuple[bytes, bytes]]:
    """The keys in [low, high), of both buckets."""
    there = [(b"", key) for key in KEYS[low:high]]
    return there + [(b"b", key) for key in KEYS[max(low, 30) : max(high, 30)]]


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([], every(0, 60)),
        ([IsNotNull(KEY)], every(0, 60)),
        ([EqualTo(KEY, b"40")], every(40, 41)),
        ([EqualTo(KEY, "40")], every(40, 41)),
        ([EqualTo(("Key",), b"40"), EqualTo(("BUCKET",), b"b")], [(b"b", b"40")]),
        ([EqualNullSafe(KEY, b"40")], every(40, 41)),
        ([EqualNullSafe(KEY, None)], every(0, 60)),
        ([EqualTo(KEY, b"nothing")], []),
        ([GreaterThan(KEY, b"40")], every(40, 60)),  # Spark leaves out the first
        ([GreaterThanOrEqual(KEY, b"40"), LessThan(KEY, b"45")], every(40, 45)),
        ([LessThanOrEqual(KEY, b"45"), GreaterThanOrEqual(KEY, b"44")], every(44, 46)),
        ([StringStartsWith(KEY, "4")], every(40, 50)),
        ([StringStartsWith(KEY, "")], every(0, 60)),
        ([StringEndsWith(KEY, "4")], every(0, 60)),
        ([Not(EqualTo(KEY, b"40"))], every(0, 60)),
        ([In(KEY, (b"03", b"44", b"none"))], [*every(3, 4), *every(44, 45)]),
        ([In(KEY, (b"03", None))], every(0, 60)),
        ([GreaterThan(KEY, "3\ufffd")], every(0, 60)),  # as cast(X'3280' as string) comes
        ([In(KEY, ("03", "\ufffd"))], every(0, 60)),
        ([EqualTo(BUCKET, "\ufffd")], every(0, 60)),
        ([In(KEY, (b"03", b"44")), In(KEY, (b"44", b"55"))], every(44, 45)),
        ([In(KEY, (b"03", b"44")), In(KEY, (b"55",))], []),
        ([In(KEY, (b"03", b"44")), GreaterThan(KEY, b"10")], every(44, 45)),
        ([In(KEY, tuple(KEYS[5:45]))], every(5, 45)),  # too many to seek each
        ([EqualTo(BUCKET, b"b"), In(KEY, (b"03", b"44"))], [(b"b", b"44")]),
        ([EqualTo(BUCKET, b"none")], []),
    ],
    ids=str,
)
def test_what_is_read(path: str, filters: list[Filter], wanted: list[tuple[bytes, bytes]]) -> None:
    assert read(path, *filters) == sorted(wanted)


def test_options_and_filters_narrow_together(path: str) -> None:
    keys = In(KEY, (b"03", b"44", b"55"))
    assert read(path, keys, key_start=b"40", key_end=b"55") == sorted(every(44, 45))
    assert read(path, keys, prefix=b"0") == [(b"", b"03")]
    assert read(path, EqualTo(BUCKET, b"b"), bucket=b"") == []
