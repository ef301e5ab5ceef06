"""Windows of a scan are the newest live row of each key, however many rows each source gives."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest
from beside import seeded

from octavo.actors.scanning.scan import merged_windows
from octavo.actors.scanning.scan_windows import Part, merged, window_of
from octavo.files.errors import Corruption
from octavo.files.ledger.head import Head


class Rows:
    """A chunk of rows that are all known beforehand."""

    lasting = True

    def __init__(self, keys: list[bytes], first_sqn: int, dead: list[int]) -> None:
        self.keys = keys
        self.gone = dead
        self._sqns = list(range(first_sqn, first_sqn + len(keys)))

    def dead(self, _now_ms: int) -> Sequence[int]:
        return self.gone

    def sqns(self, low: int, high: int) -> list[int]:
        return self._sqns[low:high]

    def times(self, rows: Sequence[int]) -> list[int]:
        return [self._sqns[at] * 10 for at in rows]

    def heads(self, rows: Sequence[int]) -> list[Head]:
        return [Head(self._sqns[at], at, b"", 0, None) for at in rows]


def some(rng: random.Random, place: int, rows: int, *, dead: bool) -> Part:
    keys = sorted(rng.sample([b"%04d" % at for at in range(600)], rows))
    gone = [at for at in range(rows) if dead and rng.random() < 0.2]
    low, high = sorted(rng.choices(range(rows + 1), k=2))
    return place, Rows(keys, 1_000_000 - 1000 * place, gone), gone, low, high


def live(parts: list[Part]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for _, chunk, dead, low, high in reversed(parts):
        for at, sqn in zip(range(low, high), chunk.sqns(low, high), strict=True):
            found.pop(chunk.keys[at], None)
            if at not in dead:
                found[chunk.keys[at]] = sqn
    return found


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("newer", [1, 9, 90], ids=["one", "few", "many"])
@pytest.mark.parametrize("old_deletes", [False, True], ids=["", "deletes below"])
def test_newer_rows_win(newer: int, old_deletes: bool, reverse: bool) -> None:
    rng = seeded(f"test_scan_windows {newer} {old_deletes} {reverse}")
    for _ in range(30):
        parts = [some(rng, place, newer, dead=True) for place in range(rng.randrange(3))]
        parts.append(some(rng, len(parts), 400, dead=old_deletes))
        expected = live(parts)
        window = window_of(parts, reverse)
        order = sorted(expected, reverse=reverse)
        assert window.keys == order
        assert window.sqns() == [expected[key] for key in order]
        assert [head.sqn for head in window.heads()] == window.sqns()
        assert window.times() == [sqn * 10 for sqn in window.sqns()]
        wanted = [rng.random() < 0.5 for _ in order]
        window.keep(iter(wanted))
        order = [key for key, hit in zip(order, wanted, strict=True) if hit]
        assert (window.keys, window.sqns()) == (order, [expected[key] for key in order])
        window.cut(7)
        assert (window.keys, window.sqns()) == (order[:7], [expected[key] for key in order[:7]])
        assert [head.sqn for head in window.heads()] == window.sqns()


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("asked_before", [False, True], ids=["", "asked before"])
def test_sqns_of_several_sources_are_those_of_the_keys_left(
    reverse: bool, asked_before: bool
) -> None:
    rng = seeded(f"test_scan_windows left {reverse} {asked_before}")
    for _ in range(30):
        parts = [some(rng, place, 200, dead=False) for place in range(3)]
        expected = live(parts)
        window = window_of(parts, reverse)
        order = sorted(expected, reverse=reverse)
        assert window.keys == order
        if asked_before:
            assert window.sqns() == [expected[key] for key in order]
        wanted = [rng.random() < 0.5 for _ in order]
        window.keep(iter(wanted))
        order = [key for key, hit in zip(order, wanted, strict=True) if hit][:7]
        window.cut(7)
        assert (window.keys, window.sqns()) == (order, [expected[key] for key in order])
        assert [head.sqn for head in window.heads()] == window.sqns()


def test_what_a_window_leaves_out_stays_in_its_sources() -> None:
    rng = seeded("test_scan_windows sources")
    parts = [(0, Rows([b"0005"], 9, []), [], 0, 1), some(rng, 1, 300, dead=False)]
    chunk = parts[1][1]
    keys, sqns = list(chunk.keys), chunk.sqns(0, 300)
    window = window_of(parts, reverse=False)
    window.cut(1)
    window.keep([False])
    assert (chunk.keys, chunk.sqns(0, 300)) == (keys, sqns)


def in_chunks(whole: Rows, sizes: list[int], reverse: bool) -> Iterator[Rows]:
    """A source's rows in the direction of a scan."""
    edges = [0]
    for size in sizes:
        edges.append(min(edges[-1] + size, len(whole.keys)))
    for begin, end in itertools.pairwise(edges):
        low, high = (len(whole.keys) - end, len(whole.keys) - begin) if reverse else (begin, end)
        if low < high:
            gone = [at - low for at in whole.gone if low <= at < high]
            yield Rows(whole.keys[low:high], whole.sqns(low, high)[0], gone)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_windows_hold_each_live_row_once_and_in_order(reverse: bool) -> None:
    rng = seeded(f"test_scan_windows merged {reverse}")
    for _ in range(100):
        parts = [some(rng, place, rng.randrange(400), dead=True) for place in range(4)]
        whole = [(at, rows, gone, 0, len(rows.keys)) for at, rows, gone, _, _ in parts]
        expected = live(whole)
        sources = []
        for _, rows, *_ in parts:
            sizes = [rng.choice([1, 7, 40, 160]) for _ in rows.keys]
            sources.append(in_chunks(rows, sizes, reverse))
        keys: list[bytes] = []
        sqns: list[int] = []
        for window in merged_windows(sources, 0, reverse=reverse):
            keys += window.keys
            sqns += window.sqns()
        assert keys == sorted(expected, reverse=reverse)
        assert sqns == [expected[key] for key in keys]


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_what_little_is_left_of_a_chunk_makes_no_window_of_its_own(reverse: bool) -> None:
    even = Rows([b"%04d" % at for at in range(0, 600, 2)], 1000, [])
    odd = Rows([b"%04d" % at for at in range(1, 600, 2)], 1, [])
    # The second one's chunks go a little further, but for the last.
    sources = [in_chunks(even, [100] * 3, reverse), in_chunks(odd, [110, 110, 80], reverse)]
    windows = [len(window.keys) for window in merged_windows(sources, 0, reverse=reverse)]
    assert min(windows[:-1]) > 190
    assert sum(windows) == 600


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_a_source_that_lies_about_its_order_is_told(reverse: bool) -> None:
    lies = Rows([b"z", b"a", b"b"] if reverse else [b"b", b"c", b"a"], 10, [])
    sources = [iter([lies]), iter([Rows([b"0"] if reverse else [b"d"], 1, [])])]
    with pytest.raises(Corruption, match="keys out of order"):
        list(merged_windows(sources, 0, reverse=reverse))


def test_deletes_among_the_rows_of_a_large_source_are_not_looked_for_one_by_one() -> None:
    # A window with hundreds of them took four times as long as it had to.
    class Dead(list[int]):
        def __contains__(self, row: object) -> bool:
            raise AssertionError("as many steps as there are deletes, for each row")

    keys = [b"%04d" % number for number in range(1000)]
    newer = keys[::10], list(range(1000, 1100)), Dead(range(0, 100, 2))
    found, sqns = merged([newer, (keys[:], list(range(1000)), ())])
    assert found == [key for number, key in enumerate(keys) if number % 20]
    assert sqns[:10] == [*range(1, 10), 1001]
