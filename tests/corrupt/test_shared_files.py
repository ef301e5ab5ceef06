"""Journal files that a backup, or a copy made of links, has too stay as they are there, whatever
becomes of the store's own."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from whole_store import opened, settle

from octavo.actors.opening import startup
from octavo.files.door.disk import Disk
from octavo.files.errors import StoreLocked


def test_a_damaged_file_that_the_manifest_lacks_is_sealed_anew_apart_from_its_links(
    tmp_path: Path,
) -> None:
    manifest, earlier = tmp_path / "s" / "journal" / "manifest", tmp_path / "earlier"
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        shutil.copytree(manifest, earlier)  # from before anything was sealed
        for n in range(700):
            store.put(b"%03d" % n, b"v" * 50)
        settle(store)
        store.backup(tmp_path / "b")
    shutil.rmtree(manifest)
    shutil.copytree(earlier, manifest)
    own = min((tmp_path / "s" / "journal").glob("*.cdb"))
    linked = tmp_path / "b" / "journal" / own.name
    assert os.path.samefile(own, linked)
    content = bytearray(own.read_bytes())
    content[-1] ^= 1
    with own.open("r+b") as file:
        file.write(content)
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        assert any("read record by record" in note for note in store.stats()["notes"])
        settle(store)
        assert len(store) == 700
        assert store.verify().ok
    assert linked.read_bytes() == content
    with opened(tmp_path / "s") as again:
        assert again.stats()["notes"] == []


def linked_copy(store: Path, copy: Path) -> None:
    """As ``cp -al``, or ``rsync --link-dest`` of two copies of a store."""
    shutil.copytree(store, copy, copy_function=os.link)


@pytest.mark.parametrize("killed", [False, True])
def test_a_copy_made_of_links_has_nothing_that_is_written_to_the_store_later(
    tmp_path: Path, killed: bool
) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"both", b"v", sync=True)
        if killed:
            shutil.copytree(tmp_path / "s", tmp_path / "k")
    one = tmp_path / ("k" if killed else "s")
    other = tmp_path / "c"
    linked_copy(one, other)
    before = {file.name: file.read_bytes() for file in (other / "journal").glob("*.log")}
    assert before
    with opened(one) as store:
        store.put(b"one", b"v")
        settle(store)
    assert {file.name: file.read_bytes() for file in (other / "journal").glob("*.log")} == before
    with opened(other) as store:
        assert dict(store.items()) == {b"both": b"v"}
        store.put(b"other", b"v")
    with opened(one) as store:
        assert dict(store.items()) == {b"both": b"v", b"one": b"v"}
        assert store.verify().ok
        assert store.stats()["notes"] == []


def test_where_there_is_no_room_for_that_the_store_opens_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(disk: Disk, path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    with opened(tmp_path / "s") as store:
        store.put(b"both", b"v")
    linked_copy(tmp_path / "s", tmp_path / "c")
    monkeypatch.setattr(startup, "set_apart", no_room)
    with opened(tmp_path / "s") as store:
        store.put(b"one", b"v")
        assert store.verify().ok
    with opened(tmp_path / "c") as copy:
        assert dict(copy.items()) == {b"both": b"v"}


def test_a_copy_made_of_links_may_be_open_beside_the_store(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"both", b"v")
    linked_copy(tmp_path / "s", tmp_path / "c")
    with opened(tmp_path / "s") as store, opened(tmp_path / "c") as copy:
        for path in ("s", "c"):
            with pytest.raises(StoreLocked):
                opened(tmp_path / path)
        store.put(b"one", b"v")
        copy.put(b"other", b"v")
        assert dict(store.items()) == {b"both": b"v", b"one": b"v"}
        assert dict(copy.items()) == {b"both": b"v", b"other": b"v"}
