"""Runs the command line, in this process or in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from octavo.cli.commands import cli

TIMEOUT_SECONDS = 600


def octavo(*arguments: object, stdin: bytes = b"", code: int = 0) -> Result:
    """The command in this process; it must end with ``code``."""
    found = CliRunner().invoke(cli, list(map(str, arguments)), input=stdin, catch_exceptions=False)
    assert found.exit_code == code, (found.exit_code, found.stdout, found.stderr)
    return found


def output(*arguments: object, stdin: bytes = b"") -> bytes:
    """What the command prints."""
    return octavo(*arguments, stdin=stdin).stdout_bytes


def document(*arguments: object, stdin: bytes = b"", code: int = 0) -> Any:
    """The JSON document that the command prints."""
    return json.loads(octavo(*arguments, stdin=stdin, code=code).stdout_bytes)


def documents(*arguments: object) -> list[Any]:
    """The JSON lines that the command prints."""
    return [json.loads(line) for line in output(*arguments).splitlines()]


def command(*arguments: str | bytes | Path) -> list[str | bytes | Path]:
    """The command line of a process of its own."""
    return [sys.executable, "-m", "octavo", *arguments]


def process(
    *arguments: str | bytes | Path, stdin: bytes = b"", **more: Any
) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own."""
    return subprocess.run(
        command(*arguments), input=stdin, capture_output=True, timeout=TIMEOUT_SECONDS, **more
    )
