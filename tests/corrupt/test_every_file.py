"""Flips, zeros, cuts and splices in every kind of file of small stores, visited by a process with
little memory; see tests/model/visiting.py. Every bit: scripts/campaign corruption.

One flip at every byte of each kind of file, read by what reads that file: test_cdb.py, test_sst.py,
test_change_log_damage.py, test_small_files.py and, of the active file, test_damaged_store.py."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import file_parts
import pytest
from specimens import NAMES, Specimens, files_of
from whole_store import flush, opened

import octavo

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts" / "campaigns"))
from visits import visited

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))


def test_flipped_bits_give_right_values_or_are_told() -> None:
    print(f"OCTAVO_SEED={SEED}")
    visited("bits", SEED, 0, 150)


def test_splices_give_right_values_or_are_told() -> None:
    print(f"OCTAVO_SEED={SEED}")
    visited("splices", SEED, 0, 120)


def test_every_byte_of_a_store_is_of_a_part_that_damage_reaches(tmp_path: Path) -> None:
    Specimens(tmp_path)
    for name in NAMES:
        for file in files_of(tmp_path / name):
            left = bytearray((tmp_path / name / file).read_bytes())
            for part in file_parts.parts(file, bytes(left)).values():
                for low, high in part:
                    left[low:high] = bytes(high - low)
            assert not any(left), f"{name}/{file}: only zeros may stand between the parts"
    shares = file_parts.places(tmp_path, NAMES)
    rounds = max(len(parts) for parts in shares.values())
    reached = {file_parts.in_turn(tmp_path, NAMES, n)[0] for n in range(len(shares) * rounds)}
    assert reached == {f"{share} {part}" for share, parts in shares.items() for part in parts}


def test_a_ledger_file_under_anothers_name_is_told_and_made_anew(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for number in range(3):
            for key in range(40):
                store.put(f"{number}-{key}", b"value %d" % key)
            flush(store)
        wanted = dict(store.items())
    one, *others = sorted((tmp_path / "s/ledger").glob("*.sst"))
    assert len(others) == 2
    shutil.copyfile(others[0], one)
    with opened(tmp_path / "s") as store:
        with pytest.raises(octavo.Corruption, match="another file than the manifest means"):
            dict(store.items())
        with pytest.raises(octavo.Corruption, match="another file than the manifest means"):
            [store.get(key) for key in wanted]
    with opened(tmp_path / "s") as store:
        assert dict(store.items()) == wanted
        assert store.verify().ok
