"""A journal file that is sealed between a listing and a look at it has another name by then."""

from __future__ import annotations

from pathlib import Path

from whole_store import rolled

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.journal.journal_names import LOG, SEALED
from octavo.manifest import adoption


def test_its_epoch_is_told_all_the_same(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.put(b"k", b"v")
        rolled(store)
    [sealed] = [file.name for file in (tmp_path / "s" / "journal").iterdir() if SEALED in file.name]
    listed = {sealed.removesuffix(SEALED) + LOG}
    directory = str(tmp_path / "s" / "journal")
    assert adoption.is_earlier(RealDisk(), directory, listed, 0)
    assert not adoption.is_earlier(RealDisk(), directory, listed, 1)
