"""A ledger's folder that was copied, or restored, into the wrong store is not believed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from whole_store import WallClock, flush, opened, rolled, settle, standing_still

import octavo
from octavo.files.door.disk import RealDisk
from octavo.manifest import same_store
from octavo.manifest.closed_store import closed_store


def filled(path: Path, name: str, keys: int) -> dict[bytes, bytes]:
    wanted = {f"{name}-{number:03}".encode(): b"of %d" % number for number in range(keys)}
    with opened(path) as store:
        for key, value in wanted.items():
            store.put(key, value)
        flush(store)
    return wanted


def put_ledger(source: Path, target: Path) -> None:
    shutil.rmtree(target / "ledger")
    shutil.copytree(source / "ledger", target / "ledger")


@pytest.mark.parametrize("keys", [80, 600])  # within the file that is written, or in sealed ones
def test_a_ledger_of_another_store_is_made_anew(tmp_path: Path, keys: int) -> None:
    wanted = filled(tmp_path / "a", "a", keys + 40)
    filled(tmp_path / "b", "b", keys)
    put_ledger(tmp_path / "b", tmp_path / "a")
    with opened(tmp_path / "a") as store:
        assert [store.get(key) for key in wanted] == list(wanted.values())
        assert dict(store.items()) == wanted
        assert any("is of another store" in note for note in store.stats()["notes"])
        assert store.verify().ok
    with opened(tmp_path / "a") as store:
        assert not store.stats()["notes"]
        assert dict(store.items()) == wanted


def test_one_with_the_same_keys_is_told_by_when_they_were_written(tmp_path: Path) -> None:
    filled(tmp_path / "b", "k", 80)
    wanted = filled(tmp_path / "a", "k", 120)
    put_ledger(tmp_path / "b", tmp_path / "a")
    with opened(tmp_path / "a") as store:
        assert any("is of another store" in note for note in store.stats()["notes"])
        assert store.verify().ok
        assert dict(store.items()) == wanted


def test_one_of_a_copy_that_was_written_to_since_is_made_anew(tmp_path: Path) -> None:
    wanted = filled(tmp_path / "a", "a", 50)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    wanted |= filled(tmp_path / "a", "later", 30)
    filled(tmp_path / "copy", "copied", 20)
    put_ledger(tmp_path / "copy", tmp_path / "a")
    with opened(tmp_path / "a") as store:
        assert dict(store.items()) == wanted
        assert any("or of a copy of this one" in note for note in store.stats()["notes"])


def test_an_older_one_of_the_same_store_is_its_own(tmp_path: Path) -> None:
    wanted = filled(tmp_path / "a", "a", 50)
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    wanted |= filled(tmp_path / "a", "later", 30)
    put_ledger(tmp_path / "copy", tmp_path / "a")
    with opened(tmp_path / "a") as store:
        assert dict(store.items()) == wanted
        assert not store.stats()["notes"]


def test_what_compaction_left_tells_as_well(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as store:
        for number in range(3000):
            store.put(f"k{number % 300}", b"%d" % number)
            if not number % 7:
                store.delete(f"k{number % 90}")
        flush(store)
        store.compact()
        wanted = dict(store.items())
    filled(tmp_path / "b", "b", 3427)  # below, it would be from before the compaction
    with opened(tmp_path / "a") as store:
        assert not store.stats()["notes"]
    put_ledger(tmp_path / "b", tmp_path / "a")
    with opened(tmp_path / "a") as store:
        assert any("is of another store" in note for note in store.stats()["notes"])
        assert dict(store.items()) == wanted


def test_index_entries_are_those_of_their_objects(tmp_path: Path) -> None:
    with opened(tmp_path / "a", tags={"doc": octavo.Tag()}) as store:
        for number in range(100):
            store.bucket(b"b\0c").put(f"k{number}", b"v", index={"f": [number, f"t\0{number}"]})
        flush(store)
        store.bucket(b"b\0c").delete("k99")
        flush(store)
    with opened(tmp_path / "a") as store:
        assert not store.stats()["notes"]
        assert store.verify().ok


def test_a_head_only_store_refuses_it_and_goes_on_with_its_own(tmp_path: Path) -> None:
    for name, keys in (("a", 120), ("b", 80)):
        with opened(tmp_path / name, mode="head_only") as store:
            for number in range(keys):
                store.head_bucket("b").put(f"{name}-{number}", b"v", sub_key="s")
            flush(store)
    shutil.copytree(tmp_path / "a" / "ledger", tmp_path / "own")
    put_ledger(tmp_path / "b", tmp_path / "a")
    for _ in range(2):
        with pytest.raises(octavo.Corruption, match=r"is of another store.* put the store's own"):
            opened(tmp_path / "a", mode="head_only").__enter__()
    shutil.rmtree(tmp_path / "a/ledger")
    (tmp_path / "own").rename(tmp_path / "a/ledger")
    with opened(tmp_path / "a", mode="head_only") as store:
        assert store.head_bucket("b").get("a-7", "s") == b"v"
        assert store.verify().ok


def test_who_only_reads_or_works_on_a_closed_store_does_not_believe_it(tmp_path: Path) -> None:
    wanted = filled(tmp_path / "a", "a", 120)
    filled(tmp_path / "b", "b", 80)
    put_ledger(tmp_path / "b", tmp_path / "a")
    with pytest.raises(octavo.Corruption, match=r"a/ledger .*is of another store.* for writing"):
        octavo.open(tmp_path / "a", read_only=True)
    assert not list((tmp_path / "a/snapshots").iterdir())
    with closed_store(RealDisk(), str(tmp_path / "a")) as closed:
        assert closed.ledger is None
    with opened(tmp_path / "a") as store:
        assert dict(store.items()) == wanted
    with octavo.open(tmp_path / "a", read_only=True) as reader:
        assert dict(reader.items()) == wanted


def test_a_newest_row_is_found_wherever_it_stands() -> None:
    for width, code in ((4, "I"), (8, "Q")):
        numbers = [0x0101 << 8, 0x010101, 1 << 24, 7, 0x01000000 + 1]
        column = memoryview(b"".join(n.to_bytes(width, "little") for n in numbers)).cast(code)
        assert [same_store._row_of(column, n) for n in numbers] == [0, 1, 2, 3, 4]
        assert same_store._row_of(column, 99) == 0


@pytest.mark.parametrize("more", [1, 50])
def test_one_that_knows_more_than_the_journal_ever_had_is_made_anew(
    tmp_path: Path, more: int
) -> None:
    wanted = filled(tmp_path / "a", "a", 5)
    others = filled(tmp_path / "b", "b", 5 + more)
    put_ledger(tmp_path / "b", tmp_path / "a")
    with opened(tmp_path / "a") as store:
        assert dict(store.items()) == wanted
        assert [store.get(key) for key in others] == [None] * len(others)
        assert any("more than the journal ever had" in note for note in store.stats()["notes"])
        assert store.put(b"next", b"1") == 6
        assert store.verify().ok


def test_of_a_head_only_store_one_that_knows_more_is_refused(tmp_path: Path) -> None:
    for name, count in (("a", 5), ("b", 50)):
        with octavo.open(tmp_path / name, mode="head_only") as store:
            with store.head_batch() as batch:
                for number in range(count):
                    batch.put("b", b"%03d" % number, b"v")
            flush(store)
    put_ledger(tmp_path / "b", tmp_path / "a")
    with pytest.raises(octavo.Corruption, match="more than the journal ever had"):
        octavo.open(tmp_path / "a")


@pytest.mark.parametrize(("keys", "more"), [(5, 50), (600, 3000)])
def test_nor_does_who_only_reads_or_works_on_a_closed_store_believe_that(
    tmp_path: Path, keys: int, more: int
) -> None:
    wanted = filled(tmp_path / "a", "a", keys)
    with opened(tmp_path / "b") as store:
        for number in range(keys + more):  # all rows are of numbers that a never gave
            store.put(b"%d" % (number % min(more, 300)), b"b")
        flush(store)
    put_ledger(tmp_path / "b", tmp_path / "a")
    with pytest.raises(octavo.Corruption, match=r"more than the journal ever had.* for writing"):
        octavo.open(tmp_path / "a", read_only=True)
    with closed_store(RealDisk(), str(tmp_path / "a")) as closed:
        assert closed.ledger is None
    with opened(tmp_path / "a") as store:
        assert dict(store.items()) == wanted


@pytest.mark.parametrize("keys", [5, 600])
@pytest.mark.parametrize("more", [0, 50])
def test_nor_does_who_reads_already_and_looks_for_a_newer_state(
    tmp_path: Path, keys: int, more: int
) -> None:
    wanted = filled(tmp_path / "a", "a", keys)
    filled(tmp_path / "b", "b", keys + more)
    with octavo.open(tmp_path / "a", read_only=True) as reader:
        with reader.newest() as newer:
            assert dict(newer.items()) == wanted
        put_ledger(tmp_path / "b", tmp_path / "a")
        with pytest.raises(octavo.Corruption, match="for writing"):
            reader.newest()
        assert dict(reader.items()) == wanted
        opened(tmp_path / "a").close()
        with reader.newest() as newer:
            assert dict(newer.items()) == wanted


@pytest.mark.parametrize(("keys", "more"), [(80, 1000), (600, 3000)])
def test_beside_a_killed_store_whose_numbers_reach_far_it_is_known_as_well(
    tmp_path: Path, keys: int, more: int
) -> None:
    """The ceiling of a store that was killed is a million above what it gave."""
    wanted = {b"a-%03d" % number: b"of %d" % number for number in range(keys)}
    with opened(tmp_path / "open") as store:
        for key, value in wanted.items():
            store.put(key, value)
        flush(store)
        with standing_still(store):
            shutil.copytree(tmp_path / "open", tmp_path / "a")
    with opened(tmp_path / "b", push_rows=1 << 16) as store:  # one file
        store.put_many((b"b-%05d" % number, b"b") for number in range(keys + more))
        # Neither the row of the newest number that a gave nor the first one is of the first pass.
        store.put_many([(b"b-%05d" % (keys - 1), b"again"), (b"b-00000", b"again")])
        flush(store)
    put_ledger(tmp_path / "b", tmp_path / "a")
    with pytest.raises(octavo.Corruption, match=r"is of another store.* for writing"):
        octavo.open(tmp_path / "a", read_only=True)
    with closed_store(RealDisk(), str(tmp_path / "a")) as closed:
        assert closed.ledger is None
    with opened(tmp_path / "a") as store:
        assert any("is of another store" in note for note in store.stats()["notes"])
        assert dict(store.items()) == wanted
        assert store.verify().ok


# ---------------------------------------------------------------- one row that is not its journal's

AT = 103
KEY = b"k-%03d" % AT


@contextmanager
def with_one_wrong_row(path: Path, instead: Callable[[octavo.Store], object]) -> Iterator[Any]:
    """A store whose ledger has a put of KEY where the journal has something else; nothing that is
    looked at as it is opened tells so."""
    options = {"push_rows": 1 << 16, "roll_count": 1 << 16, "clock_ms": WallClock(1_000_000)}
    puts: list[Callable[[octavo.Store], object]] = [lambda store: store.put(KEY, b"its"), instead]
    for place, put in zip((path / "b", path / "a"), puts, strict=True):
        with opened(place, **options) as store:
            store.put_many((b"k-%03d" % number, b"value") for number in range(AT))
            put(store)
            store.put_many((b"k-%03d" % number, b"value") for number in range(AT + 1, 200))
            flush(store)
    put_ledger(path / "b", path / "a")
    with opened(path / "a", **options) as store:
        assert not store.stats()["notes"]
        assert not store.verify().ok
        yield store


READS: dict[str, Callable[[Any], object]] = {
    "get": lambda part: part.get(KEY),
    "get_many": lambda part: part.get_many([b"k-001", KEY]),
    "items": lambda part: list(part.items()),
    "backwards": lambda part: list(part.items(reverse=True)),
    "few": lambda part: list(part.items(KEY, limit=2)),
    "values": lambda part: list(part.values()),
}


@pytest.mark.parametrize("way", READS)
def test_the_value_of_another_key_is_never_given(tmp_path: Path, way: str) -> None:
    with with_one_wrong_row(tmp_path, lambda store: store.put(b"q-%03d" % AT, b"not")) as store:
        with pytest.raises(octavo.Corruption, match="is of another key than the ledger says"):
            READS[way](store)
        with store.snapshot() as snap, pytest.raises(octavo.Corruption, match="of another key"):
            READS[way](snap)


@pytest.mark.parametrize("way", ["items", "backwards", "few", "values", "by sqn"])
def test_a_delete_is_never_given_as_a_value(tmp_path: Path, way: str) -> None:
    with (
        with_one_wrong_row(tmp_path, lambda store: store.delete(KEY)) as store,
        store.snapshot() as snap,
    ):
        assert snap.get(KEY) is None
        with pytest.raises(octavo.Corruption, match=r"is no put, though the ledger says it is"):
            list(snap.items_by_sqn()) if way == "by sqn" else READS[way](snap)


@pytest.mark.parametrize("lost", ["file", "manifest"])
def test_work_on_a_closed_store_does_not_go_by_a_journal_that_is_not_whole(
    tmp_path: Path, lost: str
) -> None:
    with opened(tmp_path / "a") as store:
        for number in range(300):
            store.put(b"%03d" % number, b"value")
            if number % 100 == 99:
                rolled(store)
        settle(store)
        flush(store)
    if lost == "file":
        sorted((tmp_path / "a/journal").glob("*.cdb"))[1].unlink()
    else:
        shutil.rmtree(tmp_path / "a/journal/manifest")
    with (
        pytest.raises(octavo.Corruption, match="open the store once, or repair it"),
        closed_store(RealDisk(), str(tmp_path / "a")),
    ):
        pass


def test_a_whole_ledger_file_in_the_place_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    with opened(tmp_path / "a", push_rows=1 << 16) as store:
        for letter in "ab":  # two files, of other keys
            store.put_many((f"{letter}-{number:03}", b"value") for number in range(100))
            flush(store)
        wanted = dict(store.items())
    one, other = sorted((tmp_path / "a/ledger").glob("*.sst"))
    whole = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(whole)
    with (
        opened(tmp_path / "a", push_rows=1 << 16) as store,
        pytest.raises(octavo.Corruption, match="is another file than the manifest means"),
    ):
        store.get(b"a-050")
    with opened(tmp_path / "a") as store:  # which makes the ledger anew
        assert dict(store.items()) == wanted
        assert store.verify().ok


def instead_of_another(ledger: Path) -> None:
    """A whole file of the ledger in the place of its oldest one, as of a hand that restored it."""
    oldest, other, *_ = sorted(ledger.glob("*.sst"))
    oldest.write_bytes(other.read_bytes())


@pytest.mark.parametrize("work", ["merge", "compact"])
def test_work_on_the_ledger_takes_no_other_file_for_one_of_it(tmp_path: Path, work: str) -> None:
    options = {"push_rows": 1 << 16, "compact_every_seconds": None}
    with opened(tmp_path / "a", **options) as store:
        for number in range(3 if work == "merge" else 2):  # of keys that overlap
            store.put_many((b"%03d-%d" % (each, number), b"value") for each in range(100))
            flush(store)
        wanted = dict(store.items())
    instead_of_another(tmp_path / "a/ledger")
    with opened(tmp_path / "a", **options) as store:
        if work == "merge":
            store.put_many((b"%03d-more" % each, b"value") for each in range(100))
            wanted |= {b"%03d-more" % each: b"value" for each in range(100)}
            flush(store)
            assert store._running.penciller.actor.condemned
        else:
            rolled(store)
            settle(store)
            with pytest.raises(octavo.Corruption, match="is another file than the manifest means"):
                store.compact()
    with opened(tmp_path / "a") as store:  # which makes the ledger anew
        assert dict(store.items()) == wanted
        assert store.verify().ok


def test_where_another_file_took_the_place_of_one_nothing_is_trimmed(tmp_path: Path) -> None:
    wanted = {b"%03d" % number: b"v" for number in range(200)}
    with opened(tmp_path / "a", mode="head_only", push_rows=1 << 16) as store:
        store.consumer("late", since=0)  # holds the journal for now
        for number, (key, value) in enumerate(wanted.items(), 1):
            store.head_bucket("b").put(key, value)
            if number % 100 == 0:
                store.trim()
    instead_of_another(tmp_path / "a/ledger")
    with opened(tmp_path / "a", push_rows=1 << 16) as store:
        store.consumer("late").drop()
        with pytest.raises(octavo.Corruption, match="is another file than the manifest means"):
            store.trim()
    shutil.rmtree(tmp_path / "a/ledger")
    with opened(tmp_path / "a", push_rows=1 << 16) as store:
        rows = store.head_bucket("b").rows()
        assert {row.key: row.value for row in rows} == wanted
