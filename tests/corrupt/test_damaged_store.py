"""Damage in every kind of file of a store: the right value, or absence that a note explains, or a
named error; never a wrong value, never a sqn given twice, never a hang."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from whole_store import (
    SEED,
    Known,
    Outcome,
    fill,
    flush,
    killed,
    look,
    no_hang,
    opened,
    rolled,
    settle,
    standing_still,
)

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.journal import cdb
from octavo.manifest import change_log
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.ledger_manifest import LedgerManifest

PLACES = 24
"""Places of a file in which a bit is flipped, one store each."""


def conflicts(bucket: octavo.Bucket, key: bytes) -> None:
    """A write whose condition does not hold, whatever the key's version is."""
    with pytest.raises(octavo.Conflict):
        bucket.put(key, b"never", if_sqn=1 << 50)


class Images:
    """The undamaged stores that each test damages a copy of."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.known = Known()
        print(f"OCTAVO_SEED={SEED}")
        rng = random.Random(SEED)
        store = opened(home / "closed")
        for part in range(4):
            fill(store, self.known, rng, 110, 110 * part)
            flush(store)
        store.close()
        store = opened(home / "closed")  # a second generation of both manifests
        for part in range(4, 8):
            fill(store, self.known, rng, 60, 110 * part)
            flush(store)
        fill(store, self.known, rng, 50, 900)  # of which the ledger knows nothing
        settle(store)
        assert len(sorted((home / "closed/journal").glob("*.cdb"))) >= 2
        assert len(store.stats()["ledger"]["levels"]) == 2
        killed(store, home / "killed")
        store.close()

    def copy(self, image: str, target: Path) -> Path:
        shutil.copytree(self.home / image, target)
        return target


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    return Images(tmp_path_factory.mktemp("images"))


def flipped(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def active_file(store: Path) -> Path:
    return sorted((store / "journal").glob("*.log"))[-1]


def sealed_file(store: Path) -> Path:
    return sorted((store / "journal").glob("*.cdb"))[0]


def ledger_file(store: Path) -> Path:
    return max((store / "ledger").glob("*.sst"), key=lambda path: path.stat().st_size)


def newest(directory: Path) -> Path:
    return sorted((directory / "manifest").glob("*.log"))[-1]


def sections(path: Path) -> dict[str, tuple[int, int]]:
    """Where the parts of a sealed journal file stand: [low, high) each."""
    data = path.read_bytes()
    trailer = cdb.read_trailer(data[-cdb.TRAILER_BYTES :], len(data), str(path))
    return {
        "pointers": (0, cdb.POINTERS_BYTES),
        "header": (cdb.POINTERS_BYTES, cdb.RECORDS_AT),
        "records": (cdb.RECORDS_AT, trailer.tables_at),
        "tables": (trailer.tables_at, trailer.offsets_at),
        "offsets": (trailer.offsets_at, trailer.windows_at),
        "windows": (trailer.windows_at, len(data) - cdb.TRAILER_BYTES),
        "trailer": (len(data) - cdb.TRAILER_BYTES, len(data)),
    }


def places(low: int, high: int, kind: str) -> list[int]:
    """Offsets in [low, high): both ends, and the rest at random."""
    rng = random.Random(f"{SEED}-{kind}")
    count = min(PLACES, high - low)
    return sorted({low, high - 1, *rng.sample(range(low, high), count)})


def outcomes_of_flips(
    images: Images, image: str, chosen: Callable[[Path], Path], low: int, high: int, home: Path
) -> list[Outcome]:
    """Flip one bit at each of some places in [low, high) of a file, one copy each."""
    rng = random.Random(SEED)
    found = []
    for at in places(low, high, image):
        store = images.copy(image, home / f"{image}-{at}")
        bit = rng.randrange(8)
        flipped(chosen(store), at, bit)
        where = f"OCTAVO_SEED={SEED}: {chosen(store)} bit {bit} of byte {at} flipped"
        found.append(look(store, images.known, where))
        shutil.rmtree(store)
    return found


# ---------------------------------------------------------------- no damage


@pytest.mark.parametrize("image", ["closed", "killed"])
def test_an_undamaged_store_is_whole(images: Images, tmp_path: Path, image: str) -> None:
    found = look(images.copy(image, tmp_path / "s"), images.known, image)
    assert found.whole
    assert found.notes == []
    assert found.problems == []


# ---------------------------------------------------------------- one bit


@pytest.mark.parametrize("image", ["closed", "killed"])
@pytest.mark.parametrize("part", ["header", "records"])
def test_a_flipped_bit_in_the_active_journal_file(
    images: Images, tmp_path: Path, image: str, part: str
) -> None:
    length = active_file(images.home / image).stat().st_size
    low, high = (cdb.RECORDS_AT, length) if part == "records" else (0, cdb.RECORDS_AT)
    for found in outcomes_of_flips(images, image, active_file, low, high, tmp_path):
        assert not found.refused
        if part == "header":
            assert found.whole
        else:
            # One record is damaged; one of a batch takes the others with it.
            assert found.notes or found.named
            assert len(found.lost) + len(found.older) <= 3


@pytest.mark.parametrize(
    "part", ["pointers", "header", "records", "tables", "offsets", "windows", "trailer"]
)
def test_a_flipped_bit_in_a_sealed_journal_file(images: Images, tmp_path: Path, part: str) -> None:
    low, high = sections(sealed_file(images.home / "closed"))[part]
    outcomes = outcomes_of_flips(images, "closed", sealed_file, low, high, tmp_path)
    for found in outcomes:
        assert not found.refused
        assert not found.lost
        assert not found.older
        assert part == "records" or found.whole
        assert found.problems or part == "records", "verify sees nothing"
    if part == "records":
        assert any(found.named for found in outcomes)


def test_a_flipped_bit_in_a_ledger_file(images: Images, tmp_path: Path) -> None:
    length = ledger_file(images.home / "closed").stat().st_size
    for found in outcomes_of_flips(images, "closed", ledger_file, 0, length, tmp_path):
        assert not found.refused
        assert not found.lost
        assert not found.older


@pytest.mark.parametrize("how", ["get", "head", "items", "snapshot", "condition"])
def test_a_damaged_ledger_file_that_was_read_is_rebuilt_at_the_next_start(
    images: Images, tmp_path: Path, how: str
) -> None:
    length = ledger_file(images.home / "closed").stat().st_size
    for at in (8, 100, length // 2, length - 1):
        store = images.copy("closed", tmp_path / f"{at}")
        flipped(ledger_file(store), at)
        errors = 0
        with no_hang(), opened(store) as damaged, damaged.snapshot() as snap:
            for bucket, key in images.known.versions:
                target = (snap if how == "snapshot" else damaged).bucket(bucket)
                try:
                    if how == "items":
                        list(target.items())
                    elif how == "condition":
                        conflicts(damaged.bucket(bucket), key)
                    else:
                        (target.head if how == "head" else target.get)(key)
                except octavo.Corruption:
                    errors += 1
                if how == "items" and key:
                    break
        found = look(store, images.known, f"byte {at} of a ledger file, found by {how}")
        assert found.whole or not errors
        assert found.problems == [] or not errors


def test_a_damaged_ledger_file_that_a_publication_read_is_named_and_rebuilt_at_the_next_start(
    images: Images, tmp_path: Path
) -> None:
    length = ledger_file(images.home / "closed").stat().st_size
    store = images.copy("closed", tmp_path / "s")
    flipped(ledger_file(store), length // 2)
    with opened(store) as damaged, pytest.raises(octavo.Corruption) as told:
        damaged.snapshot().publish()
    assert told.value.file == str(ledger_file(store))
    with opened(store) as again:
        assert any("it is rebuilt from the journal" in note for note in again.stats()["notes"])
        again.snapshot().publish()


def test_a_ledger_file_that_a_publication_misses_is_named(images: Images, tmp_path: Path) -> None:
    store = images.copy("closed", tmp_path / "s")
    gone = ledger_file(store)
    with opened(store) as damaged:
        gone.unlink()
        with pytest.raises(octavo.Corruption) as told:
            damaged.snapshot().publish()
    assert told.value.file == str(gone)


@pytest.mark.parametrize("part", ["records", "trailer"])
def test_who_reads_a_damaged_journal_file_beside_its_owner_is_told_the_owners_file(
    images: Images, tmp_path: Path, part: str
) -> None:
    store = images.copy("closed", tmp_path / "s")
    shutil.rmtree(store / "ledger")
    (store / "ledger" / "manifest").mkdir(parents=True)
    low, high = sections(sealed_file(store))[part]
    flipped(sealed_file(store), low + 10 if part == "records" else high - 1)
    with pytest.raises(octavo.Corruption) as told:
        octavo.open(store, read_only=True)
    assert told.value.file.startswith(f"{store}/journal")
    assert sealed_file(store).name in str(told.value)


@pytest.mark.parametrize("how", ["backup", "restore"])
def test_a_ledger_that_is_known_to_be_damaged_goes_into_no_backup_and_no_restored_store(
    images: Images, tmp_path: Path, how: str
) -> None:
    store = images.copy("closed", tmp_path / "s")
    flipped(ledger_file(store), 8)
    with no_hang(), opened(store) as damaged:
        for bucket, key in images.known.versions:
            with suppress(octavo.Corruption):
                damaged.bucket(bucket).head(key)
        assert damaged._running.penciller.actor.condemned
        if how == "backup":
            damaged.backup(tmp_path / "made")
    if how == "restore":
        octavo.restore(store, tmp_path / "made")
    assert look(tmp_path / "made", images.known, how).whole


@pytest.mark.parametrize("kind", ["journal", "ledger"])
@pytest.mark.parametrize("image", ["closed", "killed"])
def test_a_flipped_bit_in_the_newest_manifest_loses_nothing(
    images: Images, tmp_path: Path, image: str, kind: str
) -> None:
    def chosen(store: Path) -> Path:
        return newest(store / kind)

    length = chosen(images.home / image).stat().st_size
    for found in outcomes_of_flips(images, image, chosen, 0, length, tmp_path):
        assert found.whole, (found.refused, found.lost[:3], found.older[:3], found.named[:3])
        assert found.notes, "nobody was told"


def test_a_flipped_bit_in_the_identity_is_seen(images: Images, tmp_path: Path) -> None:
    file = images.home / "closed/OCTAVO"
    for at in range(file.stat().st_size):
        for bit in (0, 5):
            store = images.copy("closed", tmp_path / "s")
            flipped(store / "OCTAVO", at, bit)
            found = look(store, images.known, f"OCTAVO bit {bit} of byte {at} flipped")
            assert found.refused or found.whole
            assert found.refused, f"bit {bit} of byte {at} of OCTAVO was flipped unnoticed"
            shutil.rmtree(store)


def test_a_flipped_bit_in_the_lock_file_is_harmless(images: Images, tmp_path: Path) -> None:
    length = (images.home / "closed/LOCK").stat().st_size
    for found in outcomes_of_flips(
        images, "closed", lambda store: store / "LOCK", 0, length, tmp_path
    ):
        assert found.whole


# ---------------------------------------------------------------- empty, cut, missing


@pytest.mark.parametrize("kind", ["journal", "ledger"])
@pytest.mark.parametrize("image", ["closed", "killed"])
@pytest.mark.parametrize("left", [0, 1, 63, 64, 100])
def test_an_empty_or_cut_newest_manifest_falls_back(
    images: Images, tmp_path: Path, image: str, kind: str, left: int
) -> None:
    store = images.copy(image, tmp_path / "s")
    file = newest(store / kind)
    file.write_bytes(file.read_bytes()[:left])
    found = look(store, images.known, f"{kind} manifest cut to {left} bytes")
    assert found.whole
    assert found.notes, "nobody was told"


@pytest.mark.parametrize("kind", ["journal", "ledger"])
@pytest.mark.parametrize("how", ["zeroed", "emptied", "flipped", "missing"])
@pytest.mark.parametrize("image", ["closed", "killed"])
def test_all_manifests_of_one_kind_damaged(
    images: Images, tmp_path: Path, image: str, kind: str, how: str
) -> None:
    store = images.copy(image, tmp_path / "s")
    for file in (store / kind / "manifest").iterdir():
        damage(file, how)
    found = look(store, images.known, f"all manifests of the {kind} {how}")
    assert found.whole, (found.refused, found.lost[:3], found.named[:3])


@pytest.mark.parametrize("how", ["zeroed", "emptied", "flipped", "missing"])
def test_all_manifests_of_both_kinds_damaged(images: Images, tmp_path: Path, how: str) -> None:
    store = images.copy("killed", tmp_path / "s")
    for kind in ("journal", "ledger"):
        for file in (store / kind / "manifest").iterdir():
            damage(file, how)
    found = look(store, images.known, f"all manifests {how}")
    assert found.whole, (found.refused, found.lost[:3], found.named[:3])


def damage(file: Path, how: str) -> None:
    """Damage a whole file, in one of the ways in which files get lost."""
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "zeroed":
        file.write_bytes(bytes(len(data)))
    elif how == "emptied":
        file.write_bytes(b"")
    else:
        file.write_bytes(bytes(byte ^ 0x10 for byte in data))


def test_zeroed_hash_tables_of_a_sealed_file_lose_no_key(images: Images, tmp_path: Path) -> None:
    store = images.copy("closed", tmp_path / "s")
    file = sealed_file(store)
    where = sections(file)
    data = bytearray(file.read_bytes())
    for part in ("pointers", "tables"):
        low, high = where[part]
        data[low:high] = bytes(high - low)
    file.write_bytes(data)
    found = look(store, images.known, "hash tables zeroed")
    assert found.whole
    assert any("CDB" in problem for problem in found.problems), "verify sees nothing"


@pytest.mark.parametrize("image", ["closed", "killed"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_missing_sealed_journal_file_is_named(
    images: Images, tmp_path: Path, image: str, number: int
) -> None:
    store = images.copy(image, tmp_path / "s")
    file = sorted((store / "journal").glob("*.cdb"))[number]
    file.unlink()
    found = look(store, images.known, f"{file.name} missing")
    assert not found.refused
    assert any(file.name in note for note in found.notes)
    assert found.named, "its values cannot be there"
    assert all("missing" in error for error in found.named)
    assert not found.lost
    assert not found.older


def test_changes_never_step_over_a_missing_journal_file(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        for number in range(300):
            store.put(b"%03d" % number, b"value")
            if number % 100 == 99:
                rolled(store)
        settle(store)
    file = sorted((tmp_path / "s/journal").glob("*.cdb"))[1]
    file.unlink()
    with opened(tmp_path / "s") as store:
        told: list[int] = []
        with pytest.raises(
            octavo.Corruption, match="changes from sqn 101 to the next file"
        ) as raised:
            told.extend(change.sqn for change in store.changes(since=0))
        assert file.name in str(raised.value)
        assert told == list(range(1, 101))
        assert [change.sqn for change in store.changes(since=200)] == list(range(201, 301))


@pytest.mark.parametrize("read_only", [False, True])
def test_changes_never_step_over_what_a_sealed_file_that_was_cut_short_had(
    tmp_path: Path, read_only: bool
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        store.consumer("mail", since=0)
        for number in range(300):
            store.put(b"%03d" % number, b"value")
            if number % 100 == 99:
                rolled(store)
        flush(store)
    file = sorted((tmp_path / "s/journal").glob("*.cdb"))[1]
    with file.open("r+b") as cut:
        cut.truncate(file.stat().st_size // 2)
    with (
        octavo.open(tmp_path / "s", read_only=True)
        if read_only
        else opened(tmp_path / "s") as store
    ):
        feeds = [store.changes(since=0), store.changes(since=0, compacted=True)]
        if not read_only:
            feeds.append(store.consumer("mail").changes())
        for feed in feeds:
            told: list[int] = []
            with pytest.raises(
                octavo.Corruption, match="changes from sqn 101 to the next file"
            ) as raised:
                told.extend(change.sqn for change in feed)
            assert file.name in str(raised.value)
            assert told == list(range(1, 101))
        assert [change.sqn for change in store.changes(since=200)] == list(range(201, 301))
    lost = {each.sqn for each in octavo.repair(tmp_path / "s").files.lost}
    with opened(tmp_path / "s") as store:
        told = [change.sqn for change in store.changes(since=0)]
    assert lost
    assert told == [sqn for sqn in range(1, 301) if sqn not in lost]


def test_a_missing_journal_file_and_no_ledger(images: Images, tmp_path: Path) -> None:
    store = images.copy("killed", tmp_path / "s")
    file = sorted((store / "journal").glob("*.cdb"))[0]
    file.unlink()
    shutil.rmtree(store / "ledger")
    found = look(store, images.known, f"{file.name} and the ledger missing")
    assert not found.refused
    assert any(file.name in note for note in found.notes)
    assert found.right > len(images.known.versions) // 3


def test_the_first_journal_file_and_every_manifest_of_it_missing(tmp_path: Path) -> None:
    # Nothing is left that knows the file; the ledger still names its sqns.
    store = opened(tmp_path / "live")
    store.put("k", b"of the missing file")
    rolled(store)
    store.put("kept", b"x")
    flush(store)
    image = killed(store, tmp_path / "image")
    store.close()
    shutil.rmtree(image / "journal/manifest")
    sorted((image / "journal").glob("*.cdb"))[0].unlink()
    with no_hang(), opened(image) as again, again.snapshot() as snap:
        for source in (again, snap):
            with pytest.raises(octavo.Corruption, match=r"no journal file|file is missing"):
                source.get("k")
        for i in range(6):
            again.put("k", b"newer %d" % i)
        with pytest.raises(octavo.Corruption, match=r"no journal file|file is missing"):
            list(snap.items())
        assert dict(again.items()) == {b"k": b"newer 5", b"kept": b"x"}


def test_files_that_go_missing_while_the_store_is_open_are_named(
    images: Images, tmp_path: Path
) -> None:
    for kind in ("journal/*.cdb", "ledger/*.sst"):
        home = images.copy("closed", tmp_path / kind[:6])
        with no_hang(), opened(home) as store, store.snapshot() as snap:
            for file in home.glob(kind):
                file.unlink()
            errors: list[str] = []
            for bucket, key in images.known.versions:
                live = store.bucket(bucket)
                for asked in (live.get, snap.bucket(bucket).get, partial(conflicts, live)):
                    try:
                        asked(key)
                    except octavo.Corruption as error:
                        errors.append(str(error))
            assert errors
            assert all("missing" in error for error in errors)
            with pytest.raises(octavo.Corruption, match="missing"):
                list(store.items())
            with pytest.raises(octavo.Corruption, match="missing"):
                list(snap.items())


def test_a_missing_active_journal_file(images: Images, tmp_path: Path) -> None:
    # It is in no manifest: what the ledger knows of it is missed, the rest is not.
    store = images.copy("killed", tmp_path / "s")
    active_file(store).unlink()
    with no_hang():
        again = opened(store)
        assert again.put(b"a", b"b") > images.known.highest
        again.close()


def test_an_active_journal_file_of_which_nothing_is_left_is_told(
    images: Images, tmp_path: Path
) -> None:
    """Found by the campaign ``corruption``, seed 20261122, case 21."""
    store = images.copy("killed", tmp_path / "s")
    active_file(store).write_bytes(b"")
    found = look(store, images.known, "active file emptied")
    assert not found.refused
    assert any("empty; it held no record" in note for note in found.notes)


def test_a_missing_ledger_file_is_rebuilt(images: Images, tmp_path: Path) -> None:
    count = len(list((images.home / "closed/ledger").glob("*.sst")))
    for number in range(count):
        store = images.copy("closed", tmp_path / f"s{number}")
        file = sorted((store / "ledger").glob("*.sst"))[number]
        file.unlink()
        found = look(store, images.known, f"{file.name} missing")
        assert found.whole
        assert any(file.name in note for note in found.notes)


@pytest.mark.parametrize("image", ["closed", "killed"])
def test_a_deleted_ledger_is_rebuilt(images: Images, tmp_path: Path, image: str) -> None:
    store = images.copy(image, tmp_path / "s")
    shutil.rmtree(store / "ledger")
    found = look(store, images.known, "ledger deleted")
    assert found.whole
    assert found.problems == []


@pytest.mark.parametrize("part", ["header", "value"])
def test_a_rebuild_steps_over_a_damaged_record(images: Images, tmp_path: Path, part: str) -> None:
    store = images.copy("closed", tmp_path / "s")
    file = sealed_file(store)
    # The newest version of a key that has an older one.
    base = int(file.name[:16], 16)
    row = next(
        row
        for row in _records(file)
        if images.known.newest(base + row.relative_sqn) and row.key in seen(file, row.at)
    )
    flipped(file, row.at + 5 if part == "header" else row.end - 1)
    shutil.rmtree(store / "ledger")
    found = look(store, images.known, "rebuilt over damage")
    assert found.right == len(images.known.versions) - 1
    assert not found.refused
    if part == "header":
        assert any("damaged and skipped" in note for note in found.notes)
    else:  # which key it was is known
        assert any(file.name in error for error in found.named)


@pytest.mark.parametrize("damaged", ["tables", "trailer", "offsets", "windows"])
def test_a_rebuild_from_sealed_files_whose_tables_are_damaged(
    images: Images, tmp_path: Path, damaged: str
) -> None:
    for number in range(2):
        store = images.copy("killed", tmp_path / f"s{number}")
        file = sorted((store / "journal").glob("*.cdb"))[number]
        low, high = sections(file)[damaged]
        data = bytearray(file.read_bytes())
        data[low:high] = bytes(high - low)
        file.write_bytes(data)
        shutil.rmtree(store / "ledger")
        shutil.rmtree(store / "journal/manifest")
        found = look(store, images.known, f"rebuilt without {damaged} of {file.name}")
        assert found.whole, (found.refused, found.lost[:3], found.older[:3], found.named[:3])


def seen(file: Path, before: int) -> set[bytes]:
    """Keys of the records that stand before an offset."""
    return {row.key for row in _records(file) if row.at < before}


def _records(file: Path) -> list[cdb.Scanned]:
    data = file.read_bytes()
    seed = int(file.stem.rpartition("-")[2], 16)
    end = sections(file)["records"][1] if file.suffix == ".cdb" else len(data)
    damages: list[cdb.Damage] = []
    found = list(cdb.scan(data, cdb.RECORDS_AT, end, seed, damages))
    assert damages == []
    return found


@pytest.mark.parametrize("name", ["", "{}", "[]", "null", '{"format": 2}', "[" * 65000])
def test_an_identity_that_is_none_is_refused_by_name(tmp_path: Path, name: str) -> None:
    octavo.open(tmp_path / "s").close()
    (tmp_path / "s/OCTAVO").write_text(name)
    with pytest.raises((octavo.Corruption, octavo.UnsupportedFormat), match=r"OCTAVO|format 2"):
        octavo.open(tmp_path / "s")
    RealDisk().lock(str(tmp_path / "s/LOCK")).release()  # it was not left locked


@pytest.mark.parametrize("kind", ["journal", "ledger"])
def test_a_newer_manifest_version_is_refused_not_rebuilt(tmp_path: Path, kind: str) -> None:
    store = tmp_path / "s"
    octavo.open(store).close()
    empty = {"journal": JournalManifest, "ledger": LedgerManifest}[kind].empty().encode()
    version = int.from_bytes(empty[4:6], "little") + 1
    newer = empty[:4] + version.to_bytes(2, "little") + empty[6:]
    change_log.ChangeLog.begin(RealDisk(), f"{store}/{kind}/manifest", 7, newer).close()
    with pytest.raises(octavo.UnsupportedFormat, match=f"version {version}"):
        octavo.open(store)


# ---------------------------------------------------------------- the active file, everywhere


class Small:
    """A killed store whose active file is all there is: key i was written by record i."""

    def __init__(self, home: Path, batch: bool) -> None:
        store = opened(home / "live", roll_count=4096)
        for i in range(6):
            if batch and i % 4 == 0:
                with store.batch() as group:
                    for j in range(3):
                        group.put("", f"{i:02}.{j}", b"batch %d" % i * 3)
            else:
                store.put(f"{i:02}", b"value %d " % i * (i % 3))
        with standing_still(store):
            self.file = active_file(home / "live").name
            shutil.copytree(home / "live", home / "image")
        self.all = dict(store.items())
        store.close()
        self.home = home
        self.data = (home / "image/journal" / self.file).read_bytes()
        self.last_sqn = len(self.all)
        self.records = _records(home / "image/journal" / self.file)

    def places(self) -> list[int]:
        """Every byte of the records and the file header, some of the pointers before them."""
        return [*range(0, cdb.POINTERS_BYTES, 101), *range(cdb.POINTERS_BYTES, len(self.data))]

    def opened_with(self, data: bytes) -> octavo.Store:
        path = self.home / "damaged"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.home / "image", path)
        (path / "journal" / self.file).write_bytes(data)
        return opened(path, roll_count=4096)


@pytest.mark.parametrize("batch", [False, True])
def test_a_torn_tail_loses_only_the_torn_record_at_every_cut(tmp_path: Path, batch: bool) -> None:
    small = Small(tmp_path, batch)
    for cut in small.places():
        expected: dict[bytes, bytes] = {}
        for row in small.records:
            if row.batch is not None:
                last = next(
                    other
                    for other in small.records
                    if other.relative_sqn == row.relative_sqn - row.batch[0] + row.batch[1] - 1
                )
                if last.end > cut:
                    continue
            if row.end <= cut:
                expected[row.key] = small.all[row.key]
        with no_hang(), small.opened_with(small.data[:cut]) as store:
            assert dict(store.items()) == expected, f"cut at {cut}"
            for key in small.all:
                assert store.get(key) == expected.get(key), f"cut at {cut}: {key!r}"
                assert (store.head(key) is None) == (key not in expected), f"cut at {cut}: {key!r}"
            assert store.put(b"new", b"") > small.last_sqn


@pytest.mark.parametrize("batch", [False, True])
def test_one_flipped_bit_in_the_active_file_costs_one_operation_at_every_byte(
    tmp_path: Path, batch: bool
) -> None:
    small = Small(tmp_path, batch)
    rng = random.Random(SEED)
    for at in small.places():
        data = bytearray(small.data)
        data[at] ^= 1 << rng.randrange(8)
        hit = [row for row in small.records if row.at <= at < row.end]
        gone = {row.key for row in hit}
        if hit and hit[0].batch is not None:
            first = hit[0].relative_sqn - hit[0].batch[0]
            members = range(first, first + hit[0].batch[1])
            gone = {row.key for row in small.records if row.relative_sqn in members}
        where = f"OCTAVO_SEED={SEED}: byte {at} flipped"
        with no_hang(), small.opened_with(bytes(data)) as store:
            notes = store.stats()["notes"]
            assert notes or not gone, f"{where}: no note"
            there = dict(store.items())
            assert there == {k: v for k, v in small.all.items() if k not in gone}, where
            for key in gone:
                assert store.get(key) is None, where
                assert store.head(key) is None, where
            assert store.put(b"new", b"") > small.last_sqn, where


@pytest.mark.parametrize("end", ["log", "cdb"])
def test_what_a_value_holds_is_never_taken_for_records(tmp_path: Path, end: str) -> None:
    # A value that is a journal file, in a file of which a part is lost.
    inner = opened(tmp_path / "inner")
    for i in range(20):
        inner.put(f"inner {i}", b"must not appear")
    with standing_still(inner):
        stolen = active_file(tmp_path / "inner").read_bytes()
    inner.close()
    store = opened(tmp_path / "live", roll_count=4096)
    store.put("before", b"1")
    store.put("journal", stolen)
    store.put("behind", b"2")
    if end == "cdb":
        rolled(store)
        settle(store)
    killed(store, tmp_path / "image")
    store.close()
    file = (
        next((tmp_path / "image/journal").glob(f"*.{end}"))
        if end == "cdb"
        else active_file(tmp_path / "image")
    )
    row = next(row for row in _records(file) if row.key == b"journal")
    flipped(file, row.at + 3)
    shutil.rmtree(tmp_path / "image/ledger")
    if end == "cdb":
        low, high = sections(file)["offsets"]
        data = bytearray(file.read_bytes())
        data[low:high] = bytes(high - low)
        file.write_bytes(data)
    with no_hang(), opened(tmp_path / "image") as again:
        assert list(again.keys()) == [b"before", b"behind"]
        assert again.get("behind") == b"2"


def test_a_stretch_of_zeros_in_the_active_file_keeps_what_follows(tmp_path: Path) -> None:
    store = opened(tmp_path / "live", roll_count=4096, push_rows=4096)
    for i in range(400):
        store.put(f"{i:03}", b"value %d" % i)
    killed(store, tmp_path / "image")
    store.close()
    file = active_file(tmp_path / "image")
    records = _records(file)
    data = bytearray(file.read_bytes())
    low, high = records[100].at + 7, records[180].at + 3
    data[low:high] = bytes(high - low)
    file.write_bytes(data)
    with no_hang(), opened(tmp_path / "image") as again:
        for i in range(400):
            gone = 100 <= i <= 180
            assert again.get(f"{i:03}") == (None if gone else b"value %d" % i)
            assert (again.head(f"{i:03}") is None) == gone
        assert any("skipped" in note for note in again.stats()["notes"])
        assert [change.sqn for change in again.changes()] == [
            *range(1, 101),
            *range(182, 401),
        ]
