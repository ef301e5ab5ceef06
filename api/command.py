"""Where the command begins: loading it takes some 0.3 s, behind which a Ctrl-C that came meanwhile
ends it as quietly as later ones do."""

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
    except KeyboardInterrupt:  # nothing was begun
        sys.exit(INTERRUPTED)
    run()
