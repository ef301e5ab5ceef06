"""Backing a store up by its path: whoever has it open makes the backup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import octavo
from octavo.actors.keeping.inbox_watch import serve
from octavo.cli.commands import cli
from octavo.files.door.disk import RealDisk
from octavo.files.handover import inbox
from octavo.files.wall_clock import wall_clock_ms


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with octavo.open(tmp_path / "störe") as store:
        store.put_many((f"{n:03}", b"%d" % n) for n in range(500))
        yield store


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "bäckup"


def contents(path: Path) -> dict[bytes, bytes]:
    with octavo.open(path, read_only=True) as reader:
        return dict(reader.items())


def test_a_closed_store_is_opened_for_it(store: octavo.Store, target: Path) -> None:
    want = dict(store.items())
    store.close()
    done = octavo.backup(store.path, target)
    assert (done.path, done.sqn) == (str(target), 500)
    assert contents(target) == want


def test_the_owner_of_an_open_store_makes_it_and_writes_on(
    store: octavo.Store, target: Path
) -> None:
    want = dict(store.items())
    done = octavo.backup(store.path, target)
    assert (done.sqn, done.bytes_copied) == (500, 0)
    store.put("later", b"x")
    assert contents(target) == want
    assert list(Path(store.path, "inbox").iterdir()) == []


def test_another_process_can_ask(store: octavo.Store, target: Path) -> None:
    code = f"import octavo; print(octavo.backup({store.path!r}, {str(target)!r}).sqn)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout == "500\n"
    assert contents(target) == dict(store.items())


def test_owner_and_others_bring_one_backup_up_to_date_by_turns(
    store: octavo.Store, target: Path
) -> None:
    for number in range(4):
        store.put("number", b"%d" % number)
        done = octavo.backup(store.path, target) if number % 2 else store.backup(target)
        assert done.sqn == store.last_sqn
        assert contents(target) == dict(store.items())


def test_without_its_ledger_it_is_made_anew_where_it_is_opened(
    store: octavo.Store, target: Path
) -> None:
    octavo.backup(store.path, target, ledger=False)
    assert not list(target.glob("ledger/*.sst"))
    assert contents(target) == dict(store.items())


@pytest.mark.parametrize("is_open", [True, False])
def test_what_cannot_be_is_told_as_the_store_itself_tells_it(
    store: octavo.Store, tmp_path: Path, is_open: bool
) -> None:
    with octavo.open(tmp_path / "another") as another:
        another.put("k", "v")
    if not is_open:
        store.close()
    for target in (tmp_path / "another", Path(store.path, "inside")):
        with pytest.raises(octavo.Misuse, match="path="):
            octavo.backup(store.path, target)
    assert sorted(os.listdir(tmp_path)) == ["another", "störe"]


@pytest.mark.parametrize("is_open", [True, False])
def test_a_backup_that_is_open_is_told_at_once(
    store: octavo.Store, target: Path, is_open: bool
) -> None:
    store.backup(target)
    if not is_open:
        store.close()
    with octavo.open(target), pytest.raises(octavo.StoreLocked, match="bäckup"):
        octavo.backup(store.path, target)


def test_without_a_store_there_is_none(tmp_path: Path, target: Path) -> None:
    with pytest.raises(octavo.Misuse, match="holds no store, and create=False makes none"):
        octavo.backup(tmp_path / "none", target)
    assert not (tmp_path / "none").exists()


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)))


def test_the_command_backs_up_what_is_open(store: octavo.Store, target: Path) -> None:
    found = run("backup", store.path, target, "--json")
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["sqn"] == 500
    assert contents(target) == dict(store.items())


def test_the_command_copies_only_what_it_has_open_itself(store: octavo.Store, target: Path) -> None:
    found = run("backup", store.path, target, "--copy")
    assert found.exit_code == 3
    assert "without --copy" in found.stderr
    assert not target.exists()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"backup": "relative", "ledger": True, "held": True}, "an absolute path"),
        ({"backup": 5, "ledger": True, "held": True}, "an absolute path"),
        ({"backup": "/x", "ledger": "yes", "held": True}, "with its ledger or not"),
    ],
)
def test_an_owner_refuses_what_is_no_request_of_one(
    store: octavo.Store, asked: dict[str, Any], told: str
) -> None:
    store._watched.stop()  # type: ignore[union-attr]  # it would answer, too
    request = inbox.Request(RealDisk(), store.path, asked, wall_clock_ms())
    request.ask()
    serve(store._running, wall_clock_ms())
    answer = request.answer()
    assert answer is not None
    assert answer["error"] == "Misuse"
    assert told in answer["message"]
    request.withdraw()


def test_a_request_that_lay_there_before_has_nothing_written(
    store: octavo.Store, target: Path
) -> None:
    """Whoever made the files of a store could else have its opener write where it may."""
    store.close()
    name = f"{wall_clock_ms():012x}-{1:016x}"
    asked = {"backup": str(target), "ledger": True}
    inbox.write(RealDisk(), store.path, name + inbox.REQUEST, asked)
    inbox.write(RealDisk(), store.path, name[:-1] + "2" + inbox.REQUEST, {**asked, "held": True})
    with octavo.open(store.path) as opened:
        opened._watched.stop()  # type: ignore[union-attr]
        serve(opened._running, wall_clock_ms())
    assert not target.exists()
    assert not Path(f"{target}.partial").exists()


def test_of_two_backups_at_once_one_is_told_what_the_other_may_be(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v")
        told: list[str] = []

        def meanwhile(what: str, _done: int, _total: int) -> None:
            if what == "done":
                return
            with pytest.raises(octavo.StoreLocked) as locked:
                store.backup(tmp_path / "b")
            told.append(str(locked.value))

        store.backup(tmp_path / "b", progress=meanwhile)
        assert told
        assert all("where another thread backs up to this path" in text for text in told)
