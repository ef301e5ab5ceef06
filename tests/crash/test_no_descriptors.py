"""No file descriptor is left for the map of a full journal file, as a server has none under load:
what is written goes on to the file that is there, and nothing of it is lost or half known."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

import octavo
from octavo.actors.journal_file import JournalFile


@pytest.mark.parametrize("how", ["put", "put_many", "batch"])
def test_writes_go_on_without_a_descriptor_for_the_map_of_a_full_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    draw = random.Random(1).randbytes
    wanted: dict[bytes, bytes] = {}
    refused = []
    real = JournalFile.map_now

    def write(store: octavo.Store, name: bytes) -> None:
        pairs = {b"%s/%04d" % (name, n): draw(9000) for n in range(900)}  # 8 MB
        if how == "put":
            for key, value in pairs.items():
                store.put(key, value)
        elif how == "put_many":
            store.put_many(pairs)
        else:
            with store.batch() as batch:
                for key, value in pairs.items():
                    batch.put("", key, value)
        wanted.update(pairs)
        assert store.last_sqn == len(wanted)
        assert dict(store.items()) == wanted

    with octavo.open(tmp_path / "s", roll_size_bytes=1 << 20) as store:

        def none_left(file: JournalFile) -> object:
            if file is store._inker.active:
                refused.append(file.name)
                raise OSError(errno.EMFILE, "Too many open files", file.path)
            return real(file)

        with monkeypatch.context() as patch:
            patch.setattr(JournalFile, "map_now", none_left)
            write(store, b"meanwhile")
        first = store._inker.active
        assert first is not None
        assert set(refused) == {first.name}
        write(store, b"after")
        assert store._inker.active is not first
        assert store.verify().ok
    with octavo.open(tmp_path / "s") as store:
        assert dict(store.items()) == wanted
        assert store.stats()["notes"] == []
