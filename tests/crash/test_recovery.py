"""Opening after any kind of stop: what survives, which sqns are given, how long it takes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

import pytest
from whole_store import (
    NEVER_MS,
    SEED,
    Clock,
    Known,
    fill,
    flush,
    killed,
    look,
    opened,
    rolled,
    settle,
    taken,
)

import octavo
from octavo.actors.inker import CEILING_STEP
from octavo.files.door.disk import RealDisk
from octavo.files.journal import cdb, record
from octavo.files.ledger import ledger_key


class CountingDisk(RealDisk):
    """A real disk that counts what is mapped and read."""

    def __init__(self) -> None:
        self.mapped: list[str] = []

    def map(self, path: str) -> mmap | bytes:
        self.mapped.append(path)
        return super().map(path)


def journal_files(path: Path) -> list[str]:
    return sorted(f.name for f in (path / "journal").iterdir() if f.suffix in (".log", ".cdb"))


# ---------------------------------------------------------------- sequence numbers


def test_a_clean_stop_skips_no_sqn(tmp_path: Path) -> None:
    for i in range(1, 6):
        with opened(tmp_path / "s") as store:
            assert store.last_sqn == i - 1
            assert store.put("k", b"%d" % i) == i


def test_no_sqn_is_given_twice_after_unclean_stops(tmp_path: Path) -> None:
    path = tmp_path / "s0"
    given: set[int] = set()
    for i in range(1, 8):
        store = opened(path)
        assert store.last_sqn >= max(given, default=0)
        for _ in range(i % 3):  # also none at all
            sqn = store.put("k", b"%d" % i)
            assert sqn > max(given, default=0)
            given.add(sqn)
        path = killed(store, tmp_path / f"s{i}")
        store.close()


def test_no_sqn_is_given_twice_though_the_journals_tail_is_lost(tmp_path: Path) -> None:
    # Without sync a power cut may take the newest file with it; someone may have seen its sqns.
    store = opened(tmp_path / "s")
    seen = [store.put("k", b"%d" % i) for i in range(20)]
    image = killed(store, tmp_path / "image")
    store.close()
    for file in (image / "journal").glob("*.log"):
        file.unlink()
    with opened(image) as again:
        assert again.get("k") is None
        assert again.put("k", b"new") > seen[-1]


def test_no_sqn_is_given_twice_where_the_active_files_end_is_damaged(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for i in range(20):
            store.put(f"{i}", b"x")
    (file,) = (tmp_path / "s/journal").glob("*.log")
    file.write_bytes(file.read_bytes()[:-1])
    with opened(tmp_path / "s") as store:
        assert store.get("18") == b"x"
        assert store.get("19") is None
        assert store.put("new", b"") > 20


def test_an_unclean_stop_costs_no_more_sqns_than_were_reserved(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    last = store.put("k", b"")
    image = killed(store, tmp_path / "image")
    store.close()
    with opened(image) as again:
        assert last < again.put("k", b"") <= last + 2 * CEILING_STEP + 1


# ---------------------------------------------------------------- what survives


Stop = Callable[[octavo.Store, Path], Path]
KINDS: dict[str, Stop] = {}
"""How a store is stopped; each returns the directory to open next."""


def kind(name: str) -> Callable[[Stop], Stop]:
    def entered(how: Stop) -> Stop:
        KINDS[name] = how
        return how

    return entered


@kind("clean stop")
def _clean(store: octavo.Store, image: Path) -> Path:
    store.close()
    return Path(store.path)


@kind("replay")
def _replay(store: octavo.Store, image: Path) -> Path:
    return killed(store, image)


@kind("ledger")
def _ledger(store: octavo.Store, image: Path) -> Path:
    flush(store)
    return killed(store, image)


@kind("merge")
def _merge(store: octavo.Store, image: Path) -> Path:
    before = store.stats()["ledger"]["rows_merged"]
    for i in range(12):
        store.put(f"filler {i}", b"")
        flush(store)
    assert store.stats()["ledger"]["rows_merged"] > before
    return killed(store, image)


@kind("rebuild of unsealed files")
def _rebuild_unsealed(store: octavo.Store, image: Path) -> Path:
    flush(store)
    image = killed(store, image)
    shutil.rmtree(image / "ledger")
    return image


@kind("rebuild of sealed files")
def _rebuild_sealed(store: octavo.Store, image: Path) -> Path:
    flush(store)
    rolled(store)
    settle(store)
    image = killed(store, image)
    shutil.rmtree(image / "ledger")
    return image


@pytest.mark.parametrize("how", sorted(KINDS))
def test_everything_a_record_says_survives(tmp_path: Path, how: str) -> None:
    now = Clock(1_700_000_000_000)
    store = opened(tmp_path / "s", clock_ms=now)
    docs = store.bucket("docs")
    docs.put("gone", b"old")
    docs.put("kept", b"x")
    rolled(store)
    settle(store)
    docs.put("meta", b"value", metadata=b"says what it is")
    docs.put("ttl", b"short", ttl=60)
    docs.put("far", b"long", expires_at=NEVER_MS)
    docs.put("cleared", b"1", ttl=60)
    docs.put("cleared", b"2")
    docs.delete("gone")
    docs.put("empty", b"")
    docs.put("large", b"compressible " * 10_000)
    docs.put("again", b"1")
    docs.delete("again")
    docs.put("again", b"2")
    expected = {
        b"kept": b"x",
        b"meta": b"value",
        b"ttl": b"short",
        b"far": b"long",
        b"cleared": b"2",
        b"empty": b"",
        b"large": b"compressible " * 10_000,
        b"again": b"2",
    }
    heads = {key: docs.head(key) for key in expected}
    assert dict(docs.items()) == expected
    path = KINDS[how](store, tmp_path / "image")
    store.close()
    with opened(path, clock_ms=now) as again:
        docs = again.bucket("docs")
        assert dict(docs.items()) == expected
        assert {key: docs.get(key) for key in expected} == expected
        assert {key: docs.head(key) for key in expected} == heads
        assert dict(docs.heads()) == heads
        assert docs.head("meta").metadata == b"says what it is"
        assert docs.head("far").expires_at == NEVER_MS
        assert docs.get("gone") is None
        assert docs.head("gone") is None
        assert again.stats()["notes"] == [] or how.startswith("rebuild")
        assert again.verify().problems == []
        now.now += 60_000
        assert docs.get("ttl") is None
        assert docs.head("ttl") is None
        assert b"ttl" not in list(docs.keys())
        assert docs.get("cleared") == b"2"


def test_a_tombstone_in_a_younger_file_hides_the_value_through_a_rebuild(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    for i in range(300):
        store.put(f"{i:03}", b"old")
    flush(store)
    for i in range(0, 300, 2):
        store.delete(f"{i:03}")
        if i % 60 == 0:
            flush(store)
    rolled(store)
    settle(store)
    expected = dict(store.items())
    assert len(expected) == 150
    image = killed(store, tmp_path / "image")
    store.close()
    for _ in range(2):
        shutil.rmtree(image / "ledger")
        with opened(image) as again:
            assert dict(again.items()) == expected
            assert all(again.get(f"{i:03}") is None for i in range(0, 300, 2))


@pytest.mark.parametrize("how", sorted(KINDS))
def test_a_store_of_every_kind_of_record_is_the_same_after_each_kind_of_stop(
    tmp_path: Path, how: str
) -> None:
    print(f"OCTAVO_SEED={SEED}")
    known = Known()
    store = opened(tmp_path / "s")
    fill(store, known, random.Random(SEED), 500)
    path = KINDS[how](store, tmp_path / "image")
    for i in range(12):
        if store.closed:
            break
        if (found := store.head(f"filler {i}")) is not None:
            known.put(b"", b"filler %d" % i, b"", found.sqn, b"")
    store.close()
    found = look(path, known, how)
    assert found.whole
    assert found.problems == []


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize("reopenings", [1, 3])
def test_a_torn_batch_is_dropped_whole_and_stays_away(tmp_path: Path, reopenings: int) -> None:
    store = opened(tmp_path / "s")
    store.put("a", b"before")
    with store.batch() as batch:
        for i in range(5):
            batch.put("docs" if i % 2 else "", f"batch {i}", b"b" * 50)
        batch.put("", "a", b"after")
    image = killed(store, tmp_path / "image")
    store.close()
    (file,) = (image / "journal").glob("*.log")
    file.write_bytes(file.read_bytes()[:-30])
    for number in range(reopenings):
        with opened(image) as again:
            assert again.get("a") == b"before"
            assert list(again.keys(prefix="batch")) == []
            assert list(again.bucket("docs").keys()) == []
            if not number:
                assert any("batch of 6 is not whole" in note for note in again.stats()["notes"])
            flush(again)
            rolled(again)
            settle(again)
            assert [change.key for change in again.changes()] == [b"a"]
            assert again.verify().problems == []
    shutil.rmtree(image / "ledger")
    with opened(image) as again:
        assert dict(again.items()) == {b"a": b"before"}
        assert list(again.bucket("docs").keys()) == []


@pytest.mark.parametrize(
    ("place", "left"), [(-1, [0, 1]), (-200, [0, 1]), (-300, [0, 2]), (-500, [1, 2])]
)
def test_a_batch_of_which_a_byte_is_damaged_takes_no_other_one_with_it(
    tmp_path: Path, place: int, left: list[int]
) -> None:
    store = opened(tmp_path / "s", sync="none")
    for number in range(3):
        with store.batch() as batch:
            for i in range(3):
                batch.put("", f"{number} {i}", b"v" * 20)
    image = killed(store, tmp_path / "image")
    end = taken(store)
    store.close()
    (file,) = (image / "journal").glob("*.log")
    data = bytearray(file.read_bytes())
    data[end + place] ^= 1
    file.write_bytes(data)
    with opened(image) as again:
        assert list(again.keys()) == [f"{number} {i}".encode() for number in left for i in range(3)]
        again.put("next", b"v")
    with opened(image) as again:
        assert len(list(again.keys())) == 7
        assert again.verify().problems == []


def test_a_whole_batch_survives_with_its_positions(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    with store.batch() as batch:
        for i in range(4):
            batch.put("", f"{i}", b"x")
    image = killed(store, tmp_path / "image")
    store.close()
    with opened(image) as again:
        assert [change.batch for change in again.changes()] == [(i, 4) for i in range(4)]


# ---------------------------------------------------------------- how much opening costs


def test_many_clean_opens_go_on_in_one_file(tmp_path: Path) -> None:
    for i in range(200):
        with opened(tmp_path / "s") as store:
            store.put(f"{i:03}", b"value")
    assert len(journal_files(tmp_path / "s")) == 1
    files = [path for path in (tmp_path / "s").rglob("*") if path.is_file()]
    assert len(files) <= 10, files
    with opened(tmp_path / "s") as store:
        assert [int(key) for key in store] == list(range(200))
        assert store.last_sqn == 200


def test_opens_without_a_write_leave_nothing_behind(tmp_path: Path) -> None:
    for _ in range(50):
        opened(tmp_path / "s").close()
    assert len(journal_files(tmp_path / "s")) <= 1
    assert len([path for path in (tmp_path / "s").rglob("*") if path.is_file()]) <= 8


def test_unclean_opens_without_a_write_leave_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "s0"
    for i in range(1, 20):
        store = opened(path)
        path = killed(store, tmp_path / f"s{i}")
        store.close()
    assert len(journal_files(path)) <= 1
    assert len([file for file in path.rglob("*") if file.is_file()]) <= 8


def test_an_open_replays_only_what_the_ledger_does_not_hold(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", push_rows=1 << 16)
    for i in range(3000):
        store.put(f"{i:05}", b"x" * 20)
    flush(store)
    for i in range(17):
        store.put(f"new {i}", b"y")
    image = killed(store, tmp_path / "image")
    store.close()
    with opened(image) as again:
        assert again.stats()["replayed_at_open"] == 17
        assert again.get("new 16") == b"y"
        assert again.get("00000") == b"x" * 20


def test_an_open_touches_few_sealed_files_however_many_there_are(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    for i in range(2000):
        store.put(f"{i:05}", b"x")
    flush(store)
    settle(store)
    store.close()
    assert len(journal_files(tmp_path / "s")) > 5
    disk = CountingDisk()
    with opened(tmp_path / "s", disk) as again:
        settle(again)
        # Three rows of one ledger file, and their records: see manifest/same_store.py.
        assert len([path for path in disk.mapped if path.endswith(".sst")]) == 1
        assert len([path for path in disk.mapped if path.endswith(".cdb")]) <= 3
        assert again.get("00000") == b"x"


def test_a_rebuild_from_sealed_files_needs_no_memory_table(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    for i in range(2000):
        store.put(f"{i:05}", b"x")
    rolled(store)
    settle(store)
    image = killed(store, tmp_path / "image")
    store.close()
    shutil.rmtree(image / "ledger")
    with opened(image) as again:
        assert again.stats()["memory"]["recent_keys"] == 0
        assert again.stats()["persisted_sqn"] == 2000
        assert len(again) == 2000
    with opened(image) as again:
        assert again.stats()["replayed_at_open"] == 0


# ---------------------------------------------------------------- interrupted work


def test_outputs_of_an_interrupted_merge_are_swept(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"v")
        flush(store)
    (real,) = (tmp_path / "s/ledger").glob("*.sst")
    orphan = real.with_name("00000001-000000ff-0-0000.sst")
    shutil.copy(real, orphan)
    with opened(tmp_path / "s") as store:
        assert not orphan.exists()
        assert real.exists()
        assert store.get("k") == b"v"


def test_a_half_sealed_file_is_sealed_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", roll_count=4096)
    for i in range(100):
        store.put(f"{i:02}", b"value")
    image = killed(store, tmp_path / "image")
    store.close()
    (file,) = (image / "journal").glob("*.log")
    rng = random.Random(SEED)
    # Tables were appended, the pointers not written; or torn, or written without the new name.
    tables = rng.randbytes(1600)
    file.write_bytes(file.read_bytes() + tables)
    with opened(image, roll_count=4096) as again:
        assert len(again) == 100
        settle(again)
        sealed = image / "journal" / f"{file.stem}.cdb"
        assert sealed.exists()
        assert not file.exists()
        data = sealed.read_bytes()
        assert cdb.read_trailer(data[-cdb.TRAILER_BYTES :], len(data), "f").count == 100
        assert again.verify().problems == []


def test_a_sealed_file_under_both_names_is_one_file(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    for i in range(100):
        store.put(f"{i:02}", b"value")
    before = shutil.copytree(tmp_path / "s/journal/manifest", tmp_path / "manifest")
    rolled(store)
    settle(store)
    image = killed(store, tmp_path / "image")
    store.close()
    shutil.rmtree(image / "journal/manifest")  # it never heard of the sealing
    shutil.copytree(before, image / "journal/manifest")
    (sealed,) = (image / "journal").glob("*.cdb")
    shutil.copy(sealed, sealed.with_suffix(".log"))
    with opened(image) as again:
        assert len(again) == 100
        assert len(list(again.changes())) == 100
    assert [name for name in journal_files(image) if name.startswith(sealed.stem)] == [sealed.name]


def test_a_store_that_was_never_written_to_opens_after_each_kind_of_stop(tmp_path: Path) -> None:
    for how in sorted(KINDS):
        store = opened(tmp_path / how)
        path = KINDS[how](store, tmp_path / f"{how} image")
        store.close()
        with opened(path) as again:
            assert [key for key in again if not key.startswith(b"filler")] == []


def test_a_damaged_store_stays_the_same_when_it_is_opened_again(tmp_path: Path) -> None:
    known = Known()
    store = opened(tmp_path / "s", roll_count=4096, push_rows=4096)
    fill(store, known, random.Random(SEED), 200)
    image = killed(store, tmp_path / "image")
    store.close()
    (file,) = (image / "journal").glob("*.log")
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 200] = bytes(200)
    file.write_bytes(data)
    states = []
    for opening in range(4):
        with opened(image, roll_count=4096, push_rows=4096) as again:
            states.append({b: dict(again.bucket(b).items()) for b in (b"", b"docs")})
            if opening == 1:
                flush(again)
            if opening == 2:
                rolled(again)
                settle(again)
    assert states[1:] == states[:1] * 3
    shutil.rmtree(image / "ledger")
    with opened(image) as again:
        assert {b: dict(again.bucket(b).items()) for b in (b"", b"docs")} == states[0]


def test_what_a_rebuild_has_saved_is_not_saved_again(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        store.put_many((b"%04d" % number, b"v") for number in range(700))
        settle(store)
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        store.put_many((b"%04d" % number, b"w") for number in range(100))
        flush(store)
        levels = store._bookie.view.ledger.levels
        assert sum(entry.rows for level in levels for entry in level) == 800
    with opened(tmp_path / "s") as store:
        assert store.stats()["notes"] == []
        assert store.verify().ok


@pytest.mark.parametrize("behind", [0, 1])
def test_a_whole_record_whose_number_was_there_already_is_none(tmp_path: Path, behind: int) -> None:
    """As of a write that failed, and could not be cut off before the next ones."""
    with opened(tmp_path / "s") as store:
        for number in range(3):
            store.put(b"%d" % number, b"value")
        end, image = taken(store), killed(store, tmp_path / "image")
    (log,) = (image / "journal").glob("*.log")
    seed = int(log.stem.partition("-")[2], 16)
    whole = log.read_bytes()[:end]
    for number in (1, *range(3, 3 + behind)):
        key, value = b"%d" % number, b"another" if number == 1 else b"value"
        check = seed ^ len(whole)
        whole += record.encode(number, check, record.PUT, ledger_key.STANDARD, b"", key, value, 1)
    log.write_bytes(whole)
    with opened(image) as store:
        assert any("record 1 is out of order" in note for note in store.stats()["notes"])
        assert dict(store.items()) == {b"%d" % number: b"value" for number in range(3 + behind)}
        store.put(b"more", b"value")
        assert store.get(b"1") == b"value"
        assert store.verify().ok
