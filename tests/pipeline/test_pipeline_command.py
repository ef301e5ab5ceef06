"""What ``octavo pipeline`` takes; test_pipeline_page.py runs all of it."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from cli_runs import octavo, process

from octavo.cli.pipeline_tour import PipelineTour
from octavo.cli.teller import Teller
from octavo.files.errors import Misuse, StorageFull, storage_errors
from octavo.pipeline import session
from octavo.pipeline.corpus import Corpus, frame, kind_of


def rows_of(spark: Any, *arguments: Any) -> dict[bytes, tuple[bytes, bytes]]:
    found = frame(spark, Corpus(*arguments)).collect()
    return {bytes(row.key): (bytes(row.value), bytes(row.metadata)) for row in found}


def test_each_file_of_a_directory_is_a_row(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "so ü rce"
    (source / "deep").mkdir(parents=True)
    (source / "left out").mkdir()
    (source / "left out" / "x").touch()
    (source / "__init__.py").write_bytes(b"")  # Spark's own sources would hide it
    (source / "link").symlink_to(source / "__init__.py")
    expected = {b"__init__.py": (b"", b".py")}
    for n in range(40):
        (source / "deep" / f"ö {n}.txt").write_bytes(b"text %d" % n)
        expected[f"deep/ö {n}.txt".encode()] = (b"text %d" % n, b".txt")
        (source / f"{n}").write_bytes(bytes(range(n)))
        expected[b"%d" % n] = (bytes(range(n)), b"none")
    corpus = Corpus(str(source), "directory", exclude=("left out",))
    found = frame(spark, corpus).collect()
    assert {bytes(r.key): (bytes(r.value), bytes(r.metadata)) for r in found} == expected


def test_a_file_that_is_left_out_for_its_size_is_told(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "small").write_bytes(b"text")
    with (tmp_path / "large").open("wb") as file:
        file.truncate((1 << 30) + 1)
    assert rows_of(spark, str(tmp_path), "directory") == {b"small": (b"text", b"none")}
    assert f"{tmp_path}/large is left out: 1073741825 bytes, over 1 GiB" in caplog.text


def test_columns_of_parquet_are_chosen(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = {"id": [1, 2], "kind": ["a", None], "raw": [b"\x00\xff", None]}
    parquet.write_table(pa.table(table), path)
    found = rows_of(spark, str(path), kind_of(str(path)), "id", "raw", "kind")
    assert found == {b"1": (b"\x00\xff", b"a"), b"2": (b"", b"none")}


def test_the_name_of_the_table_alone_says_whether_tabs_divide(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "from.tsv"
    folder.mkdir()
    for name, between in (("a.csv", ","), ("b.tsv", "\t"), ("c.tsv.gz", "\t")):
        text = between.join(("id", "town")) + "\n" + between.join(("1", "x")) + "\n"
        packed = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
        (folder / name).write_bytes(packed)
        found = rows_of(spark, str(folder / name), kind_of(str(folder / name)), "id", "town")
        assert found == {b"1": (b"x", b"1")}


def test_a_master_that_spark_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    class Builder:
        def __getattr__(self, name: str) -> Any:
            return lambda *given: self

        def getOrCreate(self) -> Any:  # noqa: N802 - Spark's name
            raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited\nmore")

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)
    monkeypatch.setattr(session, "have_java", lambda tell: None)
    with (
        pytest.raises(Misuse, match=r"with master 'nonsense': \[JAVA_GATEWAY_EXITED\].*exited$"),
        session.spark_session("nonsense", print),
    ):
        pass


def test_the_command_starts_a_spark_of_its_own_also_where_spark_connect_is_the_default(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_bytes(b"text")
    elsewhere = os.environ | {"SPARK_REMOTE": "sc://elsewhere"}
    ran = process("pipeline", tmp_path, env=elsewhere)
    assert ran.returncode == 2
    assert b"SPARK_REMOTE='sc://elsewhere': this starts a Spark of its own" in ran.stderr
    default = os.environ | {"SPARK_CONNECT_MODE": "1"}
    ran = process("pipeline", tmp_path, "--master", "local[1]", env=default)
    assert b"Everything held" in ran.stdout, ran.stderr
    assert ran.returncode == 0


def test_an_older_spark_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    told = r"older than 4\.2 .*pip install 'octavo\[spark\]'"
    with pytest.raises(Misuse, match=told), session.spark_session("nonsense", print):
        pass


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


def test_a_table_without_a_column_is_named(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.touch()
    for field in (None, "id"):
        with pytest.raises(Misuse, match=r"t\.csv is empty"):
            frame(spark, Corpus(str(path), "csv", field))


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


def test_a_format_is_of_a_source(tmp_path: Path) -> None:
    octavo("pipeline", "--format", "csv", "--into", tmp_path / "new", code=2)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cut.parquet", r"as parquet: \[FAILED_READ_FILE.* is not a Parquet file"),
        ("times.parquet", r"as parquet: \[PARQUET_TYPE_ILLEGAL\] .*NANOS"),
        ("none.parquet", r"as parquet: \[(UNABLE_TO_INFER_SCHEMA|FAILED_READ_FILE.*FOOTER)\]"),
        ("twice.jsonl", r"as jsonl: \[COLUMN_ALREADY_EXISTS\]"),
        ("plain.csv.gz", r"as csv: \[FAILED_READ_FILE.*: Unexpected end of input stream$"),
    ],
)
def test_what_spark_cannot_read_is_said_and_is_no_bug(
    spark: Any, tmp_path: Path, name: str, told: str
) -> None:
    parquet.write_table(pa.table({"id": ["a"]}), tmp_path / "cut.parquet")
    whole = (tmp_path / "cut.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])
    times = pa.table({"id": ["a"], "at": pa.array([1], pa.timestamp("ns"))})  # as pandas has them
    parquet.write_table(times, tmp_path / "times.parquet")
    (tmp_path / "none.parquet").touch()
    (tmp_path / "twice.jsonl").write_text('{"id": "a", "ID": "b"}\n')
    (tmp_path / "plain.csv.gz").write_text("id\na\n")
    path = str(tmp_path / name)
    with pytest.raises(Misuse, match=rf"^Spark cannot read {re.escape(path)} {told}"):
        frame(spark, Corpus(path, kind_of(path), "id"))


def test_what_is_found_to_be_damaged_as_it_is_loaded_is_said(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"id": ["a" * 500]}), path, compression="none")
    data = bytearray(path.read_bytes())
    data[4:40] = b"\xff" * 36  # the header of the page
    path.write_bytes(data)
    tour = PipelineTour(spark, Corpus(str(path), "parquet", "id"), str(tmp_path), Mock(spec=Teller))
    with pytest.raises(Misuse, match=r"t\.parquet as parquet: \[FAILED_READ_FILE"):
        tour.run()


def test_of_a_row_that_no_store_takes_that_is_said(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "' + "x" * 70_000 + '"}\n')
    tour = PipelineTour(spark, Corpus(str(path), "jsonl", "id"), str(tmp_path), Mock(spec=Teller))
    with pytest.raises(Misuse, match=r"^row 0, key b'xx.* of 70000 bytes: allowed is at most 64"):
        tour.run()


def test_a_group_without_a_name_is_told_as_none(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"id": "a", "group": ""}\n{"id": "b"}\n{"id": "c", "group": "g"}\n')
    found = rows_of(spark, str(path), "jsonl", "id", "id", "group")
    assert found == {b"a": (b"a", b"none"), b"b": (b"b", b"none"), b"c": (b"c", b"g")}


def test_no_key_or_group_steers_the_terminal(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"id": "\x1b[2Jkey", "group": "\x1b[31mgroup"}) + "\n")
    corpus = Corpus(str(path), "jsonl", "id", "id", "group")
    teller = Mock(spec=Teller)
    PipelineTour(spark, corpus, str(tmp_path), teller).run()
    told = [text for call in teller.table.call_args_list for row in call.args[0] for text in row]
    told += [call.args[1] for call in teller.tell.call_args_list]
    assert {r"\x1b[2Jkey", r"\x1b[31mgroup"} <= set(told)
    assert not [text for text in told if "\x1b" in text]


@pytest.mark.parametrize("packed", [False, True])
def test_ends_of_lines_in_names_and_cells_are_those_of_the_file(
    spark: Any, tmp_path: Path, *, packed: bool
) -> None:
    text = b'id,"na\nme",town\r\n1,"a\r\nb",x\r\n2,"c\nd",y\r\n'
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(text) if packed else text)
    assert rows_of(spark, str(path), "csv", "id", "na\nme", "town") == {
        b"1": (b"a\r\nb", b"x"),
        b"2": (b"c\nd", b"y"),
    }


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_end_as_the_first_one_of_a_table_does(spark: Any, tmp_path: Path, end: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(end.join(("id,town", "1,x", "2,y", "")).encode())
    assert rows_of(spark, str(path), "csv", "id", "town") == {
        b"1": (b"x", b"1"),
        b"2": (b"y", b"2"),
    }


def test_files_of_a_directory_have_the_columns_of_all_of_them(spark: Any, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": ["a"], "x": [1]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"id": ["b"], "y": [2]}), tmp_path / "b.parquet")
    found = rows_of(spark, str(tmp_path), "parquet", "id")
    assert {key: value for key, (value, _) in found.items()} == {
        b"a": b'{"id":"a","x":1}',
        b"b": b'{"id":"b","y":2}',
    }


def test_a_file_of_a_directory_that_spark_would_pass_over_is_named(
    spark: Any, tmp_path: Path
) -> None:
    for name in (
        "nested/a",
        "nested/_SUCCESS",
        "nested/.tmp/x",
        "parts/kind=a/b",
        "parts/kind=b/c",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"id": name[-1]}))
    assert set(rows_of(spark, str(tmp_path / "nested"), "jsonl", "id")) == {b"a"}
    parts = rows_of(spark, str(tmp_path / "parts"), "jsonl", "id", None, "kind")
    assert {key: group for key, (_, group) in parts.items()} == {b"b": b"a", b"c": b"b"}
    (tmp_path / "nested" / "deep").mkdir()
    for name in ("nested/deep/d", "parts/e"):
        (tmp_path / name).write_text('{"id": "d"}\n')
        path = str(tmp_path / name.partition("/")[0])
        with pytest.raises(Misuse, match=f"cannot read {path}: it would pass over .*/{name}, "):
            frame(spark, Corpus(path, "jsonl", "id"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("open.jsonl", r"as jsonl: \[.*MALFORMED"),
        ("pretty.json", r"as jsonl: \[.*MALFORMED"),
        ("numbers.jsonl", r"as jsonl: \[.*"),
        ("null.jsonl", r"as jsonl: \[FAILED_READ_FILE.*JSON"),
        ("joined.jsonl", 'as jsonl: .*pass over what follows .*: {"id": "b"}{"id": "c"}$'),
        ("behind.jsonl", 'as jsonl: .*pass over what follows .*: {"id": "b"} cut'),
        ("long.csv", r"as csv: \[FAILED_READ_FILE.*Malformed CSV record: 1,a,lost"),
        ("short.csv", r"as csv: \[FAILED_READ_FILE.*Malformed CSV record: 1"),
        ("turned.csv", r"as csv: \[FAILED_READ_FILE.*header does not conform"),
    ],
)
def test_no_row_of_a_table_is_left_out_cut_or_mixed_up_unsaid(
    spark: Any, tmp_path: Path, name: str, told: str
) -> None:
    (tmp_path / "open.jsonl").write_text('{"id": "a"}\n{"id": "b"\n{"id": "c"}\n')
    (tmp_path / "pretty.json").write_text('{\n "id": "a"\n}\n')
    (tmp_path / "numbers.jsonl").write_text('{"id": "a"}\n5\n')
    (tmp_path / "null.jsonl").write_text('{"id": "a"}\nnull\n')
    (tmp_path / "joined.jsonl").write_text('{"id": "a"}\n{"id": "b"}{"id": "c"}\n')
    (tmp_path / "behind.jsonl").write_text('{"id": "a"}\n{"id": "b"} cut\n')
    (tmp_path / "long.csv").write_text("id,town\n1,a,lost\n2,b\n")
    (tmp_path / "short.csv").write_text("id,town\n1\n2,b\n")
    (tmp_path / "turned.csv").mkdir()
    for part, text in (("a", "id,town\n1,a\n"), ("b", "town,id\nb,2\n")):
        (tmp_path / "turned.csv" / f"{part}.csv").write_text(text)
    path = str(tmp_path / name)
    tour = PipelineTour(
        spark, Corpus(path, kind_of(path), "id"), str(tmp_path / "into"), Mock(spec=Teller)
    )
    with pytest.raises(Misuse, match=rf"^Spark cannot read {re.escape(path)} {told}"):
        tour._load()


def test_lines_that_spark_reads_whole_are_read(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"id": "a"}\n\n \t \n  {"id": "b", "deep": {"of": [1, 2]}} \r\n'
        b'{\'id\': \'c\', \'number\': NaN}\n[{"id": "d"}, {"id": "e"}]\n{"id": "f"}'
    )
    found = frame(spark, Corpus(str(path), "jsonl", "id")).collect()
    assert [bytes(row.key) for row in found] == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_a_name_that_spark_takes_for_a_pattern_or_passes_over_is_told(
    spark: Any, tmp_path: Path
) -> None:
    for name, told in (
        ("t*.csv", r"'\*'"),
        ("t[1].csv", r"'\['"),
        ("t:1.csv", "':'"),
        ("_t.csv", "begin with _ or a dot"),
        (".t.csv", "begin with _ or a dot"),
    ):
        for each in (name, "tt.csv"):
            (tmp_path / each).write_text("id\n1\n")
        path = str(tmp_path / name)
        with pytest.raises(Misuse, match=rf"cannot read {re.escape(path)}: .*{told}"):
            frame(spark, Corpus(path, kind_of(path), "id"))


def test_a_table_in_a_directory_whose_name_has_a_colon_is_read_where_spark_reads_it(
    spark: Any, tmp_path: Path
) -> None:
    place = tmp_path / "T12:00"
    place.mkdir()
    for name in ("t.jsonl", "t.csv", "t:1.jsonl"):
        (place / name).write_text('{"id":"1"}\n' if name.endswith("l") else "id\n1\n")
    parquet.write_table(pa.table({"id": ["1"]}), place / "t.parquet")
    for name in ("t.jsonl", "t.parquet"):
        path = str(place / name)
        assert [row.key for row in frame(spark, Corpus(path, kind_of(path), "id")).collect()]
    for name in ("t.csv", "t:1.jsonl"):
        path = str(place / name)
        with pytest.raises(Misuse, match=f"cannot read {re.escape(path)}: ':'"):
            frame(spark, Corpus(path, kind_of(path), "id"))


def test_what_a_task_says_of_a_full_disk_is_no_bug(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        with storage_errors("a load"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.cdb")

    corpus = Corpus(str(tmp_path), "directory")
    tour = PipelineTour(spark, corpus, str(tmp_path), Mock(spec=Teller))
    rows = spark.range(1).mapInArrow(task, "id long")
    monkeypatch.setattr(tour, "_load", rows.collect)
    with pytest.raises(StorageFull, match=r"^a load: \[Errno 28\].*'a\.cdb'; free some space$"):
        tour.run()


def test_a_file_that_may_not_be_read_is_left_out_and_told(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "secret"):
        (tmp_path / name).write_bytes(b"text")
    monkeypatch.setattr(os, "access", lambda path, mode: not path.endswith(b"secret"))
    assert rows_of(spark, str(tmp_path), "directory") == {b"a": (b"text", b"none")}
    assert f"{tmp_path}/secret is left out: this process's user may not read it" in caplog.text
