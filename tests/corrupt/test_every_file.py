"""Flips, zeros, cuts and splices in every kind of file of small stores, visited by a process with
little memory; see tests/model/visiting.py. Every bit: scripts/campaign corruption.

One flip at every byte of each kind of file, read by what reads that file: test_cdb.py, test_sst.py,
test_change_log_damage.py, test_small_files.py and, of the active file, test_damaged_store.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts" / "campaigns"))
from visits import visited

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))


def test_flipped_bits_give_right_values_or_are_told() -> None:
    print(f"OCTAVO_SEED={SEED}")
    visited("bits", SEED, 0, 150, extra_mib=256)


def test_splices_give_right_values_or_are_told() -> None:
    print(f"OCTAVO_SEED={SEED}")
    visited("splices", SEED, 0, 120, extra_mib=256)
