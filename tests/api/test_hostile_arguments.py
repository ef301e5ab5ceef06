"""Arguments that nobody means: each is refused by name or taken as what it says, and nothing hangs,
breaks or is left half done."""

from __future__ import annotations

import copy
import enum
import math
import os
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import octavo
from octavo.files.wall_clock import wall_clock_ms

SECONDS = 1_795_340_754  # of a day in 2026; as ms it is in January 1970


class Moment(enum.IntEnum):
    LATER = 4_000_000_000_000


class Shouting(str):
    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"SHOUTED"


class Wordless:
    def __repr__(self) -> str:
        raise RuntimeError("says nothing")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compares with nothing")

    __hash__ = None  # type: ignore[assignment]


def test_an_expiry_of_a_class_of_numbers_is_taken_at_once(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v", expires_at=Moment.LATER)  # `in range` counts up to such a one
        head = store.head("k")
        assert head is not None
        assert (type(head.expires_at), head.expires_at) == (int, int(Moment.LATER))


def test_seconds_in_the_place_of_milliseconds_are_refused_everywhere(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v")
        store.backup(tmp_path / "b")
        for wrong in (
            lambda: store.put("k", "w", expires_at=SECONDS),
            lambda: store.keys(modified_since=SECONDS),
            lambda: store.heads(modified_before=SECONDS),
            lambda: octavo.restore(tmp_path / "b", tmp_path / "r", time=SECONDS),
        ):
            with pytest.raises(octavo.Misuse, match="looks like seconds"):
                wrong()
        assert not (tmp_path / "r").exists()
        assert list(store.keys(modified_since=SECONDS * 1000 - 10**12)) == [b"k"]
        assert list(store.keys(modified_since=0)) == [b"k"]


def test_a_head_in_place_of_its_sqn_is_told_what_is_meant(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v")
        with pytest.raises(octavo.Misuse, match="sqn of a head"):
            store.put("k", "w", if_sqn=store.head("k"))  # type: ignore[arg-type]
        assert store["k"] == b"v"


def test_whole_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        sqn = store.put("k", "v", index={"year": np.int64(1871), "days": [np.int16(3), 4]})
        assert store.index_of("k") == {b"days": [3, 4], b"year": [1871]}
        assert list(store.index("year").range(np.int64(1870), 1872)) == [(1871, b"k")]  # type: ignore[arg-type]
        assert list(store.keys(limit=np.int64(1))) == [b"k"]  # type: ignore[arg-type]
        store.put("k", "w", if_sqn=np.uint64(sqn), ttl=np.int64(100))  # type: ignore[arg-type]
        assert [change.sqn for change in store.changes(np.int64(sqn))] == [sqn + 1]  # type: ignore[arg-type]


def test_options_take_whole_numbers_of_numpy(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "roll_count": np.int64(300), "push_rows": np.uint16(64), "sync": np.int32(2),
        "compact_every_seconds": np.int64(60), "consumer_hold_bytes": np.int64(1 << 30),
        "compact_run_percent": np.float64(50.0), "worker": False,
    }  # fmt: skip
    with octavo.open(tmp_path / "s", **given) as store:
        store.put_many((b"%d" % n, b"v") for n in range(700))
        for name, value in given.items():
            found = getattr(store._running.options, name)
            assert found == value
            assert type(found) in (int, float, bool)
        assert len(store) == 700


@pytest.mark.parametrize("name", ["roll_count", "push_rows", "sync", "compact_run_percent"])
@pytest.mark.parametrize("value", [True, np.True_, "64", None, float("nan"), np.array([64, 65])])
def test_options_that_are_no_numbers_are_named(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(octavo.Misuse, match=rf"^{name}=.*: allowed "):
        octavo.open(tmp_path / "s", **{name: value})


def test_a_term_is_what_it_holds_whatever_its_class_does(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v", index={Shouting("f"): Shouting("quiet"), b"g": np.bytes_(b"a")})
        assert store.index_of("k") == {b"f": ["quiet"], b"g": [b"a"]}
        assert list(store.index(bytearray(b"f")).having("quiet")) == [b"k"]


def test_a_moment_that_is_a_float_is_told_to_be_whole(tmp_path: Path) -> None:
    told = pytest.raises(octavo.Misuse, match=r"whole ms since 1970 UTC \(int, not float\)")
    with octavo.open(tmp_path / "s") as store, told:
        store.put("k", "v", expires_at=1.8e12)  # type: ignore[arg-type]


def test_a_time_to_live_may_be_a_timedelta(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        before = wall_clock_ms()
        store.put("k", "v", ttl=timedelta(hours=1))
        head = store.head("k")
        assert head is not None
        assert head.expires_at is not None
        assert before + 3_600_000 <= head.expires_at <= wall_clock_ms() + 3_600_000
        for wrong in (timedelta(0), timedelta(seconds=-1), timedelta.max):
            with pytest.raises(octavo.Misuse, match="ttl="):
                store.put("k", "v", ttl=wrong)


@pytest.mark.parametrize(
    "wrong",
    ["x" * 10**6, b"x" * 10**6, 10**5000, Wordless(), np.array([1, 2]), [0] * 10**5],
    ids=["str", "bytes", "int", "wordless", "array", "list"],
)
def test_a_message_is_short_whatever_was_given(tmp_path: Path, wrong: Any) -> None:
    with octavo.open(tmp_path / "s") as store, store.snapshot() as snap, store.batch() as batch:
        calls: list[Any] = [
            lambda: store.put("k", "v", sync=wrong),
            lambda: store.put("k", "v", ttl=wrong),
            lambda: store.put("k", "v", expires_at=wrong),
            lambda: store.put("k", "v", index=wrong),
            lambda: store.put("k", "v", index={"f": {"of": wrong}, "g": Wordless()}),
            lambda: store.keys(reverse=wrong),
            lambda: store.keys(resume=wrong),
            lambda: store.bucket("b", tag=wrong),
            lambda: batch.put("b", "k", "v", tag=wrong),
            lambda: batch.put("b", "k", "v", expires_at=wrong),
            lambda: octavo.IndexEdit(add=wrong),
            lambda: snap.merkle(wrong),
            lambda: snap.merkle(256, by=wrong),
            lambda: snap.to_arrow(tag=wrong),
            lambda: snap.to_arrow([wrong]),
            lambda: store.consumer("c", since=wrong),
            lambda: store.snapshot(wrong),
            lambda: store.ingest("job", [], batch=wrong if wrong is not None else ""),
            lambda: octavo.repair(tmp_path / "s", accept_missing=wrong),
            lambda: octavo.open(tmp_path / "t", push_rows=wrong),
            lambda: octavo.open(tmp_path / "t", tags={"t": wrong}),
            lambda: octavo.open(tmp_path / "t", read_only=wrong),
            lambda: octavo.restore(tmp_path / "s", tmp_path / "t", copy=wrong),
            lambda: octavo.commit(tmp_path / "s", "job", [], timeout_seconds=wrong),
        ]
        for number, call in enumerate(calls):
            with pytest.raises(octavo.Misuse) as refused:
                call()
            assert len(str(refused.value)) < 700, number
        batch.discard()
        assert store.last_sqn == 0
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": -1}, {"batch": 1 << 64}, {"batch": 1.5}, {"batch": math.nan}, {"batch": "1"},
        {"attempts": "abc"}, {"attempts": None}, {"attempts": [1]}, {"attempts": ["../a"]},
        {"stream": None}, {"stream": "\ud800"}, {"stream": "s" * 600}, {"job_id": "../j"},
    ],
)  # fmt: skip
def test_a_commit_that_says_nonsense_is_refused_before_anything_is_done(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v")
        stream: dict[str, Any] = {"job_id": "job", "attempts": [], "stream": "feed", "batch": 7}
        before = store.stats()["journal"]["active_file"]
        with pytest.raises(octavo.Misuse, match="allowed"):
            store.ingest(**{**stream, **wrong})
        assert store.stats()["journal"]["active_file"] == before
        assert not store.ingest(**stream).repeated
        assert store.ingest(**{**stream, "batch": 6}).repeated


def test_a_wait_that_would_never_end_is_refused(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s"):
        for wrong in (math.nan, math.inf, 0, -1, "1"):
            with pytest.raises(octavo.Misuse, match="timeout_seconds="):
                octavo.acknowledge(tmp_path / "s", "c", 0, timeout_seconds=wrong)  # type: ignore[arg-type]


def test_what_is_of_one_opening_is_neither_copied_nor_pickled(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store, octavo.open(tmp_path / "h", mode="head_only") as two:
        store.put_many((str(n), "v") for n in range(9))
        batch = store.batch()
        batch.put("", "k", "v")
        scan = store.keys()
        handles: list[Any] = [
            store, store.bucket("b"), store.snapshot(), scan, store.items(), batch,
            store.consumer("c"), store.index("f"), two.head_bucket("b"), two.head_batch(),
        ]  # fmt: skip
        for handle in handles:
            for call in (copy.copy, copy.deepcopy, lambda one: one.__reduce_ex__(4)):
                with pytest.raises(octavo.Misuse, match="passed to another process: pass the path"):
                    call(handle)
        assert next(scan) == b"0"
        batch.commit()
        assert len(store) == 10


def test_a_published_snapshot_is_not_copied_with_the_lock_of_its_store(tmp_path: Path) -> None:
    """A copy of it that was dropped closed the store's own descriptors, that of its lock too."""
    with octavo.open(tmp_path / "s", worker=False) as store:
        store.put("k", "v")
        with store.snapshot() as snap:
            made = snap.publish("p")
        with octavo.open(tmp_path / "s", read_only=True) as reader:
            for one in (made, *store.published(), *reader.published()):
                for call in (copy.copy, copy.deepcopy, lambda one: one.__reduce_ex__(4)):
                    with pytest.raises(octavo.Misuse, match="pass its store_path and id"):
                        call(one)
        with pytest.raises(octavo.StoreLocked):
            octavo.open(tmp_path / "s")


def test_each_thing_says_what_it_is(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put_many((f"k{n}", "v") for n in range(2))
        where = f"{str(tmp_path / 's')!r}"
        assert repr(store.bucket("b")) == f"<octavo.Bucket b'b' of {where}>"
        assert repr(store.index("f")) == f"<octavo.Index b'f' of <octavo.Store {where}>>"
        assert repr(store.index("f").having(1)) == "<octavo.Query>"
        batch = store.batch()
        batch.delete("", "none")
        assert repr(batch) == "<octavo.Batch of 1 operation>"
        batch.commit()
        assert repr(batch) == "<octavo.Batch that was written or discarded>"
        scan = store.keys()
        assert repr(scan) == "<octavo.Scan at its beginning>"
        next(scan)
        assert repr(scan) == "<octavo.Scan behind b'k0'>"
        list(scan)
        assert repr(scan) == "<octavo.Scan at its end>"
        snap = store.snapshot()
        assert repr(snap) == "<octavo.Snapshot at sqn 3>"
        snap.close()
        assert repr(snap) == "<octavo.Snapshot at sqn 3 (closed)>"
        edit = octavo.IndexEdit(add={"f": ["x", "y"]}, remove={"g": None})
        assert repr(edit) == "<octavo.IndexEdit that adds 2 and removes 1>"
        with octavo.open(tmp_path / "s", read_only=True) as reader:
            assert repr(reader) == f"<octavo.ReadOnlyStore {where} at sqn 3>"
        assert repr(reader) == f"<octavo.ReadOnlyStore {where} at sqn 3 (closed)>"
    with octavo.open(tmp_path / "h", mode="head_only") as heads:
        assert repr(heads.head_batch()) == "<octavo.HeadBatch of 0 operations>"


@pytest.mark.parametrize("name", ["add", "remove"])
def test_an_edit_of_index_entries_names_its_argument(name: str) -> None:
    with pytest.raises(octavo.Misuse, match=f"^{name}=3: allowed is a mapping"):
        octavo.IndexEdit(**{name: 3})  # type: ignore[arg-type]


def test_a_forked_child_is_told_why_it_can_not_use_the_store(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v")
        bucket, snap, consumer = store.bucket("b"), store.snapshot(), store.consumer("c")
        read, write = os.pipe()
        child = os.fork()
        if not child:
            told = []
            calls: list[Any] = [
                lambda: store.get("k"), lambda: store.put("k", "w"), lambda: list(bucket.keys()),
                lambda: bucket.get_many(["k"]), lambda: snap.get("k"), lambda: consumer.position,
                store.sync, store.snapshot, lambda: store.put_many([("k", "w")]),
            ]  # fmt: skip
            for number, call in enumerate(calls):
                try:
                    call()
                except octavo.Closed as refused:
                    told.append("forked" in str(refused))
                except BaseException:  # noqa: BLE001 - it is to reach the parent
                    told.append(number)
            os.write(write, repr(told).encode())
            os._exit(0)
        os.close(write)
        with open(read, "rb") as stream:
            assert stream.read() == repr([True] * 9).encode()
        os.waitpid(child, 0)
        assert store["k"] == b"v"


def test_what_a_function_of_a_type_raises_says_where_it_comes_from(tmp_path: Path) -> None:
    def parsed(key: bytes, value: bytes) -> dict[str, Any]:
        return {"length": int(value)}

    for part in ("index", "metadata"):
        tag = octavo.Tag(**{part: parsed})
        with octavo.open(tmp_path / part, tags={"number": tag}) as store:
            with pytest.raises(ValueError, match="invalid literal") as told:
                store.bucket("b", tag="number").put_many([("seven", "VII")])
            wanted = [f"raised by tags['number'].{part} for the key b'seven'"]
            assert told.value.__notes__ == wanted
            assert store.last_sqn == 0


def test_a_datetime_is_a_moment_everywhere(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v")
        before = datetime(2020, 1, 1, tzinfo=UTC)
        assert list(store.keys(modified_since=before)) == [b"k"]
        with pytest.raises(octavo.Misuse, match="time zone"):
            store.keys(modified_since=before.replace(tzinfo=None))

        class Nowhere(tzinfo):
            def utcoffset(self, _: object) -> None:
                return None

        with pytest.raises(octavo.Misuse, match="time zone"):
            store.put("l", "v", expires_at=datetime(2040, 1, 1, tzinfo=Nowhere()))
        nothing: Any = pandas.NaT  # a datetime that raises whatever it is asked
        for call in (
            lambda: store.put("l", "v", expires_at=nothing),
            lambda: store.put("l", "v", ttl=nothing),
            lambda: store.keys(modified_since=nothing),
        ):
            with pytest.raises(octavo.Misuse, match="=NaT: allowed"):
                call()


def test_addresses_of_python_objects_are_no_value(tmp_path: Path) -> None:
    objects = np.array([1, "a"], dtype=object)
    rows = np.zeros(2, dtype=[("O", "i4"), ("of", "O")])
    with octavo.open(tmp_path / "s") as store:
        for data in (objects.data, rows.data):
            for call in (
                lambda data=data: store.put("k", data),
                lambda data=data: store.put("k", "v", metadata=data),
                lambda data=data: store.put(data, "v"),
                lambda data=data: store.put_many([("k", data)] * 20),
            ):
                with pytest.raises(octavo.Misuse, match="memoryview of Python objects"):
                    call()
            with pytest.raises(octavo.Misuse, match="Python objects"), store.batch() as batch:
                batch.put("b", "k", data)
        assert store.last_sqn == 0
        numbers = np.arange(4).view([("O", "i4"), ("NO", "i4")])  # a name is no type
        store.put("k", numbers.data)
        assert store["k"] == numbers.tobytes()
