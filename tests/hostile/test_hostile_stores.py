"""Some hundreds of stores and backups of a forger, visited by a process that watches itself; see
tests/model/visiting.py. And single files of every kind, read by what reads such files; see
tests/model/single_files.py. More of both: scripts/campaign hostile."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from specimens import Specimens, files_of

import octavo
from octavo.actors.keeping.linking import remove_tree
from octavo.files.door.disk import RealDisk
from octavo.manifest import published
from octavo.manifest.store_identity import FOLDERS

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts" / "campaigns"))
from visits import visited

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))


def test_forged_stores_are_bounded_and_stay_inside() -> None:
    print(f"OCTAVO_SEED={SEED}")
    visited("hostile", SEED, 0, 200)


def test_hostile_files_are_told_or_harmless_and_cost_little() -> None:
    print(f"OCTAVO_SEED={SEED}")
    visited("files", SEED, 0, 20_000)


def test_specimens_are_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Specimens(tmp_path / name)
    files = files_of(tmp_path / "one")
    assert files == files_of(tmp_path / "two")
    for file in files:
        if not file.endswith("LOCK"):
            one, two = (tmp_path / name / file for name in ("one", "two"))
            assert one.stat().st_size == two.stat().st_size, file


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory with files that an enemy would like to see removed."""
    made = tmp_path / "precious"
    (made / "manifest").mkdir(parents=True)
    for name in ("a.sst", "b.cdb", "c.json", "manifest/d"):
        (made / name).write_text("mine")
    return made


def unharmed(outside: Path) -> bool:
    return [
        (outside / name).read_text() for name in ("a.sst", "b.cdb", "c.json", "manifest/d")
    ] == ["mine"] * 4


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_directory_that_leads_elsewhere_is_refused(
    tmp_path: Path, outside: Path, folder: str
) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", b"v")
    place = tmp_path / "s" / folder
    place.parent.mkdir(exist_ok=True)
    if place.exists():
        place.rename(tmp_path / "was here")
    place.symlink_to(outside)
    for call in (
        lambda: octavo.open(tmp_path / "s"),
        lambda: octavo.open(tmp_path / "s", read_only=True),
        lambda: octavo.repair(tmp_path / "s"),
        lambda: octavo.restore(tmp_path / "s", tmp_path / "r"),
    ):
        with pytest.raises(octavo.Corruption, match="symbolic link"):
            call()
    with octavo.open(tmp_path / "other") as store, pytest.raises(octavo.OctavoError):
        store.backup(tmp_path / "s")
    octavo.destroy(tmp_path / "s")
    assert unharmed(outside)


def test_a_snapshot_that_leads_elsewhere_is_none(tmp_path: Path, outside: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        made = store.snapshot().publish()
        (outside / "manifest" / "d").rename(tmp_path / "d")
        (outside / "manifest").rmdir()
        (outside / "manifest").write_bytes((Path(made.path) / "manifest").read_bytes())
        link = Path(store.path) / "snapshots" / f"{1:012x}-{1:08x}"
        link.symlink_to(outside)
        assert [each.id for each in store.published()] == [made.id]
        with pytest.raises(octavo.Corruption, match="symbolic link"):
            published.read(RealDisk(), str(link))
    octavo.open(tmp_path / "s").close()  # which sweeps
    assert (outside / "a.sst").read_text() == "mine"


def test_emptying_a_link_takes_the_link_away(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "link").symlink_to(outside)
    remove_tree(RealDisk(), str(tmp_path / "link"))
    assert not (tmp_path / "link").is_symlink()
    assert unharmed(outside)
