"""Tells ledger files apart by a few numbers, their marks. By these whoever opens a file by its name
sees whether it is the one that its manifest means, and not an intact one of another store, or an
older copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import Corruption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.files.ledger.sst import Sst


class Told(Protocol):
    """What a file, or its manifest, says of it."""

    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def min_sqn(self) -> int: ...
    @property
    def max_sqn(self) -> int: ...
    @property
    def first_key(self) -> _Key: ...
    @property
    def last_key(self) -> _Key: ...


_Key = bytes  # the class above has a field of that name


def marks_of(file: Told, sqn_base: int = 0) -> list[int]:
    """The marks of a file; ``sqn_base`` is what was added to its sqns."""
    sqns = (file.min_sqn - sqn_base, file.max_sqn - sqn_base)
    return [file.rows, file.bytes, *sqns, xxh3(file.first_key + file.last_key)]


def refuse_another(marks: Sequence[int], sst: Sst) -> None:
    """Raise Corruption where an intact ledger file is not the one that has these marks."""
    found = marks_of(sst)
    if marks != found:
        raise Corruption(sst.name, 0, "is another file than the manifest means", expected=marks,
                         found=found)  # fmt: skip
