#!/usr/bin/env python3
"""Makes the golden store of this release's formats: tests/golden/FORMAT, to be kept for ever.

    python scripts/campaigns/make_golden.py [NAME]

Run it once for each new format version of any file, before the release that brings it; never over
a directory that is there. What the store must say is written beside it, as plain JSON, and
tests/test_golden.py compares.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "model"))


def main() -> int:
    """The command."""
    from golden_contents import contents
    from specimens import NAMES, Specimens, options

    target = ROOT / "tests" / "golden" / (sys.argv[1] if len(sys.argv) > 1 else "1")
    if target.exists():
        print(f"{target} is there already, and is never changed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as home:
        made = Specimens(Path(home))
        told = {}
        for name in NAMES:
            path = made.copy(name, Path(home) / f"{name}-read")
            told[name] = contents(path, options(name))
        target.mkdir(parents=True)
        for name in NAMES:
            shutil.copytree(Path(home) / name, target / name)
            (target / name / "LOCK").write_text("")
            for mark in (target / name).rglob(".gitignore"):
                mark.unlink()
            (target / name / "RESERVE").unlink(missing_ok=True)  # megabytes that say nothing
    (target / "contents.json").write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    print(f"{target}: {sum(1 for each in target.rglob('*') if each.is_file())} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
