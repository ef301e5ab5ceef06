"""Something else than a file where a store has one: each call gives an error of ours that names it,
or does without it; nothing waits for it, and with the file in its place again nothing is lost."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from whole_store import flush, killed, no_hang, opened

import octavo
from octavo.cli.commands import cli
from octavo.files.door.disk import RealDisk

KEYS = {b"%03d" % number: b"value %03d" % number for number in range(400)}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store whose owner was killed, with every kind of file."""
    home = tmp_path_factory.mktemp("wrong")
    with opened(home / "s", roll_count=256) as store:
        store.consumer("feed", since=0)
        for key, value in KEYS.items():
            store.put(key, value)
            if key == b"300":
                flush(store)
        yield killed(store, home / "image")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # for the name may be too long for a socket's address
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "directory": lambda path: path.mkdir(),
    "FIFO": lambda path: os.mkfifo(path),
    "circle of links": lambda path: os.symlink(path.name, path),
    "socket": _socket,
}

PLACES = {
    "lock": "LOCK",
    "identity": "OCTAVO",
    "identity to come": "OCTAVO.tmp",
    "consumers": "CONSUMERS",
    "reserve": "RESERVE",
    "journal": "journal/*.cdb",
    "journal's end": "journal/*.log",
    "mark of a failed fsync": "journal/UNSYNCED",
    "journal's manifest": "journal/manifest/*.log",
    "manifests of the journal": "journal/manifest",
    "ledger": "ledger/*.sst",
    "mark of a rebuild": "ledger/REBUILD",
    "ledger's manifest": "ledger/manifest/*.log",
    "manifests of the ledger": "ledger/manifest",
}


def _opened(path: Path) -> None:
    with octavo.open(path, create=False, worker=False) as store:
        list(store.items())
        store.put("new", b"new")


def _read(path: Path) -> None:
    with octavo.open(path, read_only=True) as store:
        list(store.items())


def _verified(path: Path) -> None:
    with octavo.open(path, create=False, worker=False) as store:
        store.verify()


def _updated(path: Path) -> None:
    with octavo.open(path, create=False, worker=False) as store:
        store.backup(path.with_name("backup"))
        store.put("new", b"new")
        store.backup(path.with_name("backup"), ledger=False)


CALLS: dict[str, Callable[[Path], object]] = {
    "open": _opened,
    "read only": _read,
    "verify": _verified,
    "repair": octavo.repair,
    "backup": lambda path: octavo.backup(path, path.with_name("backup")),
    "an update of a backup": _updated,
    "restore": lambda path: octavo.restore(path, path.with_name("restored")),
    "restore, copied": lambda path: octavo.restore(path, path.with_name("restored"), copy=True),
    "acknowledge": lambda path: octavo.acknowledge(path, "feed", 7),
    "commit": lambda path: octavo.commit(path, "no-such-job", ["0"]),
    "destroy": octavo.destroy,
}


def _place(store: Path, place: str) -> Path:
    pattern = PLACES[place]
    return next(iter(sorted(store.glob(pattern))), store / pattern)


def _planted(image: Path, tmp_path: Path, place: str, kind: str) -> tuple[Path, Path]:
    """(a copy of the store, the place in it where something of that kind stands now); what stood
    there is moved beside the store."""
    store = shutil.copytree(image, tmp_path / "s")
    at = _place(store, place)
    if at.exists():
        at.rename(tmp_path / "its own")
    KINDS[kind](at)
    return store, at


def _put_back(store: Path, at: Path, own: Path) -> None:
    """Take away what stands there, and put back what stood there before."""
    if at.is_dir() and not at.is_symlink():
        shutil.rmtree(at)
    else:
        at.unlink(missing_ok=True)
    if own.exists():
        own.rename(at)


def _told(call: Callable[[Path], object], store: Path, at: Path) -> str:
    """The error that a call raises, which is to be ours and to name the place, or the directory in
    which it is; "" where it raises none."""
    try:
        with no_hang():
            call(store)
    except octavo.OctavoError as error:
        said = str(error)
        assert str(at) in said or str(at.parent) in said or "no-such-job" in said, said
        return said
    return ""


def _nothing_is_lost(store: Path) -> None:
    with octavo.open(store, create=False, worker=False) as again:
        found = dict(again.items())
        found.pop(b"new", None)
        assert found == KEYS
        assert again.verify().ok


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("place", PLACES)
def test_a_directory_is_told_and_nothing_is_lost(
    image: Path, tmp_path: Path, place: str, call: str
) -> None:
    store, at = _planted(image, tmp_path, place, "directory")
    told = _told(CALLS[call], store, at)
    if call == "destroy" and not told:
        assert not list(tmp_path.glob("s/*/*"))
        return
    _put_back(store, at, tmp_path / "its own")
    if call == "destroy":
        octavo.destroy(store)
        assert not store.exists()
    else:
        _nothing_is_lost(store)


@pytest.mark.parametrize("call", ["open", "read only", "destroy"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "directory"])
@pytest.mark.parametrize("place", PLACES)
def test_so_is_whatever_else_is_no_file(
    image: Path, tmp_path: Path, place: str, kind: str, call: str
) -> None:
    store, at = _planted(image, tmp_path, place, kind)
    told = _told(CALLS[call], store, at)
    if call != "destroy":
        _put_back(store, at, tmp_path / "its own")
        _nothing_is_lost(store)
    elif told:
        _put_back(store, at, tmp_path / "its own")
        octavo.destroy(store)
        assert not store.exists()


@pytest.mark.parametrize("place", ["lock", "identity", "journal's end", "ledger"])
@pytest.mark.parametrize("command", ["stats", "scan", "verify", "changes"])
def test_the_command_says_what_to_do(image: Path, tmp_path: Path, place: str, command: str) -> None:
    store, at = _planted(image, tmp_path, place, "directory")
    found = CliRunner().invoke(cli, [command, str(store)], catch_exceptions=False)
    said = found.stderr + found.stdout
    assert found.exit_code == 0 or (str(at) in said and "move it away" in said), said


def test_a_file_that_may_not_be_read_is_told_by_an_error_of_ours(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = shutil.copytree(image, tmp_path / "s")
    with octavo.open(store, create=False, worker=False) as opened_store:
        real = RealDisk.map

        def refused(disk: RealDisk, path: str) -> object:
            if path.endswith((".cdb", ".sst")):
                raise PermissionError(13, "Permission denied", path)
            return real(disk, path)

        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "map", refused)
            with pytest.raises(octavo.StorageFailed, match=r"\.(cdb|sst).*must be allowed to"):
                list(opened_store.items())
        assert dict(opened_store.items()) == KEYS
