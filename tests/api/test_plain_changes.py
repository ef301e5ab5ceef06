"""The short way to what the journal says of a plain put or delete, against the long one."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from beside import seeded
from whole_store import flush, opened

import octavo
from octavo import changes
from octavo.actors.journal_file import JournalFile
from octavo.files.journal import record
from octavo.files.journal.plain_event import event_of


def filled(path: Path, rng: random.Random) -> octavo.Store:
    """A store with puts of every kind and deletes, sealed files and one that is being written."""
    store = opened(path, compression="lz4")
    for step in range(600):
        bucket, key = store.bucket(rng.choice([b"", b"a", b"b\x00"])), b"%d" % rng.randrange(90)
        value = rng.randbytes(rng.choice([0, 1, 40])) + b"long " * rng.choice([0, 0, 0, 900, 3000])
        kind = rng.randrange(9)
        if kind == 0:
            bucket.delete(key)
        elif kind == 1:
            bucket.put(key, value, ttl=1e6)
        elif kind == 2:
            bucket.put(key, value, metadata=b"some", index={"field": [step]})
        elif kind == 3:
            with store.batch() as batch:
                batch.put(b"a", key, value)
                batch.delete(b"a", b"%d" % rng.randrange(90))
        else:
            bucket.put(key, value)
    return store


def test_changes_are_members_of_sets(tmp_path: Path) -> None:
    with filled(tmp_path / "s", seeded("members of sets")) as store:
        once, again = events(store), events(store)
    assert any(change.index for change in once)
    assert len({*once, *again}) == len(once)


def events(store: octavo.Store) -> list[octavo.Change]:
    return list(store.changes(0, compacted=True))


@pytest.mark.parametrize("number", range(4))
def test_changes_are_those_of_whole_records(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path / "s", seeded(f"test_plain_changes {number}")) as store:
        if number % 2:
            flush(store)
        found = events(store)
        short: list[bool] = []
        with monkeypatch.context() as patch:
            patch.setattr(changes, "event_of", lambda *_: short.append(False))
            whole = events(store)
        assert found == whole
        assert list(map(repr, found)) == list(map(repr, whole))
        assert len(short) == len(whole) >= 600
        with monkeypatch.context() as patch:  # and most come by the short way
            patch.setattr(JournalFile, "read", lambda *given: short.append(True))
            patch.setattr(changes, "_change", lambda *given: None)
            events(store)
        assert 100 < sum(short) < 400


def test_changes_from_a_number_on_look_into_no_file_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s", roll_count=256, compact_every_seconds=None) as store:
        store.put_many((b"%d" % number, b"v") for number in range(2200))
        every = [change.sqn for change in events(store)]
        with store.snapshot() as snap:
            bases = snap._shared.view.journal.bases
        assert len(bases) > 3
        looked: list[int] = []
        sqns = JournalFile.sqns

        def seen(file: JournalFile, first: int, last: int) -> Iterator[int]:
            looked.append(file.base)
            return sqns(file, first, last)

        monkeypatch.setattr(JournalFile, "sqns", seen)
        for base in bases:
            for since in (max(base - 2, 0), max(base - 1, 0), base, base + 1):
                looked.clear()
                found = [change.sqn for change in store.changes(since)]
                assert found == [sqn for sqn in every if sqn > since]
                first = max(one for one in bases if one <= max(since + 1, bases[0]))
                assert looked == [one for one in bases if one >= first]
        assert list(store.changes(every[-1] + 1000)) == []


def test_what_comes_by_the_short_way_is_a_change_like_any(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"k", b"v")
        store.delete(b"k")
        put, delete = events(store)
        assert type(put) is type(delete) is octavo.Change
        assert copy.copy(put) == copy.deepcopy(put) == put
        assert replace(put, sqn=9) == replace(put, sqn=9) != put
        assert (put.kind, put.value, delete.kind, delete.value) == ("put", b"v", "delete", None)
        with pytest.raises(FrozenInstanceError):
            put.sqn = 9  # type: ignore[misc]


@pytest.mark.parametrize("raw_bytes", [None, 300], ids=["as it is", "compressed"])
@pytest.mark.parametrize("kind", [record.PUT, record.DELETE])
def test_no_damaged_record_is_believed(kind: int, raw_bytes: int | None) -> None:
    value = b"" if kind == record.DELETE else b"v" * 300
    stored = value
    if raw_bytes is not None:
        stored = record.lz4.block.compress(value, store_size=False)
        raw_bytes = len(value)
    whole = record.encode(7, 99, kind, 0x6F, b"of", b"key", stored, 1234, raw_bytes=raw_bytes)
    assert event_of(whole, 99, 7) == (kind, 0x6F, b"of", b"key", value, 1234)
    assert event_of(memoryview(whole), 99, 7) == event_of(whole, 99, 7)
    assert event_of(whole, 98, 7) is None
    assert event_of(whole, 99, 8) is None
    for at in range(8 * len(whole)):
        torn = bytearray(whole)
        torn[at // 8] ^= 1 << at % 8
        assert event_of(bytes(torn), 99, 7) is None
    for end in range(len(whole)):
        assert event_of(whole[:end], 99, 7) is None
    assert event_of(whole + b"\x00", 99, 7) is None


def test_a_value_of_another_length_than_its_record_says_is_not_believed() -> None:
    stored = record.lz4.block.compress(b"v" * 300, store_size=False)
    for raw_bytes in (299, 301, 1 << 30):
        whole = record.encode(
            7, 99, record.PUT, 0x6F, b"", b"key", stored, 1234, raw_bytes=raw_bytes
        )
        assert event_of(whole, 99, 7) is None


@pytest.mark.parametrize(
    "more", [{"metadata": b"m"}, {"expiry_ms": 5}, {"index": b"i"}, {"batch": (0, 2)}]
)
def test_what_says_more_takes_the_long_way(more: dict[str, object]) -> None:
    whole = record.encode(7, 99, record.PUT, 0x6F, b"", b"key", b"v", 1234, **more)  # type: ignore[arg-type]
    assert event_of(whole, 99, 7) is None


def test_what_is_retained_of_a_put_takes_the_long_way() -> None:
    whole = record.encode(7, 99, record.KEY_DELTA, 0x6F, b"", b"key", b"", 1234)
    assert event_of(whole, 99, 7) is None
