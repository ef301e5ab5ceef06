"""What a write that broke off left is cut off, and another process may just be reading it: a map of
what is no longer there would kill that."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from whole_store import active_file, killed, no_hang, opened

READER = """
import sys
import octavo
from octavo.files.journal import cdb
from octavo.files.door.disk import RealDisk
from octavo.pipeline.feed_files import JournalLook

path, how, file, whole = sys.argv[1:]
scan_runs = cdb.scan_runs

def scanning(*args):
    cdb.scan_runs = scan_runs
    if whole:  # the first that a new owner does
        RealDisk().reopen(file, int(whole)).close()
    else:
        with octavo.open(path) as owner:
            (note,) = owner.stats()["notes"]
            assert "torn tail" in note, note
    return scan_runs(*args)

cdb.scan_runs = scanning
if how == "pin":
    with octavo.open(path, read_only=True) as store:
        print(store.last_sqn, len(list(store.items())))
else:
    look = JournalLook(RealDisk(), path)
    print(look.newest(), sum(part.last - part.first + 1 for part in look.parts(0, 20, 1 << 20)))
"""


@pytest.mark.parametrize("how", ["pin", "feed"])
@pytest.mark.parametrize("sealed", [True, False])
def test_who_reads_what_a_new_owner_cuts_off_goes_on(
    tmp_path: Path, how: str, *, sealed: bool
) -> None:
    with no_hang(), opened(tmp_path / "s") as store:
        for n in range(20):
            store.put(b"%d" % n, bytes(40))
        name = active_file(store).name
        image = killed(store, tmp_path / "image")
    file = image / "journal" / name
    whole = "" if sealed else str(file.stat().st_size)
    with file.open("ab") as torn:  # as if SIGKILL had met a large put
        torn.write(random.Random(1).randbytes(1 << 20))
    done = subprocess.run(
        [sys.executable, "-c", READER, image, how, file, whole],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "20 20\n"), done.stderr
