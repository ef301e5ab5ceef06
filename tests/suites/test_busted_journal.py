"""Journal files are damaged in every way: what is whole is read, what is not is named, nothing
wrong is ever given out."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from beside import LITTLE, Beside, Content, seeded, value
from whole_store import flush

import octavo

COUNT = 900
A_FILE = 257
"""Records of a file: the one that fills it is in it."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Beside:
    rng = seeded("busted")
    with Beside(tmp_path_factory.mktemp("made") / "store", **LITTLE) as beside:
        for number in range(COUNT):
            beside.put(b"", b"%05d" % number, value(rng, 60))
        flush(beside.store)
    return beside


def flipped(data: bytearray, rng: random.Random) -> None:
    for _ in range(20):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def zeroed(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) - 4096)
    data[at : at + 4096] = bytes(4096)


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(3000, len(data)) :]


def emptied(data: bytearray, rng: random.Random) -> None:
    data.clear()


def beginning_gone(data: bytearray, rng: random.Random) -> None:
    data[:2048] = bytes(2048)


def end_gone(data: bytearray, rng: random.Random) -> None:
    data[-2048:] = rng.randbytes(2048)


WAYS: list[Callable[[bytearray, random.Random], None]] = [
    flipped, zeroed, cut, emptied, beginning_gone, end_gone,
]  # fmt: skip


def read(store: octavo.Store, content: Content) -> int:
    """How many keys give their value; all others are named as damaged, or absent."""
    right = 0
    for (_, key), what in content.items():
        try:
            found = store.get(key)
        except octavo.Corruption as error:
            if ".cdb" not in str(error):
                raise
            continue
        assert found in (what, None)
        right += found == what
    return right


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("rebuilt", [False, True], ids=["with its ledger", "ledger rebuilt"])
def test_what_is_whole_is_read(
    made: Beside, tmp_path: Path, way: Callable[[bytearray, random.Random], None], rebuilt: bool
) -> None:
    path = tmp_path / "store"
    shutil.copytree(made.path, path)
    files = sorted((path / "journal").glob("*.cdb"))
    rng = seeded(f"{way.__name__}-{rebuilt}")
    data = bytearray(files[1].read_bytes())
    way(data, rng)
    files[1].write_bytes(data)
    if rebuilt:
        shutil.rmtree(path / "ledger")
    try:
        store = octavo.open(path, **LITTLE)
    except octavo.Corruption as refused:
        if files[1].name not in str(refused):
            raise
        return
    with store:
        assert not store.verify().ok
        # Nothing outside of the file is touched.
        assert read(store, made.content) >= COUNT - A_FILE
        if way in (flipped, end_gone) and not rebuilt:
            assert read(store, made.content) > COUNT - A_FILE
        for _, key in sorted(made.content)[:400]:
            store.put(key, b"again")
    with octavo.open(path, **LITTLE) as store:
        assert read(store, {**made.content, **dict.fromkeys(sorted(made.content)[:400], b"again")})
        assert store.get(b"00000") == b"again"


@pytest.mark.parametrize("way", [flipped, cut], ids=lambda way: way.__name__)
def test_compaction_leaves_a_busted_file_alone(
    made: Beside, tmp_path: Path, way: Callable[[bytearray, random.Random], None]
) -> None:
    path = tmp_path / "store"
    shutil.copytree(made.path, path)
    file = sorted((path / "journal").glob("*.cdb"))[0]
    data = bytearray(file.read_bytes())
    way(data, seeded(way.__name__))
    file.write_bytes(data)
    with octavo.open(path, **LITTLE) as store:
        before = read(store, made.content)
        for number in range(0, COUNT, 2):
            store.put(b"%05d" % number, b"new")
        store.compact()
        assert file.exists()
        content = {
            (bucket, key): b"new" if int(key) % 2 == 0 else what
            for (bucket, key), what in made.content.items()
        }
        assert read(store, content) >= before
