"""Limits how many files a piece of work keeps mapped at once.

Before Python 3.13 every map holds a descriptor, of which a process has some 1,024, and there may be
more files than that; and a process may be limited in what it maps (Spark limits its Python workers
so: spark.executor.pyspark.memory). Files beyond the limit are mapped when they are read, and what
is read is copied.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, overload

from octavo.files.door.disk import Disk
from octavo.files.door.maps import share_of, share_of_maps
from octavo.files.ledger.find_many import Level
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.which_file import refuse_another

Told: TypeAlias = Sequence[Any]
"""What a job is told of a file: its name, the base of its sqns, and, if its manifest has them, its
marks (which_file.py), by which another file in its place is recognized."""

_SHARE = 4
"""One in so many of a process's maps, or bytes, is for this: others need some, too."""


def most_maps() -> int:
    """How many maps a piece of work may keep."""
    return share_of_maps(_SHARE)


def most_mapped_bytes() -> int | None:
    """How many bytes of files may be kept mapped; None: any number."""
    most = share_of(resource.RLIMIT_AS, _SHARE)
    return None if most == sys.maxsize else most


class FewMaps(Sequence[tuple[Sst, int]]):
    """Files of a level of the ledger, each with the base of its sqns, of which the first ``kept``
    stay mapped; the others are mapped each time they are asked for."""

    def __init__(self, files: Sequence[tuple[Callable[[], Sst], int]], kept: int) -> None:
        """Map each file once. Raises Corruption, OSError."""
        self._files = files
        self._kept: list[Sst] = []
        for opener, _ in files:
            sst = opener()
            if len(self._kept) < kept:
                self._kept.append(sst)

    def __len__(self) -> int:
        return len(self._files)

    @overload
    def __getitem__(self, at: int) -> tuple[Sst, int]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[tuple[Sst, int]]: ...
    def __getitem__(self, at: int | slice) -> tuple[Sst, int] | Sequence[tuple[Sst, int]]:
        if isinstance(at, slice):
            return [self[each] for each in range(len(self))[at]]
        at = range(len(self))[at]
        opener, base = self._files[at]
        return (self._kept[at] if at < len(self._kept) else opener()), base

    def __iter__(self) -> Iterator[tuple[Sst, int]]:
        return map(self.__getitem__, range(len(self)))


def few_maps(
    levels: Sequence[Sequence[tuple[Callable[[], Sst], int]]],
) -> list[FewMaps]:
    """The levels of a ledger; of all their files no more than ``most_maps`` stay mapped."""
    left, out = most_maps(), []
    for files in levels:
        out.append(FewMaps(files, left))
        left = max(left - len(files), 0)
    return out


def opened(disk: Disk, directory: str, levels: Sequence[Sequence[Told]]) -> Sequence[Level]:
    """The ledger files of a manifest, newest first, as the manifest has them. Reads the summary of
    each file; no more than ``most_maps`` stay mapped. Raises Corruption."""
    return few_maps(
        [
            [
                (partial(_mapped, disk, f"{directory}/{name}", marks), base)
                for name, base, *marks in level
            ]
            for level in levels
        ]
    )


def _mapped(disk: Disk, path: str, marks: Sequence[list[int]]) -> Sst:
    sst = Sst(disk.map(path), path)
    for told in marks:
        refuse_another(told, sst)
    return sst
