"""The ``octavo`` command's entry point. Loading the command takes some 0.3 s; a Ctrl-C during that
time ends it as quietly as a later one."""

from __future__ import annotations

import sys

from octavo.files.later import loading
from octavo.files.unbroken import unbroken

INTERRUPTED = 130


def main() -> None:
    """The console script."""
    try:
        with unbroken, loading:
            from octavo.cli.commands import main as run
    except KeyboardInterrupt:  # nothing has begun yet
        sys.exit(INTERRUPTED)
    run()
