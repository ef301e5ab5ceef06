"""The guides in docs/ are true: their code runs as it stands, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("guide", ["guide.md", "reading.md", "watching.md", "keeping.md"])
def test_a_guide_runs_and_prints_what_it_says(
    guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    text = (DOCS / guide).read_text()
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(block, guide, "exec"), names)
        told = re.findall(r"^ *print\(.*?\)  +# (.*)$", block, re.MULTILINE)
        assert shown.getvalue().splitlines() == told
