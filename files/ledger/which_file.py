"""Which ledger file one is, in a few numbers: so whoever opens a file by its name sees whether it
is the one that its manifest means, and not a whole one of another store, or an older copy."""

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
    """Of a file whose sqns are told with ``sqn_base``."""
    sqns = (file.min_sqn - sqn_base, file.max_sqn - sqn_base)
    return [file.rows, file.bytes, *sqns, xxh3(file.first_key + file.last_key)]


def refuse_another(marks: Sequence[int], sst: Sst) -> None:
    """Raise Corruption where a whole ledger file is not the one that these are of."""
    found = marks_of(sst)
    if marks != found:
        raise Corruption(sst.name, 0, "is another file than the manifest means", expected=marks,
                         found=found)  # fmt: skip
