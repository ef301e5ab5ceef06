"""The newest log of the journal's manifest is gone: who only reads the files tells, for what was
compacted since the log before is complete from another sqn on than that one says. So where somebody
put back an earlier ledger: it has keys whose deletes the journal no longer has."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_store import flush, killed, opened, rolled

import octavo
from octavo import Corruption
from octavo.actors.compacting import journal_install
from octavo.actors.inker import CEILING_STEP, Inker
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.manifest import pinning
from octavo.pipeline import offline
from octavo.pipeline.feed_files import JournalLook

DISK = RealDisk()
SMALL: dict[str, Any] = {
    "push_rows": 64, "roll_count": 256, "compact_every_seconds": None, "worker": False,
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    octavo.open(path).close()
    with octavo.open(path, roll_count=256, compact_every_seconds=None) as writes:
        for n in range(1000):
            writes.put(b"%d" % (n % 100), b"%d" % n)
        writes.compact()
    max((path / "journal" / "manifest").iterdir()).unlink()
    return path


def pinned(store: Path) -> object:
    with octavo.open(store, read_only=True) as reads:
        return list(reads.changes())


def restored(store: Path) -> object:
    with octavo.open(octavo.restore(store, store.parent / "new", sqn=500).path) as reads:
        return len(reads)


def fed(store: Path) -> tuple[int, int]:
    look = JournalLook(DISK, str(store))
    return look.newest(), look.horizon


@pytest.mark.parametrize("read", [pinned, restored, fed])
def test_who_reads_files_of_which_the_newest_manifest_is_gone_is_told(
    read: Callable[[Path], object], store: Path
) -> None:
    with pytest.raises(Corruption, match="newest log is missing"):
        read(store)


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A store whose log of the journal's manifest lost its last changes, and whose compacted file
    is of what came with those."""
    path = tmp_path / "s"
    with octavo.open(path, **SMALL) as writes:
        writes.put(b"a", b"1")
        shutil.copytree(path / "journal/manifest", tmp_path / "earlier")
        writes.put_many((b"%d" % (n % 100), b"%d" % n) for n in range(400))
        writes.compact()
    shutil.rmtree(path / "journal/manifest")
    shutil.copytree(tmp_path / "earlier", path / "journal/manifest")
    return path


@pytest.mark.parametrize("read", [pinned, fed])
def test_who_reads_files_of_which_the_end_of_the_manifest_is_gone_is_told(
    read: Callable[[Path], object], cut: Path
) -> None:
    before = sorted(cut.rglob("*"))
    with pytest.raises(Corruption, match="the end of its log is missing"):
        read(cut)
    assert set(cut.rglob("*")) <= {*before, cut / "snapshots"}
    octavo.open(cut, **SMALL).close()
    assert fed(cut)[1] > 300
    with pytest.raises(octavo.HistoryCompacted):
        pinned(cut)


def test_what_an_owner_compacts_meanwhile_is_no_earlier_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it came since the manifest was read, ten times."""
    plain, turns = pinning.read_manifests, iter(range(100))

    def overtaken(disk: Any, store: str, *known: Any) -> Any:
        found = plain(disk, store, *known)
        if (turn := next(turns)) < 10 and not known:
            writes.put_many((b"%d" % (n % 100), b"%d" % turn) for n in range(400))
            writes.compact()
        return found

    with octavo.open(tmp_path / "s", **SMALL) as writes:
        monkeypatch.setattr(pinning, "read_manifests", overtaken)
        with octavo.open(writes.path, read_only=True) as reads:
            assert reads.last_sqn == writes.last_sqn
            assert dict(reads.items()) == dict(writes.items())
    assert next(turns) > 10


def test_files_of_a_compaction_that_end_where_a_kill_skipped_numbers_are_of_no_newer_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are there before the manifest names them; a kill leaves them, and the next opening
    removes them."""
    rng, path, at_once = random.Random(1), tmp_path / "s", tmp_path / "at once"
    plain = journal_install.replace_files
    with opened(tmp_path / "first", roll_size_bytes=16 << 20) as writes:
        for n in range(20):
            writes.put(b"%d" % n, rng.randbytes(150_000))
        killed(writes, path)

    def killed_before(inker: Inker, *given: Any) -> Any:
        shutil.copytree(path, at_once)
        return plain(inker, *given)

    monkeypatch.setattr(journal_install, "replace_files", killed_before)
    with opened(path, roll_size_bytes=1 << 20, compact_every_seconds=None) as writes:
        for n in (20, *range(14, 20), *range(14, 20)):  # of the first file two full ones stay
            writes.put(b"%d" % n, rng.randbytes(150_000))
        rolled(writes)
        writes.compact()
        ends = [entry.last_sqn for entry in writes._inker.manifest.entries]
        assert ends[:2] == [7, 2 * CEILING_STEP]
        newest = writes.last_sqn
    monkeypatch.undo()
    names = [file.name for file in (at_once / "journal").glob("*.cdb")]
    assert fed(at_once) == (newest, 0)
    assert octavo.restore(at_once, tmp_path / "new").sqn == newest
    with octavo.open(at_once, compact_every_seconds=None) as again:
        assert again.stats()["notes"] == []
        assert again.verify().ok
        assert len(again) == 21
    left = [file.name for file in (at_once / "journal").glob("*.cdb")]
    assert len(names) - len(left) == 3


def test_an_opening_makes_that_manifest_up(store: Path) -> None:
    octavo.open(store).close()
    newest, horizon = fed(store)
    assert newest == 1000
    assert horizon > 500
    with pytest.raises(octavo.HistoryCompacted):
        restored(store)


def test_who_reads_files_beside_an_earlier_ledger_is_told(tmp_path: Path) -> None:
    path, ledger = tmp_path / "s", tmp_path / "s" / "ledger"
    kept = {b"%03d" % n: b"v" for n in range(500)}
    with octavo.open(path, roll_count=256, compact_every_seconds=None) as writes:
        writes.put_many(kept.items())
    with octavo.open(path) as again:
        again.compact()  # whose ledger has them all
    shutil.copytree(ledger, tmp_path / "earlier")
    with octavo.open(path, roll_count=256, compact_every_seconds=None) as writes:
        for n in range(0, 500, 2):
            writes.delete(b"%03d" % n)
            del kept[b"%03d" % n]
    with octavo.open(path, compact_every_seconds=None) as writes:
        writes.compact()
        assert writes._inker.manifest.horizon > 500
    shutil.rmtree(ledger)
    shutil.copytree(tmp_path / "earlier", ledger)
    with pytest.raises(Corruption, match="older than the journal's last compaction"):
        pinned(path)
    with octavo.open(path) as opened:
        assert dict(opened.items()) == kept
    with octavo.open(path, read_only=True) as reads:
        assert dict(reads.items()) == kept


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_what_a_head_only_store_has_trimmed_since_is_not_missed(tmp_path: Path, how: str) -> None:
    path, options = tmp_path / "s", {"roll_count": 256, "push_rows": 64}
    keys = [b"%03d" % n for n in range(300)]
    with octavo.open(path, mode="head_only", **options) as store:
        store.consumer("late", since=0)
        for key in keys:
            store.head_bucket(b"").put(key, b"v")
        store.trim()
        assert len(store._inker.manifest.entries) == 2
    with octavo.open(path, **options) as store:
        store.consumer("late").drop()
        newest = max((path / "journal" / "manifest").iterdir())
        before = newest.stat().st_size
        store.trim()
        last = store.head_bucket(b"").put(b"999", b"v")
        assert store._inker.manifest.entries == ()
    if how == "gone":
        newest.unlink()
    else:
        content = bytearray(newest.read_bytes())
        content[before + 40] ^= 1
        newest.write_bytes(content)
    for _ in range(2):
        with octavo.open(path, **options) as store:
            assert [row.key for row in store.head_bucket(b"").rows()] == [*keys, b"999"]
            assert store.verify().problems == []
            with pytest.raises(octavo.HistoryCompacted):
                list(store.changes(0))
            done = store.backup(tmp_path / "backup")
            assert done.sqn >= last
            assert store.head_bucket(b"").put(b"999", b"v") > last
    assert octavo.repair(path).ok


def of_many_openings(path: Path) -> None:
    """A store whose journal files are of many epochs."""
    for turn in range(4):
        with octavo.open(path, **SMALL) as store:
            store.put_many((b"%03d" % n, b"%d" % turn) for n in range(300))


def nothing_is_missed(path: Path) -> None:
    """A snapshot holds what a compaction replaced: beside the manifest, which does not list that,
    everybody reads the store, and so does the next opening behind a kill."""
    with octavo.open(path, **SMALL) as store, store.snapshot() as held:
        store.put_many((b"%03d" % n, b"new") for n in range(300))
        store.compact()
        assert len(list(held.keys())) == 300
        with octavo.open(path, read_only=True) as reads:
            assert set(reads.values()) == {b"new"}
        assert fed(path)[0] == store.last_sqn
        image = killed(store, path.parent / "killed")
    with octavo.open(image, **SMALL) as store:
        assert store.stats()["notes"] == []


def test_a_restored_store_is_no_earlier_state_of_the_one_whose_files_it_has(
    tmp_path: Path,
) -> None:
    of_many_openings(tmp_path / "s")
    octavo.restore(tmp_path / "s", tmp_path / "restored")
    nothing_is_missed(tmp_path / "restored")


def test_nor_is_one_whose_manifests_were_made_up(tmp_path: Path) -> None:
    of_many_openings(tmp_path / "s")
    for folder in ("journal", "ledger"):
        shutil.rmtree(tmp_path / "s" / folder / "manifest")
    octavo.open(tmp_path / "s", **SMALL).close()
    nothing_is_missed(tmp_path / "s")


def rebuilt(store: Path) -> object:
    return offline._rebuild(RealDisk, str(store), offline.Run(), merge=True)


@pytest.fixture
def loaded(tmp_path: Path) -> Path:
    """A store whose manifest is as it was before the last load."""
    path = tmp_path / "s"
    with opened(path) as store:
        store.put_many((b"%03d" % n, b"v") for n in range(100))
        flush(store)
        log = max((path / "journal" / "manifest").iterdir())
        earlier = log.read_bytes()
        writer = StagedWriter(DISK, store.path, "job", "0", now_ms=1)
        writer.put_many(b"", [b"loaded", b"replaced"], [b"1", b"1"])
        writer.finish()
        assert store.ingest("job", ["0"]).first_sqn == 101
        store.put(b"replaced", b"2")
    log.write_bytes(earlier)
    return path


@pytest.mark.parametrize("read", [pinned, restored, rebuilt])
def test_who_reads_beside_a_manifest_that_lacks_a_load_is_told(
    read: Callable[[Path], object], loaded: Path
) -> None:
    with pytest.raises(Corruption, match=r"lost|lacks its last changes"):
        read(loaded)


def test_a_load_that_the_manifest_lacks_is_taken_in_and_told(loaded: Path) -> None:
    with opened(loaded) as store:
        assert any("lacks its last changes" in note for note in store.stats()["notes"])
    with opened(loaded) as store:
        assert (store[b"loaded"], store[b"replaced"], len(store)) == (b"1", b"2", 102)
        assert [change.key for change in store.changes(100)] == [
            b"loaded", b"replaced", b"replaced",
        ]  # fmt: skip
        assert store.verify().ok
        assert not store.stats()["notes"]
