"""The command line: load and dump."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runs import document, documents, octavo, output, process

import octavo as library
from octavo import arguments
from octavo.cli import source as cli_source


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "top.txt").write_bytes(b"top")
    (root / "empty").write_bytes(b"")
    (root / "sub" / "binary").write_bytes(bytes(range(256)))
    (root / "sub" / "deep" / "big").write_bytes(b"big " * 1_000_000)
    return root


def held(store: Path, bucket: bytes = b"") -> dict[bytes, bytes]:
    with library.open(store, create=False) as opened:
        return dict(opened.bucket(bucket).items())


# ---------------------------------------------------------------- a directory


def test_files_become_values_under_their_relative_paths(store: Path, tree: Path) -> None:
    found = document("load", store, tree, "--json")
    assert held(store) == {
        b"top.txt": b"top",
        b"empty": b"",
        b"sub/binary": bytes(range(256)),
        b"sub/deep/big": b"big " * 1_000_000,
    }
    assert (found["loaded"], found["rejected"], found["skipped"]) == (4, [], {})


def test_a_loaded_directory_is_summed_up_for_a_person(store: Path, tree: Path) -> None:
    assert octavo("load", store, tree).stdout.startswith("4 values, 4 MB in ")


def test_links_are_not_followed_and_pipes_are_not_waited_for(store: Path, tree: Path) -> None:
    (tree / "to a file").symlink_to(tree / "top.txt")
    (tree / "to a directory").symlink_to(tree / "sub")
    (tree / "to nothing").symlink_to("/nonexistent")
    os.mkfifo(tree / "fifo")
    found = document("load", store, tree, "--json")
    assert found["skipped"] == {"symbolic links": 3, "special files": 1}
    assert len(held(store)) == 4


def test_a_file_that_cannot_be_read_is_reported_and_the_rest_loaded(
    store: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refusing(path: Any, *more: Any, **others: Any) -> int:
        if os.fsencode(path).endswith(b"sub/binary"):
            raise PermissionError(13, "Permission denied")
        return real(path, *more, **others)

    monkeypatch.setattr(cli_source.os, "open", refusing)
    found = octavo("load", store, tree, "--json", code=1)
    monkeypatch.undo()
    assert "sub/binary: Permission denied" in found.stderr
    assert [each["why"] for each in json.loads(found.stdout)["rejected"]] == ["Permission denied"]
    assert sorted(held(store)) == [b"empty", b"sub/deep/big", b"top.txt"]


def test_a_file_that_is_larger_than_a_value_is_reported_and_not_read(
    store: Path, tree: Path
) -> None:
    with open(tree / "sparse", "wb") as file:
        file.truncate(1 << 42)
    found = json.loads(octavo("load", store, tree, "--json", code=1).stdout)
    assert found["loaded"] == 4
    assert [each["why"] for each in found["rejected"]] == [
        f"{1 << 42} bytes: at most {arguments.MAX_VALUE_BYTES} are allowed"
    ]


def test_a_file_that_became_a_pipe_meanwhile_is_reported(
    store: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def swapping(path: Any, *more: Any, **others: Any) -> int:
        if os.fsencode(path).endswith(b"top.txt"):
            os.unlink(path)
            os.mkfifo(path)
        return real(path, *more, **others)

    monkeypatch.setattr(cli_source.os, "open", swapping)
    octavo("load", store, tree, code=1)
    monkeypatch.undo()
    assert b"top.txt" not in held(store)


def test_file_names_need_not_be_utf8(store: Path, tmp_path: Path) -> None:
    root = os.fsencode(tmp_path / "odd")
    os.mkdir(root)
    with open(os.path.join(root, b"\xff\n name"), "wb") as file:
        file.write(b"value")
    octavo("load", store, tmp_path / "odd")
    assert held(store) == {b"\xff\n name": b"value"}


def test_a_store_below_the_directory_is_left_out(tree: Path) -> None:
    store = tree / "store"
    octavo("put", store, "key", "value")
    assert document("load", store, tree, "--json")["skipped"] == {"the store itself": 1}
    assert not any(key.startswith(b"store/") for key in held(store))


def test_exclude_leaves_out_names_and_paths(store: Path, tree: Path) -> None:
    octavo("load", store, tree, "--exclude", "*.txt", "--exclude", "sub/deep")
    assert sorted(held(store)) == [b"empty", b"sub/binary"]


def test_an_empty_directory_is_loaded(store: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    assert document("load", store, tmp_path / "nothing", "--json")["loaded"] == 0


def test_loading_again_replaces_the_values(store: Path, tree: Path) -> None:
    octavo("load", store, tree)
    (tree / "top.txt").write_bytes(b"changed")
    octavo("load", store, tree, "--batch", 1)
    assert held(store)[b"top.txt"] == b"changed"
    assert len(held(store)) == 4


# ---------------------------------------------------------------- CSV


def test_a_csv_row_is_a_json_object_under_its_first_column(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text('\ufeffid,name\n1,Ann\n2,"two\nlines, é"\n')
    octavo("load", store, file)
    found = held(store)
    assert sorted(found) == [b"1", b"2"]
    assert json.loads(found[b"2"]) == {"id": "2", "name": "two\nlines, é"}


def test_columns_can_be_chosen_and_tabs_be_between(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.tsv"
    file.write_text("a\tb\tc\n1\t2\t3\n4\t5\t6\n")
    octavo("load", store, file, "--key-field", "c", "--value-field", "a", "--bucket", "numbers")
    assert held(store, b"numbers") == {b"3": b"1", b"6": b"4"}


def test_a_table_with_a_column_that_no_dump_has_is_taken_as_it_is(store: Path) -> None:
    lines = b"key,value,colour\na\\x41,1,red\n"
    octavo("load", store, "-", "--format", "csv", stdin=lines)
    assert held(store) == {b"a\\x41": b'{"key": "a\\\\x41", "value": "1", "colour": "red"}'}


def test_csv_comes_from_standard_input_too(store: Path) -> None:
    octavo("load", store, "-", "--format", "csv", "--delimiter", ";", stdin=b"k;v\na;1\n")
    assert list(held(store)) == [b"a"]


def test_a_column_may_have_a_delimiter_in_its_name(store: Path) -> None:
    options = ("--format", "csv", "--key-field", "k;v")
    octavo("load", store, "-", *options, stdin=b"k;v\na;1\n")
    assert held(store) == {b"a;1": b'{"k;v": "a;1"}'}


BAD_CSV = [
    (b"k,v\na,1\nb\n", "line 3: 1 columns; the header has 2"),
    (b"k,v\na,1\n\xff,2\n", "line 3: is not UTF-8"),
    (b"k,k\na,1\n", "line 1: two columns have one name"),
    (b'k,v\na,1\n"open,2\n', "line 3: "),
    (b'k,v\na,1\nb,"open\nc,3\n', "line 3: unexpected end"),
    (b'k,v\na,1\nb,"2"3\n', "line 3: ',' expected"),
    (b"k,v\na,1\n,2\n", "line 3: key is empty"),
    (b"k;v\na;1\n", "line 1: the header is one column, 'k;v'; name it with --key-field, or"),
]


@pytest.mark.parametrize(("raw", "told"), BAD_CSV)
def test_a_bad_csv_line_is_named_and_ends_it_with_2(store: Path, raw: bytes, told: str) -> None:
    found = octavo("load", store, "-", "--format", "csv", stdin=raw, code=2)
    assert told in found.stderr


def test_an_unknown_column_is_named(store: Path) -> None:
    options = ("--format", "csv", "--key-field", "x")
    told = octavo("load", store, "-", *options, stdin=b"a,b\n1,2\n", code=2).stderr
    assert "no column 'x'; there are a, b" in told


def test_a_file_that_cannot_be_read_to_its_end_is_not_taken_for_a_damaged_one() -> None:
    class Failing(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"):
        list(cli_source.Jsonl("x.jsonl", Failing()))


def test_with_skip_bad_the_rest_is_loaded(store: Path) -> None:
    lines = b"k,v\n" + b"".join(b"%d,%d\n" % (n, n) if n % 2 else b"%d\n" % n for n in range(100))
    options = ("--format", "csv", "--skip-bad", "--json")
    found = octavo("load", store, "-", *options, stdin=lines, code=1)
    told = json.loads(found.stdout)
    assert (told["loaded"], len(told["rejected"])) == (50, 50)
    assert len(found.stderr.splitlines()) == 21  # twenty lines, and how many more there are
    assert len(held(store)) == 50


# ---------------------------------------------------------------- JSONL


def test_a_json_line_is_the_value_under_its_key_field(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'{"id": 7, "name": "Ann"}\n\n  {"id": "x", "tags": [1, 2]}  \n')
    octavo("load", store, file, "--key-field", "id")
    assert held(store) == {b"7": b'{"id": 7, "name": "Ann"}', b"x": b'{"id": "x", "tags": [1, 2]}'}


def test_a_mark_of_utf8_before_the_first_json_line_is_no_part_of_a_value(store: Path) -> None:
    lines = b'\xef\xbb\xbf{"id": "a"}\n{"id": "b"}\n'
    octavo("load", store, "-", "--format", "jsonl", "--key-field", "id", stdin=lines)
    assert held(store) == {b"a": b'{"id": "a"}', b"b": b'{"id": "b"}'}


def test_a_json_field_can_be_the_value(store: Path) -> None:
    lines = b'{"id": "a", "v": "text"}\n{"id": "b", "v": {"n": 1}}\n{"id": "c", "v": null}\n'
    options = ("--format", "jsonl", "--key-field", "id", "--value-field", "v")
    octavo("load", store, "-", *options, stdin=lines)
    assert held(store) == {b"a": b"text", b"b": b'{"n": 1}', b"c": b"null"}


BAD_JSON = [
    (b"not json", "is not JSON"),
    (b"[1]", "allowed is an object"),
    (b'{"k": "a"}', "--key-field"),
    (b'{"key": "a", "key64": "YQ==", "value": ""}', "allowed is one of them"),
    (b'{"key64": "?", "value": ""}', "allowed is base64"),
    (b'{"key": 1, "value": ""}', "allowed is a string"),
    (b'{"key": "", "value": ""}', "key is empty"),
    (b'{"key": "a", "value": "", "expires_at": "soon"}', "'expires_at'"),
    (b'{"key": "a", "value": "", "expires_at": -1}', "expires_at"),
    (b'{"key": "a", "value": "", "expires_at": true}', "'expires_at' is True"),
    (b'{"key": "\\ud800", "value": ""}', "surrogate"),
    (b"\xff", "is not JSON"),
    (b"[" * 100_000, "is not JSON"),
]


@pytest.mark.parametrize(("raw", "told"), BAD_JSON, ids=[repr(raw[:30]) for raw, _ in BAD_JSON])
def test_a_bad_json_line_is_named_and_ends_it_with_2(store: Path, raw: bytes, told: str) -> None:
    lines = b'{"key": "first", "value": "1"}\n' + raw + b"\n"
    found = octavo("load", store, "-", "--format", "jsonl", stdin=lines, code=2)
    assert "standard input, line 2: " in found.stderr
    assert told in found.stderr
    assert held(store) == {b"first": b"1"}


@pytest.mark.parametrize("key", [b"true", b"null", b"[1]", b'{"a": 1}', b'"\\ud800"'])
def test_what_a_json_field_holds_that_is_no_key_is_named(store: Path, key: bytes) -> None:
    options = ("--format", "jsonl", "--key-field", "id")
    lines = b'{"id": 1}\n{"id": ' + key + b"}\n"
    told = octavo("load", store, "-", *options, stdin=lines, code=2).stderr
    assert "line 2: the key is" in told or "line 2: holds half of a surrogate pair" in told
    assert held(store) == {b"1": b'{"id": 1}'}


def test_a_later_value_of_a_key_wins_whatever_it_carries(store: Path) -> None:
    lines = [
        {"key": "a", "value": "1"},
        {"key": "a", "value": "2", "metadata": "m"},
        {"key": "a", "value": "3"},
        {"key": "b", "value": "1", "metadata": "m"},
        {"key": "b", "value": "2", "bucket": "x"},
        {"key": "b", "value": "3"},
    ]
    raw = "\n".join(map(json.dumps, lines)).encode()
    octavo("load", store, "-", "--format", "jsonl", stdin=raw)
    assert held(store) == {b"a": b"3", b"b": b"3"}
    assert held(store, b"x") == {b"b": b"2"}


# ---------------------------------------------------------------- usage


@pytest.mark.parametrize(
    "arguments",
    [
        ("/nonexistent.csv",),
        ("/nonexistent",),
        (__file__,),
        ("-",),
        (".", "--format", "csv"),
        (__file__, "--format", "directory"),
        (".", "--key-field", "x"),
        ("-", "--format", "jsonl", "--value-field", "x"),
        ("-", "--format", "jsonl", "--delimiter", ","),
        ("-", "--format", "csv", "--delimiter", ",,"),
        ("-", "--format", "csv", "--exclude", "x"),
        (".", "--batch", "0"),
    ],
    ids=" ".join,
)
def test_a_wrong_load_ends_with_2(store: Path, arguments: tuple[str, ...]) -> None:
    found = octavo("load", store, *arguments, code=2)
    assert found.stdout == ""


# ---------------------------------------------------------------- dump


def filled(path: Path, seed: int) -> None:
    """A store with all that a dump has to carry: bytes, buckets, metadata, expiry, deletes."""
    chance = random.Random(seed)
    soon = int(time.time() * 1000) + 3_600_000
    with library.open(path) as opened:
        for _ in range(500):
            name = chance.choice([b"", b"docs", b"\xff\x00", "é".encode()])
            bucket = opened.bucket(name)
            key = chance.randbytes(chance.randrange(1, 4))
            if chance.random() < 0.2:
                bucket.delete(key)
            else:
                bucket.put(
                    key,
                    chance.choice([b"", b"text", chance.randbytes(300), "\u2028é\n".encode()]),
                    metadata=chance.choice([b"", b"", b"m", b"\xff"]),
                    expires_at=chance.choice([None, None, soon + chance.randrange(1000)]),
                )


def digest(path: Path) -> str:
    found: str = document("snapshot", path, "--fold", "digest", "--json")["digest"]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_load_reads_a_dump_back_to_the_same_state(tmp_path: Path, seed: int) -> None:
    filled(tmp_path / "one", seed)
    lines = output("dump", tmp_path / "one")
    octavo("load", tmp_path / "two", "-", "--format", "jsonl", stdin=lines)
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
    again = [_without_moment(line) for line in output("dump", tmp_path / "two").splitlines()]
    assert again == [_without_moment(line) for line in lines.splitlines()]


def _without_moment(line: bytes) -> dict[str, Any]:
    return {k: v for k, v in json.loads(line).items() if k not in ("sqn", "written_at")}


def test_a_dump_is_in_order_and_readable(store: Path) -> None:
    octavo("put", store, "b", "text")
    octavo("put", store, "--hex-key", "ff", "--hex", "fe", "--bucket", "x", "--metadata", "m")
    octavo("put", store, "a", "é")
    found = documents("dump", store)
    assert [(d.get("bucket"), d.get("key")) for d in found] == [
        (None, "a"), (None, "b"), ("x", None),
    ]  # fmt: skip
    assert found[0]["value"] == "é"
    assert base64.b64decode(found[2]["key64"]) == b"\xff"
    assert base64.b64decode(found[2]["value64"]) == b"\xfe"
    assert found[2]["metadata"] == "m"
    assert documents("dump", store, "--bucket", "x") == found[2:]


def test_a_dump_appears_under_its_name_only_when_it_is_whole(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "dump.jsonl"
    target.write_text("what was there")
    octavo("put", store, "key", "value")
    broken: Callable[..., Any] = lambda *_: 1 / 0  # noqa: E731
    monkeypatch.setattr("octavo.cli.dump.put_field", broken)
    with pytest.raises(ZeroDivisionError):
        octavo("dump", store, "--output", target)
    monkeypatch.undo()
    assert target.read_text() == "what was there"
    assert sorted(os.listdir(tmp_path)) == ["dump.jsonl", "store"]
    octavo("dump", store, "--output", target)
    assert json.loads(target.read_text())["value"] == "value"


def test_a_dump_to_a_device_does_not_replace_it(store: Path) -> None:
    octavo("put", store, "key", "value")
    octavo("dump", store, "--output", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_a_store_can_be_piped_into_another(tmp_path: Path) -> None:
    filled(tmp_path / "one", 9)
    lines = process("dump", tmp_path / "one").stdout
    done = process("load", tmp_path / "two", "-", "--format", "jsonl", stdin=lines)
    assert done.returncode == 0
    assert digest(tmp_path / "one") == digest(tmp_path / "two")
