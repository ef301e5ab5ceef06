"""What a file of a stranger claims is held against what is there before it is believed: right
checksums over wrong numbers. Whole stores of that kind are in test_hostile_stores.py."""

from __future__ import annotations

import io
import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from forging import summed
from whole_store import opened, rolled
from xxhash import xxh3_64_intdigest as xxh3

import octavo
from octavo.actors.bookie import Bookie
from octavo.files.checked_json import checksum
from octavo.files.door.disk import RealDisk
from octavo.files.errors import Corruption, Misuse
from octavo.files.handover import inbox, staging
from octavo.files.jobs import worker
from octavo.files.journal import cdb, cdb_seal, record
from octavo.files.journal.sealed_records import table_of
from octavo.files.ledger.hashing import hash_of
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_layout import HEADER_BYTES, Section
from octavo.manifest import journal_manifest, ledger_manifest, log_file, published, recovery
from octavo.manifest.change_log import ChangeLog, recover
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.packing import Packer, Unpacker
from octavo.pipeline.journal_order import stretches
from octavo.pipeline.snapshot_files import SnapshotFiles

SEED = 0x1234_5678_9ABC_DEF0
BILLION = 1_000_000_000


def sealed(records: list[bytes]) -> tuple[bytes, list[int]]:
    """(a sealed journal file of these values, where its records begin and end)."""
    parts, offsets = [cdb.beginning(cdb.FileHeader(1, 1, SEED, 0))], [cdb.RECORDS_AT]
    for number, value in enumerate(records):
        check = SEED ^ offsets[-1]
        parts.append(record.encode(number, check, record.PUT, 0x6F, b"", b"k", value, 0))
        offsets.append(offsets[-1] + len(parts[-1]))
    table = struct.pack(f"<{len(offsets)}I", *offsets)
    front, back = cdb_seal.sealing(table, SEED, 0, 0)
    return front + b"".join(parts)[cdb.POINTERS_BYTES :] + back, offsets


# ---------------------------------------------------------------- records


def forged(head: bytearray, value: bytes = b"") -> bytes:
    """A record whose checksums are right, whatever its head says."""
    h = xxh3(bytes(head), SEED)
    return bytes(head) + record.pack_sums(h & record.LOW_32, xxh3(value, h) & 0xFFFFFFFF) + value


def head_of_a_record() -> bytearray:
    whole = record.encode(0, SEED, record.PUT, 0x6F, b"", b"key", b"value", 1)
    return bytearray(whole[: record.FIXED_BYTES + 3])


def test_a_record_that_is_longer_than_its_file_is_none() -> None:
    for length in (100, BILLION, 0xFFFFFFFF):
        head = head_of_a_record()
        head[4:8] = length.to_bytes(4, "little")
        whole = forged(head, b"value")
        with pytest.raises(record.NotARecord, match="longer than the file"):
            record.parse_header(whole, SEED, len(whole))


def test_a_header_that_is_longer_than_its_record_is_none() -> None:
    head = head_of_a_record()
    head[4:8] = (20).to_bytes(4, "little")  # ends before its key does
    whole = forged(head, b"value")
    with pytest.raises(record.NotARecord, match="longer than the record"):
        record.parse_header(whole, SEED, len(whole))


def test_a_record_that_claims_a_huge_sqn_costs_no_memory() -> None:
    seen: list[str] = []
    for claimed in (1 << 31, 1 << 40, (1 << 64) - 1):
        at = cdb.RECORDS_AT
        body = record.encode(claimed, SEED ^ at, record.PUT, 0x6F, b"", b"k", b"", 0)
        image = cdb.beginning(cdb.FileHeader(1, 1, SEED, 0)) + body
        found = recovery.Found([], seen)
        tail = recovery._scanned(image, "f", "f", 1, SEED, 0, found)
        assert len(tail.offsets) == 1
    assert all("out of order" in note for note in seen)
    assert len(seen) == 3


# ---------------------------------------------------------------- sealed files


def retrailed(image: bytes, **changed: int) -> bytes:
    """The file with another trailer, whose checksum is right."""
    names = (
        "count", "seed", "first_ms", "last_ms", "tables_at", "offsets_at", "pointers_sum",
        "tables_sum", "offsets_sum", "live",
    )  # fmt: skip
    trailer = cdb.read_trailer(image[-cdb.TRAILER_BYTES :], len(image), "f")
    told = {name: getattr(trailer, name) for name in names} | changed
    return image[: -cdb.TRAILER_BYTES] + cdb.trailer_bytes(cdb.Trailer(**told))


@pytest.mark.parametrize(
    "changed",
    [
        {"tables_at": 0},
        {"tables_at": 1 << 40},
        {"offsets_at": 0},
        {"offsets_at": 1 << 40},
        {"count": 0, "live": 0},
        {"count": 0xFFFFFFFF},
        {"live": 0xFFFFFFFF},
    ],
    ids=str,
)
def test_a_trailer_that_does_not_fit_its_file_is_refused(changed: dict[str, int]) -> None:
    image, _ = sealed([b"a", b"b"])
    with pytest.raises(Corruption, match="do not fit the file"):
        cdb.sealed_offsets(retrailed(image, **changed), "f")


@pytest.mark.parametrize(("which", "where"), [(0, 0), (0, 2047), (-1, 0xFFFFFFFF)])
def test_offsets_that_lead_out_of_the_records_are_refused(which: int, where: int) -> None:
    image, offsets = sealed([b"a", b"b"])
    trailer = cdb.read_trailer(image[-cdb.TRAILER_BYTES :], len(image), "f")
    table = list(offsets)
    table[which] = where
    stored = struct.pack(f"<{len(table)}I", *table)
    bad = image[: trailer.offsets_at] + stored + image[-cdb.TRAILER_BYTES :]
    with pytest.raises(Corruption, match="record offsets do not fit"):
        cdb.sealed_offsets(retrailed(bad, offsets_sum=xxh3(stored)), "f")


@pytest.mark.parametrize("which", [1, 2])
def test_a_table_of_offsets_out_of_order_is_refused(which: int) -> None:
    image, offsets = sealed([b"a", b"b", b"c"])
    trailer = cdb.read_trailer(image[-cdb.TRAILER_BYTES :], len(image), "f")
    table = list(offsets)
    table[which] = table[3] - 1 if which == 1 else table[1] - 1
    stored = struct.pack(f"<{len(table)}I", *table)
    bad = image[: trailer.offsets_at] + stored + image[-cdb.TRAILER_BYTES :]
    with pytest.raises(Corruption, match="out of order"):
        table_of(memoryview(retrailed(bad, offsets_sum=xxh3(stored))), "f")


@pytest.mark.parametrize("columns", [(0, 9, 2114, 2160, 2170), (1, 0, 2114, 2160, 2170)])
def test_a_sparse_table_that_lies_is_refused(columns: tuple[int, ...]) -> None:
    image, _ = sealed([b"a", b"b"])
    trailer = cdb.read_trailer(image[-cdb.TRAILER_BYTES :], len(image), "f")
    stored = struct.pack("<5I", *columns)
    told = replace(trailer, sparse=True, count=9, live=2, offsets_sum=xxh3(stored))
    bad = image[: trailer.offsets_at] + stored + cdb.trailer_bytes(told)
    with pytest.raises(Corruption, match="out of order"):
        table_of(memoryview(bad), "f")


# ---------------------------------------------------------------- ledger files


def ledger_file(tmp_path: Path) -> bytearray:
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.put("a", b"1")
        store.put("b", b"2")
        store._running.bookie.call(Bookie.push)
    return bytearray(next((tmp_path / "s/ledger").glob("*.sst")).read_bytes())


@pytest.mark.parametrize("rows", [0, (1 << 24) + 1, 0xFFFFFFFF])
def test_a_ledger_file_of_impossible_counts_is_refused(tmp_path: Path, rows: int) -> None:
    image = ledger_file(tmp_path)
    image[HEADER_BYTES + 32 : HEADER_BYTES + 36] = rows.to_bytes(4, "little")
    with pytest.raises(Corruption, match="counts"):
        Sst(summed(image), "f")


def test_a_ledger_file_of_another_length_than_it_says_is_refused(tmp_path: Path) -> None:
    image = ledger_file(tmp_path)
    for length in (0, len(image) - 1, len(image) + 1, (1 << 64) - 1):
        image[16:24] = length.to_bytes(8, "little")
        with pytest.raises(Corruption, match="length of the file"):
            Sst(summed(image), "f")


@pytest.mark.parametrize("row", [-1, 2, 3])
def test_a_hash_table_that_leads_to_no_row_is_refused(tmp_path: Path, row: int) -> None:
    image = ledger_file(tmp_path)
    whole = Sst(bytes(image), "f")
    offset, length = whole.layout.sections[Section.TABLE]
    bits = whole.layout.row_bits
    h32 = hash_of(whole.ledger_key(0))
    entry = (h32 & (1 << (32 - bits)) - 1) << bits | row + 1
    for at in range(offset, offset + length - 4, 4):
        image[at : at + 4] = entry.to_bytes(4, "little")
    sums_at = HEADER_BYTES + 72 + 24 * len(whole.layout.sections)
    window = xxh3(bytes(image[whole.layout.data_at :]))
    image[sums_at : sums_at + 8] = window.to_bytes(8, "little")
    bad = Sst(summed(image), "f")
    if row < 1 << bits:
        with pytest.raises(Corruption, match="row in the hash table"):
            bad.find(b"any", h32)


# ---------------------------------------------------------------- manifests


def test_a_change_log_of_damage_only_is_given_up() -> None:
    who = log_file.FileId(1, 1)
    content = log_file.header(who, log_file.SNAPSHOT, 0, (0, 0))
    for number in range(1000):  # each with a whole head, and a payload that is none
        made = bytearray(
            log_file.record(who.seed, len(content), log_file.CHANGE, 1, number + 1, b"payload")
        )
        made[-9] ^= 1
        content += bytes(made)
    assert 60 < len(log_file.parse(who, "f", content).wounds) < 70


def test_a_log_of_the_last_epoch_takes_none_away(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", b"v")
    for half in ("journal", "ledger"):
        (tmp_path / "s" / half / "manifest" / f"{(1 << 64) - 1:016x}-00000001.log").touch()
    for _ in range(2):
        with octavo.open(tmp_path / "s") as store:
            assert store.get("k") == b"v"
            assert any("not a file of this log" in note for note in store.stats()["notes"])


def test_a_journal_file_of_the_last_epoch_takes_none_away(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", b"v")
    for half in ("journal", "ledger"):
        shutil.rmtree(tmp_path / "s" / half / "manifest")
    [path] = (tmp_path / "s" / "journal").glob("*.log")
    content = path.read_bytes()
    made = cdb.read_header(content, path.name)
    forged = cdb.beginning(replace(made, epoch=(1 << 64) - 1))
    path.write_bytes(forged + content[len(forged) :])
    for _ in range(2):
        with octavo.open(tmp_path / "s") as store:
            assert store.get("k") == b"v"
            assert store.verify().ok


def test_a_ledger_that_has_more_than_the_journal_is_made_anew(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.put("k", b"v")
        store._running.bookie.call(Bookie.push)
    folder = str(tmp_path / "s/ledger/manifest")
    found = recover(RealDisk(), folder)
    made = LedgerManifest.replayed(found.snapshot, found.changes)
    more = made.edit(persisted_sqn=1 << 50)
    ChangeLog.begin(RealDisk(), folder, found.epoch + 1, more.encode()).close()
    with octavo.open(tmp_path / "s") as store:
        assert store.get("k") == b"v"
        assert any("more than the journal" in note for note in store.stats()["notes"])
        assert store.verify().ok


def test_a_journal_manifest_whose_files_share_sqns_is_refused() -> None:
    one = JournalEntry("a.cdb", 1, 10, 10, 1, 1)
    two = JournalEntry("b.cdb", 5, 15, 10, 1, 1)
    made = JournalManifest(1, (one, two), (1, 5), 100)
    with pytest.raises(Corruption, match="reaches into"):
        JournalManifest.decode(made.encode())
    low = JournalManifest(1, (one,), (1,), 3)
    with pytest.raises(Corruption, match="above the ceiling"):
        JournalManifest.replayed(low.encode(), [])


def test_a_ledger_manifest_whose_files_are_newer_than_it_is_refused() -> None:
    newer = LedgerEntry("a.sst", 1, 1, 1, 0, 0, b"a", b"b", 1, 9, 0)
    made = LedgerManifest(1, ((), (newer,)), ((), (b"a",)), 5)
    with pytest.raises(Corruption, match="newer than what is persisted"):
        LedgerManifest.decode(made.encode())


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/b", ".", "..", "a\0b"])
def test_a_manifest_that_names_other_places_is_refused(name: str) -> None:
    entry = JournalEntry(name, 1, 10, 10, 1, 1)
    with pytest.raises(Corruption, match="file name"):
        JournalManifest.decode(JournalManifest(1, (entry,), (1,), 100).encode())
    row = LedgerEntry(name, 1, 1, 1, 0, 0, b"a", b"b", 1, 9, 0)
    with pytest.raises(Corruption, match="file name"):
        LedgerManifest.decode(LedgerManifest(1, ((), (row,)), ((), (b"a",)), 9).encode())


def test_a_manifest_of_a_billion_commits_is_refused() -> None:
    out = Packer(journal_manifest._SNAPSHOT, 3)
    for number in (1, 1, 0, BILLION):
        out.number(number)
    with pytest.raises(Corruption, match="more commits"):
        JournalManifest.decode(out.payload() + b"\1" * 100)


@pytest.mark.parametrize("count", [1 << 22, BILLION, 1 << 62])
def test_a_column_of_nothing_but_empty_strings_is_refused(count: int) -> None:
    out = Packer(ledger_manifest._SNAPSHOT, 1)
    for number in (1, 1, count):
        out.number(number)
    found = Unpacker(out.payload() + b"\0" * 9, "m", ledger_manifest._SNAPSHOT, 1)
    with pytest.raises(Corruption):
        found.strings(count)
    with pytest.raises(Corruption, match="only empty strings"):
        Unpacker(out.payload()[:6] + b"\0" * 9, "m", ledger_manifest._SNAPSHOT, 1).strings(5)


def test_a_published_manifest_of_a_billion_types_is_refused() -> None:
    out = Packer(published._MAGIC, published._VERSION)
    for number in (1, 1, 1, BILLION):
        out.number(number)
    out.strings([b"=", b"="])
    payload = out.payload() + b"\0" * 50
    with pytest.raises(Corruption, match="more types"):
        published.decode(payload + xxh3(payload).to_bytes(8, "little"), "id", "/s")


def test_an_id_that_leads_elsewhere_is_a_name(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        made = store.snapshot().publish()
        outside = f"../../{Path(store.path).name}/snapshots/{made.id}"
        with pytest.raises(Misuse, match="no published snapshot"):
            published.found(RealDisk(), store.path, outside, 1)


# ---------------------------------------------------------------- jobs and messages


def attempt(store: Path, **changed: object) -> None:
    """An attempt that says so, its checksum right."""
    ledger = {
        "name": "a.sst", "rows": 1, "bytes": 1, "tombstones": 0, "expiring": 0,
        "first_key": "a", "last_key": "a", "min_sqn": 0, "max_sqn": 0,
    }  # fmt: skip
    ledger |= {name[7:]: told for name, told in changed.items() if name.startswith("ledger_")}
    journal = {"name": "a.cdb", "count": 1, "bytes": 1, "seed": 1, "digest": 1, "ledgers": [ledger]}
    created_ms = changed.pop("created_ms", 1)
    journal |= {name: told for name, told in changed.items() if not name.startswith("ledger_")}
    told: dict[str, object] = {
        "format": 1, "job": "j", "name": "0", "journals": [journal], "created_ms": created_ms,
    }  # fmt: skip
    told["checksum"] = checksum(told)
    folder = store / "staging" / "j"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "0.json").write_text(json.dumps(told))


def test_an_attempt_names_nothing_outside_its_folder(tmp_path: Path) -> None:
    attempt(tmp_path)
    staging.read_attempt(RealDisk(), str(tmp_path), "j", "0")
    for what in ("name", "ledger_name"):
        for name in ("../../x", "/etc/passwd", "a/b", "..", "a" * 300, 7):
            attempt(tmp_path, **{what: name})
            with pytest.raises(Corruption, match="does not describe an attempt"):
                staging.read_attempt(RealDisk(), str(tmp_path), "j", "0")


def test_an_attempt_of_no_moment_is_damage_and_stops_no_opening(tmp_path: Path) -> None:
    octavo.open(tmp_path / "s").close()
    attempt(tmp_path / "s", created_ms=float("inf"))
    with octavo.open(tmp_path / "s") as store, pytest.raises(Corruption, match="an attempt"):
        store.ingest("j", ["0"])


@pytest.mark.parametrize(
    "changed",
    [
        {"count": -1}, {"count": 0}, {"bytes": -1}, {"count": 1.5}, {"count": "9"},
        {"ledger_rows": -1}, {"ledger_max_sqn": 9}, {"ledgers": 5}, {"seed": None},
    ],
    ids=str,
)  # fmt: skip
def test_an_attempt_of_impossible_numbers_is_refused(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    attempt(tmp_path, **changed)
    with pytest.raises(Corruption, match="does not describe an attempt"):
        staging.read_attempt(RealDisk(), str(tmp_path), "j", "0")


def test_a_request_nested_without_end_is_damage(tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    for text in ("[" * 100_000, '{"a":' * 100_000, "1" * 100_000, '{"checksum": NaN}'):
        (tmp_path / "inbox" / "x.request").write_text(text)
        with pytest.raises(Corruption, match=r"x\.request"):
            inbox.read(RealDisk(), str(tmp_path), "x.request")


@pytest.mark.parametrize(
    "front",
    [
        struct.pack("<II", 0xFFFFFFFF, 0),
        struct.pack("<II", 10, 0xFFFFFFFF),
        struct.pack("<IIQ", 2, 1, 1 << 62) + b"{}",
        struct.pack("<IIQ", 2, 1, (1 << 64) - 1) + b"{}",
    ],
)
def test_a_message_of_any_length_is_nonsense(front: bytes) -> None:
    with pytest.raises(worker.Disconnected):
        worker.receive(io.BytesIO(front + bytes(100)))


def test_an_answer_may_name_as_many_long_keys_as_a_manifest_can() -> None:
    row = {"first_key": "\xe9" * 65_000, "last_key": "\xe9" * 65_000}
    answer, pipe = {"result": {"files": [row] * 90}}, io.BytesIO()  # of 6 GiB of such keys
    worker.send(pipe, answer)
    assert len(pipe.getvalue()) > 64 << 20
    pipe.seek(0)
    assert worker.receive(pipe) == (answer, [])
    assert len(json.dumps("\xe9")[1:-1]) * log_file.MAX_PAYLOAD_BYTES < worker._MAX_HEAD


def test_a_file_above_its_limit_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Corruption, match="file too large"):
        RealDisk().read(str(tmp_path / "sparse"), 1 << 20)


def test_a_published_file_of_a_huge_size_is_not_cut_into_as_many_tasks(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        for number in range(20):
            store.put(b"%d" % number, b"value")
        rolled(store)
        path = store.snapshot().publish("p").path
    found = published.read(RealDisk(), path)
    entries = tuple(replace(entry, bytes=(1 << 63) - 1) for entry in found.journal.entries)
    told = published.encode(replace(found, journal=replace(found.journal, entries=entries)))
    (Path(path) / "manifest").unlink()
    (Path(path) / "manifest").write_bytes(told)
    assert len(stretches(SnapshotFiles(path), 0)) <= 20


def journal_file(store: Path, base: int, records: bytes = b"") -> Path:
    """A forged one that is being written."""
    file = store / "journal" / f"{base:016x}-{SEED:016x}.log"
    file.write_bytes(cdb.beginning(cdb.FileHeader(1, base, SEED, 0)) + records)
    return file


@pytest.mark.parametrize("base", [1 << 50, (1 << 62) - 5, 1 << 62])
@pytest.mark.parametrize("whole", [False, True])
def test_a_journal_file_without_a_record_does_not_use_up_the_numbers(
    tmp_path: Path, base: int, whole: bool
) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"v")
    file = journal_file(tmp_path / "s", base)
    if not whole:
        file.write_bytes(b"")
    with opened(tmp_path / "s") as store:
        assert store.put("more", b"v") == 2
        assert any(f"{file}: holds no record" in note for note in store.stats()["notes"])
        assert store.verify().ok


def test_a_record_of_a_number_that_no_store_comes_to_is_refused_by_name(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"v")
    at = SEED ^ cdb.RECORDS_AT
    head = record.encode(0, at, record.PUT, 0x6F, b"", b"k", b"forged", 0)
    file = journal_file(tmp_path / "s", (1 << 62) - 5, head)
    with pytest.raises(octavo.Corruption, match="no store ever reaches") as told:
        opened(tmp_path / "s")
    assert told.value.file == str(file)


@pytest.mark.parametrize("ceiling", [(1 << 62) + 1, (1 << 64) - 1])
def test_a_journal_manifest_whose_ceiling_no_store_comes_to_is_not_believed(ceiling: int) -> None:
    forged = replace(JournalManifest.empty(), ceiling=ceiling)
    with pytest.raises(Corruption, match="ceiling"):
        JournalManifest.decode(forged.encode())
    with pytest.raises(Corruption, match="ceiling"):
        JournalManifest.replayed(None, [JournalManifest.empty().change_to(forged)])
