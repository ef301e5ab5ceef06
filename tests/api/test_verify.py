"""verify: whatever disagrees with anything else is told, and nothing else is."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from descriptors import descriptors
from whole_store import flush, killed, opened, rolled, settle
from xxhash import xxh3_64_intdigest

import octavo
from octavo import agreement
from octavo import verify as verifying
from octavo.actors.journal_file import JournalFile
from octavo.files.door.disk import RealDisk
from octavo.files.door.open_file import AppendFile
from octavo.files.door.own_disk import OwnDisk
from octavo.files.errors import StorageFailed, StorageFull
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.journal import record, record_digests
from octavo.files.ledger import index_terms, ledger_key
from octavo.files.ledger.bounds import OBJECTS
from octavo.files.ledger.live_batches import Batch

STANDARD = ledger_key.STANDARD


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with octavo.open(tmp_path / "s", roll_count=256, push_rows=64) as store:
        for n in range(600):
            store.put(b"%d" % (n % 200), b"%d" % n, metadata=b"m%d" % n)
        for n in range(0, 200, 5):
            store.delete(b"%d" % n)
        store.put(b"gone", b"v", ttl=0.001)
        store.put(b"indexed", b"v", index={"f": ["a", "b"]})
        store.bucket("other").put(b"1", b"v")
        store.compact()
        store.put(b"late", b"old", index={"f": "c"})
        store.put(b"late", b"v", index={"f": "c"})
        settle(store)  # or files would be merged between two looks
        yield store


def test_a_store_that_is_whole_has_no_problem(store: octavo.Store) -> None:
    report = store.verify()
    assert report.problems == []
    assert report.keys - len(store) in (0, 1)  # what expired is there until it is merged
    assert report.journal_files == len(store._running.inker.actor.view.files)


def test_a_file_that_cannot_be_opened_is_told_and_all_else_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as made:
        for half in (b"a", b"b"):
            made.put_many((half + b"%d" % n, b"v") for n in range(50))
            rolled(made)
        flush(made)
    with octavo.open(tmp_path / "s") as store:
        bad = store._running.inker.actor.view.files[0].path
        plain = OwnDisk.map

        def refused(disk: OwnDisk, path: str) -> object:
            if path == bad:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return plain(disk, path)

        with monkeypatch.context() as broken:
            broken.setattr(OwnDisk, "map", refused)
            found = store.verify()
    assert found.problems
    assert all(f"{os.strerror(errno.EIO)}: '{bad}'" in problem for problem in found.problems)
    assert sum("ledger key" in problem for problem in found.problems) == 50
    assert found.records == 50


def test_keys_are_taken_in_parts_with_the_same_result(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = store.verify()
    monkeypatch.setattr(verifying, "MOST_KEYS", 50)
    assert store.verify() == whole


def test_numbers_that_nobody_has_are_no_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each unclean stop skips a million; a compacted file may reach over them."""
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % n, b"old") for n in range(300))
        killed(store, tmp_path / "t")
    with opened(tmp_path / "t") as store:
        store.put_many((b"%d" % n, b"new") for n in range(10, 300))
        store.compact()
        assert any(len(file.ensure_open()[1]) > 1 << 20 for file in store._inker.view.files)
        monkeypatch.setattr(verifying, "MOST_KEYS", 10_000)
        with store.snapshot() as snap:
            assert verifying._records(store._inker.manifest, snap._shared) < 1000
        assert store.verify().ok


def row(key: bytes) -> bytes:
    return ledger_key.prefix(STANDARD, b"") + key


@pytest.mark.parametrize("most", [1 << 22, 50])
def test_a_version_that_is_not_the_newest_is_told(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(verifying, "MOST_KEYS", most)
    rows = store._running.bookie.actor.view.recent.rows
    rows[row(b"late")] -= 1
    problems = store.verify().problems
    assert all("late" in problem or "sqn" in problem for problem in problems)
    assert any(f"the journal sqn {store.last_sqn}" in problem for problem in problems)


def test_a_key_that_the_ledger_does_not_know_is_told(store: octavo.Store) -> None:
    del store._running.bookie.actor.view.recent.rows[row(b"late")]
    (problem,) = store.verify().problems
    assert f"sqn {store.last_sqn} is the newest of ledger key" in problem
    assert "absent" in problem


def test_an_index_entry_that_is_not_there_is_told(store: octavo.Store) -> None:
    part = index_terms.escaped(b"f") + index_terms.escaped_term("c")
    (entry,) = index_terms.ledger_keys(STANDARD, b"", b"late", index_terms.packed([part]))
    del store._running.bookie.actor.view.recent.rows[entry]
    (problem,) = store.verify().problems
    assert "its index entry" in problem


def test_index_entries_that_are_cut_short_are_told(store: octavo.Store) -> None:
    file = store._running.bookie.actor.active
    assert file is not None
    part = index_terms.escaped(b"f") + index_terms.escaped_term("c")
    packed = index_terms.packed([part])
    image = bytearray(Path(file.path).read_bytes())
    entries = image.rindex(packed)
    at = image.rindex(record.MAGIC, 0, entries) - 16
    image[entries] += 1
    end = entries + len(packed)
    value = bytes(image[end + record.SUMS_BYTES : file.offsets[-1]])
    head_sum = xxh3_64_intdigest(bytes(image[at:end]), file.seed ^ at)
    sums = head_sum & 0xFFFFFFFF, xxh3_64_intdigest(value, head_sum) & 0xFFFFFFFF
    forged = bytes(image[at:end]) + struct.pack("<II", *sums)
    with open(file.path, "r+b") as opened_again:
        opened_again.seek(at)
        opened_again.write(forged)
    assert any("index entries cut short" in problem for problem in store.verify().problems)


def test_another_key_s_record_is_told(store: octavo.Store) -> None:
    rows = store._running.bookie.actor.view.recent.rows
    rows[row(b"stranger")] = store.last_sqn
    (problem,) = store.verify().problems
    assert "is not of ledger key b'stranger'" in problem


@pytest.mark.parametrize("field", ["rows", "bytes", "tombstones", "min_sqn", "max_sqn"])
def test_a_manifest_that_says_other_things_of_a_ledger_file_is_told(
    store: octavo.Store, field: str
) -> None:
    bookie = store._running.bookie.actor
    ledger = bookie.view.ledger
    level = next(number for number, files in enumerate(ledger.levels) if files)
    wrong = replace(ledger.levels[level][0], **{field: getattr(ledger.levels[level][0], field) + 1})
    levels = list(ledger.levels)
    levels[level] = (wrong, *levels[level][1:])
    bookie.view = replace(bookie.view, ledger=replace(ledger, levels=tuple(levels)))
    assert any("the ledger's manifest says" in problem for problem in store.verify().problems)


@pytest.mark.parametrize(
    "wrong",
    [OSError(errno.ENOMEM, "short"), OSError(errno.EMFILE, "short"), octavo.StorageFull("short")],
)
def test_what_its_own_process_is_short_of_is_no_damage(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch, wrong: Exception
) -> None:
    def fail(*_: object) -> None:
        raise wrong

    monkeypatch.setattr(JournalFile, "sqns", fail)
    with pytest.raises(octavo.StorageFull, match="short"):
        store.verify()


@pytest.mark.parametrize("call", ["read", "header"])
def test_nor_is_it_where_a_record_is_read_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def short(*_: object) -> None:
        raise StorageFull("short")

    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v", index={"f": "a"})
        flush(store)  # in memory its head would be asked for before
        monkeypatch.setattr(JournalFile, call, short)
        with pytest.raises(StorageFull, match="short"):
            store.verify()


def test_what_cannot_be_read_is_told(store: octavo.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "unreadable")

    monkeypatch.setattr(JournalFile, "sqns", fail)
    assert any("unreadable" in problem for problem in store.verify().problems)


def test_progress_is_told_to_the_end(store: octavo.Store) -> None:
    seen: list[tuple[str, int, int]] = []
    store.verify(lambda what, done, total: seen.append((what, done, total)))
    assert seen[0][1] == 0
    assert seen[-1][0] == "done"
    assert seen[-1][1] == seen[-1][2]
    assert any(what.startswith("ledger and journal") for what, _, _ in seen)


# ---------------------------------------------------------------- sealed files, by array kernels


@pytest.fixture
def sealed(tmp_path: Path) -> tuple[Path, Path]:
    """(a store that is closed, its one sealed journal file)."""
    path = tmp_path / "s"
    with octavo.open(path, roll_count=256, compact_every_seconds=None) as store:
        for n in range(300):
            store.put(b"%03d" % n, b"value %03d" % n, metadata=b"about %d" % n)
        store.put(b"000", b"newer", ttl=10_000)
    (file,) = (path / "journal").glob("*.cdb")
    return path, file


def test_no_record_of_a_whole_sealed_file_is_read_one_by_one(
    sealed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    whole = JournalFile.read

    def watched(self: JournalFile, sqn: int) -> record.Record:
        read.append(sqn)
        return whole(self, sqn)

    monkeypatch.setattr(JournalFile, "read", watched)
    with octavo.open(sealed[0]) as store:
        assert store.verify().ok
    assert min(read) > 256


@pytest.mark.parametrize("key", [b"000", b"007"], ids=["a superseded one", "a live one"])
def test_a_changed_byte_in_a_sealed_value_is_told_with_its_place(
    sealed: tuple[Path, Path], key: bytes
) -> None:
    path, file = sealed
    image = bytearray(file.read_bytes())
    at = image.index(b"value " + key)
    image[at + 7] ^= 1
    file.write_bytes(image)
    with octavo.open(path) as store:
        (problem,) = store.verify().problems
    assert f"{file} at offset {at}" in problem
    assert "value checksum" in problem


def test_a_sealed_record_of_an_unknown_kind_is_told(sealed: tuple[Path, Path]) -> None:
    path, file = sealed
    image = bytearray(file.read_bytes())
    _, seed = file_name_numbers(file)
    end = image.index(b"value 007") - record.SUMS_BYTES
    at = image.rindex(record.MAGIC, 0, end) - 16
    image[at + 19] = 99
    head = xxh3_64_intdigest(bytes(image[at:end]), seed ^ at)
    value = xxh3_64_intdigest(b"value 007", head)
    image[end : end + 8] = struct.pack("<II", head & 0xFFFFFFFF, value & 0xFFFFFFFF)
    file.write_bytes(image)
    with octavo.open(path) as store:
        problems = store.verify().problems
    assert any("kind 99" in problem for problem in problems)


def file_name_numbers(file: Path) -> tuple[int, int]:
    base, seed = file.stem.split("-")
    return int(base, 16), int(seed, 16)


@pytest.mark.parametrize("column", range(4), ids=["sizes", "times", "expiries", "metas"])
def test_a_ledger_that_says_other_things_of_a_record_is_told(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch, column: int
) -> None:
    of_batch, rests = record_digests.of_batch, record_digests._rests

    def others(*given: Any) -> Any:
        told = [np.zeros(len(given[0]), np.uint64) if part is None else part for part in given]
        told[column] = told[column] + 1
        return rests(*told)

    def other(batch: Batch) -> record_digests.Digests:
        with monkeypatch.context() as patch:
            patch.setattr(record_digests, "_rests", others)
            return of_batch(batch)

    monkeypatch.setattr(record_digests, "of_batch", other)
    doubts: list[int] = []
    monkeypatch.setattr(agreement, "_doubts", lambda r, b, rows, *rest: doubts.extend(rows) or [])
    assert store.verify().ok
    assert len(doubts) == len(store) + 1


def test_a_record_has_the_same_digest_by_itself_as_in_columns(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put("plain", "v" * 3000)
        store.put("all", "v", metadata=b"m", ttl=1e9)
        rolled(store)
        with store.snapshot() as snap:
            (batch,) = snap._shared.batches(OBJECTS, heads=True)
            told = record_digests.of_batch(batch)
            file_of = snap._shared.view.journal.file_of
            for at, (key, head) in enumerate(snap.heads()):
                alone = record_digests.of_one(row(key), head.sqn, file_of(head.sqn).read(head.sqn))
                assert alone == tuple(int(column[at]) for column in told)


def test_an_active_file_without_a_record_may_go_meanwhile(tmp_path: Path) -> None:
    """It does where a commit brings files."""
    with opened(tmp_path / "s") as store:
        store.put(b"a", b"1")
        rolled(store)
        writer = StagedWriter(RealDisk(), store.path, "job", "x", now_ms=1)
        writer.put_many(b"", [b"b"], [b"2"])
        writer.finish()

        def committed(_part: str, done: int, _steps: int) -> None:
            if done == 0:
                store.ingest("job", ["x"])

        assert store.verify(committed).problems == []
        assert dict(store.items()) == {b"a": b"1", b"b": b"2"}


def test_what_is_put_aside_is_gone_when_verify_ends(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "MOST_KEYS", 50)
    journal = f"{store.path}/journal"
    store.verify()  # opens files that stay open
    before = sorted(os.listdir(journal)), descriptors(store.path)
    assert store.verify().ok
    assert (sorted(os.listdir(journal)), descriptors(store.path)) == before


def test_no_room_for_what_is_put_aside_is_told_and_is_no_damage(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "MOST_KEYS", 50)
    real = OwnDisk.create

    def create(disk: OwnDisk, path: str) -> AppendFile:
        if path.endswith(".tmp"):
            raise OSError(code, os.strerror(code), path)
        return real(disk, path)

    monkeypatch.setattr(OwnDisk, "create", create)
    code = errno.ENOSPC
    with pytest.raises(StorageFull, match="for what does not fit into memory"):
        store.verify()
    code = errno.EIO
    with pytest.raises(StorageFailed, match=r"\.tmp"):
        store.verify()
    monkeypatch.undo()
    store.put("goes", "on")
    assert store.verify().ok
