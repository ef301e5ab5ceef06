"""Byte strings as columns: end to end, or anywhere in a blob."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from octavo.files.kernels.arrays import I64, U8, np, npt

Bytes: TypeAlias = U8


@dataclass(slots=True)
class ByteColumn:
    """n byte strings end to end: row i is ``blob[offsets[i]:offsets[i + 1]]``."""

    blob: Bytes
    offsets: I64  # n + 1, ascending, offsets[0] may be above 0

    def strings(self) -> Strings:
        """The same strings, each by where it begins and its length."""
        return Strings(self.blob, self.offsets[:-1], self.offsets[1:] - self.offsets[:-1])


@dataclass(slots=True)
class Strings:
    """n byte strings anywhere in a blob: row i is ``blob[starts[i]:][:lengths[i]]``."""

    blob: Bytes
    starts: I64
    lengths: I64

    def picked(self, rows: npt.NDArray[np.int64] | slice) -> Strings:
        """Some of the strings, where they are: not copied."""
        return Strings(self.blob, self.starts[rows], self.lengths[rows])

    def one(self, row: int) -> bytes:
        """The string of a row."""
        at = int(self.starts[row])
        return self.blob[at : at + int(self.lengths[row])].tobytes()


def names_at(names: bytes | Strings, rows: npt.NDArray[np.int64] | slice) -> bytes | Strings:
    """The names of some rows; one name for all rows is theirs, too."""
    return names if isinstance(names, bytes) else names.picked(rows)
