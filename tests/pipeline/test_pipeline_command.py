"""``octavo pipeline``: a corpus through Spark, from loading to a backup, each step checked."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from cli_runs import document, octavo

import octavo as api
from octavo.files.errors import Misuse
from octavo.pipeline.corpus import Corpus, frame, kind_of


def test_a_directory_goes_the_whole_way(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "so ü rce"
    (source / "deep").mkdir(parents=True)
    (source / "__init__.py").write_bytes(b"")  # Spark's own sources would hide it
    for n in range(60):
        (source / "deep" / f"{n}.txt").write_bytes(b"text %d" % n)
        (source / f"{n}.bin").write_bytes(bytes(range(n)))
    told = octavo("pipeline", source, "--into", tmp_path / "out").stdout
    for step in ("load", "read back", "follow", "fold", "join back", "back up"):
        assert f"\n  {step} " in told
    assert "as the corpus has them" in told
    assert "Everything held" in told
    for made in ("store", "backup"):
        with api.open(tmp_path / "out" / made, create=False) as store:
            assert set(store.buckets()) == {b"", b"totals", b"shares"}
            assert set(store.bucket("totals").keys()) == {b".txt", b".bin", b".py"}
            assert store["deep/4.txt"] == b"text 4"
    with api.open(tmp_path / "out" / "copy", create=False) as copy:
        assert copy["deep/4.txt"] == b"text 4"
        assert len(list(copy.keys())) < 121  # some were deleted, and the copy heard of it


def test_a_table_goes_the_whole_way(spark: Any, tmp_path: Path) -> None:
    table = {"id": list(range(200)), "kind": ["a", "b", "b", "c"] * 50, "text": ["x" * 9] * 200}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    found = document(
        "pipeline", tmp_path / "t.parquet", "--key-field", "id", "--group-field", "kind",
        "--value-field", "text", "--json",
    )  # fmt: skip
    assert found["ok"], found["broken"]
    assert found["load"] == found["load"] | {"rows": 200, "keys": 200, "bytes": 1800}
    assert found["fold"]["groups"] == 3


def rows_of(spark: Any, *arguments: Any) -> dict[bytes, tuple[bytes, bytes]]:
    found = frame(spark, Corpus(*arguments)).collect()
    return {bytes(row.key): (bytes(row.value), bytes(row.metadata)) for row in found}


def test_a_csv_row_without_a_key_is_left_out(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("id.x", "town"), ("1", 'a "b"\nc'), ("", "no key"), ("2", ""), ("3", "c,d")]
        )
    found = rows_of(spark, str(path), kind_of(str(path)), "id.x", "town")
    assert found == {b"1": (b'a "b"\nc', b"1"), b"2": (b"", b"2"), b"3": (b"c,d", b"3")}


def test_a_row_is_a_json_object_where_no_value_is_named(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "k", "n": [1, 2]}\n')
    assert rows_of(spark, str(path), kind_of(str(path)), "id", None, "n") == {
        b"k": (b'{"id":"k","n":[1,2]}', b"[1,2]")
    }


def test_a_column_that_is_not_there_is_named(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "k"}\n')
    for arguments, told in (
        (("key",), r"--key-field key: the columns are id"),
        ((None,), r"say with --key-field which column of .* is the key: id"),
        (("id", "v"), r"--value-field v: the columns are id"),
    ):
        with pytest.raises(Misuse, match=told):
            frame(spark, Corpus(str(path), "jsonl", *arguments))


def test_what_a_source_is_can_be_told_or_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").touch()
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "part-0.parquet").touch()
    (tmp_path / "many" / "_SUCCESS").touch()
    (tmp_path / "x").touch()
    assert kind_of(str(tmp_path / "x.csv.gz")) == "csv"
    assert kind_of(str(tmp_path / "many")) == "parquet"
    assert kind_of(str(tmp_path)) == "directory"
    with pytest.raises(Misuse, match="--format"):
        kind_of(str(tmp_path / "x"))


def test_a_directory_that_is_there_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    found = octavo("pipeline", "--into", tmp_path, code=2)
    assert "name a new or an empty one" in found.stderr
