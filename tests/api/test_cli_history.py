"""The command line: changes, snapshot, stats, verify."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest
from cli_runs import document, documents, octavo, output

import octavo as library
from octavo.actors.reader import Reader
from octavo.cli.output import Output


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Puts and a delete in two buckets, two of them in one batch."""
    path = tmp_path / "store"
    with library.open(path) as opened:
        opened.put(b"json/a", b"12345", metadata=b"m")
        opened.put(b"json/b", b"123")
        opened.put(b"top", b"1")
        with opened.batch() as batch:
            batch.put("docs", "\t", b"\xff")
            batch.delete("", "top")
    return path


# ---------------------------------------------------------------- changes


def test_changes_are_the_journal_in_order(store: Path) -> None:
    rows = [line.split("\t") for line in octavo("changes", store).stdout.splitlines()]
    assert [row[1:5] for row in rows] == [
        ["put", "", "json/a", "5"],
        ["put", "", "json/b", "3"],
        ["put", "", "top", "1"],
        ["put", "docs", "\\t", "1"],
        ["delete", "", "top", "-"],
    ]
    numbers = [int(row[0]) for row in rows]
    assert numbers == sorted(set(numbers))
    assert all(row[5].endswith("Z") for row in rows)


def test_changes_that_were_compacted_are_told_with_what_to_do(store: Path) -> None:
    octavo("compact", store)
    told = octavo("changes", store, code=1)
    assert "the journal is complete only above sqn" in told.stderr
    assert "--compacted" in told.stderr
    assert octavo("changes", store, "--compacted").stdout


def test_changes_since_is_exclusive_and_limit_bounds_them(store: Path) -> None:
    numbers = [each["sqn"] for each in documents("changes", store, "--json")]
    later = documents("changes", store, "--json", "--since", numbers[1])
    assert [each["sqn"] for each in later] == numbers[2:]
    first = documents("changes", store, "--json", "--since", numbers[1], "--limit", 1)
    assert [each["sqn"] for each in first] == numbers[2:3]
    assert documents("changes", store, "--json", "--since", numbers[-1]) == []


def test_changes_in_json_hold_everything(store: Path) -> None:
    found = documents("changes", store, "--json")
    assert found[0]["value"] == "12345"
    assert found[0]["metadata"] == "m"
    assert "batch" not in found[0]
    assert found[3]["value64"] == "/w=="
    assert found[3]["batch"] == {"position": 0, "length": 2}
    assert found[4]["kind"] == "delete"
    assert "value" not in found[4]
    assert "value" not in documents("changes", store, "--json", "--keys-only")[0]


# ---------------------------------------------------------------- snapshot


def test_a_snapshot_folds_all_buckets(store: Path) -> None:
    found = document("snapshot", store, "--json")
    assert (found["keys"], found["bytes"]) == (3, 9)
    assert found["groups"] == [
        {"bucket": "", "keys": 2, "bytes": 8},
        {"bucket": "docs", "keys": 1, "bytes": 1},
    ]
    last = documents("changes", store, "--json")[-1]["sqn"]
    assert found["sqn"] == last
    assert f"snapshot at sqn {last}" in octavo("snapshot", store).stdout


def test_a_snapshot_folds_by_the_parts_of_keys(store: Path) -> None:
    found = document("snapshot", store, "--depth", 1, "--json", "--bucket", "")
    assert found["groups"] == [{"bucket": "", "begins": "json", "keys": 2, "bytes": 8}]
    found = document("snapshot", store, "--depth", 2, "--json", "--bucket", "")
    assert [group["begins"] for group in found["groups"]] == ["json/a", "json/b"]
    assert "json/b" in octavo("snapshot", store, "--depth", 2).stdout


def test_a_snapshot_counts_without_sizes(store: Path) -> None:
    found = document("snapshot", store, "--fold", "count", "--prefix", "json/", "-b", "", "--json")
    assert found["keys"] == 2
    assert "bytes" not in found
    last = octavo("snapshot", store, "--fold", "count").stdout.splitlines()[-1]
    assert last.split() == ["all", "3"]


def test_the_digest_tells_different_states_apart(store: Path) -> None:
    def digest() -> str:
        found: str = document("snapshot", store, "--fold", "digest", "--json")["digest"]
        return found

    before = digest()
    assert digest() == before
    octavo("put", store, "json/a", "12345")  # without its metadata
    after = digest()
    assert after != before
    octavo("put", store, "json/a", "12345", "--metadata", "m")
    assert digest() == before
    assert f"digest {before}" in octavo("snapshot", store, "--fold", "digest").stdout


@pytest.mark.parametrize("fold", ["count", "bytes", "digest"])
@pytest.mark.parametrize("words", [[], ["--prefix", "k/"]], ids=str)
def test_all_buckets_are_one_pass_of_a_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fold: str, words: list[str]
) -> None:
    with library.open(tmp_path / "s") as store:
        for at in range(20):
            store.bucket(f"{at:03}").put("k/1", "of")
    scans = mock.Mock(side_effect=AssertionError("a scan of one bucket"))
    monkeypatch.setattr(Reader, "windows", scans)
    found = document("snapshot", tmp_path / "s", "--depth", 1, "--fold", fold, "--json", *words)
    assert found["keys"] == len(found["groups"]) == 20
    assert found["groups"][7] == {
        "bucket": "007", "begins": "k", "keys": 1, **({"bytes": 2} if fold != "count" else {})
    }  # fmt: skip


def test_lines_of_a_fold_are_made_one_at_a_time(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    monkeypatch.setattr(Output, "columns", lambda out, rows, right: given.append(rows))
    octavo("snapshot", store)
    (rows,) = given
    assert callable(rows)
    assert list(rows()) == list(rows()) == [
        ("bucket", "keys", "bytes"), ("(default)", "2", "8 B"), ("docs", "1", "1 B"),
        ("all", "3", "9 B"),
    ]  # fmt: skip


def test_a_snapshot_lists_and_reads(store: Path) -> None:
    assert output("snapshot", store, "--list") == b"json/a\njson/b\n"
    assert output("snapshot", store, "--list", "--prefix", "json/b") == b"json/b\n"
    assert documents("snapshot", store, "--list", "--json") == [
        {"key": "json/a"},
        {"key": "json/b"},
    ]
    assert output("snapshot", store, "--get", "json/b") == b"123"
    assert "snapshot at sqn" in octavo("snapshot", store, "--get", "json/b").stderr
    octavo("snapshot", store, "--get", "top", code=1)


@pytest.mark.parametrize(
    "words",
    [
        "--get json/a --list",
        "--list --depth 1",
        "--get json/a --fold bytes",
        "--get j --prefix j",
        "--hex",
        "--fold digest --text",
    ],
)
def test_a_snapshot_refuses_what_it_would_pass_over(store: Path, words: str) -> None:
    assert octavo("snapshot", store, *words.split(), code=2).stdout == ""


def test_an_empty_store_has_a_snapshot(tmp_path: Path) -> None:
    with library.open(tmp_path / "empty"):
        pass
    assert document("snapshot", tmp_path / "empty", "--json")["keys"] == 0
    octavo("snapshot", tmp_path / "empty")


# ---------------------------------------------------------------- stats and verify


def test_stats_are_for_a_person_and_for_a_program(store: Path) -> None:
    found = document("stats", store, "--json")
    assert found["last_sqn"] > 0
    assert found["journal"]["files"] >= 1
    assert "journal.files" in octavo("stats", store).stdout


def test_verify_of_a_whole_store_ends_with_0(store: Path) -> None:
    found = document("verify", store, "--json")
    assert found["ok"]
    assert found["problems"] == []
    assert (found["records"], found["keys"]) == (5, 3)
    assert octavo("verify", store).stdout.startswith("ok: ")


# ---------------------------------------------------------------- diff


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two stores: a key of each, one that differs, many that do not."""
    paths = tmp_path / "a", tmp_path / "b"
    for path in paths:
        with library.open(path) as store:
            store.put_many((b"same%d" % at, b"v") for at in range(500))
            store.bucket("docs").put("other", b"1" if path.name == "a" else b"22")
            store.put(f"only in {path.name}", b"v")
    return paths


def test_diff_prints_what_only_one_has_and_what_differs(two: tuple[Path, Path]) -> None:
    found = octavo("diff", *two, "--by", "head", code=1)
    lines = [line.split("\t")[:3] for line in found.stdout.splitlines()]
    assert lines == [["-", "", "only in a"], ["+", "", "only in b"], ["~", "docs", "other"]]
    assert "differ in 3 keys" in found.stderr
    assert octavo("diff", *two, "--by", "value", "-b", "docs", code=1).stdout[:2] == "~\t"
    assert "differ in 1 key or more" in octavo("diff", *two, "--limit", "1", code=1).stderr


def test_diff_of_stores_that_were_made_apart_compares_values(tmp_path: Path) -> None:
    for name in ("a", "b"):
        octavo("put", tmp_path / name, "k", name)
    found = octavo("diff", tmp_path / "a", tmp_path / "b", code=1)
    assert found.stdout[:2] == "~\t"
    assert "not copies of one store" in found.stderr
    octavo("backup", tmp_path / "a", tmp_path / "c")
    assert octavo("diff", tmp_path / "a", tmp_path / "c").stderr == ""


def test_diff_of_a_store_and_its_backup_says_why_it_compares_values(tmp_path: Path) -> None:
    with library.open(tmp_path / "a") as store:
        store.put("gone", "v")
        store.delete("gone")
        store.backup(tmp_path / "b")
        store.put("k", "v")
        store.compact()
        assert [change.sqn for change in store.changes(compacted=True)] == [3]
    found = octavo("diff", tmp_path / "a", tmp_path / "b", code=1)
    assert found.stdout.startswith("-\t\tk\t3 1 ")
    assert "or compaction took the record that tells: all values are compared" in found.stderr


def test_diff_reads_a_store_that_is_open(two: tuple[Path, Path]) -> None:
    with library.open(two[0]) as store:
        store.delete("only in a")
        found = octavo("diff", *two, "--by", "head", code=1)
    assert [line.split("\t")[0] for line in found.stdout.splitlines()] == ["+", "~"]


def test_diff_as_json_holds_the_heads(two: tuple[Path, Path]) -> None:
    lines = octavo("diff", *two, "--by", "head", "--json", code=1).stdout.splitlines()
    last = json.loads(lines[2])
    assert (last["bucket"], last["key"]) == ("docs", "other")
    assert (last["a"]["size"], last["b"]["size"]) == (1, 2)
    assert json.loads(lines[0])["b"] is None


def test_diff_of_stores_that_hold_the_same_ends_with_0(two: tuple[Path, Path]) -> None:
    with library.open(two[1]) as store:
        store.bucket("docs").put("other", b"1")
        store.delete("only in b")
        store.put("only in a", b"v")
    assert octavo("diff", *two, "--by", "value").stdout == ""


def test_in_json_a_term_of_bytes_is_told_from_a_str(tmp_path: Path) -> None:
    with library.open(tmp_path / "s") as store:
        store.put("k", "v", index={"f": [b"a", "a", 7, b"\xff"]})
    found = documents("index", tmp_path / "s", "f", "--json")
    assert found == [
        {"key": "k", "term": 7},
        {"key": "k", "term64": "YQ=="},
        {"key": "k", "term64": "/w=="},
        {"key": "k", "term": "a"},
    ]


def test_a_term_that_is_given_whole_has_no_order(tmp_path: Path) -> None:
    octavo("put", tmp_path / "s", "k", "v", "--index", "f=a")
    octavo("index", tmp_path / "s", "f", "--term", "a", "--reverse", code=2)


def test_seconds_since_1970_are_no_moment(tmp_path: Path) -> None:
    octavo("put", tmp_path / "s", "k", "v")
    told = octavo("scan", tmp_path / "s", "--since", "1795340754", code=2).stderr
    assert "--since=1795340754" in told
    assert "looks like seconds" in told


def test_changes_in_json_say_all_that_a_change_says(tmp_path: Path) -> None:
    with library.open(tmp_path / "h", mode="head_only") as store:
        store.head_bucket("b").put("k", "1", sub_key="size")
        store.head_bucket("b").put("k", "2", sub_key=b"\xff")
    found = documents("changes", tmp_path / "h", "--json")
    assert [each["sub_key"] for each in found if "sub_key" in each] == ["size"]
    assert found[1]["sub_key64"] == "/w=="
    with library.open(tmp_path / "s", tags={"note": library.Tag()}) as store:
        store.put("k", "v", index={"f": ["a", b"a"]})
        store.bucket("b", tag="note").put("k", "v")
    plain, note = documents("changes", tmp_path / "s", "--json")
    assert "tag" not in plain
    assert plain["index"] == [{"field": "f", "term64": "YQ=="}, {"field": "f", "term": "a"}]
    assert note["tag"] == "note"
    assert "index" not in note
    assert "sub_key" not in note
