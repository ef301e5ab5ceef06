"""Values that were located: cut out, decompressed, or read the long way."""

from __future__ import annotations

from itertools import pairwise

import lz4.block
import numpy as np
import pytest

from octavo.actors.batch_values import Located
from octavo.files.errors import Corruption
from octavo.files.journal_values import Places

SMALL = [b"%d" % at * at for at in range(1, 60)]
LARGE = [b"large %d" % at * 1000 for at in range(40)]


def located(kinds: list[tuple[bytes, int]], careful: dict[int, bytes], files: int = 1) -> Located:
    """Of values as they are stored, with their bytes before compression; -1: not compressed, -2:
    not found. They are in so many files by turns."""

    def with_care(row: int) -> bytes:
        if row in careful:
            return careful[row]
        raise Corruption("file", 0, f"row {row}")

    found = Located(len(kinds), with_care)
    for number in range(files):
        rows = np.arange(number, len(kinds), files)
        stored = [kinds[row][0] for row in rows]
        lengths = np.array([len(part) for part in stored])
        raw_bytes = np.array([kinds[row][1] for row in rows])
        at = np.cumsum(lengths) - lengths + 3
        image = b"..." + b"".join(stored)
        found.add(image, rows, Places(raw_bytes > -2, at, lengths, raw_bytes))
    return found


def packed(value: bytes) -> tuple[bytes, int]:
    return lz4.block.compress(value, store_size=False), len(value)


def all_of(found: Located) -> list[bytes]:
    """Every value, by each of the ways, which are compared."""
    values = found.values(0, len(found))
    assert list(map(bytes, found.views(0, len(found)))) == values
    assert [found.values(row, row + 1)[0] for row in range(len(found))] == values
    column = found.column(0, len(found))
    blob, offsets = column.blob.tobytes(), column.offsets.tolist()
    ends = pairwise(offsets)
    assert [blob[at:end] for at, end in ends] == values
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
