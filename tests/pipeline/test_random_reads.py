"""What is read of published snapshots, by any options and however it is cut, is what they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import random_reads
from whole_store import SEED


@pytest.mark.parametrize("number", range(40))
def test_a_read_gives_what_the_snapshot_holds(tmp_path: Path, number: int) -> None:
    print(f"OCTAVO_SEED={SEED}")
    random_reads.case(tmp_path, f"{SEED} {number}")
