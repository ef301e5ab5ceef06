"""Windows of ledger files as columns: how large they are, and what is in them."""

from __future__ import annotations

import random
from functools import partial

import pytest
from beside import seeded
from ledger_rows import DIRECTORY, Row, key, lying, names, opened, write
from simdisk import SimDisk

from octavo.files.errors import Corruption
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import Ints, as_list
from octavo.files.kernels.columns import Strings
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.changed_batches import changed_batches
from octavo.files.ledger.chosen_rows import Chosen, Prefixes
from octavo.files.ledger.ledger_key import end_of_prefix
from octavo.files.ledger.live_batches import (
    WINDOW_BYTES,
    WINDOW_ROWS,
    FileRows,
    LedgerRun,
    as_slice,
    end_to_end,
    keys_of,
    live_batches,
)
from octavo.files.ledger.rows import Columns
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_layout import Section

EIGHTH = WINDOW_BYTES // 8


def windows(rows: list[Row], *, reverse: bool, chosen: Chosen | None = None) -> list[list[int]]:
    """The sqns of each window of one file."""
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    (file,) = write(disk, rows, names(), max_bytes=1 << 30)
    sst = opened(disk, file.name)
    source = FileRows([(lambda: sst, 0)], Bounds(b"", b"", None, reverse), chosen)
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
        Row(key(b"k%02d" % at), at + 1, meta=bytes(size * EIGHTH)) for at, size in enumerate(sizes)
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
    assert len(found) == 5
    assert sorted(sqn for window in found for sqn in window) == list(range(1, 301))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_window_of_chosen_rows_has_not_too_many_bytes_of_keys(reverse: bool) -> None:
    rows = [Row(key(b"%04d" % at + bytes(60_000)), at + 1) for at in range(300)]
    everything = Prefixes({key(b"")})
    assert len(windows(rows, reverse=reverse, chosen=everything)) == 5


@pytest.mark.parametrize("reverse", [False, True])
def test_a_window_has_not_too_many_rows(reverse: bool) -> None:
    rows = [Row(key(b"%07d" % at), at + 1) for at in range(WINDOW_ROWS + 10)]
    assert sorted(map(len, windows(rows, reverse=reverse))) == [10, WINDOW_ROWS]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_window_has_the_buckets_of_its_own_rows(reverse: bool) -> None:
    rows = [Row(key(b"k", b"%07d" % at), at + 1) for at in range(WINDOW_ROWS + 10)]
    rows += [Row(key(b"%02d" % at, b"last"), WINDOW_ROWS + 11 + at) for at in range(20)]
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    (file,) = write(disk, rows, names())
    sst = opened(disk, file.name)
    source = FileRows([(lambda: sst, 0)], Bounds(b"", b"", None, reverse))
    found = []
    while (edge := source.edge()) is not None:
        columns = source.take(edge)
        assert columns is not None
        assert len(columns.prefixes) == len({key_[: end_of_prefix(key_)] for key_ in keys(columns)})
        found.append(keys(columns))
    assert len(found) == 2
    found = found[::-1] if reverse else found
    assert [each for window in found for each in window] == sorted(row.key for row in rows)


def keys(columns: Columns) -> list[bytes]:
    """The whole keys of columns."""
    whole = columns.whole_keys()
    return as_list(whole.blob.tobytes(), whole.offsets)


def test_chosen_buckets_are_given_whole() -> None:
    rows = [Row(key(b"%d" % at, b"%02d" % (at // 10)), at + 1) for at in range(1000)]
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    files = write(disk, rows, names(), max_rows=300)
    assert len(files) > 2
    runs = [(partial(opened, disk, file.name), 0) for file in files]
    chosen = {key(b"", b"%02d" % number) for number in (0, 3, 29, 30, 99)}
    source = FileRows(runs, Bounds(b"", b"", None, False), Prefixes(chosen))
    found = []
    while (edge := source.edge()) is not None:
        columns = source.take(edge)
        found += [] if columns is None else keys(columns)
    assert found == sorted(row.key for row in rows if row.key[: end_of_prefix(row.key)] in chosen)


def test_the_first_flags_of_buckets_are_verified() -> None:
    rows = [Row(key(b"k", b"%05d" % at), at + 1, deleted=at % 3 == 0) for at in range(20_000)]
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    (file,) = write(disk, rows, names())
    path = f"{DIRECTORY}/{file.name}"
    image = bytearray(disk.map(path))
    fronts = Sst(bytes(image), path).fronts()
    assert fronts == {key(b"", b"%05d" % at): rows[at].flags for at in range(20_000)}
    offset, length = opened(disk, file.name).layout.sections[Section.FLAGS]
    image[offset + length // 2] ^= 1
    with pytest.raises(Corruption):
        Sst(bytes(image), path).fronts()


def placed(at: int) -> bytes:
    """The ledger key of a number; there are some in each bucket."""
    return key(b"%04d" % at, b"%d" % (at // 250))


def some_files(
    rng: random.Random, disk: SimDisk, fewest: int = 0
) -> tuple[list[list[LedgerRun]], dict[bytes, int]]:
    """Runs of files whose keys overlap, and what lives of them: sqns by user key."""
    next_name = names()
    runs: list[list[LedgerRun]] = []
    live: dict[bytes, int] = {}
    for number in range(4):
        picked = rng.sample(range(1000), rng.randrange(fewest, 60))
        rows = [
            Row(placed(at), number * 1000 + at + 1, deleted=rng.random() < 0.3)
            for at in sorted(picked)
        ]
        for row in rows:
            live.pop(row.key[-4:], None)
            if not row.deleted:
                live[row.key[-4:]] = row.sqn
        if rows:
            files = write(disk, rows, next_name, max_rows=rng.choice([7, 20, 100]))
            runs.append([(partial(opened, disk, file.name), 0) for file in files])
    return runs, live


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_batches_give_what_lives_whatever_the_windows(reverse: bool) -> None:
    rng = seeded(f"test_live_batches windows {reverse}")
    for _ in range(60):
        disk = SimDisk()
        disk.mkdir(DIRECTORY)
        runs, live = some_files(rng, disk)
        bound = Bounds(b"", placed(rng.choice([0, 300])), None, reverse)
        window_rows = rng.choice([1, 5, 30, 1000])
        sources = [FileRows(files, bound, None, window_rows) for files in reversed(runs)]
        found: list[tuple[bytes, int]] = []
        for batch in live_batches(sources, 0, reverse=reverse):
            sqns = batch.columns.sqns[batch.rows].tolist()
            found += zip(keys_of(batch), sqns, strict=True)
        wanted = {name: sqn for name, sqn in live.items() if placed(int(name)) >= bound.low}
        assert found == sorted(wanted.items(), reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_files_that_end_apart_are_one_window(reverse: bool) -> None:
    rng = seeded(f"test_live_batches ends {reverse}")
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    files = [run for runs in some_files(rng, disk, 30)[0] for run in runs]
    sources = [FileRows([run], Bounds(b"", b"", None, reverse)) for run in files]
    assert len(files) > 3
    assert len(list(live_batches(sources, 0, reverse=reverse))) == 1


class Asked(FileRows):
    """Says so if it is asked again and again."""

    times = 0

    def edge(self) -> bytes | None:
        self.times += 1
        assert self.times < 10
        return super().edge()


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_a_file_that_lies_about_its_order_makes_no_scan_without_an_end(reverse: bool) -> None:
    sst, _ = lying(b"k16", b"z16") if reverse else lying(b"k04", b"j04")
    source = Asked([(lambda: sst, 0)], Bounds(b"", b"", None, reverse), None, 5 - reverse)
    with pytest.raises(Corruption, match="keys out of order"):
        list(live_batches([source], 0, reverse=reverse))


def test_a_file_that_lies_about_its_order_makes_no_comparison_without_an_end() -> None:
    sst, _ = lying(b"k04", b"j04")
    source = Asked([(lambda: sst, 0)], Bounds(b"", b"", None, False), None, 5)
    with pytest.raises(Corruption, match="keys out of order"):
        list(changed_batches([], [source], 0, 0, 0))


def test_only_rows_that_follow_on_one_another_are_a_slice() -> None:
    assert as_slice(np.array([3, 4, 5])) == slice(3, 6)
    for rows in ([0, 2, 1, 3], [0, 1, 3], [5, 4, 3], [0, 0, 1]):
        found: Ints = np.arange(9)[as_slice(np.array(rows))]
        assert found.tolist() == rows


def test_strings_that_stand_apart_are_put_end_to_end() -> None:
    blob = np.frombuffer(b"one--two", dtype=np.uint8)
    apart = Strings(blob, np.array([0, 5]), np.array([3, 3]))
    for rows in (slice(0, 2), np.array([0, 1])):
        found = end_to_end(apart, rows)
        assert (found.blob.tobytes(), found.offsets.tolist()) == (b"onetwo", [0, 3, 6])


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(
    ("now_ms", "left"), [(-1, 4), (0, 4), (999, 4), (1000, 3), (1001, 2), (1 << 62, 1)]
)
def test_a_row_that_expires_lives_up_to_its_moment(now_ms: int, left: int, reverse: bool) -> None:
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    moments = [1000, 1001, 5000, 0]  # the last one never
    rows = [Row(key(b"%d" % at), at + 1, expiry=moment) for at, moment in enumerate(moments)]
    (file,) = write(disk, rows, names())
    source = FileRows([(partial(opened, disk, file.name), 0)], Bounds(b"", b"", None, reverse))
    found = [name for batch in live_batches([source], now_ms, reverse=reverse)
             for name in keys_of(batch)]  # fmt: skip
    assert sorted(found) == [b"%d" % at for at in range(4 - left, 4)]


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_no_source_of_several_gives_more_than_a_window_has(reverse: bool) -> None:
    disk = SimDisk()
    disk.mkdir(DIRECTORY)
    next_name = names()
    sources = []
    for every in (1, 2, 4):  # the windows of the last one reach as far as four of the first
        rows = [Row(key(b"%04d" % at), at + 1) for at in range(0, 1000, every)]
        (file,) = write(disk, rows, next_name)
        run = (partial(opened, disk, file.name), 0)
        sources.append(FileRows([run], Bounds(b"", b"", None, reverse), None, 20))
    sizes = [len(batch.rows) for batch in live_batches(sources, 0, reverse=reverse)]
    assert (sum(sizes), max(sizes)) == (1000, 20)
