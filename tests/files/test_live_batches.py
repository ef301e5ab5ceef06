"""Windows of ledger files as columns: how large they are."""

from __future__ import annotations

import pytest
from ledger_rows import DIRECTORY, Row, key, names, opened, write
from simdisk import SimDisk

from octavo.files.bounds import Bounds
from octavo.files.live_batches import WINDOW_BYTES, WINDOW_ROWS, FileRows

MIB = 1 << 20


def windows(rows: list[Row], *, reverse: bool) -> list[list[int]]:
    """The sqns of each window of one file."""
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    (file,) = write(disk, rows, names(), max_bytes=1 << 30)
    sst = opened(disk, file.name)
    source = FileRows([(lambda: sst, 0)], Bounds(b"", b"", None, reverse))
    out = []
    while (edge := source.edge()) is not None:
        columns = source.take(edge)
        assert columns is not None
        for strings in (columns.keys, columns.metas):
            if strings is not None and len(columns) > 1:
                assert int(strings.lengths.sum()) <= WINDOW_BYTES
        out.append(columns.sqns.tolist())
    return out


@pytest.mark.parametrize("reverse", [False, True])
def test_a_window_has_not_too_many_bytes_of_metadata(reverse: bool) -> None:
    sizes = [1, 1, 1, 1, 1, 1, 1, 1, 9, 3, 3, 3, 0, 0]
    rows = [
        Row(key(b"k%02d" % at), at + 1, meta=bytes(size * MIB)) for at, size in enumerate(sizes)
    ]
    found = windows(rows, reverse=reverse)
    if reverse:
        assert found == [[11, 12, 13, 14], [10], [9], [1, 2, 3, 4, 5, 6, 7, 8]]
    else:
        assert found == [[1, 2, 3, 4, 5, 6, 7, 8], [9], [10, 11], [12, 13, 14]]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_window_has_not_too_many_bytes_of_keys(reverse: bool) -> None:
    rows = [Row(key(b"%04d" % at + bytes(60_000)), at + 1) for at in range(300)]
    found = windows(rows, reverse=reverse)
    assert len(found) == 3
    assert sorted(sqn for window in found for sqn in window) == list(range(1, 301))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_window_has_not_too_many_rows(reverse: bool) -> None:
    rows = [Row(key(b"%07d" % at), at + 1) for at in range(WINDOW_ROWS + 10)]
    assert sorted(map(len, windows(rows, reverse=reverse))) == [10, WINDOW_ROWS]
