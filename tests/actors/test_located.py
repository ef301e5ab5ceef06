"""Values that were located: cut out, decompressed, or read the long way."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from unittest import mock

import lz4.block
import numpy as np
import pytest
from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.scanning import batch_values
from octavo.actors.scanning.batch_values import Located
from octavo.files.errors import Corruption
from octavo.files.journal.journal_values import Places
from octavo.files.journal.record import LOW_32

SMALL = [b"%d" % at * at for at in range(1, 60)]
LARGE = [b"large %d" % at * 1000 for at in range(40)]


def located(
    kinds: list[tuple[bytes, int]],
    careful: dict[int, bytes],
    files: int = 1,
    damaged: Collection[int] | None = None,
) -> Located:
    """Of values as they are stored, with their bytes before compression; -1: not compressed, -2:
    not found. They are in so many files by turns. ``damaged``: they have yet to be compared with
    their checksums, of which these rows have others."""

    def with_care(row: int) -> bytes:
        if row in careful:
            return careful[row]
        raise Corruption("file", 0, f"row {row}")

    found = Located(len(kinds), with_care, late=damaged is not None)
    for number in range(files):
        rows = np.arange(number, len(kinds), files)
        stored = [kinds[row][0] for row in rows]
        lengths = np.array([len(part) for part in stored])
        raw_bytes = np.array([kinds[row][1] for row in rows])
        at = np.cumsum(lengths) - lengths + 3
        image = b"..." + b"".join(stored)
        seeds = rows.astype(np.uint64) << np.uint64(40)
        each = zip(rows.tolist(), stored, seeds.tolist(), strict=True)
        wrong = damaged or ()
        sums = np.array([xxh3(part, seed) & LOW_32 ^ (row in wrong) for row, part, seed in each])
        found.add(image, rows, Places(raw_bytes > -2, at, lengths, raw_bytes), (seeds, sums))
    return found


def packed(value: bytes) -> tuple[bytes, int]:
    return lz4.block.compress(value, store_size=False), len(value)


def column(found: Located) -> list[bytes]:
    """Every value, of those that nobody has asked for yet."""
    whole = found.column(0, len(found))
    blob = whole.blob.tobytes()
    return [blob[at:end] for at, end in pairwise(whole.offsets.tolist())]


def all_of(found: Located) -> list[bytes]:
    """Every value, by each of the ways, which are compared."""
    values = found.values(0, len(found))
    assert list(map(bytes, found.views(0, len(found)))) == values
    assert [found.values(row, row + 1)[0] for row in range(len(found))] == values
    assert column(found) == values
    return values


@pytest.mark.parametrize("files", [1, 2, 3])
def test_values_of_every_kind_come_back(files: int) -> None:
    plain = [(value, -1) for value in SMALL]
    squeezed = [packed(value) for value in LARGE]
    alike = [(b"%04d" % at, -1) for at in range(500)]
    assert all_of(located(plain, {}, files)) == SMALL
    assert all_of(located(squeezed, {}, files)) == LARGE
    assert all_of(located(plain + squeezed, {}, files)) == SMALL + LARGE
    assert all_of(located(alike, {}, files)) == [value for value, _ in alike]
    unlike = [(b"%03d" % at * (20 + at % 40), -1) for at in range(300)]
    assert all_of(located(unlike, {}, files)) == [value for value, _ in unlike]
    careful = {3: b"carefully", len(plain) + 2: b""}
    mixed = [(b"", -2) if row in careful else kind for row, kind in enumerate(plain + squeezed)]
    expected = SMALL + LARGE
    expected[3], expected[len(plain) + 2] = careful.values()
    assert all_of(located(mixed, careful, files)) == expected


def test_of_each_file_one_view_is_made_however_few_rows_come_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = mock.Mock(side_effect=memoryview)
    monkeypatch.setattr(batch_values, "memoryview", made, raising=False)
    found = located([(value, -1) for value in SMALL], {}, files=5)
    assert [bytes(found.views(row, row + 1)[0]) for row in range(len(found))] == SMALL
    assert made.call_count == 5


@pytest.mark.parametrize(
    "wrong",
    [(b"no block at all", 99), (packed(LARGE[1])[0], 7999), (b"", 1 << 40), (packed(b"")[0], 1)],
)
def test_what_cannot_be_decompressed_is_read_the_long_way(wrong: tuple[bytes, int]) -> None:
    kinds = [*map(packed, LARGE[:5]), wrong, *map(packed, LARGE[5:])]
    assert all_of(located(kinds, {5: b"care"})) == [*LARGE[:5], b"care", *LARGE[5:]]
    found = located(kinds, {})
    assert found.values(2, 9) == LARGE[2:5]
    for low in (5, 0):
        with pytest.raises(Corruption, match="row 5"):
            found.values(low, 9) if low else found.column(low, 9)


def test_lengths_that_make_up_for_each_other_shift_no_value() -> None:
    kinds = [packed(bytes(5000))] * 60
    block = kinds[0][0]
    kinds[5:7] = (block, 5001), (block, 4999)
    careful = {5: b"care", 6: b"more care"}
    expected = [bytes(5000)] * 60
    expected[5:7] = careful.values()
    assert all_of(located(kinds, careful)) == expected
    with pytest.raises(Corruption, match="row 5"):
        located(kinds, {}).column(5, 60)


def test_where_nothing_was_located_all_is_read_the_long_way() -> None:
    found = Located(3, lambda row: b"%d" % row)
    assert all_of(found) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("files", [1, 2, 3])
@pytest.mark.parametrize("empty", [False, True])
def test_what_is_not_as_it_was_written_is_read_the_long_way(files: int, empty: bool) -> None:
    large = [*map(packed, LARGE[1:]), *[(b"", -1)] * empty]
    plain = [(b"as it is" * 400, -1)] * 20
    values = [*LARGE[1:], *[b""] * empty, *[value for value, _ in plain]]
    for kinds, expected in ((large + plain, values), (plain, values[-20:])):
        assert all_of(located(kinds, {}, files, ())) == expected
        assert column(located(kinds, {}, files, ())) == expected
        for row in (0, len(kinds) // 2, len(kinds) - 1):
            right = [*expected[:row], b"care", *expected[row + 1 :]]
            assert column(located(kinds, {row: b"care"}, files, {row})) == right
            views = located(kinds, {row: b"care"}, files, {row}).views(0, len(kinds))
            assert list(map(bytes, views)) == right
            assert all_of(located(kinds, {row: b"care"}, files, {row})) == right
            with pytest.raises(Corruption, match=f"row {row}"):
                column(located(kinds, {}, files, {row}))


@pytest.mark.parametrize("files", [1, 2, 3])
def test_values_behind_one_that_was_not_found_have_their_own_checksums(files: int) -> None:
    kinds = [*map(packed, LARGE[1:]), *[(b"as it is" * 400, -1)] * 20]
    expected = [*LARGE[1:], *[value for value, _ in kinds[-20:]]]
    for row in (0, len(kinds) // 2, len(kinds) - 1):
        kinds[row], usual = (b"", -2), kinds[row]
        right = [*expected[:row], b"care", *expected[row + 1 :]]  # no other is read the long way
        assert column(located(kinds, {row: b"care"}, files, ())) == right
        assert all_of(located(kinds, {row: b"care"}, files, ())) == right
        kinds[row] = usual
