"""Ranges with filters, limits and positions, against a plain dict."""

from __future__ import annotations

import base64
import gc
import itertools
import random
import re
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from descriptors import descriptors
from whole_store import SEED, flush, opened

import octavo
from octavo import scans
from octavo.actors.journal_file import JournalFile
from octavo.actors.scanning.batch_values import BatchValues, Located
from octavo.files.kernels.freed_memory import keep_freed
from octavo.files.ledger.live_batches import Batch


class Version(NamedTuple):
    """What the model knows of a live key."""

    value: bytes
    sqn: int
    written_at: int
    expires_at: int | None


class Model:
    """A dict beside a store whose clock it sets."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.now = 1_700_000_000_000
        self.store = opened(path, clock_ms=lambda: self.now)
        self.rng = rng
        self.names = (b"", b"b", b"b\x00")
        self.live: dict[bytes, dict[bytes, Version]] = {name: {} for name in self.names}

    def key(self) -> bytes:
        return bytes(self.rng.choices(b"ab\x00\xff0", k=self.rng.randrange(1, 6)))

    def write(self, count: int) -> None:
        for _ in range(count):
            self.now += self.rng.randrange(3)
            name, key = self.rng.choice(self.names), self.key()
            bucket, live = self.store.bucket(name), self.live[name]
            kind = self.rng.randrange(10)
            value = b"v%d" % self.rng.randrange(1000)
            if kind == 0:
                bucket.delete(key)
                live.pop(key, None)
            elif kind == 1:
                expiry = self.now + self.rng.randrange(1, 60)
                sqn = bucket.put(key, value, expires_at=expiry)
                live[key] = Version(value, sqn, self.now, expiry)
            else:
                sqn = bucket.put_many([(key, value)])  # a plain put() asks the system's clock
                live[key] = Version(value, sqn, self.now, None)

    def rows(self, name: bytes) -> list[tuple[bytes, Version]]:
        return sorted(
            (key, version)
            for key, version in self.live[name].items()
            if version.expires_at is None or version.expires_at > self.now
        )

    def arguments(self) -> dict[str, Any]:
        rng = self.rng
        return {
            "start": self.key() if rng.random() < 0.4 else None,
            "end": self.key() if rng.random() < 0.4 else None,
            "prefix": self.key()[: rng.randrange(3)] if rng.random() < 0.4 else None,
            "reverse": rng.random() < 0.5,
            "match": rng.choice([None, None, b"a", rb"^[ab]+\Z", "b.?b", re.compile(b"\xff|00")]),
            "modified_since": self.now - rng.randrange(400) if rng.random() < 0.3 else None,
            "modified_before": self.now - rng.randrange(200) if rng.random() < 0.3 else None,
        }


def expected(rows: list[tuple[bytes, Version]], of: dict[str, Any]) -> list[tuple[bytes, Version]]:
    """What a scan with these arguments gives of a bucket."""
    match = of["match"]
    if isinstance(match, str):
        match = match.encode()
    out = [
        (key, version)
        for key, version in rows
        if (of["start"] is None or key >= of["start"])
        and (of["end"] is None or key < of["end"])
        and (of["prefix"] is None or key.startswith(of["prefix"]))
        and (match is None or re.search(match, key))
        and (of["modified_since"] is None or version.written_at >= of["modified_since"])
        and (of["modified_before"] is None or version.written_at < of["modified_before"])
    ]
    return out[::-1] if of["reverse"] else out


def key_of(kind: str, given: Any) -> bytes:
    return given if kind == "keys" else given[0]


def as_given(kind: str, rows: list[tuple[bytes, Version]]) -> list[Any]:
    if kind == "keys":
        return [key for key, _ in rows]
    if kind == "items":
        return [(key, version.value) for key, version in rows]
    if kind == "values":
        return [version.value for _, version in rows]
    return [
        (key, octavo.Head(v.sqn, len(v.value), b"", v.written_at, v.expires_at)) for key, v in rows
    ]


@pytest.fixture(params=range(4))
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Model]:
    seed = SEED + request.param
    print("seed", seed)
    found = Model(tmp_path / "s", random.Random(seed))
    with found.store:
        yield found


@pytest.mark.parametrize("kind", ["keys", "items", "values", "heads"])
def test_every_filter_in_both_directions_gives_what_a_dict_gives(model: Model, kind: str) -> None:
    for _ in range(30):
        model.write(model.rng.randrange(40))
        name = model.rng.choice(model.names)
        with model.store.snapshot() as snap:
            for source in (model.store.bucket(name), snap.bucket(name)):
                of = model.arguments()
                limit = model.rng.choice([None, 0, 1, 7, 1000])
                found = list(getattr(source, kind)(**of, limit=limit))
                assert found == as_given(kind, expected(model.rows(name), of))[:limit], str(of)


@pytest.mark.parametrize("kind", ["keys", "items", "heads"])
def test_pages_of_a_snapshot_resumed_anywhere_give_the_whole(model: Model, kind: str) -> None:
    for _ in range(10):
        model.write(60)
        name = model.rng.choice(model.names)
        of = model.arguments()
        whole = as_given(kind, expected(model.rows(name), of))
        with model.store.snapshot() as snap:
            found: list[Any] = []
            position = None
            while True:
                model.write(model.rng.randrange(5))  # the snapshot does not see it
                limit = model.rng.choice([None, 1, 3, 50])
                scan = getattr(snap.bucket(name), kind)(**of, limit=limit, resume=position)
                for _, one in zip(range(model.rng.choice([1, 2, 30])), scan, strict=False):
                    found.append(one)
                position = scan.position
                if position is None:
                    break
            assert found == whole, of


def test_pages_of_a_live_bucket_see_what_was_written_between_them(model: Model) -> None:
    for _ in range(15):
        model.write(30)
        name = model.rng.choice(model.names)
        of = model.arguments() | {"modified_since": None, "modified_before": None}
        position, behind = None, None
        while True:
            model.write(model.rng.randrange(6))
            ahead = [
                key
                for key, _ in expected(model.rows(name), of)
                if behind is None or (key < behind if of["reverse"] else key > behind)
            ]
            limit = model.rng.choice([1, 4, 9])
            scan = model.store.bucket(name).keys(**of, limit=limit, resume=position)
            found = []
            for key in scan:
                found.append(key)
                model.write(1)  # the page has its own snapshot
            assert found == ahead[:limit], str(of)
            if len(found) < limit:
                assert scan.position is None
                break
            assert scan.position is not None
            position, behind = scan.position, found[-1]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "s") as found:
        yield found


def numbered(store: octavo.Store, count: int) -> list[bytes]:
    keys = [b"k%05d" % at for at in range(count)]
    store.put_many((key, b"v" + key) for key in keys)
    return keys


@pytest.mark.parametrize("kind", ["keys", "items", "heads"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_position_after_any_number_of_items_is_behind_the_last_one(
    store: octavo.Store, kind: str, reverse: bool
) -> None:
    keys = sorted(numbered(store, 1200), reverse=reverse)
    flush(store)
    scan = getattr(store, kind)(reverse=reverse)
    for at, given in enumerate(scan):
        assert key_of(kind, given) == keys[at]
        if at % 97 == 0 or 250 < at < 260:
            assert (
                list(store.keys(reverse=reverse, resume=scan.position, limit=3))
                == (keys[at + 1 : at + 4])
            )
    assert scan.position is None


def test_a_scan_that_has_not_begun_stands_before_its_first_key(store: octavo.Store) -> None:
    keys = numbered(store, 9)
    scan = store.keys(resume=store.keys().position)
    assert list(scan) == keys
    assert list(store.keys(resume=store.keys(limit=0).position)) == keys
    scan = store.keys(limit=5)
    list(scan)
    again = store.keys(resume=scan.position)
    assert again.position == scan.position


def test_a_limit_reached_at_the_last_key_leaves_an_empty_page(store: octavo.Store) -> None:
    keys = numbered(store, 4)
    scan = store.keys(limit=4)
    assert list(scan) == keys
    last = store.keys(limit=4, resume=scan.position)
    assert (list(last), last.position) == ([], None)


def test_a_position_serves_other_kinds_filters_and_limits(store: octavo.Store) -> None:
    numbered(store, 30)
    scan = store.keys(limit=5)
    deque(scan, maxlen=0)
    assert list(store.items(resume=scan.position, match=b"7$", limit=2)) == [
        (b"k00007", b"vk00007"), (b"k00017", b"vk00017"),
    ]  # fmt: skip


def test_a_position_behind_an_item_that_cannot_be_read_is_before_it(store: octavo.Store) -> None:
    keys = numbered(store, 20)
    bad = store.head(keys[7])
    file = store._running.inker.actor.view.file_of(bad.sqn)
    end = file.offsets[bad.sqn - file.base + 1]
    with open(file.path, "r+b") as raw:
        raw.seek(end - 1)
        raw.write(b"\x00")
    scan = store.items()
    given = []
    with pytest.raises(octavo.Corruption):
        given.extend(key for key, _ in scan)
    assert given == keys[:7]
    assert next(store.keys(resume=scan.position)) == keys[7]


def test_text_that_is_none_leaves_the_position_before_it(store: octavo.Store) -> None:
    store.bucket("t").put_many([(b"a", b"1"), (b"b", b"\xff"), (b"c", b"3"), (b"\xff", b"4")])
    text = store.bucket("t", text=True)
    for scan, good in ((text.keys(), ["a", "b", "c"]), (text.items(), [("a", "1")])):
        found = []
        with pytest.raises(octavo.Misuse, match="text=True"):
            found.extend(scan)
        assert found == good
        raw = store.bucket("t").keys(resume=scan.position)
        assert next(raw) == (b"b" if len(good) == 1 else b"\xff")


@pytest.mark.parametrize("kind", ["keys", "items", "values", "heads"])
def test_a_closed_scan_gives_nothing_more_and_keeps_its_position(
    store: octavo.Store, kind: str
) -> None:
    keys = numbered(store, 600)
    scan = getattr(store, kind)()
    for _ in range(10):
        next(scan)
    scan.close()
    assert list(scan) == []
    assert list(store.keys(resume=scan.position)) == keys[10:]
    assert not store._bookie._pinned_tables
    with store.keys() as scan:
        next(scan)
    scan.close()
    assert list(scan) == []


def test_a_scan_whose_limit_was_reached_lets_go_of_its_snapshot(store: octavo.Store) -> None:
    numbered(store, 100)
    before = len(store._bookie._pinned_tables)
    scan = store.keys(limit=10)
    list(scan)
    assert len(store._bookie._pinned_tables) == before
    assert scan.position is not None


# ---------------------------------------------------------------- positions


def test_a_position_is_short_printable_text(store: octavo.Store) -> None:
    numbered(store, 9)
    scan = store.keys()
    next(scan)
    assert scan.position is not None
    assert scan.position.isascii()
    assert re.fullmatch(r"[\w-]{20,40}", scan.position)


@pytest.mark.parametrize(
    "other",
    [
        lambda s, p: s.keys(resume=p, reverse=True),
        lambda s, p: s.keys(b"a", resume=p),
        lambda s, p: s.keys(end=b"z", resume=p),
        lambda s, p: s.keys(prefix=b"k", resume=p),
        lambda s, p: s.bucket("other").keys(resume=p),
    ],
)
def test_a_position_of_another_range_is_refused(
    store: octavo.Store, other: Callable[[octavo.Store, str], Any]
) -> None:
    numbered(store, 9)
    scan = store.keys(limit=3)
    list(scan)
    with pytest.raises(octavo.Misuse, match="another range"):
        other(store, scan.position)


@pytest.mark.parametrize("resume", ["", "x", b"bytes", 7, "ä" * 30, "A" * 40, "A" * 200_000, " "])
def test_what_is_no_position_is_refused(store: octavo.Store, resume: object) -> None:
    with pytest.raises(octavo.Misuse, match="resume"):
        store.keys(resume=resume)  # type: ignore[arg-type]


def test_a_position_that_was_altered_is_refused_whatever_was_done(store: octavo.Store) -> None:
    rng = random.Random(SEED)
    numbered(store, 9)
    scan = store.keys()
    next(scan)
    good = scan.position
    assert good is not None
    letters = "ABCabc019-_=+/ \n\x00é"
    for _ in range(3000):
        bad = list(good)
        kind = rng.randrange(4)
        at = rng.randrange(len(bad))
        if kind == 0:
            bad[at] = rng.choice(letters)
        elif kind == 1:
            del bad[at : at + rng.randrange(1, 9)]
        elif kind == 2:
            bad.insert(at, rng.choice(letters))
        else:
            bad = bad[at:] + bad[:at]
        if "".join(bad) != good:
            with pytest.raises(octavo.Misuse, match="resume"):
                store.keys(resume="".join(bad))


def test_a_position_of_a_newer_release_is_refused_by_its_version(store: octavo.Store) -> None:
    of = b"12345678"
    raw = base64.urlsafe_b64decode(scans.encode(of, b"key") + "==")
    newer = bytes((2,)) + raw[1:-4]
    newer += (scans.xxh3(newer) & 0xFFFFFFFF).to_bytes(4, "little")
    with pytest.raises(octavo.Misuse, match="version 2"):
        scans.decode(of, base64.urlsafe_b64encode(newer).rstrip(b"=").decode())


def test_a_position_behind_the_longest_key_is_taken(store: octavo.Store) -> None:
    longest = b"\xff" * (64 << 10)
    store.put(longest, b"v")
    scan = store.keys(limit=1)
    assert list(scan) == [longest]
    assert list(store.keys(resume=scan.position)) == []


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"match": b"("}, "match"),
        ({"match": "a{99999999999}"}, "match"),
        ({"match": 7}, "match"),
        ({"match": re.compile("str")}, "match"),
        ({"match": "\ud800"}, "match"),
        ({"limit": -1}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": 2.0}, "limit"),
        ({"modified_since": "yesterday"}, "modified_since"),
        ({"modified_since": True}, "modified_since"),
        ({"modified_before": datetime(2026, 1, 1)}, "modified_before"),
    ],
)
def test_a_bad_argument_is_refused_by_its_name(
    store: octavo.Store, arguments: dict[str, Any], named: str
) -> None:
    for kind in ("keys", "items", "values", "heads"):
        with pytest.raises(octavo.Misuse, match=named):
            getattr(store, kind)(**arguments)


def test_moments_are_ms_or_aware_datetimes_and_half_open(tmp_path: Path) -> None:
    now = [1_700_000_000_000]
    with opened(tmp_path / "s", clock_ms=lambda: now[0]) as store:
        for at in range(5):
            store.put_many([(b"%d" % at, b"v")])
            now[0] += 1000
        moment = datetime.fromtimestamp(1_700_000_002, UTC)
        assert list(store.keys(modified_since=moment)) == [b"2", b"3", b"4"]
        assert list(store.keys(modified_before=moment)) == [b"0", b"1"]
        assert list(store.keys(modified_since=1_700_000_001_000, modified_before=moment)) == [b"1"]


def test_every_way_to_write_takes_the_time_of_the_stores_clock(tmp_path: Path) -> None:
    with opened(tmp_path / "s", clock_ms=lambda: 1_700_000_000_123) as store:
        store.put("put", b"v")
        store.put("with metadata", b"v", metadata=b"m")
        store.put_many([("many", b"v")])
        with store.batch() as batch:
            batch.put("", "batch", b"v")
        store.put("gone", b"v")
        store.delete("gone")
        heads = dict(store.heads())
        assert [heads[key].written_at for key in sorted(heads)] == [1_700_000_000_123] * 4


def test_the_newest_version_decides_about_the_time(tmp_path: Path) -> None:
    now = [1_700_000_000_000]
    with opened(tmp_path / "s", clock_ms=lambda: now[0]) as store:
        store.put_many([(b"k", b"old")])
        flush(store)
        now[0] += 1000
        store.put_many([(b"k", b"new")])
        assert list(store.items(modified_before=now[0])) == []
        flush(store)
        assert list(store.items(modified_before=now[0])) == []
        assert list(store.items(modified_since=now[0])) == [(b"k", b"new")]


def test_many_scans_of_one_journal_file_hold_one_map_of_it(tmp_path: Path) -> None:
    with opened(tmp_path / "s", roll_count=1 << 20, push_rows=1 << 20) as store:
        numbered(store, 3000)  # a push would map the file, too, when it likes
        (file,) = store._running.inker.actor.view.files
        before = len(descriptors(file.path))
        scans = [store.items() for _ in range(40)]
        for scan in scans:
            for _ in range(1500):
                next(scan)
        assert len(descriptors(file.path)) <= before + 1
        del scans, scan
        gc.collect()
        assert len(descriptors(file.path)) <= before + 1  # the file has it, for who comes next


def test_a_scan_is_never_asked_for_what_it_cannot_give(store: octavo.Store) -> None:
    store.put("k", "v")
    assert b"k" in store.keys()  # noqa: SIM118 - the scan is asked, not the store
    assert b"other" not in store.keys()  # noqa: SIM118
    assert (b"k", b"v") in store.items()
    with pytest.raises(octavo.Misuse, match="gives bytes, and is asked for a str"):
        "k" in store.keys()  # noqa: B015, SIM118
    with pytest.raises(octavo.Misuse, match="gives str, and is asked for a bytes"):
        b"k" in store.bucket("", text=True).keys()  # noqa: B015, SIM118


def test_a_bucket_reversed_is_its_keys_from_the_last(store: octavo.Store) -> None:
    store.put_many((key, b"v") for key in "abc")
    assert list(reversed(store)) == [b"c", b"b", b"a"]
    with store.snapshot() as snap:
        assert list(reversed(snap)) == [b"c", b"b", b"a"]


@pytest.mark.parametrize("taken", [130, 200, 900, 1100, 1900])
def test_a_scan_that_is_broken_off_has_read_few_values_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    read: list[int] = []
    real, locate = scans.read_values, BatchValues.locate

    def counted(reader: Any, name: bytes, keys: list[bytes], *rest: Any) -> list[bytes]:
        read.append(len(keys))
        return real(reader, name, keys, *rest)

    def located(self: BatchValues, batch: Batch, *, of: Batch) -> Located:
        read.append(len(batch.rows))
        return locate(self, batch, of=of)

    with opened(tmp_path / "s") as store:
        store.put_many((b"%06d" % at, b"v%d" % at) for at in range(4000))
        flush(store)
        monkeypatch.setattr(scans, "read_values", counted)
        monkeypatch.setattr(BatchValues, "locate", located)
        found = list(itertools.islice(store.items(), taken))
        assert found == [(b"%06d" % at, b"v%d" % at) for at in range(taken)]
        assert scans._SHORT + sum(read) <= 2 * taken
        assert len(list(store.items())) == 4000


@pytest.mark.parametrize("large", [0, 100, 1 << 60])
def test_long_scans_of_small_and_large_values_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    rng = random.Random(SEED)
    pairs = [
        (b"%06d" % at, rng.randbytes(rng.choice((3, 500))) + bytes(rng.choice((0, 4000))))
        for at in range(3000)
    ]
    located: list[int] = []
    locate = BatchValues.locate

    def noted(self: BatchValues, batch: Batch, *, of: Batch) -> Located:
        located.append(len(batch.rows))
        return locate(self, batch, of=of)

    monkeypatch.setattr(scans, "_LARGE_BYTES", large)
    monkeypatch.setattr(BatchValues, "locate", noted)
    with opened(tmp_path / "s") as store:
        store.put_many(pairs)
        flush(store)
        store.put_many(pairs[2500:])
        assert list(store.items()) == pairs
        assert list(store.values()) == [value for _, value in pairs]
        assert list(store.items(b"0001", b"0029")) == pairs[100:2900]
    assert bool(located) == (large > 100)


def test_long_scans_of_items_have_freed_memory_kept_and_short_ones_do_not(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put_many((b"%06d" % at, b"v") for at in range(500))
        flush(store)
        keep_freed.cache_clear()
        assert len(list(store.items(limit=50))) == 50
        assert not keep_freed.cache_info().currsize
        assert len(list(store.items())) == 500  # too few for columns
        assert keep_freed.cache_info().currsize == 1


def test_what_reads_columns_has_freed_memory_kept(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"key", b"value")
        keep_freed.cache_clear()
        store.snapshot().merkle()
        assert keep_freed.cache_info().currsize == 1


def test_a_scan_of_keys_asks_memory_when_they_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_700_000_000_000]

    def refused(file: JournalFile, sqn: int) -> None:
        raise AssertionError(f"the header of sqn {sqn} was read")

    with opened(tmp_path / "s", clock_ms=lambda: now[0]) as store:
        store.put(b"a", b"1", ttl=10)
        store.put(b"b", b"2", ttl=1000)
        store.put(b"c", b"3")
        store.put(b"d", b"4", ttl=10)
        store.put(b"d", b"5")
        store.put(b"e", b"6", ttl=1000)
        store.delete(b"e")
        monkeypatch.setattr(JournalFile, "header", refused)
        assert list(store.keys()) == [b"a", b"b", b"c", b"d"]
        now[0] += 9_999
        assert list(store.keys()) == [b"a", b"b", b"c", b"d"]
        now[0] += 1
        assert list(store.keys(reverse=True)) == [b"d", b"c", b"b"]
        assert dict(store.items()) == {b"b": b"2", b"c": b"3", b"d": b"5"}
