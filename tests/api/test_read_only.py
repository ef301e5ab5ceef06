"""A store opened with read_only=True, beside its owner or without one."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from look import NOW_MS, clock_ms
from one_thread import forget, one_thread
from one_thread import opened as opened_on
from simdisk import SimDisk
from whole_store import SEED, WallClock, active_file, flush, killed, opened, rolled, settle

import octavo
from octavo import read_only
from octavo.actors.compacting import journal_install
from octavo.actors.opening import startup
from octavo.files.door.disk import Disk, RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.journal import journal_names
from octavo.manifest import change_log, pinning, published
from octavo.manifest.journal_manifest import JournalManifest


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "störe") as store:
        rng = random.Random(SEED)
        print(f"OCTAVO_SEED={SEED}")
        for _ in range(1200):
            key = b"k%03d" % rng.randrange(300)
            if rng.random() < 0.2:
                store.delete(key)
            else:
                store.put(key, rng.randbytes(rng.randrange(60)), metadata=b"m")
        store.bucket("b").put("x", "y", index={"f": ["t"]})
        yield store


def everything(source: octavo.Store | octavo.Snapshot) -> dict[tuple[bytes, bytes], object]:
    return {
        (name, key): (value, source.bucket(name).head(key))
        for name in source.buckets()
        for key, value in source.bucket(name).items()
    }


@pytest.mark.parametrize("flushed", [False, True])
def test_it_reads_what_the_owner_reads(store: octavo.Store, flushed: bool) -> None:
    if flushed:
        flush(store)
    want = everything(store)
    with octavo.open(store.path, read_only=True) as found:
        for key in list(store.keys()):
            store.delete(key)
        flush(store)
        store.compact()
        assert everything(found) == want
        assert len(found) == len(list(found.keys(reverse=True)))
        assert found[b"k001"] == found.get(b"k001") if b"k001" in found else True
        assert list(found.bucket("b").index("f").keys()) == [b"x"]
        assert everything(found.snapshot()) == want
        assert [item.key for item in found.items_by_sqn()][-1] == b"x"
    assert not os.listdir(f"{store.path}/snapshots")


def test_a_closed_store_is_read(store: octavo.Store) -> None:
    want, last = everything(store), store.last_sqn
    store.close()
    with octavo.open(store.path, read_only=True) as found:
        assert everything(found) == want
        assert found.last_sqn == last


def test_changes_come_as_the_owner_tells_them(store: octavo.Store) -> None:
    with octavo.open(store.path, read_only=True) as found:
        want = list(store.changes())
        store.put("later", "x")
        assert list(found.changes()) == want != []
        assert [change.sqn for change in found.changes(since=1000)] == list(range(1001, 1202))
        with pytest.raises(octavo.Misuse, match="since=-1"):
            found.changes(-1)
    flush(store)
    store.compact()
    with octavo.open(store.path, read_only=True) as found:
        with pytest.raises(octavo.HistoryCompacted, match="since=0"):
            found.changes()
        assert list(found.changes(compacted=True)) == list(store.changes(compacted=True))


def test_figures_of_the_files(store: octavo.Store) -> None:
    flush(store)
    with octavo.open(store.path, read_only=True) as found:
        told, owners = found.stats(), store.stats()
        assert told["read_only"]
        assert told["last_sqn"] == owners["last_sqn"]
        assert told["journal"]["records"] == owners["journal"]["records"]
        assert told["ledger"]["levels"] == owners["ledger"]["levels"]
        with pytest.raises(octavo.Misuse, match=r"stats\(score=True\).*read_only"):
            found.stats(score=True)


@pytest.mark.parametrize("name", ["put", "delete", "batch", "sync", "compact", "publish"])
def test_writes_are_refused_by_name(store: octavo.Store, name: str) -> None:
    with octavo.open(store.path, read_only=True) as found:
        with pytest.raises(octavo.Misuse, match=f"{name}.*read_only"):
            getattr(found, name)("a", "b")
        with found.snapshot() as again, pytest.raises(octavo.Misuse, match=f"{name}.*read_only"):
            getattr(again, name)("a", "b")
        with pytest.raises(octavo.Misuse, match=r"put.*read_only"):
            found["a"] = "b"  # type: ignore[index]
        with pytest.raises(octavo.Misuse, match=r"put.*read_only"):
            found.bucket("b").put("a", "b")  # type: ignore[attr-defined]
    with pytest.raises(octavo.Closed):
        found.get("a")


def test_a_reader_has_no_writes_for_who_asks(store: octavo.Store) -> None:
    with octavo.open(store.path, read_only=True) as found:
        assert [name for name in ("put", "batch", "pop", "backup") if hasattr(found, name)] == []
        assert hasattr(found.bucket("b"), "get")
        assert not hasattr(found.bucket("b"), "put")


@pytest.mark.parametrize("name", ["put", "delete"])
def test_writes_of_head_only_stores_are_refused_by_name(tmp_path: Path, name: str) -> None:
    octavo.open(tmp_path / "s", mode="head_only").close()
    with octavo.open(tmp_path / "s", read_only=True) as found:
        with pytest.raises(octavo.Misuse, match=f"{name}.*read_only"):
            getattr(found.head_bucket("b"), name)("a")
        with found.snapshot() as again, pytest.raises(octavo.Misuse, match=f"{name}.*read_only"):
            getattr(again.head_bucket("b"), name)("a")


def test_options_that_say_how_to_write_are_refused(store: octavo.Store, tmp_path: Path) -> None:
    with pytest.raises(octavo.Misuse, match="sync"):
        octavo.open(store.path, read_only=True, sync="always")
    with pytest.raises(octavo.Misuse, match="max_open_files=3"):
        octavo.open(store.path, read_only=True, max_open_files=3)
    with pytest.raises(octavo.Misuse, match="holds no store"):
        octavo.open(tmp_path / "none", read_only=True)
    assert not (tmp_path / "none").exists()


def test_an_empty_store(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store, octavo.open(store.path, read_only=True) as found:
        assert everything(found) == {}
        assert found.last_sqn == 0


def test_what_was_left_of_a_making_that_was_cut_short_is_no_store_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinning, "ATTEMPTS", 2)
    octavo.open(tmp_path / "whole").close()
    (tmp_path / "s").mkdir()
    shutil.copy(tmp_path / "whole" / "OCTAVO", tmp_path / "s")  # which comes first
    with pytest.raises(octavo.Misuse, match="open it for writing to complete it"):
        octavo.open(tmp_path / "s", read_only=True)
    octavo.open(tmp_path / "s").close()
    with octavo.open(tmp_path / "s", read_only=True) as found:
        assert found.last_sqn == 0


def test_batches_are_whole_while_the_store_is_written(tmp_path: Path) -> None:
    # Not so small files that one is sealed every few milliseconds, for which a pin may find no gap.
    with opened(tmp_path / "s", roll_count=1 << 13) as store:
        over = threading.Event()

        def write() -> None:
            number = 0
            while not over.is_set():
                number += 1
                with store.batch() as batch:
                    for key in (b"a", b"b", b"c"):
                        batch.put(b"", key, b"%d" % number)
                store.put(b"k%d" % (number % 500), b"x" * 200)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(10):
                with octavo.open(store.path, read_only=True) as found:
                    assert len({found.get(key) for key in (b"a", b"b", b"c")}) == 1
                    assert all(len(value) == 200 for value in found.values(prefix="k"))
        finally:
            over.set()
            writer.join()


def test_the_command_line_reads_a_store_that_is_open(store: octavo.Store) -> None:
    store.put("n", "1")
    for arguments, want in (
        (["get", store.path, "n"], b"1"),
        (["scan", store.path, "--prefix", "n"], b"n\t1\n"),
        (["buckets", store.path], b"(default)\nb\n"),
        (["dump", store.path, "--bucket", "b"], b'"y"'),
        (["changes", store.path, "--since", "1201"], b"1202\tput\t"),
        (["stats", store.path], b"read_only"),
    ):
        command = [sys.executable, "-m", "octavo", *arguments]
        done = subprocess.run(command, capture_output=True, check=True)
        assert want in done.stdout


def test_what_a_compaction_has_made_and_not_yet_entered_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands beside the files whose place it is to take."""
    replace, seen = journal_install.replace_files, list[dict[bytes, bytes]]()

    def looked(*given: Any) -> Any:
        with octavo.open(tmp_path / "s", read_only=True) as reader:
            seen.append(dict(reader.items()))
        return replace(*given)

    monkeypatch.setattr(journal_install, "replace_files", looked)
    with opened(tmp_path / "s", roll_count=256) as store:
        for number in range(700):
            store.put(b"%d" % (number % 100), b"%d" % number)
        flush(store)
        store.compact()
        assert seen[0] == dict(store.items())


def test_a_store_that_is_compacted_while_it_is_pinned_is_pinned_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger before a compaction and the journal after it do not belong together."""
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        for n in range(40):
            store.put(b"%d" % n, b"first")
        rolled(store)
        flush(store)
        real = pinning.change_log.recover
        looks: list[str] = []

        def recover(disk: Disk, directory: str) -> change_log.Recovered:
            found = real(disk, directory)
            looks.append(directory)
            if len(looks) == 1:
                assert "ledger" in directory
                for n in range(20):
                    store.delete(b"%d" % n)
                rolled(store)
                flush(store)
                store.compact()
            return found

        monkeypatch.setattr(pinning.change_log, "recover", recover)
        with octavo.open(store.path, read_only=True) as reader:
            assert dict(reader.items()) == dict(store.items())
        assert len(looks) > 4


def test_a_store_that_is_opened_anew_while_it_is_pinned_is_pinned_as_it_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unsealed file that somebody has linked an opening makes anew, under its name: the link has
    none of the records that come then, and the ledger may have all of them."""
    store = opened(tmp_path / "s")
    store.put(b"old", b"1")
    real = pinning.read_manifests
    again: list[octavo.Store] = []

    def read_manifests(
        disk: Disk, path: str, known: pinning.Manifests | None = None
    ) -> pinning.Manifests:
        if known is not None and not again:  # all is linked
            store.close()
            again.append(opened(path))
            again[0].put(b"new", b"2")
            flush(again[0])
        return real(disk, path, known)

    monkeypatch.setattr(pinning, "read_manifests", read_manifests)
    with octavo.open(tmp_path / "s", read_only=True) as reader:
        assert dict(reader.items()) == {b"old": b"1", b"new": b"2"}
    again[0].close()


def test_a_store_that_changes_some_times_and_then_is_opened_anew_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a manifest of before an opening its files look like those of one that was lost."""
    stores = [opened(tmp_path / "s")]
    real = pinning.read_manifests
    attempts = 0

    def read_manifests(
        disk: Disk, path: str, known: pinning.Manifests | None = None
    ) -> pinning.Manifests:
        nonlocal attempts
        found = real(disk, path, known)
        if known is None:
            attempts += 1
            if attempts == pinning.DAMAGED + 1:
                stores[-1].close()
                stores.append(opened(path))
            if attempts <= pinning.DAMAGED + 1:
                stores[-1].put(b"%d" % attempts, b"v")
                rolled(stores[-1])
                flush(stores[-1])
        return found

    monkeypatch.setattr(pinning, "read_manifests", read_manifests)
    with octavo.open(tmp_path / "s", read_only=True) as reader:
        assert list(reader) == [b"%d" % n for n in range(1, pinning.DAMAGED + 2)]
    assert attempts > pinning.DAMAGED + 1
    stores[-1].close()


def test_a_listing_that_misses_a_file_as_it_is_sealed_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a directory of hundreds of files a listing takes several calls, and what is renamed
    between them, from where it did not look yet to where it did, it has under neither name."""
    disk = SimDisk()
    with one_thread("listing") as pool:
        store = opened_on(disk, clock_ms=clock_ms)
        store.put(b"a", b"1")
        rolled(store)
        store.put(b"b", b"2")
        real, renamed = disk.listdir, threading.Event()

        def listdir(path: str) -> list[str]:
            names = real(path)
            if path == "/store/journal" and not renamed.is_set():
                renamed.set()
                oldest = min(name for name in names if name.endswith(journal_names.LOG))
                names.remove(oldest)
                while oldest in real(path):
                    pool.go_on(1)
            return names

        monkeypatch.setattr(disk, "listdir", listdir)
        found = pinning.pin(disk, "/store", 1000, NOW_MS)
        assert renamed.is_set()
        assert sum(level.rows for level in found.ledger.levels[0]) == 2
        forget(store)


def test_a_head_only_store_whose_ledger_is_gone_is_not_read_as_an_empty_one(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        store.head_bucket("").put("k", b"v")
        store.trim()
    shutil.rmtree(tmp_path / "s" / "ledger" / "manifest")
    (tmp_path / "s" / "ledger" / "manifest").mkdir()
    with pytest.raises(octavo.Corruption, match="restore a backup"):
        octavo.open(tmp_path / "s", read_only=True)


def test_a_head_only_store_of_whose_journal_nothing_is_left_is_read_whole(tmp_path: Path) -> None:
    with opened(tmp_path / "s", mode="head_only") as store:
        bucket = store.head_bucket("b")
        for number in range(300):
            bucket.put(b"%03d" % number, b"value")
        rolled(store)
        flush(store)
        store.trim()
        assert not store._running.inker.actor.manifest.entries
        with octavo.open(store.path, read_only=True) as reader:
            assert reader.last_sqn == store.last_sqn == 300
            assert list(reader.head_bucket("b").rows()) == list(bucket.rows())
            with reader.newest() as newer:
                assert len(newer.head_bucket("b")) == 300


def test_it_lists_what_its_owner_has_published_by_now(store: octavo.Store) -> None:
    with octavo.open(store.path, read_only=True) as reader:
        assert reader.published() == []
        with store.snapshot() as snap:
            made = snap.publish("later")
        assert [one.id for one in reader.published()] == [made.id]
        assert reader.published("later")[0].sqn == made.sqn
        with pytest.raises(octavo.Misuse, match="no published snapshot 'other'"):
            reader.published("other")
    with pytest.raises(octavo.Closed):
        reader.published()


LEAVING = """
import sys
import octavo
dropped = octavo.open(sys.argv[1], read_only=True)["k"]
kept = octavo.open(sys.argv[1], read_only=True).bucket("b")
left = octavo.open(sys.argv[1], read_only=True)
assert dropped == b"v" and kept["x"] == b"y" and left["k"] == b"v"
"""


def test_the_links_of_one_that_is_dropped_go_with_the_next_or_the_process(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", "v")
        store.bucket("b").put("x", "y")
        there = tmp_path / "s" / "snapshots"
        assert octavo.open(store.path, read_only=True)["k"] == b"v"
        bucket = octavo.open(store.path, read_only=True).bucket("b")
        assert len(os.listdir(there)) == 1
        octavo.open(store.path, read_only=True).close()
        assert bucket["x"] == b"y"  # its store is dropped, and what that read through is not
        del bucket
        octavo.open(store.path, read_only=True).close()
        assert not os.listdir(there)
        subprocess.run([sys.executable, "-c", LEAVING, store.path], check=True)
        assert not os.listdir(there)


READING = """
import sys
import octavo
reader = octavo.open(sys.argv[1], read_only=True)
again = reader.newest()
with reader.published("kept")[0].open() as kept:
    print(reader["k"], again["k"], kept["k"], flush=True)
    sys.stdin.readline()
"""


def test_links_of_readers_that_are_killed_go_with_the_next_sweep(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store, octavo.open(store.path, read_only=True) as mine:
        store.put("k", "v")
        made = store.snapshot().publish("kept")
        there = tmp_path / "s" / "snapshots"
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", READING, store.path],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for _ in range(2)
        ]  # fmt: skip
        try:
            for reader in readers:
                assert reader.stdout is not None
                assert reader.stdout.readline() == b"b'v' b'v' b'v'\n"
            store.snapshot().publish().release()  # which sweeps
            assert len(os.listdir(there)) == 2 + 2 * 3
            readers[0].kill()
            readers[0].wait()
            store.snapshot().publish().release()
            assert len(os.listdir(there)) == 2 + 3
            assert mine.newest().published("kept")[0].id == made.id
        finally:
            for reader in readers:
                reader.kill()
                reader.communicate()
        store.snapshot().publish().release()
        assert sorted(os.listdir(there)) == sorted([made.id, mine._found.id])
        assert mine.get("k") is None


def test_an_opening_that_fails_leaves_no_links(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        assert len(os.listdir(f"{store.path}/snapshots")) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(read_only, "PublishedReader", interrupted)
    with pytest.raises(KeyboardInterrupt):
        octavo.open(store.path, read_only=True)
    assert not os.listdir(f"{store.path}/snapshots")


@pytest.mark.parametrize(
    "call", ["buckets", "changes", "consumers", "keys", "newest", "published", "stats", "verify"]
)
def test_one_that_is_closed_says_so(store: octavo.Store, call: str) -> None:
    reader = octavo.open(store.path, read_only=True)
    reader.close()
    with pytest.raises(octavo.Closed):
        next(iter(getattr(reader, call)()), None)


def test_one_that_is_swept_by_a_clock_that_is_ahead_has_expired_and_is_not_damaged(
    store: octavo.Store,
) -> None:
    with octavo.open(store.path, read_only=True) as reader:
        published.remove(RealDisk(), reader._found.path)
        for read in (lambda: dict(reader.items()), lambda: list(reader.changes()), reader.verify):
            with pytest.raises(octavo.SnapshotExpired, match="is gone"):
                read()


def test_what_changes_nothing_is_looked_at_all_the_same(store: octavo.Store) -> None:
    with pytest.raises(octavo.Misuse, match="create='no'"):
        octavo.open(store.path, read_only=True, create="no")  # type: ignore[typeddict-item]
    with octavo.open(store.path, read_only=True, create=False) as found:
        assert found.snapshot(10).sqn == found.sqn
        with pytest.raises(octavo.Misuse, match="lease_seconds=-1"):
            found.snapshot(-1)


def test_reads_go_on_where_there_is_no_room_to_renew_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, clock = SimDisk(), WallClock(1_800_000_000_000)
    monkeypatch.setattr(read_only, "wall_clock_ms", clock)
    with opened("/store", disk, clock_ms=clock) as store:
        store.put("k", b"v")
        reader = read_only.opened(disk, "/store", {})
        disk.fail("create", 1, errno.ENOSPC, lasting=True)
        clock.now += 40 * 60_000
        assert reader["k"] == b"v"
        assert reader["k"] == b"v"
        with pytest.raises(octavo.StorageFull, match="the lease of"):
            reader.renew()
        disk.heal()
        clock.now += 15 * 60_000
        assert reader["k"] == b"v"
        clock.now += 20 * 60_000  # more than was left of it
        assert reader["k"] == b"v"
        reader.close()


def test_a_lease_that_finds_no_room_to_be_renewed_ends_when_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, disk = WallClock(1_000_000), SimDisk()
    monkeypatch.setattr(read_only, "wall_clock_ms", clock)
    with opened("/store", disk, clock_ms=clock) as store:
        store.put("k", b"v")
        reader = read_only.opened(disk, "/store", {})
        disk.fail("create", 1, errno.ENOSPC, lasting=True)
        clock.now += 60 * 60_000 - 1
        assert reader["k"] == b"v"  # and it is not tried again for a while
        clock.now += 1
        for _ in range(2):
            with pytest.raises(octavo.SnapshotExpired):
                reader.get("k")
        reader.close()


def test_what_is_written_behind_a_commit_that_is_being_made_is_not_seen_without_it(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file for what comes behind a commit is there before that is decided, and a look may come
    just then."""
    sqn = store.put(b"before", b"1")
    writer = StagedWriter(RealDisk(), store.path, "j", "0-0", now_ms=NOW_MS)
    writer.put_many(b"", [b"loaded"], [b"2"])
    writer.finish()
    inker, linked = store._inker, pinning._linked
    real = inker.commit
    committing, looked = threading.Event(), threading.Event()

    def commit(manifest: JournalManifest) -> None:
        if manifest.commits:
            committing.set()
            assert looked.wait(600)
        real(manifest)

    def seen_before(*which: Any) -> Any:
        assert committing.wait(600)
        found = linked(*which)
        looked.set()
        loading.join()
        store.put(b"after", b"3")
        return found

    monkeypatch.setattr(inker, "commit", commit)
    monkeypatch.setattr(pinning, "_linked", seen_before)
    loading = threading.Thread(target=store.ingest, args=("j", ["0-0"]))
    loading.start()
    with octavo.open(store.path, read_only=True) as reader:
        assert reader.sqn == sqn
        assert {b"before", b"loaded", b"after"} & set(reader.keys()) == {b"before"}


@pytest.mark.parametrize("at", [2048, 2300], ids=["header", "record"])
def test_damage_that_an_opening_steps_over_keeps_no_reader_out(tmp_path: Path, at: int) -> None:
    path = str(tmp_path / "s")
    with opened(path) as store:
        store.put_many((b"%d" % number, b"value") for number in range(9))
        file = active_file(store)
    with file.open("r+b") as damaged:
        damaged.seek(at)
        damaged.write(b"\xff" * 8)
    with pytest.raises(octavo.Corruption, match="open the store for writing"):
        octavo.open(path, read_only=True)
    with opened(path) as store:
        assert store.stats()["notes"]
        with octavo.open(path, read_only=True) as reader:
            assert everything(reader) == everything(store)


@pytest.mark.parametrize("called", ["torn tail", "a batch of", "held no record"])
def test_damage_is_told_whatever_the_directory_of_the_store_is_called(
    tmp_path: Path, called: str
) -> None:
    path = tmp_path / called
    with opened(path) as store:
        store.put_many((b"%d" % number, b"value") for number in range(9))
        file = active_file(store)
    with file.open("r+b") as damaged:
        damaged.seek(2300)
        damaged.write(b"\xff" * 8)
    with pytest.raises(octavo.Corruption, match="open the store for writing"):
        octavo.open(path, read_only=True)


@pytest.mark.parametrize("half", ["journal", "ledger"])
def test_a_manifest_that_stays_damaged_does_not_count_as_one_that_changes(
    tmp_path: Path, half: str
) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"v")
        flush(store)
        image = killed(store, tmp_path / "image")
    for log in (image / half / "manifest").iterdir():
        raw = bytearray(log.read_bytes())
        raw[len(raw) // 2] ^= 0xFF
        log.write_bytes(raw)
    with pytest.raises(octavo.Corruption, match=f"{half}/manifest.* something was lost"):
        octavo.open(image, read_only=True)


@pytest.mark.parametrize("sealed", [False, True])
def test_damage_of_what_is_pinned_is_told_of_the_file_of_the_store(
    tmp_path: Path, sealed: bool
) -> None:
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        store.put_many((b"%d" % number, b"value") for number in range(9))
        if sealed:
            rolled(store)
            settle(store)
        image = killed(store, tmp_path / "image")
    (file,) = (image / "journal").glob("*.cdb" if sealed else "*.log")
    raw = bytearray(file.read_bytes())
    raw[-5 if sealed else 2300] ^= 0xFF
    file.write_bytes(raw)
    with pytest.raises(octavo.Corruption) as told:
        octavo.open(image, read_only=True)
    assert told.value.file == str(file)
    assert str(file) in str(told.value)
    assert "snapshots" not in str(told.value)  # where the link was that is gone by now


def test_an_opening_does_not_fail_where_the_sealing_of_what_is_damaged_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % number, b"value") for number in range(9))
        file = active_file(store)
    with file.open("r+b") as damaged:
        damaged.seek(2300)
        damaged.write(b"\xff" * 8)

    def too_long(_: object) -> None:
        raise octavo.AskTimeout("the turn is another thread's")

    monkeypatch.setattr(startup, "seal_waiting", too_long)
    with opened(tmp_path / "s") as store:
        assert len(store) == 7


@pytest.mark.parametrize(
    ("call", "end", "read"),
    [
        ("map", ".cdb", lambda reader: [*reader.changes()]),
        ("map", ".cdb", lambda reader: [*reader.items()]),
        ("read", "/manifest", lambda reader: reader.verify()),
    ],
    ids=["changes", "items", "verify"],
)
def test_one_that_another_thread_closes_in_the_midst_of_a_read_says_so(
    store: octavo.Store,
    call: str,
    end: str,
    read: Callable[[octavo.ReadOnlyStore], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settle(store)  # or there may be no sealed file yet
    reader = octavo.open(store.path, read_only=True)
    plain = getattr(RealDisk, call)

    def closed_before(disk: RealDisk, path: str, *more: int) -> object:
        if path.endswith(end):
            reader.close()
        return plain(disk, path, *more)

    monkeypatch.setattr(RealDisk, call, closed_before)
    with pytest.raises(octavo.Closed):
        read(reader)
