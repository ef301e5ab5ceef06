"""Columns that have one value in all rows: they take no memory, and nothing is gathered from them.

Such a column is an array whose elements overlap (its stride is 0), so that all that reads an array
reads it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import Ints

Number = TypeVar("Number", bound="np.generic")


def repeated(value: Number, count: int) -> npt.NDArray[Number]:
    """A column of so many rows, not to be written to."""
    column: npt.NDArray[Number] = np.broadcast_to(value, (count,))
    return column


def taken(column: npt.NDArray[Number], rows: Ints) -> npt.NDArray[Number]:
    """The column's values in these rows."""
    return repeated(column[0], len(rows)) if _is_one_value(column) else column[rows]


def take_into(column: npt.NDArray[Number], rows: Ints, out: npt.NDArray[Number]) -> None:
    """Write the column's values in these rows, all of which it has, to ``out``."""
    if _is_one_value(column):
        out[:] = column[0]
    else:
        np.take(column, rows, out=out, mode="clip")


def joined(parts: Sequence[npt.NDArray[Number]]) -> npt.NDArray[Number]:
    """The columns one after the other."""
    first = parts[0]
    if all(_is_one_value(part) and part[0] == first[0] for part in parts):
        return repeated(first[0], sum(map(len, parts)))
    return np.concatenate(parts)


def _is_one_value(column: npt.NDArray[Number]) -> bool:
    return len(column) > 0 and column.strides == (0,)
