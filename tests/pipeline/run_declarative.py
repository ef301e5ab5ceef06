"""Runs the project of docs/declarative for real, and checks what it made:

    python tests/pipeline/run_declarative.py DIRECTORY

DIRECTORY is what ``octavo pipeline --into`` made. Needs octavo[pipelines] and a Java. Not part of
the tests: it starts a Spark of its own, whose Python workers have ten seconds to come up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import octavo

PROJECT = Path(__file__).parents[2] / "docs" / "declarative"


def run(into: Path) -> None:
    """Raises AssertionError where the mirror or the totals are not as the store is."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "declarative"
        shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("spark-warehouse"))
        spec = project / "spark-pipeline.yml"
        spec.write_text(spec.read_text().replace("/tmp/octavo-declarative", f"{scratch}/storage"))
        programs = Path(sys.executable).parent
        environment = os.environ | {
            "OCTAVO_INTO": str(into),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [str(programs / "spark-pipelines"), "run"]
        subprocess.run(command, cwd=project, env=environment, check=True)
        totals = _totals(project)
    with octavo.open(into / "store") as store, octavo.open(into / "mirror") as mirror:
        assert list(octavo.compare(store, mirror, by="value")) == []
        expected: dict[str, int] = {}
        for _, head in store.bucket("").heads():
            kind = head.metadata.decode()
            expected[kind] = expected.get(kind, 0) + 1
    assert totals == expected, (totals, expected)
    print(f"the mirror is equal; {len(totals)} totals are right")


def _totals(project: Path) -> dict[str, int]:
    import pyarrow.parquet as parquet

    return {
        row["kind"]: row["keys"]
        for file in sorted((project / "spark-warehouse" / "totals").glob("*.parquet"))
        for row in parquet.read_table(file).to_pylist()
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]).absolute())
