"""Journal files: stock CDB when sealed, scanned past damage when not."""

from __future__ import annotations

import random
import shutil
import subprocess
from array import array
from pathlib import Path

import cdblib
import numpy as np
import pytest

from octavo.files.errors import Corruption, UnsupportedFormat
from octavo.files.journal import cdb, cdb_seal, record
from octavo.files.journal.journal_windows import WindowSums, read_windows

SEED = 0xA5A5_0102_0304_0506
HEADER = cdb.FileHeader(epoch=3, base_sqn=100, seed=SEED, created_ms=5)


def journal(values: list[bytes]) -> tuple[bytes, array]:
    """(bytes of an unsealed file, offsets)."""
    parts = [cdb.beginning(HEADER)]
    offsets = array("I", (cdb.RECORDS_AT,))
    for number, value in enumerate(values):
        parts.append(
            record.encode(
                number, SEED ^ offsets[-1], record.PUT, 0x6F, b"", b"key%d" % number, value, number
            )
        )
        offsets.append(offsets[-1] + len(parts[-1]))
    return b"".join(parts), offsets


def sealed(values: list[bytes]) -> bytes:
    body, offsets = journal(values)
    windows = WindowSums(SEED)
    windows.add(body)
    front, back = cdb_seal.sealing(offsets.tobytes(), SEED, 1, 2, windows.section())
    return front + body[cdb.POINTERS_BYTES :] + back


def random_values(count: int) -> list[bytes]:
    rng = random.Random(count)
    return [rng.randbytes(rng.randrange(60)) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 5000])
def test_cdblib_reads_every_record_of_a_sealed_file(count: int) -> None:
    values = random_values(count)
    whole = sealed(values)
    _, offsets = journal(values)
    reader = cdblib.Reader(whole)
    assert len(reader) == count + 1
    for number in range(count):
        at, end = offsets[number], offsets[number + 1]
        assert reader.get(number.to_bytes(8, "big")) == whole[at + 16 : end]
    assert reader.get((count + 7).to_bytes(8, "big")) is None


@pytest.mark.parametrize("at_a_time", [1, 7, 100])
def test_tables_are_the_same_however_many_are_made_at_a_time(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    for count in (0, 1, 20, 3000):
        numbers = np.arange(0, 3 * count, 3, dtype=np.uint64)
        places = np.arange(5000, 5000 + count, dtype=np.uint32)
        whole = cdb_seal.hash_tables(numbers, places, 9999)
        with monkeypatch.context() as patch:
            patch.setattr(cdb_seal, "_AT_A_TIME", at_a_time)
            assert cdb_seal.hash_tables(numbers, places, 9999) == whole


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 511, 512, 5000, 8192, 9001])
def test_tables_of_numbers_without_gaps_are_those_of_any_numbers(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    numbers = np.arange(count, dtype=np.uint64)
    places = np.cumsum(np.random.default_rng(count).integers(42, 900, count)).astype(np.uint32)
    made = []
    for many in (1, count + 1):
        monkeypatch.setattr(cdb_seal, "_MANY", many)
        made.append(cdb_seal.hash_tables(numbers, places, 9999))
    assert made[0] == made[1]


def test_tinycdb_reads_a_sealed_file(tmp_path: Path) -> None:
    tool = shutil.which("cdb")
    assert tool, "tinycdb is not installed: apt-get install tinycdb"
    values = random_values(300)
    path = tmp_path / "j.cdb"
    path.write_bytes(sealed(values))
    listed = subprocess.run([tool, "-l", str(path)], capture_output=True, check=True).stdout
    assert listed.count(b"+") >= 301
    _, offsets = journal(values)
    for number in (0, 1, 150, 299):
        # The key's NUL bytes cannot be an argument, so take the record out of a full dump.
        dump = subprocess.run([tool, "-d", str(path)], capture_output=True, check=True).stdout
        size = offsets[number + 1] - offsets[number] - 16
        assert b"+8,%d:%s->" % (size, number.to_bytes(8, "big")) in dump


def test_offsets_and_tables_of_a_sealed_file_are_verified() -> None:
    whole = sealed(random_values(500))
    view = memoryview(whole)
    trailer = cdb.read_trailer(whole[-cdb.TRAILER_BYTES :], len(whole), "f")
    stored = view[trailer.offsets_at : len(whole) - cdb.TRAILER_BYTES]
    assert list(cdb.read_offsets(stored, trailer, "f")) == list(journal(random_values(500))[1])
    cdb.verify_tables(view, trailer, "f")


def test_every_flipped_byte_outside_the_records_of_a_sealed_file_is_detected() -> None:
    whole = sealed(random_values(40))
    trailer = cdb.read_trailer(whole[-cdb.TRAILER_BYTES :], len(whole), "f")
    places = [*range(cdb.RECORDS_AT), *range(trailer.tables_at, len(whole))]
    for at in places:
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        view = memoryview(bytes(damaged))
        if cdb.POINTERS_BYTES <= at < cdb.RECORDS_AT - cdb.HEADER_BYTES:
            continue  # CDB's own two lengths and key of the first pair: the name tells the rest
        with pytest.raises((Corruption, UnsupportedFormat)):
            verify_sealed(view)


def verify_sealed(view: memoryview) -> None:
    trailer = cdb.read_trailer(bytes(view[-cdb.TRAILER_BYTES :]), len(view), "f")
    cdb.read_offsets(view[trailer.offsets_at : len(view) - cdb.TRAILER_BYTES], trailer, "f")
    cdb.verify_tables(view, trailer, "f")
    read_windows(view, trailer, "f")
    cdb.read_header(view[: cdb.RECORDS_AT], "f")


def scanned(body: bytes) -> tuple[list[int], list[cdb.Damage]]:
    damages: list[cdb.Damage] = []
    found = [row.relative_sqn for row in cdb.scan(body, cdb.RECORDS_AT, len(body), SEED, damages)]
    return found, damages


def test_a_scan_finds_every_record_of_a_whole_file() -> None:
    body, _ = journal(random_values(200))
    assert scanned(body) == (list(range(200)), [])


def test_a_flipped_byte_anywhere_costs_one_record_and_none_that_follow() -> None:
    body, offsets = journal(random_values(12))
    for at in range(cdb.RECORDS_AT, len(body)):
        damaged = bytearray(body)
        damaged[at] ^= 0x08
        found, damages = scanned(bytes(damaged))
        lost = next(i for i in range(12) if offsets[i] <= at < offsets[i + 1])
        assert found == [i for i in range(12) if i != lost]
        assert [(d.start, d.end) for d in damages] == [(offsets[lost], offsets[lost + 1])]


def test_a_file_cut_anywhere_keeps_its_whole_records() -> None:
    body, offsets = journal(random_values(8))
    for cut in range(cdb.RECORDS_AT, len(body)):
        found, damages = scanned(body[:cut])
        whole = sum(1 for end in offsets[1:] if end <= cut)
        assert found == list(range(whole))
        assert (not damages) == (cut in offsets)


def test_a_value_that_is_a_journal_file_is_never_taken_for_records() -> None:
    inner, _ = journal([b"inner"] * 5)
    body, offsets = journal([b"a", inner, b"c"])
    damaged = bytearray(body)
    damaged[offsets[1] + 20] ^= 1  # the header of the outer record
    found, _ = scanned(bytes(damaged))
    assert found == [0, 2]


def test_a_record_that_was_lost_is_a_hole_in_a_sealed_file() -> None:
    body, offsets = journal([b"a", b"b", b"c"])
    offsets[1] = offsets[2]  # record 1 is gone; record 0 may end early
    front, back = cdb_seal.sealing(offsets.tobytes(), SEED, 1, 2)
    whole = front + body[cdb.POINTERS_BYTES :] + back
    reader = cdblib.Reader(whole)
    assert reader.get((1).to_bytes(8, "big")) is None
    assert reader.get((2).to_bytes(8, "big")) is not None


def test_a_key_whose_cdb_hash_is_zero_is_stored_and_found() -> None:
    # cdblib's own writer loses such keys; with our tables its reader finds them.
    hashes = cdb_seal._cdb_hashes(np.arange(1 << 20, dtype=np.uint64))
    print("smallest CDB hash among the first 2**20 relative numbers:", hashes.min())
    front, tables = cdb_seal.hash_tables(
        np.array([5], np.uint64), np.array([cdb.RECORDS_AT], np.uint32), 9000
    )
    assert len(front) == cdb.POINTERS_BYTES
    assert len(tables) == 8 * 4


@pytest.mark.parametrize("highest", [0, 1, 255, 256, 65_535, 1 << 20, 1 << 40, (1 << 64) - 1])
def test_numbers_are_hashed_as_eight_bytes_however_many_are_zero(highest: int) -> None:
    numbers = [highest, 0, highest // 2, highest // 300]
    wanted = []
    for number in numbers:
        h = 5381
        for byte in number.to_bytes(8, "big"):
            h = (h * 33 & 0xFFFFFFFF) ^ byte
        wanted.append(h)
    assert cdb_seal._cdb_hashes(np.array(numbers, dtype=np.uint64)).tolist() == wanted


def test_a_newer_file_version_is_refused_by_name() -> None:
    from xxhash import xxh3_64_intdigest as xxh3

    head = bytearray(cdb.beginning(HEADER))
    at = cdb.RECORDS_AT - cdb.HEADER_BYTES
    head[at + 8] = 9
    head[-8:] = xxh3(bytes(head[at:-8])).to_bytes(8, "little")
    with pytest.raises(UnsupportedFormat, match="version 9"):
        cdb.read_header(bytes(head), "f")
