"""The demo: small runs of the whole tour."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from cli_runs import document, octavo

import octavo as library


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for number in range(120):
        file = root / f"part {number % 7}" / f"file {number}.{'py' if number % 3 else 'txt'}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"line %d\n" % number * (number * 40 + 1))
    return root


def test_the_demo_holds_and_tells_its_figures(tree: Path) -> None:
    told = octavo("demo", tree).stdout
    assert "Everything held." in told
    for step in ("load", "read back", "snapshot", "update", "list", "fold", "meanwhile",
                 "changes", "verify", "reopen", "on disk"):  # fmt: skip
        assert f"\n  {step} " in told


def test_the_demo_gives_its_figures_as_json(tree: Path) -> None:
    found = document("demo", tree, "--json")
    assert (found["ok"], found["broken"]) == (True, [])
    assert found["load"]["values"] == 120
    assert found["update"]["rewritten"] == 12
    assert found["fold"]["unchanged"]
    assert found["fold"]["puts_meanwhile"] > 0


def test_the_demo_leaves_nothing_behind_unless_asked(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    octavo("demo", tree)
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
    octavo("demo", tree, "--store", tmp_path / "kept")
    with library.open(tmp_path / "kept", create=False) as store:
        assert len(store) + len(store.bucket(b"attic")) == 120


def test_the_demo_takes_jsonl_and_csv(tmp_path: Path) -> None:
    lines = [json.dumps({"id": n, "text": "x" * n}) for n in range(200)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    assert document("demo", tmp_path / "x.jsonl", "--key-field", "id", "--json")["ok"]
    rows = ["id,text"] + [f"{n},{'y' * n}" for n in range(200)]
    (tmp_path / "x.csv").write_text("\n".join(rows))
    assert document("demo", tmp_path / "x.csv", "--json")["load"]["keys"] == 200


def test_the_demo_takes_what_load_takes_for_tabs(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv.gz"
    path.write_bytes(gzip.compress(b"key\tvalue\na\t1\nb\t2\n"))
    assert document("demo", path, "--key-field", "key", "--json")["load"]["keys"] == 2


def test_a_single_value_makes_a_tour(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").write_bytes(b"")
    assert document("demo", tmp_path / "one", "--json")["ok"]


@pytest.mark.parametrize("words", ["--key-field id", "--value-field id", "--format csv"])
def test_the_demo_refuses_what_it_would_pass_over(tree: Path, words: str) -> None:
    octavo("demo", *words.split(), code=2)
    if "field" in words:
        assert "not for a directory" in octavo("demo", tree, *words.split(), code=2).stderr


def test_the_demo_refuses_what_it_cannot_use(tree: Path, tmp_path: Path) -> None:
    octavo("demo", tmp_path / "missing", code=2)
    octavo("demo", tree, "--store", tree, code=2)
    (tmp_path / "nothing").mkdir()
    assert "nothing" in octavo("demo", tmp_path / "nothing", code=2).stderr
    (tmp_path / "bad.jsonl").write_text("{")
    assert "line 1" in octavo("demo", tmp_path / "bad.jsonl", code=2).stderr
    octavo("demo", __file__, code=2)
    assert "is a directory" in octavo("demo", tree, "--format", "csv", code=2).stderr
