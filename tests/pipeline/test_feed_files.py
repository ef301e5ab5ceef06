"""The journal as another process sees it: complete, in order, whole, through seals and merges."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import pytest
from whole_store import flush, killed, opened, rolled, settle

import octavo
from octavo import read_only
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.journal import record
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest
from octavo.pipeline.feed_files import JournalLook, _only_went_on, records

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))


def told(path: str, since: int = 0, split: int = 1 << 30) -> list[tuple[int, bytes, bytes | None]]:
    """(sqn, key, value) of every change that a fresh look finds above ``since``."""
    look = JournalLook(RealDisk(), path)
    upto = look.newest()
    return [
        (found.sqn, found.key, found.value if found.kind == record.PUT else None)
        for part in look.parts(since, upto, split)
        for found in records(RealDisk(), path, part, look.horizon)
    ]


def expected(store: octavo.Store, since: int = 0) -> list[tuple[int, bytes, bytes | None]]:
    return [(change.sqn, change.key, change.value) for change in store.changes(since)]


class Overtaken(RealDisk):
    """Behind each listing of the journal something happens there."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self.happens = happens

    def listdir(self, path: str) -> list[str]:
        found = super().listdir(path)
        if path.endswith("/journal"):
            self.happens()
        return found


def test_it_is_seen_while_files_are_sealed_and_begun_all_the_time(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:

        def go_on() -> None:
            store.put(b"k", b"v")
            rolled(store)
            settle(store)

        store.put(b"first", b"v")
        look = JournalLook(Overtaken(go_on), store.path)
        before = 0
        for _ in range(5):
            newest = look.newest()
            assert before < newest <= store.last_sqn
            before = newest


def test_a_journal_whose_files_come_and_go_each_time_is_busy_and_not_damaged(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s") as store:
        for n in range(300):
            store.put(b"k%d" % (n % 5), b"v")
        names = iter(range(1000))
        stray = Path(store.path, "journal", f"{1:016x}-{2:016x}.cdb")
        stray.touch()

        def replace() -> None:
            nonlocal stray
            stray = stray.rename(stray.with_name(f"{1:016x}-{next(names) + 3:016x}.cdb"))

        with pytest.raises(octavo.Busy, match="try again"):
            JournalLook(Overtaken(replace), store.path).newest()
        stray.unlink()


def test_a_listing_that_misses_a_file_as_it_is_sealed_is_made_again(tmp_path: Path) -> None:
    """As one of many names may, that takes several calls."""
    with opened(tmp_path / "s") as store:
        store.put(b"a", b"v")
        rolled(store)
        store.put(b"b", b"v")
        rolled(store)
        settle(store)
        newest = store.last_sqn
        missed = max(name for name in os.listdir(f"{store.path}/journal") if ".cdb" in name)

        class Missing(RealDisk):
            listed = 0

            def listdir(self, path: str) -> list[str]:
                found = super().listdir(path)
                if path.endswith("/journal"):
                    self.listed += 1
                    if self.listed == 1:
                        found.remove(missed)
                return found

        disk = Missing()
        look = JournalLook(disk, store.path)
        assert look.newest() == newest
        assert disk.listed >= 4


def test_it_agrees_with_the_owner_at_every_moment(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"OCTAVO_SEED={SEED}")
    look = JournalLook(RealDisk(), str(tmp_path / "s"))
    with opened(tmp_path / "s") as store:
        for step in range(60):
            for _ in range(rng.randrange(60)):
                key = b"k%d" % rng.randrange(50)
                if rng.random() < 0.2:
                    store.delete(key)
                else:
                    store.put(key, rng.randbytes(rng.randrange(40)))
            if step % 7 == 3:
                with store.batch() as batch:
                    for n in range(5):
                        batch.put("", b"b%d" % n, b"x")
            if step % 11 == 5:
                flush(store)
                settle(store)
            assert look.newest() == store.last_sqn
            assert told(store.path, split=rng.randrange(1, 5000)) == expected(store)
        since = rng.randrange(store.last_sqn)
        assert told(store.path, since) == expected(store, since)


class Sealing(RealDisk):
    """Where the owner seals a file as soon as its size was asked."""

    def __init__(self, store: octavo.Store) -> None:
        super().__init__()
        self.store = store
        self.sealed = 0

    def size(self, path: str) -> int:
        found = super().size(path)
        if path.endswith(".log") and not self.sealed:
            self.sealed += 1
            rolled(self.store)
            settle(self.store)
            assert not Path(path).exists()
        return found


def test_a_file_that_is_sealed_between_two_looks_at_it_is_told(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % n, b"v") for n in range(20))
        disk = Sealing(store)
        assert JournalLook(disk, store.path).newest() == 20
        assert disk.sealed == 1


def test_a_manifest_whose_files_are_replaced_as_they_are_read_is_read_again(tmp_path: Path) -> None:
    """Between the listing of its log and the reading the store is opened anew, twice."""

    class Meanwhile(RealDisk):
        again = 0

        def read(self, path: str, limit_bytes: int) -> bytes:
            while "/journal/manifest/" in path and self.again < 2:
                self.again += 1
                with opened(tmp_path / "s"):
                    pass
                assert os.path.exists(path) == (self.again < 2)
            return super().read(path, limit_bytes)

    with opened(tmp_path / "s") as store:
        store.put(b"a", b"v")
        writer = StagedWriter(RealDisk(), store.path, "j", "0-0", now_ms=0)
        writer.put_many(b"", [b"loaded"], [b"v"])
        writer.finish()
        store.ingest("j", ["0-0"])
        store.put(b"b", b"v")
    disk = Meanwhile()
    assert JournalLook(disk, store.path).newest() == 3
    assert disk.again == 2


@pytest.mark.parametrize("call", ["size", "map_growing", "sync_file", "listdir"])
def test_a_file_that_cannot_be_read_is_told_by_its_name(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: str, *_: int) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    with opened(tmp_path / "s") as store:
        disk = RealDisk()
        look = JournalLook(disk, store.path)
        store.put(b"a", b"v")
        with monkeypatch.context() as broken:
            broken.setattr(disk, call, fails)
            told = "fsync failed" if call == "sync_file" else "cannot be read"
            with pytest.raises(octavo.StorageFailed, match=f"{store.path}/journal.*{told}"):
                look.newest()
        if call == "sync_file":  # a later one would say that all is well
            with pytest.raises(octavo.StorageFailed, match="an fsync failed"):
                look.newest()
        else:
            assert look.newest() == 1


def test_files_that_are_compacted_away_between_two_looks_are_told_of_their_successors(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % n, b"v") for n in range(600))
        rolled(store)
        settle(store)
        look = JournalLook(RealDisk(), store.path)
        assert look.newest() == 600
        for n in range(0, 600, 2):
            store.delete(b"%d" % n)
        store.compact()
        settle(store)
        parts = look.parts(0, 600, 1 << 30)
        assert {part.name for part in parts} <= set(os.listdir(tmp_path / "s" / "journal"))
        left = [found.key for part in parts for found in records(RealDisk(), store.path, part, 0)]
        assert set(left) >= {b"%d" % n for n in range(1, 600, 2)}
        assert look.horizon > 0


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % n, b"v") for n in range(600))
        rolled(store)
        settle(store)
        look = JournalLook(RealDisk(), store.path)
        look.newest()
        name = sorted(os.listdir(tmp_path / "s" / "journal"))[0]
        (tmp_path / "s" / "journal" / name).unlink()
        with pytest.raises(octavo.Corruption, match=f"{name}.*missing"):
            look.parts(0, 600, 1 << 30)


def test_a_batch_that_is_being_written_is_not_told(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"a", b"1")
        with store.batch() as batch:
            batch.put("", b"b", b"2")
            batch.put("", b"c", b"3")
        active = store._inker.active
        assert active is not None
        path = active.path
        image = tmp_path / "t" / "journal"
        (image / "manifest").mkdir(parents=True)
        whole = Path(path).read_bytes()
        middle = active.offsets[2]
        for log in (tmp_path / "s" / "journal" / "manifest").iterdir():
            (image / "manifest" / log.name).write_bytes(log.read_bytes())
        look = JournalLook(RealDisk(), str(tmp_path / "t"))
        (image / Path(path).name).write_bytes(whole[:middle])
        assert look.newest() == 1
        (image / Path(path).name).write_bytes(whole[: middle + 3])
        assert look.newest() == 1
        (image / Path(path).name).write_bytes(whole)
        assert look.newest() == 3


@pytest.mark.parametrize("sealed", [False, True])
def test_a_feed_may_begin_and_end_within_a_batch(tmp_path: Path, sealed: bool) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"a", b"1")
        for size in (4, 3):
            with store.batch() as batch:
                for n in range(size):
                    batch.put("", b"b%d" % n, b"x")
        store.put(b"z", b"1")
        if sealed:
            rolled(store)
            settle(store)
        look = JournalLook(RealDisk(), store.path)
        assert look.newest() == 9
        for since in range(9):
            for upto in range(since + 1, 10):
                for split in (1, 1 << 30):
                    found = [
                        each.sqn
                        for part in look.parts(since, upto, split)
                        for each in records(RealDisk(), store.path, part, look.horizon)
                    ]
                    assert found == list(range(since + 1, upto + 1))


def test_limits_never_split_a_batch(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"a", b"1")
        with store.batch() as batch:
            for n in range(4):
                batch.put("", b"b%d" % n, b"x")
        store.put(b"z", b"1")
        look = JournalLook(RealDisk(), store.path)
        ends = [look.end_of(since, 2, 0) for since in (0, 1, 5)]
        assert ends == [5, 5, 6]
        assert look.end_of(0, 0, 1) == 1
        rolled(store)
        settle(store)
        look = JournalLook(RealDisk(), store.path)
        assert [look.end_of(since, 2, 0) for since in (0, 1, 5)] == [5, 5, 6]


@pytest.mark.parametrize("known", [False, True], ids=["", "known"])
def test_nor_one_of_a_file_that_is_sealed_since_the_look(known: bool, tmp_path: Path) -> None:
    """``known``: it was read before that."""
    with opened(tmp_path / "s") as store:
        disk = Sealing(store)
        look = JournalLook(disk, store.path)
        for turn in range(2):
            with store.batch() as batch:
                for n in range(4):
                    batch.put("", b"b%d" % n, b"x")
            disk.sealed = int(known and not turn)
            if known and not turn:
                assert look.newest() == 4
        assert look.end_of(0, 2, 0) == 4
        assert look.end_of(4, 1, 0) == 8
        assert disk.sealed == 1


def whole_until(store: octavo.Store, since: int, records: int, size: int) -> int:
    """As JournalLook.end_of, record by record."""
    taken = held = 0
    for file in store._inker.view.files:
        offsets = file.offsets or file.ensure_open()[1]
        for number in range(len(offsets) - 1):
            if file.base + number <= since:
                continue
            taken += 1
            held += offsets[number + 1] - offsets[number]
            full = (records and taken >= records) or (size and held >= size)
            batch = file.header(file.base + number).batch
            if full and (batch is None or batch[0] == batch[1] - 1):
                return file.base + number
    return store.last_sqn


@pytest.mark.parametrize("seed", range(3))
def test_a_limit_ends_where_counting_record_by_record_does(tmp_path: Path, seed: int) -> None:
    rng = random.Random(SEED + seed)
    print(f"OCTAVO_SEED={SEED}")
    with opened(tmp_path / "s", roll_count=256) as store:
        for _ in range(150):
            with store.batch() as batch:
                for n in range(rng.choice([1, 1, 2, 9])):
                    batch.put("", b"k%d" % n, rng.randbytes(rng.randrange(99)))
            store.put("k", rng.randbytes(rng.randrange(99)))
        settle(store)
        look = JournalLook(RealDisk(), store.path)
        for _ in range(200):
            since = rng.randrange(store.last_sqn + 1)
            limits = rng.choice([0, 1, 2, 50, 400]), rng.choice([0, 1, 300, 9_000])
            if any(limits):
                assert look.end_of(since, *limits) == whole_until(store, since, *limits)


@pytest.mark.parametrize("split", [1, 100, 1000, 1 << 30])
def test_parts_follow_on_one_another_and_split_no_batch(tmp_path: Path, split: int) -> None:
    with opened(tmp_path / "s", roll_count=256) as store:
        for number in range(60):
            with store.batch() as batch:
                for n in range(1 + number % 4):
                    batch.put("", b"k%d" % n, bytes(number))
        look = JournalLook(RealDisk(), store.path)
        parts = look.parts(0, look.newest(), split)
        assert [part.first for part in parts] == [1, *(part.last + 1 for part in parts[:-1])]
        assert parts[-1].last == store.last_sqn
        for part, following in pairwise(parts):
            assert part.end == following.start
            batch = store._inker.view.file_of(part.last).header(part.last).batch
            assert batch is None or batch[0] == batch[1] - 1
            if split > 1:
                assert part.end - part.start >= split


def undecided_and_after(home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """(a store whose commit has linked its files and is not decided, the same behind it and a
    put)."""
    with opened(home / "s") as store:
        store.put(b"a", b"1")
        writer = StagedWriter(RealDisk(), store.path, "j", "0-0", now_ms=5)
        writer.put_many(b"", [b"x"], [b"y"])
        writer.finish()
        commit = store._inker.commit

        def looked(manifest: JournalManifest) -> None:
            if manifest.commits and not store._inker.manifest.commits:
                shutil.copytree(store.path, home / "undecided")
            commit(manifest)

        monkeypatch.setattr(store._inker, "commit", looked)
        store.ingest("j", ["0-0"])
        store.put(b"b", b"2")
        shutil.copytree(store.path, home / "after")
    return home / "undecided", home / "after"


def test_nothing_above_files_whose_commit_is_not_decided_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undecided, after = undecided_and_after(tmp_path, monkeypatch)
    assert told(str(undecided)) == [(1, b"a", b"1")]
    assert told(str(after)) == [(1, b"a", b"1"), (2, b"x", b"y"), (3, b"b", b"2")]


def test_what_comes_behind_a_commit_that_is_decided_meanwhile_is_not_told_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undecided, after = undecided_and_after(tmp_path, monkeypatch)
    take = JournalLook._take

    def taken(look: JournalLook, *found: Any) -> None:
        take(look, *found)  # and behind it the commit is decided, and the put comes
        shutil.copytree(after / "journal", undecided / "journal", dirs_exist_ok=True)

    monkeypatch.setattr(JournalLook, "_take", taken)
    assert told(str(undecided)) == [(1, b"a", b"1"), (2, b"x", b"y"), (3, b"b", b"2")]


def test_what_comes_behind_a_commit_that_is_decided_once_that_was_looked_at_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undecided, after = undecided_and_after(tmp_path, monkeypatch)
    decided = JournalLook._decided

    def then(look: JournalLook) -> bool:
        answer = decided(look)
        shutil.copytree(after / "journal", undecided / "journal", dirs_exist_ok=True)
        return answer

    monkeypatch.setattr(JournalLook, "_decided", then)
    look = JournalLook(RealDisk(), str(undecided))
    assert look.newest() == 1
    assert [part.last for part in look.parts(0, 3, 1 << 30)] == [1]


def test_a_commit_that_failed_leaves_a_later_one_to_be_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undecided, after = undecided_and_after(tmp_path, monkeypatch)
    for log in (after / "journal").glob("*.log"):  # a number behind it was given to somebody else
        shutil.copy(log, undecided / "journal")
    (commit,) = (
        file for file in (undecided / "journal").glob("*.cdb") if file.name.startswith(f"{2:016x}")
    )
    shutil.copy(commit, commit.with_name(f"{4:016x}{commit.name[16:]}"))
    look = JournalLook(RealDisk(), str(undecided))
    assert look.newest() == 3
    assert (sorted(look._bounds), look._bound) == ([2, 4], 4)


def test_what_compaction_dropped_is_missing_and_the_horizon_says_so(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for n in range(600):
            store.put(b"k%d" % (n % 20), b"%d" % n)
        store.compact()
        look = JournalLook(RealDisk(), store.path)
        assert look.newest() == 600
        assert look.horizon > 0
        state = {key: value for _, key, value in told(store.path)}
        assert state == dict(store.items())


def test_a_part_whose_file_was_compacted_is_an_error_unless_allowed(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for n in range(600):
            store.put(b"k%d" % (n % 20), b"%d" % n)
        flush(store)
        look = JournalLook(RealDisk(), store.path)
        parts = look.parts(0, look.newest(), 1 << 30)
        store.compact()
        with pytest.raises(octavo.HistoryCompacted, match="consumerId"):
            list(records(RealDisk(), store.path, parts[0], 0))
        left = [each for part in parts for each in records(RealDisk(), store.path, part, 1 << 63)]
        assert {each.key: each.value for each in left} == dict(store.items())


def test_a_part_whose_file_is_compacted_twice_meanwhile_is_told_where_that_is_allowed(
    tmp_path: Path,
) -> None:
    class Again(RealDisk):
        """Where the file that took the first one's place goes behind the look at it."""

        times = 0

        def map(self, path: str) -> Any:
            if os.path.exists(path):
                self.times += 1
                if self.times == 2:
                    rewritten()
            return super().map(path)

    with opened(tmp_path / "s") as store:

        def rewritten() -> None:
            store.put_many((b"k%d" % n, b"new") for n in range(10))
            flush(store)
            store.compact()

        store.put_many((b"k%d" % (n % 20), b"%d" % n) for n in range(100))
        flush(store)
        look = JournalLook(RealDisk(), store.path)
        (part,) = look.parts(0, look.newest(), 1 << 30)
        store.compact()
        disk = Again()
        left = [each.key for each in records(disk, store.path, part, 1 << 63)]
        assert disk.times > 2
        assert sorted(left) == sorted(b"k%d" % n for n in range(10, 20))


def test_a_part_above_all_that_was_dropped_is_told_though_its_file_was_compacted(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"k%d" % (n % 20), b"%d" % n) for n in range(100))
        flush(store)
        look = JournalLook(RealDisk(), store.path)
        (part,) = look.parts(80, look.newest(), 1 << 30)
        store.compact()
        assert not (tmp_path / "s" / "journal" / part.name).exists()
        assert JournalLook(RealDisk(), store.path).newest() == 100
        left = {each.key: each.value for each in records(RealDisk(), store.path, part, 0)}
        assert left == dict(store.items())


class _SealedAMomentAgo(RealDisk):
    """On which what the file's own name says of it was so before the compaction."""

    def exists(self, path: str) -> bool:
        return path.endswith(".cdb") or super().exists(path)


def test_a_part_whose_file_goes_as_it_is_looked_for_is_told_by_its_successors(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"k%d" % (n % 20), b"%d" % n) for n in range(100))
        look = JournalLook(RealDisk(), store.path)
        (part,) = look.parts(0, look.newest(), 1 << 30)
        assert part.name.endswith(".log")
        store.compact()
        left = records(_SealedAMomentAgo(), store.path, part, 1 << 63)
        assert {each.key: each.value for each in left} == dict(store.items())


def sealed_once(home: Path) -> tuple[Path, Path, list[tuple[int, bytes, bytes | None]]]:
    """(a closed store, its sealed file, what its journal has)."""
    with opened(home / "s") as store:
        store.put_many((b"%d" % n, b"v") for n in range(5))
        rolled(store)
        settle(store)
        (file,) = (home / "s" / "journal").glob("*.cdb")
        return home / "s", file, expected(store)


def test_what_a_compaction_has_made_and_not_yet_entered_is_not_told_twice(tmp_path: Path) -> None:
    store, file, there = sealed_once(tmp_path)
    base, seed = file.stem.split("-")
    shutil.copy(file, file.with_name(f"{base}-{int(seed, 16) ^ 1:016x}.cdb"))
    assert told(str(store)) == there


def test_a_file_that_a_listing_has_under_both_of_its_names_is_told_once(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % n, b"v") for n in range(5))
        shutil.copytree(store.path, tmp_path / "c")
        rolled(store)
        settle(store)
        (file,) = (tmp_path / "s" / "journal").glob("*.cdb")
        shutil.copy(file, tmp_path / "c" / "journal")  # which the manifest there does not name
        assert file.with_suffix(".log").name in os.listdir(tmp_path / "c" / "journal")
        assert told(str(tmp_path / "c")) == expected(store)


def name_of(base: int, kind: str = "log") -> str:
    return f"{base:016x}-{7:016x}.{kind}"


@pytest.mark.parametrize(
    ("now", "later", "whole"),
    [
        ([name_of(9)], [name_of(9)], True),
        ([name_of(9)], [name_of(9, "cdb"), name_of(12)], True),
        ([name_of(9)], [name_of(12)], False),
        ([name_of(9)], [name_of(9), name_of(12, "cdb")], False),
        ([name_of(9)], [name_of(9), name_of(5)], False),
        ([], [name_of(5)], False),
        ([], [name_of(9)], True),
    ],
    ids=["same", "sealed", "compacted away", "came sealed", "missed", "missed first", "begun"],
)
def test_a_listing_is_whole_where_files_only_were_sealed_and_begun_since(
    now: list[str], later: list[str], whole: bool
) -> None:
    below = JournalEntry(name_of(1, "cdb"), 1, 8, 8, 100, 7)
    manifest = JournalManifest.empty().edit([below])
    now, later = [below.name, *now], [below.name, *later]
    assert _only_went_on(frozenset(now), frozenset(later), manifest) == whole


def test_what_is_known_of_files_goes_with_them(tmp_path: Path) -> None:
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        look = JournalLook(RealDisk(), store.path)
        for number in range(10):
            store.put("k", b"%d" % number)
            assert look.newest() == number + 1
            known = (look._lengths, look._named, look._places)
            assert [len(each) for each in known] == [1, 1, 1]
            rolled(store)
            settle(store)
        store.compact()
        store.put("k", "last")
        assert look.newest() == 11
        assert [len(known) for known in (look._lengths, look._named, look._places)] == [1, 1, 1]


def test_a_record_before_one_that_was_lost_is_told(tmp_path: Path) -> None:
    with opened(tmp_path / "made") as store:
        for number in range(9):
            store.put(b"k%d" % number, b"value %d" % number)
        image = killed(store, tmp_path / "s")
    (file,) = (image / "journal").glob("*.log")
    raw = bytearray(file.read_bytes())
    at = raw.index(b"k4")
    raw[at : at + 2] = b"??"
    file.write_bytes(raw)
    with opened(image) as store:  # which steps over it, and seals what is left
        settle(store)
        assert [key for _, key, _ in expected(store)] == [b"k%d" % n for n in range(9) if n != 4]
        assert list((image / "journal").glob("*.cdb"))
        assert told(store.path) == expected(store)


def test_where_no_store_is_the_feed_says_so(tmp_path: Path) -> None:
    with pytest.raises(octavo.Misuse, match=f"there is no store at {tmp_path}/missing"):
        JournalLook(RealDisk(), str(tmp_path / "missing")).look()


@pytest.mark.parametrize("folder", ["journal", "journal/manifest"])
def test_a_journal_that_leads_elsewhere_is_neither_read_nor_marked(
    tmp_path: Path, folder: str
) -> None:
    for name in ("s", "other"):
        with opened(tmp_path / name) as store:
            store.put("k", b"of " + name.encode())
    elsewhere = tmp_path / "other" / folder
    place = tmp_path / "s" / folder
    place.rename(tmp_path / "was here")
    place.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    with pytest.raises(octavo.Corruption, match="symbolic link"):
        JournalLook(RealDisk(), str(tmp_path / "s")).newest()
    assert sorted(elsewhere.rglob("*")) == before


def test_a_damaged_record_of_the_file_being_written_is_not_left_out(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for number in range(9):
            store.put(b"k%d" % number, b"value %d" % number)
        assert told(str(tmp_path / "s")) == expected(store)
        (file,) = (tmp_path / "s" / "journal").glob("*.log")
        with file.open("r+b") as whole:
            whole.seek(file.read_bytes().index(b"value 4"))
            whole.write(b"X")
        with pytest.raises(octavo.Corruption, match="open the store for writing") as damage:
            told(str(tmp_path / "s"))
        assert damage.value.file == str(file)
    with opened(tmp_path / "s") as store:
        left = [key for _, key, _ in expected(store)]
        assert left == [b"k%d" % number for number in range(9) if number != 4]
        assert [key for _, key, _ in told(str(tmp_path / "s"))] == left


class Torn(RealDisk):
    """Of what it reads first of a growing file a part is missing, which was written behind it."""

    def __init__(self, missing: bytes, times: int) -> None:
        super().__init__()
        self.missing, self.times = missing, times

    def map_growing(self, path: str, start: int = 0) -> bytes:
        found = bytes(super().map_growing(path, start))
        if self.times:
            self.times -= 1
            found = found.replace(self.missing, bytes(len(self.missing)))
        return found


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_record_that_is_written_as_the_file_is_read_is_read_again(
    tmp_path: Path, times: int
) -> None:
    path = str(tmp_path / "s")
    with opened(path) as store:
        for number in range(9):
            store.put(b"k%d" % number, b"value %d" % number)
        look = JournalLook(Torn(b"value 4", times), path)
        disk = Torn(b"value 4", times)
        if times < 3:
            assert look.newest() == 9
            with read_only.opened(disk, path, {}) as reader:
                assert reader.get(b"k4") == b"value 4"
        else:
            with pytest.raises(octavo.Corruption):
                look.newest()
            with pytest.raises(octavo.Corruption):
                read_only.opened(disk, path, {})
