"""What a table says that Spark would read otherwise: read as it was meant, or refused."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.dataset as dataset
import pytest

from octavo.cli.pipeline_tour import PipelineTour
from octavo.cli.teller import Teller
from octavo.files.errors import Misuse
from octavo.pipeline.corpus import Corpus, frame


def values_of(spark: Any, *arguments: Any) -> dict[bytes, bytes]:
    return {bytes(row.key): bytes(row.value) for row in frame(spark, Corpus(*arguments)).collect()}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("name", ["town", "städt.x"])
def test_partitions_have_the_names_that_who_wrote_them_meant(
    spark: Any, tmp_path: Path, kind: str, name: str
) -> None:
    towns = {"1": "München", "2": "Łódź%C3", "3": "a b", "4": "%C3%BC", "5": "Ã¼"}
    table = pa.table({"id": list(towns), "n": ["x"] * len(towns), name: list(towns.values())})
    dataset.write_dataset(
        table, tmp_path / "t", format=kind, partitioning=[name], partitioning_flavor="hive"
    )
    expected = {key.encode(): town.encode() for key, town in towns.items()}
    assert values_of(spark, str(tmp_path / "t"), kind, "id", name) == expected


def test_nor_are_those_of_spark_itself_changed(spark: Any, tmp_path: Path) -> None:
    towns = [("1", "München"), ("2", "a%C3%BC"), ("3", "x/y"), ("4", "\x85")]
    rows = spark.createDataFrame(towns, "id string, town string")
    rows.write.partitionBy("town").parquet(f"file:{tmp_path}/t")
    found = values_of(spark, str(tmp_path / "t"), "parquet", "id", "town")
    assert found == {key.encode(): town.encode() for key, town in towns}


@pytest.mark.parametrize(
    "text",
    [
        'id,town\n1,"open\n2,b\n3,c\n',
        'id,town\n1,a\n2,"cut',
        'id,town\n1,a "b"\n2,"c ""d\n',
        'id\n1\n"',
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_quote_that_is_never_closed_is_told(
    spark: Any, tmp_path: Path, text: str, *, packed: bool
) -> None:
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(Misuse, match=rf"a quote in {re.escape(str(path))} is not closed"):
        frame(spark, Corpus(str(path), "csv", "id"))


def test_quotes_that_begin_no_cell_or_are_closed_are_read(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        b'\xef\xbb\xbf"id",town\n1,5" pipe\n2,"a ""b"""\n3,"a\nb"\n4,""\n5,"b"x\n6,"\xff"'
    )
    assert values_of(spark, str(path), "csv", "id", "town") == {
        b"1": b'5" pipe',
        b"2": b'a "b"',
        b"3": b"a\nb",
        b"4": b"",
        b"5": b'"b"x',
        b"6": "\ufffd".encode(),
    }


@pytest.mark.parametrize(
    "half",
    [
        r"\ud83d", r"\uDE00", r"\ude00\ud83d", r"\\\ud83d", r"\ud83d\\ude00", r"\ud83d\ud83d",
        r"\\ud83d\ude00", r"\ud83d\\\ude00", r"\ud83d\ude00\ude00", r"\\\\\ude00",
    ],
)  # fmt: skip
def test_half_a_character_in_json_is_told(spark: Any, tmp_path: Path, half: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "a"}\n{"id": "b", "x": "' + half + '"}\n')
    with pytest.raises(Misuse, match=r't\.jsonl as jsonl: it would make \? of .*{"id": "b"'):
        frame(spark, Corpus(str(path), "jsonl", "id"))


def test_whole_characters_in_json_are_read(spark: Any, tmp_path: Path) -> None:
    path, texts = tmp_path / "t.jsonl", {"a": "😀", "b": r"\ud83d", "c": "\\\\ude00", "d": "😀😀"}
    texts |= {"e": r"\😀\\😀\\\ud83d", "f": "\n😀\\"}
    path.write_text("".join(json.dumps({"id": key, "x": x}) + "\n" for key, x in texts.items()))
    assert values_of(spark, str(path), "jsonl", "id", "x") == {
        key.encode(): x.encode() for key, x in texts.items()
    }


def test_keys_of_maps_are_those_that_json_has(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    for given, told in (
        ("map(cast('k' as binary), 1)", "binary"),
        ("array(map(struct(1 as a), 1))", "struct<a:int>"),
        ("struct(map('a', map(date'2020-01-01', 1)))", "date"),
    ):
        rows = spark.sql(f"SELECT 'a' AS id, {given} AS m")
        rows.write.mode("overwrite").parquet(f"file:{path}")
        for field in (None, "m"):
            with pytest.raises(Misuse, match=f"column 'm' .* keys are of type {told}: in JSON"):
                frame(spark, Corpus(path, "parquet", "id", field))
        assert values_of(spark, path, "parquet", "id", "id") == {b"a": b"a"}
    rows = spark.sql("SELECT 'a' AS id, map(1, map('x', 2)) AS m, map(1.50, 1) AS n")
    rows.write.mode("overwrite").parquet(f"file:{path}")
    found = values_of(spark, path, "parquet", "id")
    assert found == {b"a": b'{"id":"a","m":{"1":{"x":2}},"n":{"1.50":1}}'}


def test_the_key_that_is_put_beside_a_fold_is_none_of_the_corpus(
    spark: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    ids = ("put while the fold runs", "put while the fold runs.", "c")
    path.write_text("".join(json.dumps({"id": each}) + "\n" for each in ids))
    teller = Mock(spec=Teller)
    PipelineTour(spark, Corpus(str(path), "jsonl", "id"), str(tmp_path / "into"), teller).run()
    told = [call.args for call in teller.check.call_args_list]
    assert told
    assert [text for held, text in told if not held] == []
