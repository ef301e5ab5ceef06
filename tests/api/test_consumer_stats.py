"""What figures tell of the durable consumers: how far behind each is, and what it holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runs import output
from compacted_store import SMALL_FILES
from prometheus_client.parser import text_string_to_metric_families
from whole_store import flush, rolled

import octavo
from octavo import stats
from octavo.actors.compacting import joining
from octavo.actors.inker_clerk import InkerClerk
from octavo.files.door.disk import Disk
from octavo.manifest.journal_manifest import JournalEntry

KEYS = 1200


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    """Two sealed journal files of 512 puts, and some more; one consumer in the midst of the second
    file, one at the end."""
    with octavo.open(tmp_path / "s", worker=False, **SMALL_FILES) as made:
        for number in range(KEYS):
            made.put(b"%04d" % number, b"x" * 50)
        made.consumer("search").acknowledge(KEYS)
        made.consumer("mail", since=0).acknowledge(700)
    with octavo.open(tmp_path / "s", worker=False, **SMALL_FILES) as again:
        yield again


def test_the_owner_tells_of_each_what_it_holds(store: octavo.Store) -> None:
    mail, search = store.stats()["consumers"]
    assert (mail["name"], mail["position"], mail["behind"]) == ("mail", 700, KEYS - 700)
    assert (search["name"], search["position"], search["behind"]) == ("search", KEYS, 0)
    files = store.stats()["journal"]["file_list"]
    later = [file for file in files if file["state"] == "sealed" and file["last_sqn"] > 700]
    assert mail["holds_bytes"] == sum(file["bytes"] for file in later) > 0
    assert search["holds_bytes"] == 0


def test_numbers_that_were_skipped_after_a_kill_are_no_changes(tmp_path: Path) -> None:
    killed = """if True:
        import os, sys, octavo
        store = octavo.open(sys.argv[1])
        store.put_many((str(number), b"v") for number in range(100))
        store.consumer("mail").acknowledge(100)
        os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", killed, tmp_path / "s"], check=False)

    def behind(source: octavo.Store | octavo.ReadOnlyStore) -> int:
        return source.stats()["consumers"][0]["behind"]  # type: ignore[no-any-return]

    with octavo.open(tmp_path / "s") as store:
        assert store.last_sqn > 1_000_000
        assert behind(store) == 0
        for number in range(3):
            store.put("k", b"v")
            with octavo.open(store.path, read_only=True) as reader:
                assert behind(store) == behind(reader) == number + 1
        store.consumer("mail").acknowledge(store.last_sqn - 1)
        assert behind(store) == 1


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[octavo.Store]:
    """A consumer at sqn 50 of 100; then a kill, after which numbers were skipped, and 10,240 puts
    more. All these stand in one journal file that was put together of many."""
    killed = """if True:
        import os, sys, octavo
        store = octavo.open(sys.argv[1])
        store.put_many((str(number), b"v") for number in range(100))
        store.consumer("mail", since=50)
        store.sync()
        os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", killed, tmp_path / "s"], check=False)
    with octavo.open(tmp_path / "s", worker=False, roll_count=256) as store:
        for _ in range(40):
            store.put_many((str(number), b"w") for number in range(256))
    with octavo.open(tmp_path / "s", worker=False) as store:
        flush(store)
        assert store._running.inker_clerk.call(InkerClerk.unasked, joining.join)
        first = store.stats()["journal"]["file_list"][0]
        assert first["base_sqn"] == 1
        assert first["records"] < first["last_sqn"] > 1_000_000
        yield store


def test_in_a_file_with_skipped_numbers_changes_are_counted(joined: octavo.Store) -> None:
    consumer, last = joined.consumer("mail"), joined.last_sqn
    for position in (50, 99, 100, 101, last - 10_240, last - 10_239, last - 1, last):
        consumer.acknowledge(position)
        left = sum(1 for _ in consumer.changes())
        assert left == (10_340 - position if position < 100 else min(last - position, 10_240))
        with octavo.open(joined.path, read_only=True) as reader:
            for source in (joined, reader):
                [told] = source.stats()["consumers"]
                assert (told["position"], told["behind"]) == (position, left)


def test_a_file_that_is_compacted_away_meanwhile_is_counted_in_what_took_its_place(
    joined: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined.consumer("mail").acknowledge(100)
    joined.put("more", b"v")
    rolled(joined)
    flush(joined)
    counted, asked = stats.records_above, []

    def once_gone(disk: Disk, path: str, unread: list[JournalEntry], *where: Any) -> int:
        asked.append(where)
        if len(asked) == 1:
            clerk = joined._running.inker_clerk
            clerk.call(InkerClerk.replace, clerk.actor.sealed(), drops=False)
            assert not Path(path, where[0].name).exists()
        return counted(disk, path, unread, *where)

    monkeypatch.setattr(stats, "records_above", once_gone)
    assert joined.stats()["consumers"][0]["behind"] == 10_241
    assert len(asked) == 2


def test_of_a_damaged_file_as_many_changes_are_told_as_it_may_have(joined: octavo.Store) -> None:
    file = joined.stats()["journal"]["file_list"][0]
    path = Path(joined.path, "journal", file["name"])
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    joined.consumer("mail").acknowledge(100)
    path.unlink()  # so that no map of it changes
    path.write_bytes(data)
    assert joined.stats()["consumers"][0]["behind"] == joined.stats()["journal"]["records"]


def test_when_each_moved_last_is_told(store: octavo.Store) -> None:
    before = store.stats()["now_ms"]
    store.consumer("mail").acknowledge(701)
    [mail] = [each for each in store.stats()["consumers"] if each["name"] == "mail"]
    assert before <= mail["moved_ms"] <= store.stats()["now_ms"]


def test_another_process_reads_the_same(store: octavo.Store) -> None:
    store.sync()
    with octavo.open(store.path, read_only=True) as reader:
        assert reader.stats()["consumers"] == store.stats()["consumers"]
        store.consumer("mail").acknowledge(900)
        assert reader.consumers() == store.consumers() == {"mail": 900, "search": KEYS}


def test_a_reader_is_told_of_a_damaged_file_of_consumers(store: octavo.Store) -> None:
    with octavo.open(store.path, read_only=True) as reader:
        Path(store.path, "CONSUMERS").write_bytes(b"{}")
        with pytest.raises(octavo.Corruption, match="CONSUMERS"):
            reader.consumers()


def test_prometheus_has_a_sample_for_each(store: octavo.Store) -> None:
    found = {
        (sample.name, sample.labels["consumer"]): sample.value
        for family in text_string_to_metric_families(store.stats_prometheus())
        for sample in family.samples
        if "consumer" in sample.labels
    }
    assert found["octavo_consumer_behind", "mail"] == KEYS - 700
    assert found["octavo_consumer_holds_bytes", "search"] == 0
    assert found["octavo_consumer_holds_bytes", "mail"] > 0
    assert len(found) == 6


def test_the_commands_print_them(store: octavo.Store) -> None:
    for command in ("stats", "inspect"):
        path = store.path
        if command == "inspect":
            store.close()
        lines = output(command, path).decode().splitlines()
        [mail] = [line for line in lines if line.strip().startswith("mail")]
        assert mail.split()[1:3] == ["700", str(KEYS - 700)]
