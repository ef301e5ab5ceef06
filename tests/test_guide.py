"""The guides in docs/ are true: their code runs as it stands, and prints what its comments say."""

from __future__ import annotations

import codeop
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_can_be_pasted_into_an_interactive_python(page: Path) -> None:
    """Which ends a compound statement at an empty line, and only there."""
    for block in blocks(page):
        typed: list[str] = []
        for line in block.split("\n"):
            typed.append(line)
            if codeop.compile_command("\n".join(typed), page.name, "single") is not None:
                typed = []
        assert typed == []


@pytest.mark.parametrize("guide", ["guide.md", "reading.md", "watching.md", "keeping.md"])
def test_a_guide_runs_and_prints_what_it_says(
    guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks(DOCS / guide):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(block, guide, "exec"), names)
        told = re.findall(r"^ *print\(.*?\)  +# (.*)$", block, re.MULTILINE)
        assert shown.getvalue().splitlines() == told
