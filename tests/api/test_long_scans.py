"""Item scans that go on for so long that the rest is read by array kernels, against a dict."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from whole_store import SEED, flush, opened, rolled

import octavo
from octavo.actors.reader import _LONG
from octavo.actors.scanning import batch_values

ROWS = 5 * _LONG
LATE = 2 * _LONG
"""The number of an item that is far behind the moment at which arrays take over."""


class Model:
    """A store with rows of every kind in memory and ledger, several journal files, and what it
    holds."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.now = 1_700_000_000_000
        self.store = opened(
            path, clock_ms=lambda: self.now, push_rows=1 << 16, push_bytes=1 << 30, roll_count=3000
        )
        self.live: dict[bytes, bytes] = {}
        self.rng = rng
        keys = [b"%05d" % at + b"x" * (at % 7) for at in range(ROWS)]
        rng.shuffle(keys)
        self.write(keys)
        flush(self.store)
        self.middle = self.now = self.now + 1000
        self.write(rng.sample(keys, ROWS // 3))
        self.now += 50_000  # some have expired

    def write(self, keys: list[bytes]) -> None:
        plain = []
        for key in keys:
            kind = self.rng.randrange(20)
            value = b"%d " % self.rng.randrange(1 << 30) * self.rng.randrange(8)
            self.live[key] = value
            if kind == 0:
                self.store.put(key, value, ttl=10)
                del self.live[key]
            elif kind == 1:
                self.store.put(key, value, ttl=1e6, metadata=b"m" * self.rng.randrange(9))
            elif kind == 2:
                self.store.delete(key)
                del self.live[key]
            elif kind == 3:
                self.live[key] = value * 200  # is compressed
                self.store.put(key, self.live[key])
            else:
                plain.append((key, value))
        self.rng.shuffle(plain)
        self.store.put_many(plain)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    print("seed", SEED)
    model = Model(tmp_path_factory.mktemp("long") / "s", random.Random(SEED))
    yield model
    model.store.close()


def test_items_in_both_directions_are_what_a_dict_holds(model: Model) -> None:
    expected = sorted(model.live.items())
    assert len(expected) > LATE
    assert list(model.store.items()) == expected
    assert list(model.store.items(reverse=True)) == expected[::-1]
    assert list(model.store.values()) == [value for _, value in expected]
    assert list(model.store.items(b"00100", b"04000")) == [
        pair for pair in expected if b"00100" <= pair[0] < b"04000"
    ]


@pytest.mark.parametrize("few", [0, 300, 1 << 30])
def test_items_are_right_whether_few_or_many_are_of_each_file(
    model: Model, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(batch_values, "_FEW_A_FILE", few)
    expected = sorted(model.live.items())
    assert list(model.store.items()) == expected
    assert list(model.store.items(reverse=True)) == expected[::-1]
    scan = model.store.items(b"00100")
    begun = [next(scan) for _ in range(LATE)]
    rest = list(model.store.items(b"00100", resume=scan.position))
    assert begun + rest == [pair for pair in expected if pair[0] >= b"00100"]


def test_values_of_which_few_are_of_each_file_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Mock(wraps=batch_values.places_at)
    monkeypatch.setattr(batch_values, "places_at", looked)
    monkeypatch.setattr(batch_values.COLD, "left", 0)
    rng = random.Random(SEED)
    keys = [b"%05d" % at for at in range(ROWS)]
    rng.shuffle(keys)
    with opened(tmp_path / "s", roll_count=256) as store:
        for at in range(0, ROWS, 256):
            store.put_many((key, b"v") for key in keys[at : at + 256])
        assert len(list(store.items(limit=ROWS // 2))) == ROWS // 2
        assert not looked.called


def test_puts_go_on_in_the_file_that_a_long_scan_reads(tmp_path: Path) -> None:
    keys = [b"%05d" % at for at in range(ROWS)]
    with opened(tmp_path / "s", push_rows=1 << 16, push_bytes=1 << 30, roll_count=1 << 16) as store:
        store.put_many((key, b"v") for key in keys)
        flush(store)
        found = store.items()
        assert [next(found)[0] for _ in range(LATE)] == keys[:LATE]
        for at in range(10):
            store.put(b"more%d" % at, b"v")
        assert [key for key, _ in found] == keys[LATE:]
        assert len(list(store.keys())) == ROWS + 10


def test_what_is_written_during_a_long_scan_is_not_in_it(model: Model, tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16) as store:
        expected = [(b"%05d" % at, b"before") for at in range(ROWS)]
        store.put_many(expected)
        scan = store.items()
        given = [next(scan)]
        store.put_many((key + b"+", b"after") for key, _ in expected)
        store.put_many((key, b"after") for key, _ in expected)
        flush(store)
        assert [*given, *scan] == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_a_position_late_in_a_long_scan_is_behind_what_was_given(
    model: Model, reverse: bool
) -> None:
    expected = sorted(model.live.items(), reverse=reverse)
    scan = model.store.items(reverse=reverse)
    given = []
    for count in (LATE, 1, 255, 3, 256, 700):
        given += [next(scan) for _ in range(count)]
        rest = model.store.items(reverse=reverse, resume=scan.position)
        assert given + list(rest) == expected


def test_filters_and_limits_hold_late_in_a_long_scan(model: Model) -> None:
    heads = dict(model.store.heads())
    expected = [
        (key, value)
        for key, value in sorted(model.live.items())
        if heads[key].written_at < model.middle and key.endswith(b"x")
    ]
    found = model.store.items(modified_before=model.middle, match=rb"x\Z")
    assert list(found) == expected
    late = [
        pair for pair in sorted(model.live.items()) if heads[pair[0]].written_at >= model.middle
    ]
    assert list(model.store.items(modified_since=model.middle)) == late
    assert list(model.store.items(limit=LATE)) == sorted(model.live.items())[:LATE]


def test_text_is_decoded_late_in_a_long_scan(model: Model) -> None:
    expected = [(key.decode(), value.decode()) for key, value in sorted(model.live.items())]
    assert list(model.store.bucket(b"", text=True).items()) == expected


@pytest.mark.parametrize("sealed", [False, True])
def test_damage_late_in_a_long_scan_comes_after_all_that_is_before_it(
    tmp_path: Path, sealed: bool
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, roll_count=1 << 16) as store:
        keys = [b"%05d" % at for at in range(ROWS)]
        store.put_many((key, b"value of " + key) for key in keys)
        if sealed:
            rolled(store)
        flush(store)
        bad = store.head(keys[LATE])
        file = store._running.inker.actor.view.file_of(bad.sqn)
        end = file.ensure_open()[1][bad.sqn - file.base + 1] if sealed else file.end_of(bad.sqn)
        with open(file.path, "r+b") as raw:
            raw.seek(end - 1)
            raw.write(b"\x00")
        scan = store.items()
        given = []
        with pytest.raises(octavo.Corruption):
            given.extend(key for key, _ in scan)
        assert given == keys[:LATE]
        assert next(store.keys(resume=scan.position)) == keys[LATE]
        assert [key for key, _ in store.items(keys[LATE + 1])] == keys[LATE + 1 :]


def test_a_missing_journal_file_is_told_of_at_its_first_item(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, roll_count=256) as store:
        keys = [b"%05d" % at for at in range(ROWS)]
        store.put_many((key, b"v") for key in keys)
        flush(store)
        file = store._running.inker.actor.view.file_of(store.head(keys[LATE]).sqn)
        file.forget_map()
        Path(file.path).unlink()
        given = []
        with pytest.raises(octavo.Corruption, match="missing"):
            given.extend(key for key, _ in store.items())
        assert given == keys[: file.base - 1]


@pytest.mark.parametrize("kind", ["items", "values"])
def test_large_values_behind_small_ones_are_not_in_memory_together(
    tmp_path: Path, kind: str
) -> None:
    large, count = 256 << 10, 60
    with opened(tmp_path / "s") as store:
        store.put_many((b"a%04d" % number, b"small") for number in range(600))
        for number in range(count):
            store.put(b"b%02d" % number, bytes(large))
        list(store.keys())  # so that nothing is loaded or put in order meanwhile
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            assert sum(1 for _ in getattr(store, kind)()) == 600 + count
            most = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
    assert most < 10 * large, f"{most} bytes for values of {large}"
