"""What openings and backups took is given back: descriptors, threads, files.

Ten thousand snapshots: test_snapshot.py. Long form: scripts/campaign soak.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from whole_store import SMALL

import octavo


def descriptors() -> int:
    """Open ones of this process that lead to a file of a store."""
    found = 0
    for number in os.listdir("/dev/fd"):
        try:
            found += "resources-store" in os.readlink(f"/dev/fd/{number}")
        except OSError:
            continue
    return found


def test_openings_and_backups_leave_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "resources-store"
    for number in range(60):
        with octavo.open(path, **SMALL) as store:
            store.put_many((b"%d" % n, b"%d" % number) for n in range(100))
            assert store.get(b"7") == b"%d" % number
            if number % 6 == 0:
                store.backup(tmp_path / "resources-store-backup")
        assert descriptors() == 0, number
    assert not [t for t in threading.enumerate() if t.name.startswith("octavo-sync")]
    files = [file for file in (tmp_path / "resources-store-backup").rglob("*") if file.is_file()]
    assert len(files) < 60
