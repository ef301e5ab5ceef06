"""The README is true: its code runs, its tables are those of the program."""

from __future__ import annotations

import contextlib
import io
import os
import pkgutil
import pydoc
import re
import shlex
import sys
import sysconfig
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

import click
import pytest
from cli_runs import octavo

import octavo as library
from octavo.actors.opening.options import Options
from octavo.cli.commands import cli
from octavo.store import open as octavo_open

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
OPTIONS = (ROOT / "docs" / "options.md").read_text()
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def cells(table: str, page: str = README) -> list[list[str]]:
    """Rows of the table whose first column is headed ``table``."""
    lines = page.split(f"\n| {table} |", 1)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_tour_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(block("python"), "README.md", "exec"), {})
    lines = shown.getvalue().splitlines()
    assert lines[0].startswith("if_sqn=")
    assert lines[1] == "b'hello' b'changed'"
    assert lines[3:] == ["True", "True"]


def test_the_shell_tour_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "api").symlink_to(ROOT / "api")
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(block("python"), "README.md", "exec"), {})
    told = []
    for line in block("sh").splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "octavo":
            told.append(octavo(*words[1:]).stdout)
    assert told[1] == "three folds make eight leaves"
    digests = [found for text in told for found in re.findall(r"digest (\w+)", text)]
    assert len(digests) == 2
    assert digests[0] == digests[1]
    assert told[-1].startswith("ok: ")


def test_the_table_of_options_is_that_of_the_program() -> None:
    rows = {row[0].strip("`"): row[1] for row in cells("option", OPTIONS)}
    assert list(rows) == [field.name for field in fields(Options)]
    for field in fields(Options):
        if field.default is MISSING:
            assert rows[field.name] == "none"
            continue
        number, _, unit = rows[field.name].strip("`").partition(" ")
        if unit:
            assert int(number) * UNITS[unit] == field.default
        else:
            assert rows[field.name].strip("`").replace('"', "'") == repr(field.default)


def test_help_tells_of_every_option() -> None:
    told = pydoc.plain(pydoc.render_doc("octavo.actors.opening.options.Options"))
    for field in fields(Options):
        assert f"``{field.name}``: " in told
    assert 'help("octavo.actors.opening.options.Options")' in str(octavo_open.__doc__)


def _with_fields() -> list[str]:
    """Names of Octavo's that are tuples or dataclasses."""
    kinds = {name: getattr(library, name) for name in library.__all__}
    return [
        name
        for name, kind in kinds.items()
        if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))
    ]


@pytest.mark.parametrize("name", _with_fields())
def test_help_tells_what_each_field_means(name: str) -> None:
    kind = getattr(library, name)
    told = pydoc.plain(pydoc.render_doc(kind))
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    for field in names:
        assert f"``{field}``: " in told


def test_each_command_that_takes_a_moment_says_of_what_zone_it_is() -> None:
    taking = [
        command
        for command in cli.commands.values()
        if any(param.metavar == "TIME" for param in command.params)
    ]
    assert len(taking) > 1
    for command in taking:
        assert "UTC where it names no zone" in " ".join((command.help or "").split())


def test_the_table_of_commands_is_that_of_the_program() -> None:
    named = [row[0].strip("`").split()[0] for row in cells("command")]
    assert named == ["put", "get", "del", "head", "scan", *named[5:]]
    assert sorted(named) == sorted(cli.commands)
    for row in cells("command"):
        command = cli.commands[row[0].strip("`").split()[0]]
        known = {
            text for each in command.params if isinstance(each, click.Option) for text in each.opts
        }
        assert set(re.findall(r"--[a-z-]+", row[1])) - {"--keys-only"} <= known


def test_the_exit_codes_are_those_of_the_help() -> None:
    told = octavo("--help").stdout
    for row in cells("exit code"):
        assert re.search(rf"^ +{row[0]} ", told, re.MULTILINE)


@pytest.mark.parametrize(
    "script", ["scripts/demo", "scripts/test", "scripts/bench/bench", ".ci/run"]
)
def test_the_scripts_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)


@pytest.mark.skipif(
    not list(Path(sys.prefix).glob(".octavo-*")),
    reason="this environment was made by hand: scripts/test makes one",
)
def test_what_the_scripts_install_is_where_spark_looks_for_data_sources() -> None:
    installed = sysconfig.get_path("purelib")
    found = {module.name for module in pkgutil.iter_modules([installed])}
    assert {"pyspark_octavo", "pyspark_octavo_metadata"} <= found
