"""The faults that leveled was seen to have, one after the other, on a store of 20,000 objects: none
of them loses anything here that was not itself destroyed, and none goes unsaid."""

from __future__ import annotations

import errno
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from simdisk import SimDisk

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.opening import shutdown, startup
from octavo.actors.opening.options import Options
from octavo.files.door.disk import RealDisk
from octavo.files.journal import cdb
from octavo.store import Store

OBJECTS = 20_000


def value_of(n: int) -> bytes:
    return b"value %d " % n * 3


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Closed properly: sealed journal files, a ledger of two levels, an active file."""
    home = tmp_path_factory.mktemp("faults") / "s"
    with octavo.open(home, roll_count=4096, push_rows=4096) as store:
        store.put_many((b"%05d" % n, value_of(n)) for n in range(OBJECTS - 500))
        store._running.bookie.call(Bookie.push)
    with octavo.open(home) as store:
        store.put_many((b"%05d" % n, value_of(n)) for n in range(OBJECTS - 500, OBJECTS))
    assert len(list((home / "journal").glob("*.log"))) == 1
    return home


@pytest.fixture
def place(image: Path, tmp_path: Path) -> Path:
    shutil.copytree(image, tmp_path / "s")
    return tmp_path / "s"


def flip(path: Path, at: int) -> None:
    changed = bytearray(path.read_bytes())
    changed[at] ^= 0x10
    path.write_bytes(changed)


def newest(folder: Path) -> Path:
    return sorted(folder.glob("*.log"))[-1]


def sealed(place: Path) -> list[Path]:
    return sorted((place / "journal").glob("*.cdb"))


def check_all(store: octavo.Store, *, without: int | None = None) -> None:
    """HEAD and GET agree, and all is there."""
    wanted = {b"%05d" % n: value_of(n) for n in range(OBJECTS) if n != without}
    assert dict(store.items()) == wanted
    for key in list(wanted)[::97]:
        assert store.get(key) == wanted[key]
        assert store.head(key).size == len(wanted[key])


@pytest.mark.parametrize("half", ["journal", "ledger"])
def test_the_newest_manifest_is_empty(place: Path, half: str) -> None:
    newest(place / half / "manifest").write_bytes(b"")
    with octavo.open(place) as store:
        check_all(store)
        assert any(half in note for note in store.stats()["notes"])


def test_a_byte_is_flipped_in_the_summary_of_a_ledger_file(place: Path) -> None:
    flip(sorted((place / "ledger").glob("*.sst"))[0], 40)
    with octavo.open(place) as store, pytest.raises(octavo.Corruption, match=r"\.sst"):
        check_all(store)
    with octavo.open(place) as store:  # which makes the ledger anew
        check_all(store)


def test_a_byte_is_flipped_in_the_middle_of_the_active_journal_file(place: Path) -> None:
    file = newest(place / "journal")
    lost = OBJECTS - 250
    flip(file, file.read_bytes().index(value_of(lost)) + 4)
    with octavo.open(place) as store:
        check_all(store, without=lost)
        assert any("damaged" in note and file.name in note for note in store.stats()["notes"])


def test_the_hash_tables_of_a_sealed_journal_file_are_zeroed(place: Path) -> None:
    file = sealed(place)[0]
    whole = bytearray(file.read_bytes())
    trailer = cdb.read_trailer(bytes(whole[-cdb.TRAILER_BYTES :]), len(whole), str(file))
    whole[trailer.tables_at : trailer.offsets_at] = bytes(trailer.offsets_at - trailer.tables_at)
    file.write_bytes(whole)
    with octavo.open(place) as store:
        check_all(store)  # reading does not go by them
        (problem,) = store.verify().problems
        assert file.name in problem
        assert "CDB tables" in problem
    assert octavo.repair(place).ok
    with octavo.open(place) as store:
        assert store.verify().ok


def test_a_byte_is_flipped_in_a_block_of_a_ledger_file(place: Path) -> None:
    file = sorted((place / "ledger").glob("*.sst"))[0]
    flip(file, file.stat().st_size // 2)
    with octavo.open(place) as store:
        with pytest.raises(octavo.Corruption, match=file.name):
            check_all(store)
        assert not store.verify().ok
    with octavo.open(place) as store:
        check_all(store)
        assert store.verify().ok


def test_a_byte_is_flipped_in_a_value_of_the_journal(place: Path) -> None:
    lost = 1234
    file = next(file for file in sealed(place) if value_of(lost) in file.read_bytes())
    at = file.read_bytes().index(value_of(lost)) + 4
    flip(file, at)
    with octavo.open(place) as store:
        with pytest.raises(octavo.Corruption) as told:
            store.get(b"%05d" % lost)
        assert told.value.file.endswith(file.name)
        assert 0 < at - told.value.offset < 100
        for n in (lost - 1, lost + 1):
            assert store.get(b"%05d" % n) == value_of(n)


def test_one_root_is_opened_twice(place: Path) -> None:
    with octavo.open(place):
        with pytest.raises(octavo.StoreLocked):
            octavo.open(place)
        other = subprocess.run(
            [sys.executable, "-c", f"import octavo; octavo.open({str(place)!r})"],
            capture_output=True, timeout=600, check=False,
        )  # fmt: skip
        assert b"StoreLocked" in other.stderr


def test_a_store_that_is_not_head_only_is_trimmed(place: Path) -> None:
    with octavo.open(place) as store:
        with pytest.raises(octavo.Misuse, match="trim is for head-only stores"):
            store.trim()
        check_all(store)


def simulated(disk: SimDisk, **options: object) -> Store:
    given = {"worker": False, "roll_count": 256} | options
    return Store(startup.start("/s", Options(**given), disk))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["nothing", "names_reordered"])
def test_every_acknowledged_sync_is_synced_across_rolls_and_compaction(mode: str) -> None:
    for count in (255, 256, 257, 700):
        disk = SimDisk()
        store = simulated(disk)
        for n in range(count):
            store.put(b"%d" % (n % 300), b"%d" % n, sync=n == count - 1)
        if count == 700:
            store.compact()
            store.put(b"after", b"v", sync=True)
        left = disk.after_crash(mode, count)
        again = simulated(left)
        for n in range(max(0, count - 300), count):
            assert again.get(b"%d" % (n % 300)) == b"%d" % n
        shutdown.stop(again._running)


def test_the_tail_is_torn(place: Path) -> None:
    file = newest(place / "journal")
    file.write_bytes(file.read_bytes()[:-7])
    with octavo.open(place) as store:
        check_all(store, without=OBJECTS - 1)
        assert any("torn tail" in note for note in store.stats()["notes"])


@pytest.mark.usefixtures("small_reserve")
def test_the_disk_is_full() -> None:
    """Nothing acknowledged is lost, whatever the write that found no room; it goes on with room."""
    for nth in range(1, 40):
        disk = SimDisk()
        store = simulated(disk, push_rows=64)
        written = {}
        disk.fail("write", 60 + nth * 11, errno.ENOSPC)
        for n in range(600):
            try:
                store.put(b"%d" % n, b"%d" % n)
            except octavo.StorageFull:
                continue
            written[b"%d" % n] = b"%d" % n
        assert len(written) >= 590
        assert dict(store.items()) == written
        left = disk.after_kill()
        again = simulated(left)
        assert dict(again.items()) == written
        again.put(b"room", b"again")
        shutdown.stop(again._running)


def test_a_snapshot_that_was_forgotten_holds_files_until_its_lease_ends(tmp_path: Path) -> None:
    now = [0.0]
    running = startup.start(
        str(tmp_path / "s"), Options(roll_count=256), RealDisk(), monotonic=lambda: now[0]
    )
    with Store(running) as store:
        store.put_many((b"%d" % n, b"old") for n in range(600))
        forgotten = store.snapshot(lease_seconds=60)
        store.put_many((b"%d" % n, b"new") for n in range(600))
        store.compact()
        held = {file.name for file in (tmp_path / "s/journal").glob("*.cdb")}
        assert forgotten[b"7"] == b"old"
        now[0] = 61.0
        store.compact()
        left = {file.name for file in (tmp_path / "s/journal").glob("*.cdb")}
        assert left < held
        with pytest.raises(octavo.SnapshotExpired):
            forgotten.get(b"7")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What is said of the damage is what the tests look at, in the notes."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
