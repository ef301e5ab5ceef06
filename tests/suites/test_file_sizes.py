"""Big and little files of the journal and the ledger: the same content, whatever their sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from beside import Beside, seeded, until, value

JOURNALS = {
    "little by count": {"roll_count": 256},
    "little by size": {"roll_size_bytes": 1 << 20},
    "big": {"roll_size_bytes": 1 << 30, "roll_count": 4 << 20},
}
LEDGERS = {
    "little": {"push_rows": 64, "push_bytes": 64 << 10},
    "big": {"push_rows": 1 << 20, "push_bytes": 1 << 30},
}


def load(beside: Beside, name: object) -> None:
    rng = seeded(name)
    for _ in range(2500):
        key = b"%04d" % rng.randrange(1500)
        if rng.randrange(6):
            beside.put(b"", key, value(rng, rng.choice((10, 200, 3000))))
        else:
            beside.delete(b"", key)


@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.parametrize("ledger", LEDGERS)
def test_the_content_does_not_depend_on_the_sizes_of_files(
    tmp_path: Path, journal: str, ledger: str
) -> None:
    options: dict[str, Any] = {**JOURNALS[journal], **LEDGERS[ledger]}
    with Beside(tmp_path / "store", **options) as beside:
        load(beside, "sizes")  # the same for all of them
        beside.check()
        files = beside.store.stats()["journal"]["files"]
        assert files == 1 if journal == "big" else files > 1
        if ledger == "little":
            until(lambda: beside.store.stats()["ledger"]["files"] > 0, "memory is saved")
        else:
            assert beside.store.stats()["ledger"]["files"] == 0
        beside.reopen()
        beside.check()
        beside.sound()


def test_the_sizes_may_change_with_every_life(tmp_path: Path) -> None:
    with Beside(tmp_path / "store") as beside:
        for number, (journal, ledger) in enumerate(
            (journal, ledger) for journal in JOURNALS.values() for ledger in LEDGERS.values()
        ):
            beside.reopen(**journal, **ledger)
            load(beside, number)
            beside.check()
        beside.reopen()
        beside.check()
        beside.sound()


@pytest.mark.parametrize("open_files", [8, 100])
def test_few_open_files_suffice_for_many(tmp_path: Path, open_files: int) -> None:
    options = {**JOURNALS["little by count"], **LEDGERS["little"]}
    with Beside(tmp_path / "store", max_open_files=open_files, **options) as beside:
        load(beside, "open files")
        beside.reopen()
        beside.check()
        assert beside.store.stats()["open_files"] <= open_files
