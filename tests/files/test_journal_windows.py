"""Checksums over windows of a sealed journal file: what they vouch for, and what they do not."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from whole_store import SEED as CHANCE
from whole_store import opened, settle

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.errors import Corruption
from octavo.files.jobs import sealing
from octavo.files.journal import cdb, cdb_seal, record
from octavo.files.journal.journal_windows import (
    RecordSums,
    WindowSums,
    read_windows,
    verify_windows,
)
from octavo.files.journal.record_columns import all_whole

SEED = 0xA5A5_0102_0304_0506
SIZES = [0, 30, 3000, 200_000]
"""Bytes of values: many records to a window, and some that span several."""


@pytest.fixture
def rng() -> random.Random:
    print(f"OCTAVO_SEED={CHANCE}")
    return random.Random(CHANCE)


def seen(sums: RecordSums) -> int:
    """How many windows were looked at."""
    return int(np.count_nonzero(sums._state))


def journal(rng: random.Random, count: int) -> tuple[bytes, array[int], npt.NDArray[np.int64]]:
    """(an unsealed file, offsets, where the headers of its records end)."""
    parts = [cdb.beginning(cdb.FileHeader(1, 1, SEED, 5))]
    offsets, ends = array("I", (cdb.RECORDS_AT,)), []
    for number in range(count):
        value = rng.randbytes(rng.choice(SIZES[:2] * 20 + SIZES))
        kind = rng.choice((record.PUT, record.PUT, record.DELETE))
        encoded = record.encode(
            number, SEED ^ offsets[-1], kind, 0x6F, b"b", b"k%d" % number, value, 7,
            expiry_ms=rng.choice((0, 9)), metadata=rng.choice((b"", b"about")),
        )  # fmt: skip
        parts.append(encoded)
        ends.append(offsets[-1] + len(encoded) - len(value) - record.SUMS_BYTES)
        offsets.append(offsets[-1] + len(encoded))
    return b"".join(parts), offsets, np.array(ends, dtype=np.int64)


def section(body: bytes) -> bytes:
    made = WindowSums(SEED)
    made.add(body)
    return made.section()


def sealed(body: bytes, offsets: array[int], windows: bytes) -> bytes:
    front, back = cdb_seal.sealing(offsets.tobytes(), SEED, 1, 2, windows)
    return front + body[cdb.POINTERS_BYTES :] + back


def trailer_of(image: bytes) -> cdb.Trailer:
    return cdb.read_trailer(image[-cdb.TRAILER_BYTES :], len(image), "f")


def right(
    sums: RecordSums, offsets: array[int], heads: npt.NDArray[np.int64], rows: list[int]
) -> list[bool]:
    table, at = np.array(offsets, dtype=np.int64), np.array(rows, dtype=np.int64)
    found: list[bool] = sums.right(table[:-1][at], heads[at], table[1:][at]).tolist()
    return found


# ---------------------------------------------------------------- making


def test_pieces_of_any_size_make_the_same_section(rng: random.Random) -> None:
    body, _, _ = journal(rng, 300)
    for _ in range(20):
        made, at = WindowSums(SEED), 0
        while at < len(body):
            size = rng.choice((1, 100, cdb.RECORDS_AT, 60_000, cdb.WINDOW_BYTES, 500_000))
            made.add(body[at : at + size])
            at += size
        assert made.section() == section(body)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_window_that_is_just_full_is_one(more: int) -> None:
    for count in (0, 1, 2):
        body = bytes(max(cdb.RECORDS_AT + count * cdb.WINDOW_BYTES + more, cdb.RECORDS_AT))
        assert len(section(body)) == cdb.windows_bytes(len(body))


def test_a_file_says_what_was_added_to_it(rng: random.Random) -> None:
    body, offsets, _ = journal(rng, 300)
    image = sealed(body, offsets, section(body))
    trailer = trailer_of(image)
    found = read_windows(memoryview(image), trailer, "f")
    assert found is not None
    assert len(found) == -(-(len(body) - cdb.RECORDS_AT) // cdb.WINDOW_BYTES) > 3
    verify_windows(memoryview(image), trailer, "f")


def test_a_file_without_them_says_so(rng: random.Random) -> None:
    body, offsets, _ = journal(rng, 9)
    image = sealed(body, offsets, b"")
    assert not trailer_of(image).windows
    assert read_windows(memoryview(image), trailer_of(image), "f") is None
    assert image[-cdb.TRAILER_BYTES + 8] == 1, "releases before windows read it"


# ---------------------------------------------------------------- reading


def test_whatever_byte_of_a_file_is_changed_verifying_sees_it(rng: random.Random) -> None:
    body, offsets, _ = journal(rng, 200)
    image = sealed(body, offsets, section(body))
    trailer = trailer_of(image)
    of_records = [rng.randrange(cdb.RECORDS_AT, trailer.tables_at) for _ in range(200)]
    ends = [cdb.RECORDS_AT, trailer.tables_at - 1]
    behind = range(trailer.windows_at, trailer.windows_at + trailer.windows_bytes)
    for at in (*ends, *of_records, *behind):
        bad = bytearray(image)
        bad[at] ^= 1 << rng.randrange(8)
        with pytest.raises(Corruption, match="window"):
            verify_windows(memoryview(bad), trailer, "f")


def test_windows_of_two_places_are_not_exchanged(rng: random.Random) -> None:
    body, offsets, _ = journal(rng, 400)
    size, at = cdb.WINDOW_BYTES, cdb.RECORDS_AT
    body = body[:at] + body[at : at + size] * 2 + body[at + 2 * size :]
    image = bytearray(sealed(body, offsets, section(body)))
    first = trailer_of(bytes(image)).windows_at
    assert image[first : first + 8] != image[first + 8 : first + 16]


@pytest.mark.parametrize("windows", [True, False])
def test_all_records_of_a_whole_file_are_right(rng: random.Random, windows: bool) -> None:
    body, offsets, heads = journal(rng, 600)
    image = sealed(body, offsets, section(body) if windows else b"")
    sums = RecordSums(image, SEED)
    assert right(sums, offsets, heads, list(range(600))) == [True] * 600
    for _ in range(20):
        some = sorted(rng.sample(range(600), rng.randrange(1, 50)))
        assert right(sums, offsets, heads, some) == [True] * len(some)


@pytest.mark.parametrize("first", [600, 1], ids=["many at once", "one by one first"])
def test_a_changed_byte_makes_its_record_wrong_and_no_other(rng: random.Random, first: int) -> None:
    body, offsets, heads = journal(rng, 600)
    image = sealed(body, offsets, section(body))
    for turn in range(40):
        bad = bytearray(image)
        at = rng.randrange(cdb.RECORDS_AT, len(body))
        bad[at] ^= 1 << rng.randrange(8)
        lost = int(np.searchsorted(np.array(offsets), at, side="right")) - 1
        sums = RecordSums(bytes(bad), SEED)
        for low in range(0, 600, first) if turn < 3 else [0]:
            some = list(range(low, low + first)) if turn < 3 else list(range(600))
            found = right(sums, offsets, heads, some)
            assert found == [row != lost for row in some], (at, lost)


def test_windows_that_were_seen_vouch_for_what_is_in_them_and_no_more(rng: random.Random) -> None:
    body, offsets, _ = journal(rng, 600)
    bad = bytearray(sealed(body, offsets, section(body)))
    bad[offsets[300] + 5] ^= 1
    table, sums = np.array(offsets, dtype=np.int64), RecordSums(bytes(bad), SEED)
    starts, ends = table[:-1], table[1:]
    assert not sums.vouch_for(starts[:1], ends[:1]), "not looked at: it would not pay"
    assert not sums.vouch_for(starts, ends)
    assert seen(sums) > 3
    assert sums.vouch_for(starts[:1], ends[:1])
    assert not sums.vouch_for(starts[[599, 300]], ends[[599, 300]])
    assert not sums.vouch_for(starts[:1] - 1, ends[:1]), "of no record"
    assert not sums.vouch_for(starts[-1:], ends[-1:] + 1), "of no record"


def test_few_records_are_checked_by_their_own_checksums(rng: random.Random) -> None:
    body, offsets, heads = journal(rng, 600)
    bad = bytearray(sealed(body, offsets, section(body)))
    bad[offsets[300]] ^= 1  # in the window of the others, which nobody looks at
    sums = RecordSums(bytes(bad), SEED)
    assert right(sums, offsets, heads, [299, 301]) == [True, True]
    assert not seen(sums)
    assert right(sums, offsets, heads, list(range(600))).count(False) == 1
    assert seen(sums) > 3


def test_few_records_again_and_again_are_checked_by_windows_in_the_end(
    rng: random.Random,
) -> None:
    body, offsets, heads = journal(rng, 600)
    sums = RecordSums(sealed(body, offsets, section(body)), SEED)
    for low in range(0, 600, 3):
        assert all(right(sums, offsets, heads, [low, low + 1, low + 2]))
    assert seen(sums) > 0


def test_windows_that_are_wrong_themselves_cost_no_record(rng: random.Random) -> None:
    body, offsets, heads = journal(rng, 600)
    other = section(body[: cdb.RECORDS_AT] + bytes(len(body) - cdb.RECORDS_AT))
    sums = RecordSums(sealed(body, offsets, other), SEED)
    assert all(right(sums, offsets, heads, list(range(600))))
    assert seen(sums)


def test_a_damaged_section_is_not_believed(rng: random.Random) -> None:
    body, offsets, heads = journal(rng, 600)
    image = bytearray(sealed(body, offsets, section(body)))
    at = trailer_of(bytes(image)).windows_at
    image[at] ^= 1
    image[offsets[5] + 20] ^= 1
    sums = RecordSums(bytes(image), SEED)
    assert right(sums, offsets, heads, list(range(600))) == [row != 5 for row in range(600)]
    assert not seen(sums)


def test_where_many_more_are_likely_to_follow_windows_pay_at_once(rng: random.Random) -> None:
    body, offsets, heads = journal(rng, 600)
    image = sealed(body, offsets, section(body))
    table, rows = np.array(offsets, dtype=np.int64), np.arange(0, 600, 60)
    places = table[:-1][rows], heads[rows], table[1:][rows]
    for times, at_once in ((1, False), (2, False), (60, True)):
        sums = RecordSums(image, SEED)
        assert sums.right(*places, times=times).all()
        assert bool(seen(sums)) == at_once
        for _ in range(60):  # and in the end they pay by themselves
            assert sums.right(*places).all()
        assert seen(sums)


def test_the_seed_of_another_file_makes_all_records_wrong(rng: random.Random) -> None:
    body, offsets, heads = journal(rng, 60)
    sums = RecordSums(sealed(body, offsets, section(body)), SEED + 1)
    assert right(sums, offsets, heads, list(range(60))) == [False] * 60


def test_places_outside_the_records_are_not_right(rng: random.Random) -> None:
    body, offsets, heads = journal(rng, 600)
    image = sealed(body, offsets, section(body))
    sums = RecordSums(image, SEED)
    assert all(right(sums, offsets, heads, list(range(600))))  # all windows are known now
    end = trailer_of(image).tables_at
    starts = np.array([0, cdb.RECORDS_AT - 1, end - 10, end], dtype=np.int64)
    found = sums.right(starts, starts + 60, np.array([100, 4000, end + 60, end + 90]))
    assert not found.any()


def test_what_is_not_sealed_has_no_windows(rng: random.Random) -> None:
    body, offsets, heads = journal(rng, 60)
    sums = RecordSums(body, SEED)
    assert all(right(sums, offsets, heads, list(range(60))))
    assert not seen(sums)
    assert not seen(RecordSums(b"", SEED))


# ---------------------------------------------------------------- sealing


def test_every_record_of_a_whole_file_is_seen_to_be(rng: random.Random) -> None:
    body, offsets, _ = journal(rng, 600)
    table = np.array(offsets, dtype=np.uint32)
    assert all_whole(body, table, SEED)
    for _ in range(40):
        bad = bytearray(body)
        bad[rng.randrange(cdb.RECORDS_AT, len(body))] ^= 1 << rng.randrange(8)
        assert not all_whole(bytes(bad), table, SEED)
    assert not all_whole(body[:-1], table, SEED)
    assert not all_whole(body, table, SEED + 1)


def test_numbers_without_a_record_are_no_fault(rng: random.Random) -> None:
    body, offsets, _ = journal(rng, 60)
    # Number 3 lost its record, whose bytes are still there: 2 ends early, as recovery has it.
    table = np.array([*offsets[:3], offsets[4], *offsets[4:]], dtype=np.uint32)
    assert all_whole(body, table, SEED)
    broken = bytearray(body)
    broken[offsets[3] + 2] ^= 1
    assert all_whole(bytes(broken), table, SEED)


@pytest.mark.parametrize("damaged", [False, True])
def test_sealing_vouches_for_whole_records_only(
    tmp_path: Path, rng: random.Random, damaged: bool
) -> None:
    body, offsets, _ = journal(rng, 300)
    stored = bytearray(body)
    if damaged:
        stored[rng.randrange(cdb.RECORDS_AT, len(body))] ^= 4
    (tmp_path / "a.log").write_bytes(stored)
    sealing.seal(
        RealDisk(), offsets.tobytes(), directory=str(tmp_path), name="a.log", sealed_name="a.cdb",
        seed=SEED, first_ms=1, last_ms=2,
    )  # fmt: skip
    image = (tmp_path / "a.cdb").read_bytes()
    trailer = trailer_of(image)
    assert trailer.windows is not damaged
    verify_windows(memoryview(image), trailer, "a")


# ---------------------------------------------------------------- stores


def small(path: Path) -> octavo.Store:
    return opened(path, roll_count=1000, push_rows=4096, compact_every_seconds=None)


def store_of(path: Path, rng: random.Random) -> dict[bytes, bytes]:
    """A store whose journal is sealed, but for its last file, and has windows."""
    wanted = {b"%06d" % n: rng.randbytes(rng.randrange(60)) for n in range(3000)}
    keys = list(wanted)
    rng.shuffle(keys)
    with small(path) as store:
        store.put_many((key, wanted[key]) for key in keys)
        settle(store)
    return wanted


def files_of(path: Path) -> list[Path]:
    return sorted((path / "journal").glob("*.cdb"))


@pytest.mark.parametrize("columns", [["key", "value"], ["value"]], ids=str)
def test_a_changed_byte_is_named_by_a_stream_of_items(
    tmp_path: Path, rng: random.Random, columns: list[str]
) -> None:
    wanted = store_of(tmp_path, rng)
    file = files_of(tmp_path)[1]
    whole = file.read_bytes()
    trailer = trailer_of(whole)
    assert trailer.windows
    with small(tmp_path) as store, store.snapshot() as snap:
        rows = sum(batch.num_rows for batch in snap.to_arrow(columns=columns))
        assert rows == len(wanted)
    offsets = cdb.sealed_offsets(whole, file.name)[1]
    for _ in range(12):
        row = rng.randrange(1000)
        at, end = offsets[row], offsets[row + 1]
        head = record.parse_header(whole[at:end], trailer.seed ^ at, end - at).header_bytes
        # The value's checksum vouches for the header, whose own is not needed where it is right.
        place = rng.choice([*range(at, at + head), *range(at + head + 4, end)])
        bad = bytearray(whole)
        bad[place] ^= 1 << rng.randrange(8)
        file.write_bytes(bad)
        with (
            small(tmp_path) as store,
            store.snapshot() as snap,
            pytest.raises(Corruption, match=file.name),
        ):
            for _ in snap.to_arrow(columns=columns):
                pass
    file.write_bytes(whole)


def test_every_way_to_make_a_sealed_file_gives_it_windows(
    tmp_path: Path, rng: random.Random
) -> None:
    wanted = store_of(tmp_path / "s", rng)
    with small(tmp_path / "s") as store:
        store.put_many((b"%06d" % n, b"newer") for n in range(0, 3000, 2))
        wanted |= {b"%06d" % n: b"newer" for n in range(0, 3000, 2)}
        store.compact()
        store.put_many((b"later%d" % n, b"v") for n in range(20))
        wanted |= {b"later%d" % n: b"v" for n in range(20)}
        store.backup(tmp_path / "b")
    octavo.restore(tmp_path / "b", tmp_path / "r", sqn=4510)
    flipped = files_of(tmp_path / "s")[0]
    image = bytearray(flipped.read_bytes())
    image[-1] ^= 1
    flipped.unlink()  # the backup has a link of it
    flipped.write_bytes(image)
    assert octavo.repair(tmp_path / "s").ok
    for home in ("s", "b", "r"):
        assert files_of(tmp_path / home)
        for file in files_of(tmp_path / home):
            whole = file.read_bytes()
            assert trailer_of(whole).windows, file
            verify_windows(memoryview(whole), trailer_of(whole), str(file))
    with small(tmp_path / "s") as store, store.snapshot() as snap:
        assert store.verify().ok
        found = snap.to_arrow(columns=["key", "value"]).read_all()
        pairs = zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)
        assert dict(pairs) == wanted


def test_verify_tells_of_a_window_that_is_not_as_it_was(tmp_path: Path, rng: random.Random) -> None:
    store_of(tmp_path, rng)
    file = files_of(tmp_path)[0]
    whole = file.read_bytes()
    trailer = trailer_of(whole)
    made = WindowSums(trailer.seed)
    made.add(bytes(trailer.tables_at))
    image = bytearray(whole)
    image[trailer.windows_at : trailer.windows_at + trailer.windows_bytes] = made.section()
    file.write_bytes(image)
    with small(tmp_path) as store:
        (problem,) = store.verify().problems
    assert "a window's checksum" in problem
    assert file.name in problem
    done = octavo.repair(tmp_path)
    assert done.files.rewritten == [file.name]
    assert done.ok
