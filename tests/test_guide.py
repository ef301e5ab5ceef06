"""docs/guide.md is true: its code runs as it stands, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = (Path(__file__).parent.parent / "docs" / "guide.md").read_text()


def test_the_guide_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(block, "guide.md", "exec"), names)
        told = re.findall(r"^ *print\(.*?\)  +# (.*)$", block, re.MULTILINE)
        assert shown.getvalue().splitlines() == told
