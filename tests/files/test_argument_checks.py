"""What callers give: shown in messages, and taken as the numbers that they are."""

from __future__ import annotations

import enum

import numpy as np
import pytest

from octavo.files.argument_checks import number, shown, to_whole, whole_number
from octavo.files.errors import Misuse


class Wordless:
    def __repr__(self) -> str:
        raise RuntimeError("says nothing")


class Level(enum.IntEnum):
    HIGH = 3


class OldTruth:
    """As NumPy's True was up to 1.26: an index."""

    dtype = np.dtype(np.bool_)

    def __index__(self) -> int:
        return 1


def test_a_value_is_shown_short_whatever_it_is() -> None:
    assert shown("k") == "'k'"
    assert shown(7) == "7"
    assert shown(10**5000) == f"an int of {(10**5000).bit_length()} bits"
    assert shown(Wordless()) == "an object of type Wordless"
    for long in ("x" * 10**6, b"x" * 10**6, bytearray(10**6), list(range(10**4))):
        assert len(shown(long)) < 100


def test_a_whole_number_is_a_plain_int() -> None:
    for given in (3, Level.HIGH, np.int64(3), np.uint8(3)):
        found = whole_number(given)
        assert (type(found), found) == (int, 3)
        assert number(given) == 3
    for none in (True, np.True_, OldTruth(), 3.0, "3", None, np.array([3, 4]), Level):
        assert whole_number(none) is None
    for given in (2.5, np.float64(2.5)):
        assert (type(number(given)), number(given)) == (float, 2.5)


@pytest.mark.parametrize("given", [-1, 5, "3", None, 10**5000], ids=map(str, range(5)))
def test_a_number_that_is_not_allowed_is_named_with_its_argument(given: object) -> None:
    with pytest.raises(Misuse, match=r"^most=.*: allowed are numbers from 0 to 4$"):
        to_whole("most", given, "are numbers from 0 to 4", 0, 4)
    assert to_whole("most", 4, "are numbers from 0 to 4", 0, 4) == 4
