"""Stores as files of others, there and back: JSON lines, CSV, Parquet, compressed or not."""

from __future__ import annotations

import csv
import errno
import gc
import gzip
import json
import os
import random
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from cli_runs import document, octavo, output
from whole_store import SEED

import octavo as library
from octavo import arrow_stream
from octavo.actors.reader import Reader
from octavo.cli import dump as cli_dump
from octavo.cli import output as cli_output
from octavo.cli import source as cli_source
from octavo.files.door.disk import RealDisk
from octavo.files.kernels.arrow import pyarrow
from octavo.files.ledger import chosen_rows

ENDINGS = [".jsonl", ".csv", ".parquet", ".jsonl.gz", ".csv.gz", ".jsonl.zst", ".csv.zst"]
TERMS: list[Any] = [0, -7, 1 << 80, "", "a", "ä\n", b"", b"a", b"\xff\x00"]


def filled(path: Path, rng: random.Random) -> None:
    """All that a dump has to carry."""
    soon = int(time.time() * 1000) + 3_600_000
    with library.open(path) as store:
        for _ in range(400):
            bucket = store.bucket(rng.choice([b"", b"docs", b"\xff\x00", "é".encode()]))
            key = rng.randbytes(rng.randrange(1, 3)) + rng.choice([b"", b'"', b",", b"\n", b"\\"])
            value = rng.choice([b"", b"text", rng.randbytes(300), "\u2028é\r\n,\"'".encode()])
            index = {
                rng.choice([b"f", b"\xff", "ö"]): rng.sample(TERMS, rng.randrange(1, 4))
                for _ in range(rng.randrange(3))
            }
            bucket.put(
                key,
                value,
                metadata=rng.choice([b"", b"", b"m", b"\xff", b"\n"]),
                expires_at=rng.choice([None, None, soon + rng.randrange(1000)]),
                index=index or None,
            )
            if rng.random() < 0.2:
                bucket.delete(key)


def state(path: Path) -> dict[tuple[bytes, bytes], Any]:
    """Everything but sqns and moments of writing."""
    with library.open(path, create=False) as store:
        return {
            (name, key): (
                store.bucket(name)[key],
                head.metadata,
                head.expires_at,
                store.bucket(name).index_of(key),
            )
            for name in store.buckets()
            for key, head in store.bucket(name).heads()
        }


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_dumped_and_loaded_is_the_same(tmp_path: Path, ending: str) -> None:
    print("seed", SEED)
    filled(tmp_path / "one", random.Random(SEED))
    file = tmp_path / f"dump{ending}"
    octavo("dump", tmp_path / "one", "-o", file)
    octavo("load", tmp_path / "two", file)
    found = state(tmp_path / "two")
    assert found == state(tmp_path / "one")
    assert any(terms for *_, terms in found.values())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with library.open(path) as opened:
        opened.put_many((b"k%02d" % at, b"v%d" % at) for at in range(30))
        opened.bucket("docs").put("a", "A", metadata="m", index={"f": ["t", 7]})
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return table


def test_a_parquet_dump_has_columns_with_types(store: Path, tmp_path: Path) -> None:
    octavo("dump", store, "-o", tmp_path / "d.parquet")
    schema = parquet.read_schema(tmp_path / "d.parquet")
    assert schema.names == [
        "bucket", "key", "value", "metadata", "expires_at", "index", "sqn", "written_at",
    ]  # fmt: skip
    assert schema.field("key").type == pa.binary()
    assert schema.field("written_at").type == pa.timestamp("ms", tz="UTC")
    found = rows(tmp_path / "d.parquet")
    assert len(found) == 31
    assert found[30]["metadata"] == b"m"
    assert json.loads(found[30]["index"]) == [
        {"field": "f", "term": 7}, {"field": "f", "term": "t"},
    ]  # fmt: skip
    assert found[0]["index"] is None


@pytest.mark.parametrize(
    ("bound", "most", "groups"),
    [(None, 0, 1), ("_GROUP_ROWS", 64, 4), ("_GROUP_BATCHES", 50, 4), ("_GROUP_BYTES", 1, 200)],
    ids=str,
)
def test_small_buckets_share_a_row_group_of_a_parquet_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str | None, most: int, groups: int
) -> None:
    if bound is not None:
        monkeypatch.setattr(cli_dump, bound, most)
    monkeypatch.setattr(chosen_rows, "_ROWS_A_BUCKET", 0)  # each bucket is a batch of rows
    names = [b"%03d" % at for at in range(200)]
    with library.open(tmp_path / "s") as store, store.batch() as batch:
        for name in names:
            batch.put(name, "k", b"of " + name)
    octavo("dump", tmp_path / "s", "-o", tmp_path / "d.parquet", "--prefix", "k")
    assert parquet.ParquetFile(tmp_path / "d.parquet").num_row_groups == groups
    found = [(row["bucket"], row["value"]) for row in rows(tmp_path / "d.parquet")]
    assert found == [(name, b"of " + name) for name in names]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("bounds", [[], ["--prefix", "k"]], ids=str)
def test_all_buckets_are_one_scan_of_a_parquet_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool, bounds: list[str]
) -> None:
    scans = mock.Mock(wraps=arrow_stream._batches)
    monkeypatch.setattr(arrow_stream, "_batches", scans)
    names = [b"%03d" % at for at in range(20)]
    with library.open(tmp_path / "s") as store:
        for name in names:
            store.bucket(name).put("k", b"of " + name)
        if indexed:
            store.bucket(names[7]).put("k", b"of " + names[7], index={"f": [1]})
    octavo("dump", tmp_path / "s", "-o", tmp_path / "d.parquet", *bounds)
    found = rows(tmp_path / "d.parquet")
    assert [(row["bucket"], row["value"]) for row in found] == [(n, b"of " + n) for n in names]
    assert [row["index"] is not None for row in found] == [indexed and at == 7 for at in range(20)]
    assert scans.call_count == 2  # one asks for sizes


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("bounds", [[], ["--prefix", "k"]], ids=str)
def test_all_buckets_are_one_pass_of_a_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, bounds: list[str]
) -> None:
    names = [f"{at:03}" for at in range(20)]
    with library.open(tmp_path / "one") as store:
        for name in names:
            store.bucket(name).put("k", "of " + name, index={"f": [1]} if name == "007" else None)
    scans = mock.Mock(side_effect=AssertionError("a scan of one bucket"))
    monkeypatch.setattr(Reader, "windows", scans)
    octavo("dump", tmp_path / "one", "-o", tmp_path / f"d{ending}", *bounds)
    monkeypatch.undo()
    octavo("load", tmp_path / "two", tmp_path / f"d{ending}")
    assert state(tmp_path / "two") == state(tmp_path / "one")


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_a_range_and_some_columns_can_be_dumped(store: Path, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"d{ending}"
    arguments = ["--start", "k05", "--end", "k07", "-b", "", "--columns", "size, key"]
    octavo("dump", store, "-o", file, *arguments)
    if ending == ".parquet":
        found = [(row["key"].decode(), row["size"]) for row in rows(file)]
        assert list(rows(file)[0]) == ["size", "key"]
    elif ending == ".csv":
        with file.open(newline="") as stream:
            found = [(row["key"], int(row["size"])) for row in csv.DictReader(stream)]
    else:
        lines = map(json.loads, file.read_text().splitlines())
        found = [(row["key"], row["size"]) for row in lines]
    assert found == [("k05", 2), ("k06", 2)]
    octavo("dump", store, "-o", file, "--prefix", "k1", "--columns", "index")


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_dump_may_take_longer_than_its_lease(
    store: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    renewed: list[object] = []
    monkeypatch.setattr(cli_dump, "_TOLD_ROWS", 10)
    monkeypatch.setattr(library.Snapshot, "renew", lambda snap: renewed.append(snap))
    with library.open(store) as opened:
        opened.bucket("many").put_many((b"%03d" % number, b"v") for number in range(100))
    output("dump", store, "--format", kind, "--bucket", "many")
    assert len(renewed) >= 10


def test_csv_on_standard_output_is_csv(store: Path) -> None:
    lines = output("dump", store, "--format", "csv", "--columns", "key,value", "-b", "docs")
    assert lines == b"key,value\na,A\n"


def test_several_files_are_loaded_in_their_order(store: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v\na,1\nb,1\n")
    with gzip.open(tmp_path / "b.csv.gz", "wt") as stream:
        stream.write("k,v\nb,2\n")
    table = pa.table({"k": ["c"], "v": [3]})
    parquet.write_table(table, tmp_path / "c.parquet")
    files = [tmp_path / name for name in ("a.csv", "b.csv.gz", "c.parquet")]
    octavo("load", store, *files, "--key-field", "k", "--value-field", "v", "-b", "new")
    with library.open(store) as opened:
        found = dict(opened.bucket("new").items())
    assert found == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_any_parquet_file_can_be_loaded_by_its_columns(store: Path, tmp_path: Path) -> None:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table(
        {
            "id": [1, 2], "name": ["ä", None], "raw": [b"\xff", b"x"], "at": [day, day],
            "price": [Decimal("1.5"), None], "many": [[1], []],
        }
    )  # fmt: skip
    parquet.write_table(table, tmp_path / "t.parquet")
    octavo("load", store, tmp_path / "t.parquet", "--key-field", "id", "-b", "t")
    octavo("load", store, tmp_path / "t.parquet", "--key-field", "raw", "--value-field", "name",
           "-b", "u", "--skip-bad")  # fmt: skip
    with library.open(store) as opened:
        found = {key: json.loads(value) for key, value in opened.bucket("t").items()}
        assert found[b"1"] == {
            "id": 1, "name": "ä", "raw": "ff", "at": day.isoformat(), "price": "1.5", "many": [1],
        }  # fmt: skip
        assert found[b"2"]["name"] is None
        assert dict(opened.bucket("u").items()) == {b"\xff": "ä".encode(), b"x": b"null"}


def test_moments_and_text_in_a_parquet_file_are_taken(store: Path, tmp_path: Path) -> None:
    later = datetime(2100, 1, 1, tzinfo=UTC)
    table = pa.table({"key": ["a"], "value": ["text"], "expires_at": [later]})
    parquet.write_table(table, tmp_path / "t.parquet")
    octavo("load", store, tmp_path / "t.parquet")
    with library.open(store) as opened:
        assert opened[b"a"] == b"text"
        head = opened.head(b"a")
        assert head.expires_at == later.timestamp() * 1000


# ---------------------------------------------------------------- what is wrong with it


def test_bad_rows_of_a_parquet_file_are_told_by_number(store: Path, tmp_path: Path) -> None:
    table = pa.table({"key": [b"a", b"", b"c"], "value": [b"1", b"2", b"3"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    found = octavo("load", store, tmp_path / "t.parquet", code=2)
    assert "t.parquet, row 2: key is empty" in found.stderr
    found = octavo("load", store, tmp_path / "t.parquet", "--skip-bad", "--json", code=1)
    assert json.loads(found.stdout)["loaded"] == 2


def test_rows_of_a_parquet_file_that_python_has_no_values_for_are_told_by_number(
    store: Path, tmp_path: Path
) -> None:
    words = [pa.py_buffer(raw) for raw in (b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0", b"a\xffc")]
    value = pa.Array.from_buffers(pa.string(), 3, [None, *words])
    moments = pa.array([None, None, 1 << 60], pa.timestamp("ms"))
    table = pa.table({"key": [b"x", b"y", b"z"], "value": value, "expires_at": moments})
    parquet.write_table(table, tmp_path / "t.parquet")
    found = octavo("load", store, tmp_path / "t.parquet", "--skip-bad", "--json", code=1)
    assert json.loads(found.stdout)["loaded"] == 1
    assert "t.parquet, row 2: cannot be read: 'utf-8'" in found.stderr
    assert "t.parquet, row 3: cannot be read: " in found.stderr
    assert output("get", store, "x") == b"a"


@pytest.mark.parametrize("digits", ["9" * 5000, "²", "١٢٣", "-1", "1e9"])
def test_an_expiry_that_is_no_number_of_ms_is_told_by_line(store: Path, digits: str) -> None:
    row = f"bucket,key,value,metadata,expires_at,index,sqn,written_at\n,k,v,,{digits},,,\n"
    found = octavo("load", store, "-", "--format", "csv", stdin=row.encode(), code=2)
    assert "line 2: 'expires_at' is" in found.stderr


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"k": [1]}, "--key-field"),
        ({"key": [1], "value": [b""]}, "row 1: 'key' is 1"),
        ({"key": [b"a"], "value": [None]}, "row 1: 'value' is None"),
        ({"key": [b"a"], "value": [b""], "expires_at": ["soon"]}, "row 1: 'expires_at'"),
        ({"key": [b"a"], "value": [b""], "expires_at": [True]}, "row 1: 'expires_at' is True"),
        ({"key": [b"a"], "value": [b""], "index": ["{"]}, "row 1: 'index' is not JSON"),
        ({"key": [b"a"], "value": [b""], "index": ["[7]"]}, "row 1: 'index' holds 7"),
        ({"key": [b"a"], "value": [b""], "index": ['{"f": 1}']}, "row 1: 'index' is"),
        ({"key": [b"a"], "value": [b""], "index": [7]}, "row 1: 'index' is 7"),
    ],
)
def test_a_parquet_file_of_another_kind_is_refused(
    store: Path, tmp_path: Path, columns: dict[str, Any], said: str
) -> None:
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert said in octavo("load", store, tmp_path / "t.parquet", code=2).stderr


@pytest.mark.parametrize("keys", [[True], [None], [[1]], [datetime(2026, 1, 1)]])
def test_what_a_parquet_column_holds_that_is_no_key_is_named(
    store: Path, tmp_path: Path, keys: list[Any]
) -> None:
    parquet.write_table(pa.table({"id": keys, "v": ["text"]}), tmp_path / "t.parquet")
    told = octavo("load", store, tmp_path / "t.parquet", "--key-field", "id", code=2).stderr
    assert "row 1: the key is" in told


@pytest.mark.parametrize("key_field", [["--key-field", "key"], []])
def test_columns_of_one_name_are_refused(store: Path, tmp_path: Path, key_field: list[str]) -> None:
    columns = [pa.array([b"a"]), pa.array([b"one"]), pa.array([b"two"])]
    parquet.write_table(pa.table(columns, ["key", "value", "value"]), tmp_path / "t.parquet")
    told = octavo("load", store, tmp_path / "t.parquet", *key_field, code=2).stderr
    assert "t.parquet: two columns have one name" in told


def test_what_is_no_parquet_file_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 is not enough PAR1")
    assert "t.parquet" in octavo("load", store, tmp_path / "t.parquet", code=2).stderr
    octavo("dump", store, "-o", tmp_path / "d.parquet")
    image = bytearray((tmp_path / "d.parquet").read_bytes())
    image[40:80] = bytes(40)
    (tmp_path / "d.parquet").write_bytes(image)
    assert "d.parquet" in octavo("load", store, tmp_path / "d.parquet", code=2).stderr


@pytest.mark.parametrize("ending", [".jsonl.gz", ".csv.gz", ".jsonl.zst", ".csv.zst"])
@pytest.mark.parametrize("how", ["cut", "flip", "plain"])
def test_a_damaged_compressed_file_is_refused(
    store: Path, tmp_path: Path, ending: str, how: str
) -> None:
    file = tmp_path / f"d{ending}"
    octavo("dump", store, "-o", file)
    image = bytearray(file.read_bytes())
    if how == "cut":
        del image[len(image) // 2 :]
    elif how == "flip":
        # zstd frames of pyarrow have no checksum: not every flip can be told.
        image[0 if ending.endswith(".zst") else len(image) // 2] ^= 0xFF
    else:
        image = bytearray(b'{"key": "a", "value": "b"}\n')
    file.write_bytes(image)
    found = octavo("load", tmp_path / "two", file, code=2)
    assert file.name in found.stderr


@pytest.mark.parametrize("ending", [".jsonl.gz", ".csv.gz"])
def test_what_stands_before_the_damage_is_loaded(store: Path, tmp_path: Path, ending: str) -> None:
    file, two = tmp_path / f"d{ending}", tmp_path / "two"
    octavo("dump", store, "-o", file)
    whole = gzip.decompress(file.read_bytes())
    lines = whole.count(b"\n") - ending.startswith(".csv")
    file.write_bytes(gzip.compress(whole)[:-8])  # its end is missing, and no line is
    found = document("load", two, file, "--skip-bad", "--json", code=1)
    assert found["loaded"] == lines
    assert [each["why"][:26] for each in found["rejected"]] == ["cannot be decompressed: Co"]
    assert file.name in found["rejected"][0]["where"]


@pytest.mark.parametrize(
    "line", ['"f": 1', "[1]", '[{"field": "f"}]', '[{"field": "f", "term": true}]']
)
def test_a_bad_index_in_a_json_line_is_named(store: Path, line: str) -> None:
    document = (
        f'{{"key": "a", "value": "b", "index": {line if line[0] == "[" else "{" + line + "}"}}}'
    )
    found = octavo("load", store, "-", "--format", "jsonl", stdin=document.encode(), code=2)
    assert "line 1: 'index'" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("dump", "STORE", "--format", "parquet"), "--output"),
        (("dump", "STORE", "-o", "d.parquet.gz"), "compressed by itself"),
        (("dump", "STORE", "-o", "d.parqet"), "'.parqet' is not the name of a format"),
        (("dump", "STORE", "-o", "d.tsv.gz"), "'.tsv' is not the name of a format"),
        (("dump", "STORE", "--columns", "key,price"), "price"),
        (("dump", "STORE", "--columns", "key,key"), "twice"),
        (("load", "STORE", "-", "--format", "parquet"), "from a file"),
        (("load", "STORE", "-", "-", "--format", "csv"), "once"),
        (("load", "STORE"), "SOURCES"),
    ],
)
def test_what_cannot_be_is_refused(store: Path, arguments: tuple[str, ...], said: str) -> None:
    words = [store if word == "STORE" else word for word in arguments]
    assert said in octavo(*words, code=2).stderr


def test_without_pyarrow_only_what_needs_it_is_refused(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.parquet").write_bytes(b"")
    pyarrow.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for arguments in (
        ("dump", store, "-o", tmp_path / "d.parquet"),
        ("dump", store, "-o", tmp_path / "d.csv.zst"),
        ("load", store, tmp_path / "t.parquet"),
    ):  # fmt: skip
        assert "pip install 'octavo[arrow]'" in octavo(*arguments, code=2).stderr
    octavo("dump", store, "-o", tmp_path / "d.csv.gz")
    octavo("load", tmp_path / "two", tmp_path / "d.csv.gz")


def test_objects_that_only_a_program_can_load_are_told_of(tmp_path: Path) -> None:
    with library.open(tmp_path / "s", tags={"person": library.Tag()}) as store:
        store.bucket("x", tag="person").put("k", "v")
        store.put("a", "b")
    found = octavo("dump", tmp_path / "s", "-o", tmp_path / "d.jsonl")
    assert "'person'" in found.stderr
    assert "1 key in" in found.stderr


def test_commands_about_all_keys_tell_of_the_objects_that_they_leave_out(tmp_path: Path) -> None:
    for name, value in (("s", "v"), ("t", "w")):
        with library.open(tmp_path / name, tags={"person": library.Tag()}) as store:
            store.bucket("x", tag="person").put("k", value)
            store.put("a", "b")
    for name in ("s", "t"):
        for command in (("buckets",), ("snapshot", "--fold", "digest")):
            found = octavo(command[0], tmp_path / name, *command[1:])
            assert "left out: objects of type 'person'; --tag person" in found.stderr, command
    library.open(tmp_path / "h", mode="head_only").close()
    assert not octavo("buckets", tmp_path / "h").stderr


def test_reading_commands_show_the_objects_of_a_type_by_its_name(tmp_path: Path) -> None:
    store, heads = tmp_path / "s", tmp_path / "h"
    kind = library.Tag(metadata=lambda key, value: b"m", index=lambda key, value: {"f": "t"})
    with library.open(store, tags={"person": kind}) as opened:
        opened.bucket("x", tag="person").put("k", "of a person")
        opened.bucket("x").put("k", "standard")
    tagged = ("--bucket", "x", "--tag", "person")
    assert output("get", store, "k", *tagged) == b"of a person"
    assert document("head", store, "k", "--json", *tagged)["metadata"] == "m"
    assert output("scan", store, *tagged) == b"k\tof a person\n"
    assert output("index", store, "f", *tagged) == b"t\tk\n"
    assert output("buckets", store, "--tag", "person") == b"x\n"
    assert output("snapshot", store, "--get", "k", *tagged) == b"of a person"
    assert output("snapshot", store, "--list", *tagged) == b"k\n"
    assert document("snapshot", store, "--json", "--tag", "person")["bytes"] == len("of a person")
    library.open(heads, mode="head_only").close()
    for command in (("get", "k"), ("head", "k"), ("scan",)):
        told = octavo(command[0], heads, *command[1:], "--tag", "person", code=2).stderr
        assert "--tag is for standard stores" in told
        told = octavo(command[0], store, *command[1:], "--tag", "another", code=2).stderr
        assert "known are: standard, person" in told


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_a_dump_of_one_type_loads_as_standard_objects(tmp_path: Path, ending: str) -> None:
    kind = library.Tag(metadata=lambda key, value: b"m", index=lambda key, value: {"f": 7})
    with library.open(tmp_path / "s", tags={"person": kind}) as opened:
        opened.bucket("x", tag="person").put("k", "v")
        opened.put("left", "out")
    file = tmp_path / f"d{ending}"
    assert "left out" not in octavo("dump", tmp_path / "s", "--tag", "person", "-o", file).stderr
    octavo("load", tmp_path / "t", file)
    with library.open(tmp_path / "t") as loaded:
        assert list(loaded.buckets()) == [b"x"]
        bucket = loaded.bucket("x")
        assert (dict(bucket.items()), bucket.head("k").metadata) == ({b"k": b"v"}, b"m")
        assert bucket.index_of("k") == {b"f": [7]}


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet", ".jsonl.gz"])
def test_a_value_too_large_for_a_dump_is_refused_by_name(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Before it is read, and nothing is left; whoever leaves it out gets the rest."""
    with library.open(store) as opened:
        opened.bucket("docs").put("b", b"x" * 5000)
    unraisable: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: unraisable.append(repr(it.object)))
    monkeypatch.setattr(cli_dump, "_MOST_BYTES", 4999)
    file = tmp_path / f"d{ending}"
    told = octavo("dump", store, "-o", file, code=2).stderr
    assert "the value of b'b' in bucket b'docs' has 5000 bytes" in told
    gc.collect()
    assert not [what for what in unraisable if "ParquetWriter" in what]
    assert os.listdir(tmp_path) == ["store"]
    octavo("dump", store, "-o", file, "--columns", "key,size")
    octavo("dump", store, "-o", file, "--end", "b")
    octavo("load", tmp_path / "two", file)
    assert output("get", tmp_path / "two", "a", "-b", "docs") == b"A"


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".jsonl.zst", ".csv.gz"])
def test_a_row_too_long_to_be_loaded_is_not_dumped_and_the_longest_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The longest one is of many blocks, and of many lines."""
    want = b"a\n\\" * 2_000_000
    with library.open(tmp_path / "one") as opened:
        opened.put("k", want)
    file = tmp_path / f"d{ending}"
    octavo("dump", tmp_path / "one", "-o", file)
    octavo("load", tmp_path / "two", file)
    with library.open(tmp_path / "two") as loaded:
        assert loaded["k"] == want
    raw = file.read_bytes()
    if ending.endswith((".gz", ".zst")):
        raw = (
            gzip.decompress(raw)
            if ending.endswith(".gz")
            else bytes(pyarrow().input_stream(file).read())
        )
    longest = max(map(len, raw.splitlines(keepends=True)))
    file.unlink()
    monkeypatch.setattr(cli_dump, "LONGEST_LINE", longest - 1)
    told = octavo("dump", tmp_path / "one", "-o", file, code=2).stderr
    assert f"the row of b'k' in bucket b'' would have {longest} bytes" in told
    assert not file.exists()
    monkeypatch.setattr(cli_dump, "LONGEST_LINE", longest)
    monkeypatch.setattr(cli_source, "LONGEST_LINE", longest)
    octavo("dump", tmp_path / "one", "-o", file)
    octavo("load", tmp_path / "three", file)
    monkeypatch.setattr(cli_source, "LONGEST_LINE", longest - 1)
    assert "without an end" in octavo("load", tmp_path / "three", file, code=2).stderr


def test_the_name_of_a_dump_is_durable_as_the_command_ends(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    file = tmp_path / "d.jsonl"
    real = RealDisk.sync_dir

    def sync_dir(disk: RealDisk, path: str) -> None:
        real(disk, path)
        synced.append((path, file.exists()))

    monkeypatch.setattr(RealDisk, "sync_dir", sync_dir)
    octavo("dump", store, "-o", file)
    assert (str(tmp_path), True) in synced


def test_a_dump_goes_into_a_pipe_by_its_path(store: Path) -> None:
    hear, tell = os.pipe()
    with open(hear, "rb") as heard:
        octavo("dump", store, "--format", "jsonl", "-o", f"/dev/fd/{tell}")  # as a shell's >(...)
        os.close(tell)
        assert heard.read() == output("dump", store)


def test_dumps_of_two_processes_of_one_number_keep_apart(store: Path, tmp_path: Path) -> None:
    """As in two containers that share a volume, where each has the number 1."""
    target = tmp_path / "d.jsonl"
    with cli_output.whole_file(str(target)) as other:
        other.write(b"other")
        octavo("dump", store, "-o", target)
        assert target.read_bytes() == output("dump", store)
    assert target.read_bytes() == b"other"
    assert list(tmp_path.glob("d.jsonl?*")) == []


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS])
def test_where_no_file_can_be_made_the_name_of_the_dump_is_told(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """As in a directory of another user, and on a read-only mount, where nothing is removed."""

    def refused(path: str, *_: object) -> None:
        raise OSError(error, os.strerror(error), path)

    monkeypatch.setattr(cli_output, "open", refused, raising=False)
    monkeypatch.setattr(os, "unlink", refused)
    told = octavo("dump", store, "-o", tmp_path / "d.jsonl", code=2).stderr
    assert f"FILE='{tmp_path / 'd.jsonl'}' cannot be made: {os.strerror(error)}; name one" in told


def test_a_csv_dump_of_some_columns_is_loaded_as_it_was(store: Path, tmp_path: Path) -> None:
    with library.open(store) as opened:
        opened.put(b"\xff\n\\", b"\x00\\n\n")
        wanted = dict(opened.items())
    octavo("dump", store, "-o", tmp_path / "d.csv", "--columns", "value,key,bucket")
    octavo("load", tmp_path / "copy", tmp_path / "d.csv")
    with library.open(tmp_path / "copy") as copy:
        assert dict(copy.items()) == wanted
        assert dict(copy.bucket("docs").items()) == {b"a": b"A"}


def test_of_a_csv_of_keys_and_values_alone_it_is_not_guessed_who_wrote_it(tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    file.write_text("key,value\na,C:\\new\n")
    told = octavo("load", tmp_path / "s", file, code=2).stderr
    assert "--key-field key --value-field value takes cells as they are" in told
    octavo("load", tmp_path / "s", file, "--key-field", "key", "--value-field", "value")
    assert output("get", tmp_path / "s", "a") == b"C:\\new"
