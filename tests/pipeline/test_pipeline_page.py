"""docs/pipeline.md is true: its commands run and print what it shows, but for times; its code
prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli_runs import octavo

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "pipeline.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for named, text in found if named == language]


def timeless(text: str) -> list[str]:
    """Lines without what another run takes or reaches."""
    masked = re.sub(r"\d[\d.,]*(?= (s|rows/s|[kM]?B/s)\b)", "#", text)
    return [re.sub("# [kM]B/s", "# B/s", line) for line in masked.splitlines() if line]


@pytest.fixture(scope="module")
def towns(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What the page's command makes, and prints."""
    there = tmp_path_factory.mktemp("page")
    with contextlib.chdir(there):
        exec(compile(blocks("python")[0], "pipeline.md", "exec"), {})
        words = shlex.split(blocks("sh")[0])
        assert words[0] == "octavo"
        told = octavo(*words[1:]).stdout
    return there, told


def test_the_command_prints_what_the_page_shows(towns: tuple[Path, str]) -> None:
    lines = timeless(towns[1])
    shown = timeless(blocks("")[0])
    begun = next(at for at, line in enumerate(lines) if line.startswith("  load"))
    assert lines[begun : begun + len(shown)] == shown
    assert any(line.startswith("Everything held") for line in lines)


def test_the_declarative_project_is_whole() -> None:
    # tests/pipeline/run_declarative.py runs it for real.
    project = DOCS / "declarative"
    assert "include: transformations/**" in (project / "spark-pipeline.yml").read_text()
    code = (project / "transformations" / "stores.py").read_text()
    compile(code, "stores.py", "exec")
    views = set(re.findall(r"@dp.materialized_view\ndef (\w+)", code))
    sql = (project / "transformations" / "totals.sql").read_text()
    assert set(re.findall(r"FROM (\w+)", sql)) == views == {"files"}
    assert set(re.findall(r'create_sink\("(\w+)"', code)) == set(
        re.findall(r'append_flow\(target="(\w+)"', code)
    )


def test_the_code_on_closed_stores_prints_what_it_says(
    towns: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(towns[0])
    block = blocks("python")[1]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(block, "pipeline.md", "exec"), {})
    assert shown.getvalue().splitlines() == re.findall(r"^print\(.*?\)  +# (.*)$", block, re.M)
