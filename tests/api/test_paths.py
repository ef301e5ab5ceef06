"""Paths of stores, of backups, and of what is neither."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.errors import usable
from octavo.pipeline.feed_files import JournalLook


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with octavo.open(tmp_path / "s", worker=False) as opened:
        yield opened


@pytest.mark.parametrize("path", [None, 3, "", "nul\0"])
def test_what_names_no_directory_is_refused_by_whoever_takes_one(store, path: Any) -> None:
    for call in (octavo.open, octavo.destroy, octavo.repair, store.backup):
        with pytest.raises(octavo.Misuse, match="path="):
            call(path)
    with pytest.raises(octavo.Misuse, match="backup="):
        octavo.restore(path, "there")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (":memory:", r"tempfile\.TemporaryDirectory"),
        ("~", "os.path.expanduser"), ("~/library", "os.path.expanduser"),
        ("s3://bucket/library", "local file system"), ("file:///library", "local file system"),
    ],
)  # fmt: skip
def test_what_means_something_else_elsewhere_makes_no_directory_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(octavo.Misuse, match=said):
        octavo.open(path)
    assert os.listdir() == []
    with octavo.open(f"./{path}", worker=False) as store:
        assert store.path == os.path.normpath(tmp_path / path)


@pytest.mark.parametrize("name", ["new", "snapshots", "journal/new"])
def test_no_store_is_made_within_another(store, tmp_path: Path, name: str) -> None:
    path = f"{store.path}/{name}"
    with octavo.open(tmp_path / "other", worker=False) as other:
        other.put("k", b"v")
    for call in (
        lambda: octavo.open(path),
        lambda: octavo.restore(tmp_path / "other", path),
        lambda: octavo.backup(tmp_path / "other", path),
    ):
        with pytest.raises(octavo.Misuse, match="is within the store"):
            call()
    assert not os.path.exists(path)


def test_nor_where_a_link_leads_to_a_folder_of_another(store, tmp_path: Path) -> None:
    os.symlink(f"{store.path}/journal", tmp_path / "link")
    with pytest.raises(octavo.Misuse, match="is within the store"):
        octavo.open(tmp_path / "link" / "new")


def test_a_store_within_another_that_is_there_is_opened(store, tmp_path: Path) -> None:
    with octavo.open(tmp_path / "other", worker=False) as other:
        other.put("k", b"v")
    os.rename(tmp_path / "other", tmp_path / "s" / "other")
    with octavo.open(tmp_path / "s" / "other", worker=False) as other:
        assert other["k"] == b"v"


def test_a_store_is_not_opened_by_its_class(tmp_path: Path) -> None:
    with pytest.raises(octavo.Misuse, match=r"octavo\.open\(path\)"):
        octavo.Store(str(tmp_path / "s"))  # type: ignore[arg-type]


def test_a_file_is_no_store_and_stays_as_it_is(store, tmp_path: Path) -> None:
    store.backup(tmp_path / "backup")
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    for call in (
        lambda: octavo.open(file),
        lambda: store.backup(file),
        lambda: octavo.restore(tmp_path / "backup", file),
        lambda: octavo.repair(file),
        lambda: octavo.destroy(file),
    ):
        with pytest.raises(octavo.Misuse, match="file"):
            call()
    assert file.read_bytes() == b"mine"


def test_a_store_says_whether_it_is_only_read(store: octavo.Store) -> None:
    assert not store.read_only
    with octavo.open(store.path, read_only=True) as reader:
        assert reader.read_only


def test_repair_leaves_nothing_where_no_store_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(octavo.Misuse, match="there is no store at"):
            octavo.repair(path)
    assert [name.name for name in tmp_path.iterdir()] == ["mine.txt"]


def _looks(path: Path) -> None:
    JournalLook(RealDisk(), str(path)).look()


@pytest.mark.parametrize("ledger", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda path: octavo.open(path, read_only=True),
        lambda path: octavo.restore(path, path.parent / "restored"),
        octavo.repair,
        _looks,
    ],
    ids=["read_only", "restore", "repair", "feed"],
)
def test_who_finds_but_the_beginning_of_a_store_says_so_and_what_to_do(
    tmp_path: Path, call: Callable[[Path], object], ledger: bool
) -> None:
    path = tmp_path / "s"
    octavo.open(path, worker=False).close()
    shutil.rmtree(path / "journal")
    if not ledger:  # as where an opening was killed as it made it
        shutil.rmtree(path / "ledger")
    wanted = (octavo.Corruption, "missing") if ledger else (octavo.Misuse, "the beginning of one")
    with pytest.raises(wanted[0], match=f"{wanted[1]}.*open (it|the store) for writing"):
        call(path)
    octavo.open(path, create=False, worker=False).close()
    call(path)


def _too_long(folder: Path) -> Path:
    return folder / ("x" * 300)


def _below_a_file(folder: Path) -> Path:
    (folder / "file").write_bytes(b"mine")
    return folder / "file" / "store"


def _to_nowhere(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "nowhere" / "at all")
    return folder / "link"


def _in_a_circle(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "link")
    return folder / "link"


@pytest.mark.parametrize(
    ("made", "advice"),
    [
        (_too_long, "choose a shorter one"),
        (_below_a_file, "a part of the path is a file"),
        (_to_nowhere, "symbolic links lead somewhere"),
        (_in_a_circle, "links"),
    ],
)
def test_a_path_that_cannot_be_used_is_refused_with_what_to_do(
    store, tmp_path: Path, made: Callable[[Path], Path], advice: str
) -> None:
    store.put("k", "v")
    store.backup(tmp_path / "backup")
    path = made(tmp_path)
    for call in (
        lambda: octavo.open(path),
        lambda: store.backup(path),
        lambda: octavo.restore(tmp_path / "backup", path),
    ):
        with pytest.raises(octavo.Misuse, match=f"path=.*{advice}"):
            call()
    store.put("k", "w")
    assert store["k"] == b"w"


@pytest.mark.parametrize(
    ("number", "kind", "advice"),
    [
        (errno.EROFS, octavo.Misuse, "only read it, with read_only=True"),
        (errno.EACCES, octavo.Misuse, "must be allowed to read, write and search"),
        (errno.EMFILE, octavo.StorageFull, "raise the limit"),
        (errno.ENOMEM, octavo.StorageFull, "allow this process more memory"),
        (errno.EIO, OSError, "Input/output error"),
    ],
)
def test_what_a_system_says_of_a_path_is_told_with_what_to_do(
    number: int, kind: type[Exception], advice: str
) -> None:
    with pytest.raises(kind, match=advice), usable("path", "/there"):
        raise OSError(number, "Input/output error", "/there/LOCK")


def test_a_store_without_a_part_of_it_is_damaged_and_its_path_is_not_blamed(
    store, tmp_path: Path
) -> None:
    store.put("k", "v")
    store.backup(tmp_path / "backup")
    shutil.rmtree(tmp_path / "backup" / "journal")
    with pytest.raises(octavo.Corruption, match=r"journal.* is missing"):
        octavo.open(tmp_path / "backup", read_only=True)


def test_a_store_is_one_by_whatever_path_and_stays_it_when_the_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "link").symlink_to(tmp_path / "here" / "store\n1", target_is_directory=True)
    with octavo.open("store\n1") as store:
        store.put("k", "v")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(octavo.StoreLocked, match="this process"):
            octavo.open("link")
        store.put("k", "w")
        store.compact()
        store.backup("backup")
    with octavo.open("link") as store, octavo.open("backup", create=False) as backup:
        assert store["k"] == backup["k"] == b"w"


def test_a_path_that_no_name_of_a_file_can_be_is_refused() -> None:
    with pytest.raises(octavo.Misuse, match="cannot be written in"):
        octavo.open("store \ud800")


def of_length(above: Path, length: int) -> Path:
    """A path of so many bytes, in a directory that is made."""
    while length - len(str(above)) > 201:
        above /= "d" * min(200, length - len(str(above)) - 3)
    above.mkdir(parents=True, exist_ok=True)
    return above / ("s" * (length - len(str(above)) - 1))


def test_where_a_path_leaves_room_for_a_store_it_has_all_of_its_names(tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_PATH_MAX") - 1
    for room in range(40, 120):
        path = of_length(tmp_path / str(room), longest - room)
        try:
            opened = octavo.open(path, push_rows=64)
        except octavo.Misuse as error:
            assert "choose a shorter one" in str(error)  # noqa: PT017 - of any that is refused
            continue
        break
    with opened as store:
        store.put_many((str(n), "v") for n in range(200))
        store.compact()
        with octavo.open(path, read_only=True) as reader:
            assert len(reader) == 200
    with octavo.open(path) as store:
        assert store.verify().ok
        assert len(store) == 200


@pytest.mark.parametrize("repaired", [False, True])
def test_damage_under_a_path_that_is_no_text_is_told_and_mended(
    tmp_path: Path, repaired: bool
) -> None:
    path = Path(os.fsdecode(bytes(tmp_path) + b"/s\xff"))
    with octavo.open(path, worker=False, push_rows=64) as store:
        store.put_many((f"{n:04}", b"v") for n in range(3000))
        store.compact()
    for file in (path / "ledger").glob("*.sst"):
        file.write_bytes(bytes(reversed(file.read_bytes())))
    with octavo.open(path, worker=False) as store, pytest.raises(octavo.Corruption):
        store.get("0000")
    if repaired:
        journal = min((path / "journal").glob("*.cdb"))
        data = bytearray(journal.read_bytes())
        data[data.index(b"2000")] ^= 1
        journal.write_bytes(data)
        done = octavo.repair(path)
        assert [lost.sqn for lost in done.files.lost] == [2001]
    with octavo.open(path, worker=False) as store:
        assert len(store) == 3000 - repaired
        assert store.verify().ok
