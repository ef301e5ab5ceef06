"""docs/spark.md is true: its code runs as it stands, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def test_the_spark_page_runs_and_prints_what_it_says(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        # Spark's processes have another working directory.
        there = re.sub(r'"(towns-too|towns|names|checkpoint)"', rf'"{tmp_path}/\1"', block)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(there, "spark.md", "exec"), names)
        told = re.findall(r"^ *print\(.*?\)  +# (.*)$", block, re.MULTILINE)
        assert shown.getvalue().splitlines() == told
