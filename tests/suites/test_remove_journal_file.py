"""A file of the journal is removed: what was only in it is missed by name, the rest is there, and
the store goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside import LITTLE, Beside, seeded, value
from whole_store import flush

import octavo

COUNT = 1500
A_FILE = 257
"""Records of a file: the one that fills it is in it."""


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    """A store of many sealed files, closed."""
    rng = seeded("removed")
    with Beside(tmp_path / "store", **LITTLE) as made:
        for number in range(COUNT):
            made.put(b"", b"%05d" % number, value(rng, 60))
        flush(made.store)
    return made


def sealed(beside: Beside) -> list[Path]:
    return sorted((Path(beside.path) / "journal").glob("*.cdb"))


def missed(store: octavo.Store, file: Path) -> set[bytes]:
    """Keys that cannot be read; each says which file is missing."""
    found = set()
    for number in range(COUNT):
        try:
            store.get(b"%05d" % number)
        except octavo.Corruption as error:
            if file.name not in str(error):
                raise
            found.add(b"%05d" % number)
    return found


@pytest.mark.parametrize("which", [0, 2, -1], ids=["oldest", "middle", "newest"])
def test_only_what_was_in_it_is_missed_and_a_put_heals_it(beside: Beside, which: int) -> None:
    file = sealed(beside)[which]
    file.unlink()
    beside.store = octavo.open(beside.path, **LITTLE)
    with beside:
        store = beside.store
        assert any(file.name in note for note in store.stats()["notes"])
        gone = missed(store, file)
        assert 200 < len(gone) <= A_FILE
        for (_, key), what in beside.content.items():
            if key not in gone:
                assert store.get(key) == what
        assert len(store) == COUNT  # the ledger knows them all
        for key in sorted(gone):
            beside.put(b"", key, b"again")
        assert missed(store, file) == set()
        beside.check()
        beside.reopen()
        beside.check()


def test_a_fold_that_meets_it_says_so_and_others_do_not(beside: Beside) -> None:
    file = sealed(beside)[1]
    file.unlink()
    beside.store = octavo.open(beside.path, **LITTLE)
    with beside:
        gone = sorted(missed(beside.store, file))
        with pytest.raises(octavo.Corruption, match=file.name):
            list(beside.store.items())
        assert len(list(beside.store.items(end=gone[0]))) == int(gone[0])
        assert len(list(beside.store.keys())) == COUNT
        assert sum(1 for _ in beside.store.heads()) == COUNT


def test_several_are_removed_at_once(beside: Beside) -> None:
    files = sealed(beside)
    for file in files[::2]:
        file.unlink()
    beside.store = octavo.open(beside.path, **LITTLE)
    with beside:
        there = 0
        for (_, key), what in beside.content.items():
            try:
                assert beside.store.get(key) == what
                there += 1
            except octavo.Corruption as error:
                if "missing" not in str(error):
                    raise
        assert COUNT // 4 < there < 3 * COUNT // 4
        assert not beside.store.verify().ok
