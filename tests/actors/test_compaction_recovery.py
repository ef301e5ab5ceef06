"""What the next start makes of a compacted journal whose manifest is old, damaged or gone."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from compacted_store import SMALL_FILES, check, overwritten
from whole_store import SEED, flush, killed, opened, rolled, settle

import octavo
from octavo.actors.compacting import journal_install
from octavo.actors.inker_clerk import InkerClerk
from octavo.files.journal import cdb
from octavo.manifest.adoption import RANK_BITS


def manifests(path: Path) -> list[Path]:
    return sorted((path / "journal" / "manifest").iterdir())


def compacted(path: Path, seed: int, times: int) -> tuple[Path, dict[bytes, bytes]]:
    """A store that was compacted so often in one life, as SIGKILL leaves it, and what it holds."""
    rng = random.Random(seed)
    with opened(path / "s", **SMALL_FILES) as store:
        model: dict[bytes, bytes] = {}
        for number in range(times):
            model = overwritten(store, rng, keys=200 + 50 * number, rounds=6)
            store.compact()
        return killed(store, path / "image"), model


def reopened(path: Path, model: dict[bytes, bytes]) -> list[str]:
    """Open, compare, and again with a new ledger; the notes of the first start."""
    with opened(path, **SMALL_FILES) as store:
        notes = list(store.stats()["notes"])
        check(store, model)
        store.put(b"more", b"1")
    shutil.rmtree(path / "ledger")
    with opened(path, **SMALL_FILES) as store:
        check(store, model | {b"more": b"1"})
        assert not [note for note in store.stats()["notes"] if "journal" in note]
    return notes


@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_whole_manifest_of_the_journal_may_go(tmp_path: Path, times: int) -> None:
    path, model = compacted(tmp_path, SEED + times, times)
    shutil.rmtree(path / "journal" / "manifest")
    notes = reopened(path, model)
    assert any("earlier state" in note for note in notes)


def test_how_far_compaction_dropped_is_known_though_the_manifest_is_gone_and_the_file_damaged(
    tmp_path: Path,
) -> None:
    """Or a change feed would leave that out without a word."""
    path, model = compacted(tmp_path, SEED, 1)
    shutil.rmtree(path / "journal" / "manifest")
    for file in (path / "journal").glob("*.cdb"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1  # of its trailer
        file.write_bytes(content)
    with opened(path, **SMALL_FILES) as store:
        assert dict(store.items()) == model
        with pytest.raises(octavo.HistoryCompacted):
            list(store.changes(since=0))


def test_what_is_compacted_behind_a_lost_manifest_comes_before_what_was(tmp_path: Path) -> None:
    """Should that be lost, too, before the files are gone that it replaced."""
    path, _ = compacted(tmp_path, SEED, 3)
    shutil.rmtree(path / "journal" / "manifest")
    ranks = []
    for file in (path / "journal").glob("*.cdb"):
        view = memoryview(file.read_bytes())
        origin = cdb.read_origin(view, cdb.trailer_of(view, file.name), file.name)
        ranks.append(0 if origin is None else origin.rank)
    with opened(path, **SMALL_FILES) as store:
        assert store._inker.manifest.version << RANK_BITS > max(ranks) > 0


def test_a_file_that_is_found_under_its_name_from_before_it_was_sealed_gets_its_own_again(
    tmp_path: Path,
) -> None:
    """Where a disk did not keep the other one, though it was asked to."""
    path, model = compacted(tmp_path, SEED, 1)
    with opened(path, **SMALL_FILES) as store:
        store.put(b"more", b"1")
    (file, *_) = sorted((path / "journal").glob("*.cdb"))
    file.rename(file.with_suffix(".log"))
    with opened(path, **SMALL_FILES) as store:
        check(store, model | {b"more": b"1"})
    assert file.exists()
    assert not file.with_suffix(".log").exists()


@pytest.mark.parametrize("repaired", [False, True], ids=["", "repaired"])
def test_a_compacted_file_tells_of_changes_of_the_manifest_that_were_lost(
    repaired: bool, tmp_path: Path
) -> None:
    """Both: that what was compacted was sealed, and what became of it; what is left is whole."""
    with opened(tmp_path / "s") as store:
        store.put(b"a", b"1")
        shutil.copytree(tmp_path / "s/journal/manifest", tmp_path / "earlier")
        for value in (b"1", b"2"):
            store.put_many((b"b%d" % n, value) for n in range(100))
        rolled(store)
        store.compact()
        model = dict(store.items())
    shutil.rmtree(tmp_path / "s/journal/manifest")
    shutil.copytree(tmp_path / "earlier", tmp_path / "s/journal/manifest")
    with pytest.raises(octavo.Corruption, match="an earlier state"):
        octavo.restore(tmp_path / "s", tmp_path / "r", sqn=150)
    if repaired:
        assert octavo.repair(tmp_path / "s").verified.ok
    with opened(tmp_path / "s") as store:
        assert dict(store.items()) == model
        assert repaired or any("earlier state" in note for note in store.stats()["notes"])
        with pytest.raises(octavo.HistoryCompacted):
            list(store.changes(since=0))
        assert store.put(b"new", b"") > 201


@pytest.mark.parametrize("times", [1, 3])
def test_the_manifest_may_be_of_the_first_start(tmp_path: Path, times: int) -> None:
    rng = random.Random(SEED)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        overwritten(store, rng)
        old = killed(store, tmp_path / "old")
        for _ in range(times):
            model = overwritten(store, rng)
            store.compact()
        path = killed(store, tmp_path / "image")
    shutil.rmtree(path / "journal" / "manifest")
    shutil.copytree(old / "journal" / "manifest", path / "journal" / "manifest")
    reopened(path, model)


@pytest.mark.parametrize("times", [1, 2])
def test_the_newest_file_of_the_manifest_may_be_lost_or_damaged(tmp_path: Path, times: int) -> None:
    for number, wreck in enumerate((Path.unlink, lambda file: file.write_bytes(b""))):
        path, model = compacted(tmp_path / str(number), SEED + times, times)
        wreck(manifests(path)[-1])
        reopened(path, model)


def test_sqns_go_on_above_what_a_lost_manifest_may_have_reserved(tmp_path: Path) -> None:
    path, model = compacted(tmp_path, SEED, 1)
    with opened(path, **SMALL_FILES) as store:
        last = store.last_sqn
    shutil.rmtree(path / "journal" / "manifest")
    with opened(path, **SMALL_FILES) as store:
        assert store.put(b"k", b"v") > last + (1 << 20)
        check(store, model | {b"k": b"v"})


def test_files_that_compaction_left_over_are_removed(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        overwritten(store, rng)
        with store.snapshot():
            model = overwritten(store, rng)
            store.compact()
            path = killed(store, tmp_path / "image")
    (path / "journal" / "notes.txt").write_text("not ours")
    (path / "journal" / f"{1:016x}-{7:016x}.cdb").write_bytes(b"not a journal file")
    (path / "journal" / f"{1:016x}-{7:016x}.cdb.tmp").write_bytes(b"half a file")
    with opened(path, **SMALL_FILES) as store:
        listed = {file.name for file in store._inker.view.files}
        there = {each.name for each in (path / "journal").iterdir()}
        assert there - listed == {"manifest", "notes.txt", f"{1:016x}-{7:016x}.cdb"}
        check(store, model)


def test_a_set_of_new_files_that_is_not_whole_does_not_count(tmp_path: Path) -> None:
    # A compaction was cut short after the first of its files, and the manifest is lost.
    rng = random.Random(SEED)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        for i in range(3000):
            store.put(b"k%d" % (i // 2), rng.randbytes(2000))
        settle(store)  # or what is compacted is not sealed in the older copy
        old = killed(store, tmp_path / "old")
        store.compact()
        path = killed(store, tmp_path / "image")
        model = dict(store.items())
    new = {each.name for each in (path / "journal").glob("*.cdb")}
    new -= {each.name for each in (old / "journal").glob("*.cdb")}
    assert len(new) > 2
    for name in sorted(new)[:-1]:
        shutil.copy(path / "journal" / name, old / "journal" / name)
        image = old.parent / f"with-{name}"
        shutil.copytree(old, image)
        shutil.rmtree(image / "journal" / "manifest")
        reopened(image, model)


def test_new_files_that_the_lost_manifest_named_count_before_those_they_replaced(
    tmp_path: Path,
) -> None:
    # A snapshot still holds old files whose deletes a later compaction has dropped.
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        for i in range(600):
            store.put(b"k%d" % i, b"old" * 30)
        store.compact()
        first = {file.name for file in store._inker.view.files}
        for i in range(600):
            store.delete(b"k%d" % i)
        for i in range(300):
            store.put(b"x%d" % i, b"x" * 100)
        with store.snapshot():
            store.compact()
            store.compact()
            path = killed(store, tmp_path / "image")
            model = dict(store.items())
        assert first & {each.name for each in (path / "journal").iterdir()}
    shutil.rmtree(path / "journal" / "manifest")
    shutil.rmtree(path / "ledger")
    with opened(path, **SMALL_FILES) as store:
        assert not list(store.keys(prefix=b"k"))
        check(store, model)


@pytest.mark.parametrize("came_back", [True, False])
def test_a_file_that_was_replaced_with_others_does_not_count_without_them(
    tmp_path: Path, came_back: bool
) -> None:
    """Where the change that named what replaced them is lost, and one of them came back, or none:
    what replaced them is no left-over."""
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        store.put_many((b"%03d" % n, b"first") for n in range(100))
        rolled(store)
        store.delete_many(b"%03d" % n for n in range(0, 100, 2))
        store.put("last", b"second")
        rolled(store)
        flush(store)
        shutil.copytree(tmp_path / "s/journal/manifest", tmp_path / "earlier")
        old, _ = sorted((tmp_path / "s/journal").glob("*.cdb"))
        shutil.copy(old, tmp_path / old.name)
        store.compact()
        assert not old.exists()
        assert len(store._inker.manifest.entries) == 1  # of both
        model = dict(store.items())
        image = killed(store, tmp_path / "image")
    shutil.rmtree(image / "journal/manifest")
    shutil.copytree(tmp_path / "earlier", image / "journal/manifest")
    if came_back:
        shutil.copy(tmp_path / old.name, image / "journal")
    for lost in ("", "ledger"):
        shutil.copytree(image, tmp_path / f"without {lost}")
        if lost:
            shutil.rmtree(tmp_path / f"without {lost}" / lost)
        with opened(tmp_path / f"without {lost}", compact_every_seconds=None) as store:
            assert dict(store.items()) == model
            assert store.verify().ok


@pytest.mark.parametrize("lost", ["", "ledger"])
def test_what_replaced_a_file_and_later_ones_counts_though_that_came_back(
    tmp_path: Path, lost: str
) -> None:
    """And the manifest lost its changes since, without a trace: it lists that file alone."""
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        store.put_many((b"%03d" % n, b"first") for n in range(100))
        rolled(store)
        flush(store)
        shutil.copytree(tmp_path / "s/journal/manifest", tmp_path / "earlier")
        (old,) = (tmp_path / "s/journal").glob("*.cdb")
        shutil.copy(old, tmp_path / old.name)
        store.put_many((b"%03d" % n, b"second") for n in range(50, 150))
        store.delete_many(b"%03d" % n for n in range(20))
        rolled(store)
        flush(store)
        store.compact()
        assert len(store._inker.manifest.entries) == 1  # of both
        model = dict(store.items())
        image = killed(store, tmp_path / "image")
    shutil.rmtree(image / "journal/manifest")
    shutil.copytree(tmp_path / "earlier", image / "journal/manifest")
    shutil.copy(tmp_path / old.name, image / "journal")
    if lost:
        shutil.rmtree(image / lost)
    with pytest.raises(octavo.Corruption, match="earlier state"):
        octavo.restore(image, tmp_path / "restored")
    with opened(image, compact_every_seconds=None) as store:
        assert any("earlier state" in note for note in store.stats()["notes"])
        assert dict(store.items()) == model
        assert store.verify().ok
        with pytest.raises(octavo.HistoryCompacted):
            list(store.changes())


def test_a_file_that_nothing_replaced_and_that_is_gone_is_missed(tmp_path: Path) -> None:
    """Though others were taken in for what an earlier manifest lists."""
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        for value in (b"first", b"second"):
            store.put_many((b"%03d" % n, value) for n in range(100))
            rolled(store)
        store.put_many((b"x%02d" % n, b"third") for n in range(50))
        rolled(store)
        flush(store)
        shutil.copytree(tmp_path / "s/journal/manifest", tmp_path / "earlier")
        *replaced, lost = sorted((tmp_path / "s/journal").glob("*.cdb"))
        store.consumer("who needs the last one", since=200)
        store.compact()
        assert lost.exists()
        assert not replaced[0].exists()
        image = killed(store, tmp_path / "image")
    shutil.rmtree(image / "journal/manifest")
    shutil.copytree(tmp_path / "earlier", image / "journal/manifest")
    (image / "journal" / lost.name).unlink()
    with opened(image, compact_every_seconds=None) as store:
        notes = list(store.stats()["notes"])
        assert any(lost.name in note and "missing" in note for note in notes)
        assert {store.get(b"%03d" % n) for n in range(100)} == {b"second"}
        with pytest.raises(octavo.Corruption, match="missing"):
            store.get(b"x00")
        assert not store.verify().ok


def test_a_new_ledger_need_not_have_what_is_newer_than_the_sealed_files(tmp_path: Path) -> None:
    # They were compacted as a ledger saw them that had had records of the active file, too.
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, random.Random(SEED))
        settle(store)
        store.put(b"unsealed", b"1")
        flush(store)
        clerk = store._running.inker_clerk
        run = clerk.actor.sealed()
        clerk.call(InkerClerk.rewrite, run)
        assert max(e.clean_sqn for e in clerk.actor.sealed()) > run[-1].last_sqn
        path = killed(store, tmp_path / "image")
    shutil.rmtree(path / "ledger")
    with opened(path, **SMALL_FILES) as store:
        between = killed(store, tmp_path / "between")
    with octavo.open(between, read_only=True) as reader:
        assert dict(reader.items()) == model | {b"unsealed": b"1"}
    with opened(between, **SMALL_FILES) as store:
        assert not [note for note in store.stats()["notes"] if "older than" in note]


def test_a_ledger_from_before_a_compaction_is_rebuilt(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        overwritten(store, rng)
    shutil.copytree(tmp_path / "s" / "ledger", tmp_path / "old")
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        model = overwritten(store, rng, keys=300)
        for i in range(400):
            store.delete(b"key-%05d" % i)
        model.clear()
        store.put(b"last", b"1")
        store.compact()
    shutil.rmtree(tmp_path / "s" / "ledger")
    shutil.copytree(tmp_path / "old", tmp_path / "s" / "ledger")
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        assert any("older than the journal" in note for note in store.stats()["notes"])
        check(store, {b"last": b"1"})
        with pytest.raises(KeyError):
            store[b"key-00001"]


def test_a_compaction_comes_before_those_of_earlier_openings_where_the_manifest_is_lost(
    tmp_path: Path,
) -> None:
    # Old files with puts are still there, and the newest ones no longer have their deletes.
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        for _ in range(4):
            for i in range(600):
                store.put(b"k%d" % i, b"old" * 30)
            store.compact()
        settle(store)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        old = {entry.name for entry in store._inker.manifest.entries}
        for i in range(600):
            store.delete(b"k%d" % i)
        flush(store)
        store._running.bookie.call(journal_install.rolled)
        settle(store)
        clerk = store._running.inker_clerk
        puts = [entry for entry in clerk.actor.sealed() if entry.name in old]
        deletes = [entry for entry in clerk.actor.sealed() if entry.name not in old]
        with store.snapshot():
            for run in (puts, deletes):
                clerk.call(InkerClerk.rewrite, run)
            path = killed(store, tmp_path / "image")
    assert old <= {each.name for each in (path / "journal").iterdir()}
    shutil.rmtree(path / "journal" / "manifest")
    shutil.rmtree(path / "ledger")
    with opened(path, **SMALL_FILES) as store:
        check(store, {})


def test_of_new_files_of_which_one_is_lost_with_the_manifest_the_others_count(
    tmp_path: Path,
) -> None:
    rng = random.Random(SEED)
    with opened(tmp_path / "s", **SMALL_FILES) as store:
        for i in range(3000):
            store.put(b"k%d" % (i // 2), rng.randbytes(2000))
        settle(store)
        old = {entry.name for entry in store._inker.manifest.entries}
        store.compact()
        path = killed(store, tmp_path / "image")
        new = [entry for entry in store._inker.manifest.entries if entry.name not in old]
        numbers = {key: head.sqn for key, head in store.heads()}
        model = dict(store.items())
    assert len(new) > 2
    lost = new[1]
    shutil.rmtree(path / "journal" / "manifest")
    (path / "journal" / lost.name).unlink()
    shutil.rmtree(path / "ledger")
    left = {k: v for k, v in model.items() if not lost.base_sqn <= numbers[k] <= lost.last_sqn}
    assert 0 < len(left) < len(model)
    reopened(path, left)
    # Nor is it forgotten that something was dropped: a feed would have a gap, and not say so.
    with opened(path, **SMALL_FILES) as store, pytest.raises(octavo.HistoryCompacted):
        next(iter(store.changes(since=0)))
