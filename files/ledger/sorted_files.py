"""Writes sorted files of the ledger, one after the other."""

from __future__ import annotations

import contextlib
import os.path
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from octavo.files.door.disk import Disk
from octavo.files.errors import Misuse
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints
from octavo.files.ledger.rows import Columns
from octavo.files.ledger.sst_layout import MAX_BLOB_BYTES, MAX_ROWS, Layout
from octavo.files.ledger.sst_writer import Writer

_ROW_BYTES = 33
"""Bytes of a file that a row takes besides its key, metadata and the name of a new bucket. Sqns
count as 8: where they take 4, this is 4 too many."""

_ROUNDING = 1e-9
"""Sums of shares count as equal if they differ by no more; a row's share is 6e-8 at the least."""

_Key = bytes  # the class below has a field of that name


@dataclass(frozen=True)
class Summary:
    """What a ledger's manifest wants to know of a new file; sqns are absolute."""

    name: str
    rows: int
    bytes: int
    tombstones: int
    expiring: int
    first_key: _Key
    last_key: _Key
    min_sqn: int
    max_sqn: int

    @classmethod
    def of(cls, name: str, layout: Layout) -> Summary:
        """The summary of a file with this layout."""
        return cls(
            name=name,
            rows=layout.rows,
            bytes=layout.file_bytes,
            tombstones=layout.tombstones,
            expiring=layout.expiring,
            first_key=layout.first_key,
            last_key=layout.last_key,
            min_sqn=layout.min_sqn,
            max_sqn=layout.max_sqn,
        )

    def told(self) -> dict[str, Any]:
        """The summary as JSON has it: keys as text of their bytes (latin-1)."""
        first, last = (key.decode("latin-1") for key in (self.first_key, self.last_key))
        return {**vars(self), "first_key": first, "last_key": last}


class SortedFiles:
    """A context in which new files are written: each is synced while the next one is made, and
    their names last, in one go. Where it ends by an error, those made so far are removed, as far
    as that works."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        next_name: Callable[[], str],
        *,
        max_rows: int,
        max_bytes: int,
    ) -> None:
        """Files of at most so many rows and bytes. Raises Misuse."""
        if max_rows < 1 or max_bytes < 1:
            raise Misuse(f"max_rows and max_bytes: 1 or more, not {max_rows}, {max_bytes}")
        self._disk = disk
        self._directory = directory
        self._next_name = next_name
        self._max_rows, self._max_bytes = min(max_rows, MAX_ROWS), max_bytes
        self._synced: Callable[[], None] | None = None
        self.made: list[Summary] = []

    def add(self, columns: Columns, kept: Ints) -> None:
        """Write some rows of ``columns``, in key order and behind those of earlier calls, in files
        of their own, about equally large. Raises OSError."""
        writer = Writer(columns)
        for low, high in _cuts(columns, kept, self._max_rows, self._max_bytes):
            image, layout = writer.image(kept[low:high])
            name = self._next_name()
            file = self._disk.create(os.path.join(self._directory, name))
            self.made.append(Summary.of(name, layout))
            try:
                file.write_all(image)
                if self._synced is not None:
                    self._synced()
                self._synced = file.begin_sync()  # while the next one is made
            finally:
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None and self._synced is not None:
                self._synced()
                self._disk.sync_dir(self._directory)
        except OSError:
            self._remove()
            raise
        if kind is not None:
            self._remove()

    def _remove(self) -> None:
        for file in self.made:  # or a full disk would stay full until somebody sweeps
            with contextlib.suppress(OSError):
                self._disk.unlink(os.path.join(self._directory, file.name))


def _cuts(columns: Columns, kept: Ints, max_rows: int, max_bytes: int) -> list[tuple[int, int]]:
    """Ranges [low, high) of ``kept``, one for each file, about equally large."""
    if not len(kept):
        return []
    limit = min(max_bytes, MAX_BLOB_BYTES)
    count, lengths = len(kept), columns.keys.lengths
    longest = 0 if columns.groups is None else max(map(len, columns.prefixes))
    if columns.metas is None and (int(lengths.max()) + longest + _ROW_BYTES) * max_rows <= limit:
        files = -(-count // max_rows)  # rows alone decide
        edges = [-(-count * number // files) for number in range(files + 1)]
        return list(pairwise(edges))
    sizes = lengths[kept] + _ROW_BYTES
    if columns.groups is not None:
        groups = columns.groups[kept]
        new = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
        sizes[new] += np.array(list(map(len, columns.prefixes)), dtype=np.int64)[groups[new]]
    if columns.metas is not None:
        sizes = sizes + columns.metas.lengths[kept] + 4
    # What share of a file each row may claim: of its rows or its bytes, whichever is more.
    filled = np.cumsum(np.maximum(sizes / limit, 1 / max_rows))
    cuts = []
    low = 0
    before = 0.0
    while low < len(kept):
        left = float(filled[-1]) - before
        share = left / max(int(np.ceil(left - _ROUNDING)), 1)
        reached = int(np.searchsorted(filled, before + share - _ROUNDING)) + 1
        full = int(np.searchsorted(filled, before + 1 + _ROUNDING, side="right"))
        high = min(max(min(reached, full), low + 1), low + max_rows, len(kept))
        cuts.append((low, high))
        before = float(filled[high - 1])
        low = high
    return cuts
