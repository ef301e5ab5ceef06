"""Entries of a head-only store on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import document, documents, octavo, output

import octavo as library


@pytest.fixture
def heads(tmp_path: Path) -> Path:
    with library.open(tmp_path / "h", mode="head_only", worker=False) as store:
        bucket = store.head_bucket("b")
        bucket.put("k", "1", sub_key="size")
        bucket.put("k", "2", sub_key=b"\xff")
        bucket.put("m", b"plain\n")
        store.head_bucket("").put("d", "default", expires_at=4_000_000_000_000)
    return tmp_path / "h"


def test_an_entry_is_printed_by_its_key_and_sub_key(heads: Path) -> None:
    assert output("get", heads, "-b", "b", "k", "--sub-key", "size") == b"1"
    assert output("get", heads, "-b", "b", "--hex-key", "6b", "--sub-key", "ff", "--hex") == b"32\n"
    assert output("get", heads, "-b", "b", "m") == b"plain\n"
    assert output("get", heads, "d") == b"default"


def test_an_entry_that_is_not_there_is_named_with_its_sub_key(heads: Path) -> None:
    for command in ("get", "head"):
        found = octavo(command, heads, "-b", "b", "k", "--sub-key", "none", code=1)
        assert "no key k, sub-key none" in found.stderr
        assert "no key k\n" in octavo(command, heads, "-b", "b", "k", code=1).stderr


def test_the_head_of_an_entry(heads: Path) -> None:
    found = document("head", heads, "-b", "b", "k", "--sub-key", "size", "--json")
    assert (found["key"], found["sub_key"], found["sqn"], found["size"]) == ("k", "size", 1, 1)
    found = document("head", heads, "d", "--json")
    assert "sub_key" not in found
    assert found["expires_at"] == 4_000_000_000_000


def test_entries_are_listed_with_their_sub_keys(heads: Path) -> None:
    lines = [b"k\tsize\t1", b"k\t\\xff\t2", b"m\t\tplain\\n"]
    assert output("scan", heads, "-b", "b").splitlines() == lines
    assert output("scan", heads, "-b", "b", "--reverse").splitlines() == lines[::-1]
    assert output("scan", heads, "-b", "b", "--end", "m").splitlines() == lines[:2]
    assert output("scan", heads, "-b", "b", "--prefix", "m", "--limit", "5") == lines[2] + b"\n"
    assert output("scan", heads, "-b", "b", "--limit", "1", "--keys-only") == b"k\tsize\n"
    assert documents("scan", heads, "--json") == [{"key": "d", "sub_key": "", "value": "default"}]


def test_changes_are_told_with_their_sub_keys(heads: Path) -> None:
    lines = [line.split(b"\t")[:4] for line in output("changes", heads).splitlines()]
    assert lines == [
        [b"1", b"put", b"b", b"k / size"],
        [b"2", b"put", b"b", b"k / \\xff"],
        [b"3", b"put", b"b", b"m"],
        [b"4", b"put", b"", b"d"],
    ]


def test_a_limit_that_cuts_a_list_of_entries_says_so(heads: Path) -> None:
    assert "more follow; --start" in octavo("scan", heads, "-b", "b", "--limit", "1").stderr
    cut = octavo("scan", heads, "-b", "b", "--limit", "1", "--reverse").stderr
    assert "more follow" in cut
    assert octavo("scan", heads, "-b", "b", "--limit", "3").stderr == ""


@pytest.mark.parametrize("option", ["--match", "--since", "--before", "--resume"])
def test_what_is_not_done_for_entries_is_refused(heads: Path, option: str) -> None:
    found = octavo("scan", heads, "-b", "b", option, "2026-11-21", code=2)
    assert f"{option} is for standard stores" in found.stderr


def test_a_sub_key_is_of_a_head_only_store(tmp_path: Path) -> None:
    library.open(tmp_path / "s", worker=False).close()
    for command in ("get", "head"):
        found = octavo(command, tmp_path / "s", "k", "--sub-key", "s", code=2)
        assert "--sub-key is for head-only stores" in found.stderr


def test_a_store_that_is_open_elsewhere_is_read_as_it_is(heads: Path) -> None:
    with library.open(heads, worker=False) as store:
        store.head_bucket("").put("d", "newer")
        assert output("get", heads, "d") == b"newer"
        assert output("scan", heads) == b"d\t\tnewer\n"


@pytest.mark.parametrize(
    "command",
    [("put", "k", "v"), ("del", "k"), ("index", "f"), ("dump",), ("snapshot",),
     ("load", "--format", "jsonl", "-")],
    ids=lambda command: command[0],
)  # fmt: skip
def test_what_is_not_for_a_head_only_store_says_what_is(
    heads: Path, command: tuple[str, ...]
) -> None:
    name, *rest = command
    found = octavo(name, heads, *rest, stdin=b'{"key": "k", "value": "v"}', code=2)
    assert "`get`, `head`, `scan` and `changes` read it" in found.stderr
    assert "head_batch" not in found.stderr
    assert "use trim" in octavo("compact", heads, code=2).stderr


def test_a_dump_of_a_head_only_store_is_refused_before_anything_is_printed(tmp_path: Path) -> None:
    library.open(tmp_path / "h", mode="head_only", worker=False).close()
    for kind in ("csv", "jsonl"):
        found = octavo("dump", tmp_path / "h", "--format", kind, code=2)
        assert "`get`, `head`, `scan` and `changes` read it" in found.stderr
        assert not found.stdout
