"""One flipped bit at every byte of the small files of a store, and damage that is about to be
moved: it is told, or harmless, and never gets a right checksum."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from whole_store import SEED, flush, opened, rolled

import octavo
from octavo.actors.keeping.ingest import ingest
from octavo.actors.opening import identity as identities
from octavo.actors.published_reader import PublishedReader
from octavo.files.door.disk import RealDisk
from octavo.files.errors import OctavoError
from octavo.files.handover import inbox, staging
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.jobs import compaction, key_deltas
from octavo.manifest import pinning, published
from octavo.manifest.consumers import _decoded

DISK = RealDisk()
HOUR_MS = 3_600_000


def outcome(read: Callable[[], object]) -> tuple[str, object]:
    """(the error that reading raises, "" where it raises none; what it gave)."""
    try:
        return "", read()
    except OctavoError as error:
        return str(error), None


def every_flip(file: Path, read: Callable[[], object]) -> None:
    """Whatever bit of a file is flipped, reading it says so, or gives the same."""
    whole = file.read_bytes()
    right = read()
    rng = random.Random(SEED)
    print(f"OCTAVO_SEED={SEED}: {file}")
    told = 0
    for at in range(len(whole)):
        bit = rng.randrange(8)
        bad = bytearray(whole)
        bad[at] ^= 1 << bit
        file.write_bytes(bad)
        error, found = outcome(read)
        where = f"OCTAVO_SEED={SEED}: bit {bit} of byte {at} flipped"
        assert file.name in error or found == right, f"{where}: unnoticed, or no file named"
        told += bool(error)
    assert told > len(whole) * 9 // 10
    file.write_bytes(whole)


def every_cut(file: Path, read: Callable[[], object]) -> None:
    """Cut anywhere, or with zeros from anywhere on, it says so or gives the same."""
    whole = file.read_bytes()
    right = read()
    for at in range(len(whole)):
        for bad in (whole[:at], whole[:at] + bytes(len(whole) - at)):
            file.write_bytes(bad)
            error, found = outcome(read)
            assert file.name in error or found == right, f"cut at {at}: unnoticed, or not named"
    file.write_bytes(whole)


Damaged = Callable[[Path, Callable[[], object]], None]
both = pytest.mark.parametrize("damaged", [every_flip, every_cut], ids=["flip", "cut"])


@both
def test_a_flipped_bit_in_the_identity_is_told(tmp_path: Path, damaged: Damaged) -> None:
    octavo.open(tmp_path / "s", tags={"user": octavo.Tag()}).close()
    damaged(tmp_path / "s/OCTAVO", lambda: identities.read(DISK, str(tmp_path / "s")))


@both
def test_a_flipped_bit_in_the_consumers_is_told(tmp_path: Path, damaged: Damaged) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"v")
        store.consumer("mail", since=0)
        store.consumer("ledger", since=1)
    file = tmp_path / "s" / "CONSUMERS"
    damaged(file, lambda: _decoded(file.read_bytes(), str(file)))


@both
def test_a_flipped_bit_in_a_request_is_told(tmp_path: Path, damaged: Damaged) -> None:
    name = f"{7:012x}-{1:016x}{inbox.REQUEST}"
    told = {"job": "j", "attempts": ["0", "1"], "stream": None, "batch": 0}
    inbox.write(DISK, str(tmp_path), name, told)
    damaged(tmp_path / "inbox" / name, lambda: inbox.read(DISK, str(tmp_path), name))


def test_a_request_that_is_nested_however_deeply_is_told(tmp_path: Path) -> None:
    name = f"{7:012x}-{1:016x}{inbox.REQUEST}"
    (tmp_path / "inbox").mkdir()
    for depth in range(sys.getrecursionlimit()):
        deep = '{"checksum": "0", "job": ' + "[" * depth + "]" * depth + "}"
        (tmp_path / "inbox" / name).write_text(deep)
        with pytest.raises(octavo.Corruption, match=name):
            inbox.read(DISK, str(tmp_path), name)


def staged(path: str, attempt: str, rows: int) -> None:
    writer = StagedWriter(DISK, path, "j", attempt, now_ms=4 * 10**12, file_records=2)
    for n in range(rows):
        writer.put_many(b"b", [b"%d" % n], [b"value %d" % n])
    writer.finish()


@both
def test_a_flipped_bit_in_an_attempt_is_told(tmp_path: Path, damaged: Damaged) -> None:
    (tmp_path / "s").mkdir()
    staged(str(tmp_path / "s"), "0", 2)
    damaged(
        tmp_path / "s/staging/j/0.json",
        lambda: staging.read_attempt(DISK, str(tmp_path / "s"), "j", "0"),
    )


def test_another_file_than_the_attempt_made_is_not_taken_in(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        staged(store.path, "0", 2)
        staged(store.path, "1", 2)
        one, other = sorted((tmp_path / "s/staging/j").glob("*.cdb"))
        assert one.stat().st_size == other.stat().st_size
        shutil.copyfile(other, one)
        with pytest.raises(octavo.Corruption, match="another file than its attempt made"):
            ingest(store._running, "j", ["0"])
        assert len(store) == 0


@both
def test_a_flipped_bit_in_a_published_manifest_is_told(tmp_path: Path, damaged: Damaged) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"v", index={"f": 1})
        made = store.snapshot().publish("name")
        damaged(Path(made.path) / "manifest", lambda: published.read(DISK, made.path))


@both
def test_a_flipped_bit_in_the_offsets_of_a_pinned_tail_is_told(
    tmp_path: Path, damaged: Damaged
) -> None:
    with opened(tmp_path / "s") as store:
        for n in range(5):
            store.put(f"{n}", b"v")
        found = pinning.pin(DISK, store.path, HOUR_MS, 1)
        file = next(Path(found.path).glob("*.offsets"))
        damaged(
            file,
            lambda: [
                each.offsets.tobytes()  # type: ignore[attr-defined]
                for each in PublishedReader(DISK, found, lambda: 1, 8).view.journal.files
            ],
        )


@both
def test_a_flipped_bit_in_a_survey_of_key_deltas_is_told(tmp_path: Path, damaged: Damaged) -> None:
    with opened(tmp_path / "s", strategies={"standard": "retain"}) as store:
        for n in range(40):
            store.put(b"%d" % (n % 10), b"value %d" % n)
        rolled(store)
        flush(store)
        entries = store._inker.manifest.entries
        key_deltas.survey(
            DISK,
            journal=f"{store.path}/journal",
            ledger=f"{store.path}/ledger",
            levels=[
                [(entry.name, entry.sqn_base) for entry in level]
                for level in store._running.penciller.actor.manifest.levels
            ],
            files=[
                {"name": e.name, "seed": e.seed, "base_sqn": e.base_sqn, "last_sqn": e.last_sqn}
                for e in entries
            ],
            now_ms=1,
            strategies={str(0x6F): "retain"},
            scratch="survey",
        )
    file = tmp_path / "s/journal/survey"
    assert file.stat().st_size > 24
    damaged(file, lambda: [column.tolist() for column in key_deltas.read(DISK, str(file))])


# ---------------------------------------------------------------- what moves records


@pytest.mark.parametrize("few", [1, 512], ids=["by columns", "one by one"])
@pytest.mark.parametrize("kind", ["plain", "with metadata"])
def test_a_damaged_value_is_never_given_a_right_checksum(
    tmp_path: Path, kind: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction and restoring move records to new places, with new checksums."""
    monkeypatch.setattr(compaction, "_FEW", few)
    more = {} if kind == "plain" else {"metadata": b"m"}
    with octavo.open(tmp_path / "s", worker=False, compact_every_seconds=None) as store:
        for n in range(20):
            store.put(b"%d" % n, b"the value of %d" % n, **more)
        for n in range(1, 20):
            store.put(b"%d" % n, b"newer")
        rolled(store)
        flush(store)
        file = next((tmp_path / "s/journal").glob("*.cdb"))
        whole = file.read_bytes()
        at = whole.index(b"the value of 0") + 5
        fd = os.open(file, os.O_WRONLY)
        os.pwrite(fd, bytes((whole[at] ^ 1,)), at)
        os.close(fd)
        try:
            store.compact()
        except octavo.Corruption as told:
            assert file.name in str(told)  # noqa: PT017
        with pytest.raises(octavo.Corruption, match="checksum"):
            store.get("0")
        assert store.get("1") == b"newer"
        assert not store.verify().ok
    with pytest.raises(octavo.Corruption, match="checksum"):
        octavo.restore(tmp_path / "s", tmp_path / "r", sqn=30)
