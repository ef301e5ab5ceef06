"""Messages: none unless they are asked for, of sensible levels, none on the hot paths."""

from __future__ import annotations

import ast
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import process
from whole_store import flush

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.compacting import scheduled, trimming
from octavo.actors.worker import JobRunner, WorkerDied

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("files", "manifest", "actors", "api", "pipeline")
HOT = {
    "put", "put_many", "get", "get_many", "head", "append", "append_plain", "append_group",
    "append_encoded", "encoded", "plain_encoded", "enter", "enter_run", "write_over",
    "write_without", "_get", "_head", "_get_many", "get_from_ledger", "get_recent",
    "head_in_ledger", "head_by_steps", "head_of_row", "head_of", "raw", "value", "value_of",
    "each_item", "read_values", "short_windows", "ensure_open", "find", "probe", "keep", "fill",
    "discard", "wait_durable", "timed", "record",
}  # fmt: skip


def damaged(path: Path) -> None:
    """A store whose opening has something to say: the end of its ledger's manifest is gone."""
    with octavo.open(path) as store:
        store.put_many((b"%05d" % number, b"x") for number in range(30_000))
        flush(store)
    for file in (path / "ledger").glob("*.sst"):
        file.unlink()


def test_the_library_is_quiet_by_default(tmp_path: Path) -> None:
    damaged(tmp_path / "store")
    program = "import octavo, sys\nwith octavo.open(sys.argv[1]) as s: print(s.stats()['notes'])"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "store"], capture_output=True, check=True
    )
    assert b"rebuilt" in done.stdout
    assert done.stderr == b""


def test_what_opening_mends_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    damaged(tmp_path / "store")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "octavo"), octavo.open(tmp_path / "store"):
        pass
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "rebuilt" in caplog.text


def test_ordinary_work_is_at_most_info(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "octavo"),
        octavo.open(tmp_path / "store", roll_size_bytes=1 << 20) as store,
    ):
        for turn in range(5):
            store.put_many((b"%05d" % number, b"%d" % turn * 100) for number in range(3000))
            flush(store)
        store.compact()
    levels = {(record.name, record.levelname) for record in caplog.records}
    assert {("octavo", "INFO"), ("octavo.inker", "INFO"), ("octavo.jobs", "DEBUG")} <= levels
    assert {level for _, level in levels} == {"INFO", "DEBUG"}
    text = caplog.text
    for told in ("is open", "merge done", "level_zero done", "seal done", "is full", "is closed"):
        assert told in text


def test_a_lease_that_ran_out_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with octavo.open(tmp_path / "store") as store:
        snapshot = store.snapshot(lease_seconds=1e-6)
        with caplog.at_level(logging.WARNING, "octavo"):
            store._running.register.expire()
        assert f"{store.path}: the leases of 1 snapshots ran out" in caplog.text
        assert caplog.records[0].name == "octavo.snapshots"
        snapshot.close()


def test_what_goes_wrong_in_the_background_names_its_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may have many open, and not every error has a file."""

    def refused(*_: object, **__: object) -> None:
        raise WorkerDied("the worker process died")

    with octavo.open(tmp_path / "standard", worker=False) as store:
        monkeypatch.setattr(JobRunner, "run", refused)
        store._running.inker_clerk.call(scheduled.work)
        store.put("k", "v")
        store._running.bookie.call(Bookie.push)
    with octavo.open(tmp_path / "heads", worker=False, mode="head_only") as store:
        monkeypatch.setattr(trimming, "trim", refused)
        store._running.inker_clerk.call(trimming.trim_unasked)
    with caplog.at_level(logging.WARNING, "octavo"):
        for name, message in (
            ("standard", "compaction stopped"),
            ("standard", "memory is not saved"),
            ("heads", "the journal was not trimmed"),
        ):
            assert re.search(f"{re.escape(str(tmp_path))}/{name}/\\w+: {message}", caplog.text)


def loggers() -> set[str]:
    found = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            found |= set(re.findall(r'(?:getLogger|messages_of)\("([\w.]+)"\)', path.read_text()))
    return found


def test_every_logger_is_in_the_tree_and_in_the_guide() -> None:
    told = set(re.findall(r"^\| `(octavo[\w.]*)` \|", (ROOT / "docs" / "watching.md").read_text(),
                          re.MULTILINE))  # fmt: skip
    assert loggers() == told
    assert all(name == "octavo" or name.startswith("octavo.") for name in told)


def test_the_hot_paths_log_nothing() -> None:
    seen = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.FunctionDef) or node.name not in HOT:
                    continue
                seen.add(node.name)
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                        assert inner.value.id != "log", f"{path.name}:{inner.lineno} {node.name}"
    assert seen == HOT  # none is called otherwise by now


# ---------------------------------------------------------------- the command line


def test_the_command_line_shows_warnings_only(tmp_path: Path) -> None:
    done = process("put", tmp_path / "store", "a", "b")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("flag", "shown", "hidden"),
    [("-v", b"is closed", b"score done"), ("-vv", b"score done", None)],
)
def test_verbose_shows_more(tmp_path: Path, flag: str, shown: bytes, hidden: bytes | None) -> None:
    assert process("put", tmp_path / "store", "a", "b").returncode == 0
    done = process(flag, "stats", tmp_path / "store", "--score")
    assert done.returncode == 0
    assert shown in done.stderr
    assert hidden is None or hidden not in done.stderr
    assert b"is closed" not in done.stdout
