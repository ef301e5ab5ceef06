"""Secondary indexes: what an index holds after each kind of write, and how it is asked."""

from __future__ import annotations

import datetime
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_store import WallClock, flush, killed, opened

import octavo

ALL = {"push_rows": 1 << 20, "push_bytes": 1 << 30}


@pytest.fixture
def clock() -> WallClock:
    return WallClock(1_000_000)


@pytest.fixture
def store(tmp_path: Path, clock: WallClock) -> Iterator[octavo.Store]:
    with opened(tmp_path / "s", clock_ms=clock) as store:
        yield store


def pairs(where: octavo.Bucket, field: str = "f", **how: object) -> list:
    return list(where.index(field).range(**how))


# ---------------------------------------------------------------- what writes do to the set


def test_a_put_states_the_whole_set(store: octavo.Store) -> None:
    store.put("k", b"1", index={"f": ["a", "b"], "g": 7})
    assert pairs(store) == [("a", b"k"), ("b", b"k")]
    store.put("k", b"2", index={"f": "b"})
    assert pairs(store) == [("b", b"k")]
    assert pairs(store, "g") == []
    assert store.index_of("k") == {b"f": ["b"]}


@pytest.mark.parametrize("merged", [False, True])
def test_a_put_without_it_a_delete_and_put_many_remove_all(
    store: octavo.Store, merged: bool
) -> None:
    for key in ("p", "d", "m", "s", "x", "stays"):
        store.put(key, b"1", index={"f": "a"})
    if merged:
        flush(store)
    store.put("p", b"2")
    store.delete("d")
    store.put_many([("m", b"2")])
    store["s"] = b"2"
    del store["x"]
    assert pairs(store) == [("a", b"stays")]
    flush(store)
    assert pairs(store) == [("a", b"stays")]
    assert store.index_of("p") == {}
    assert store.index_of("d") is None


def test_an_empty_set_is_none(store: octavo.Store) -> None:
    store.put("k", b"1", index={})
    store.put("l", b"1", index={"f": []})
    assert pairs(store) == []
    assert store.index_of("k") == {} == store.index_of("l")


def test_an_expiry_removes_all_and_a_snapshot_judges_it_at_its_moment(
    store: octavo.Store, clock: WallClock
) -> None:
    store.put("k", b"1", index={"f": "a"}, ttl=10)
    store.put("l", b"1", index={"f": "a"}, expires_at=clock() + 20_000)
    with store.snapshot() as early:
        clock.now += 9_999
        assert list(store.index("f").keys()) == [b"k", b"l"]
        clock.now += 1
        assert list(store.index("f").keys()) == [b"l"]
        flush(store)
        assert list(store.index("f").keys()) == [b"l"]
        clock.now += 10_000
        assert list(store.index("f").keys()) == []
        assert list(early.index("f").keys()) == [b"k", b"l"]
        assert early.index_of("k") == {b"f": ["a"]}
    assert store.index_of("k") is None


def test_an_expired_version_does_not_uncover_the_one_before(
    store: octavo.Store, clock: WallClock
) -> None:
    store.put("k", b"1", index={"f": "old"})
    flush(store)
    store.put("k", b"2", index={"f": "new"}, ttl=1)
    clock.now += 1000
    for _ in range(8):
        assert pairs(store) == []
        store.put("other", b"")
        flush(store)


# ---------------------------------------------------------------- edits


def test_an_edit_adds_to_the_set_and_takes_from_it(store: octavo.Store) -> None:
    store.put("k", b"1", index={"f": ["a", "b", "c"], "g": [1, 2]})
    store.put("k", b"2", index=octavo.IndexEdit(add={"f": "d"}, remove={"f": ["a", "z"], "g": 1}))
    assert store.index_of("k") == {b"f": ["b", "c", "d"], b"g": [2]}
    store.put("k", b"3", index=octavo.IndexEdit(remove={"f": None}))
    assert store.index_of("k") == {b"g": [2]}
    store.put("k", b"4", index=octavo.IndexEdit())
    assert store.index_of("k") == {b"g": [2]}
    assert store["k"] == b"4"


def test_removing_a_field_leaves_fields_whose_names_begin_alike(store: octavo.Store) -> None:
    fields = [b"f", b"f\0", b"f\0\0", b"f\0\xff", b"ff", b"\0", b"\0f"]
    store.put("k", b"", index=dict.fromkeys(fields, 1))
    store.put("k", b"", index=octavo.IndexEdit(remove={b"f": None}))
    assert store.index_of("k") == {field: [1] for field in sorted(fields[1:])}


def test_removing_a_term_leaves_terms_that_begin_alike(store: octavo.Store) -> None:
    terms = [b"a", b"a\0", b"a\0\0", b"a\0\xff", b"ab", "a", 97]
    store.put("k", b"", index={"f": terms})
    store.put("k", b"", index=octavo.IndexEdit(remove={"f": b"a"}))
    assert set(store.index_of("k")[b"f"]) == set(terms[1:])


def test_an_edit_of_what_is_removed_and_added_adds_it(store: octavo.Store) -> None:
    store.put("k", b"", index={"f": "a"})
    store.put("k", b"", index=octavo.IndexEdit(add={"f": "a"}, remove={"f": "a"}))
    assert store.index_of("k") == {b"f": ["a"]}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("how", ["absent", "deleted", "expired", "put without"])
def test_an_edit_of_a_version_without_entries_begins_with_none(
    store: octavo.Store, clock: WallClock, how: str, merged: bool
) -> None:
    if how != "absent":
        store.put("k", b"", index={"f": "old"}, ttl=5)
    if merged:
        flush(store)
    if how == "deleted":
        store.delete("k")
    if how == "put without":
        store.put("k", b"")
    if how == "expired":
        clock.now += 5000
    if merged:
        flush(store)
    store.put("k", b"", index=octavo.IndexEdit(add={"f": "new"}))
    assert pairs(store) == [("new", b"k")]


def test_an_edit_finds_its_set_after_a_push_and_a_reopening(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"", index={"f": "a"})
        flush(store)
    with opened(tmp_path / "s") as store:
        store.put("k", b"", index=octavo.IndexEdit(add={"f": "b"}))
        assert pairs(store) == [("a", b"k"), ("b", b"k")]


def test_edits_in_a_batch_see_the_operations_before_them(
    store: octavo.Store, clock: WallClock
) -> None:
    edit = octavo.IndexEdit(add={"f": "new"})
    store.put("live", b"", index={"f": "old"})
    store.put("gone", b"", index={"f": "old"})
    store.put("late", b"", index={"f": "old"})
    with store.batch() as batch:
        batch.put("", "fresh", b"", index={"f": "first"})
        batch.put("", "fresh", b"", index=edit)
        batch.put("", "fresh", b"", index=octavo.IndexEdit(remove={"f": "first"}, add={"f": "x"}))
        batch.put("", "live", b"", index=edit)
        batch.delete("", "gone")
        batch.put("", "gone", b"", index=edit)
        batch.put("", "late", b"", index={"f": "dead"}, expires_at=clock() - 1)
        batch.put("", "late", b"", index=edit)
        batch.put("other", "live", b"", index=edit)
    assert store.index_of("fresh") == {b"f": ["new", "x"]}
    assert store.index_of("live") == {b"f": ["new", "old"]}
    assert store.index_of("gone") == {b"f": ["new"]}
    assert store.index_of("late") == {b"f": ["new"]}
    assert store.bucket("other").index_of("live") == {b"f": ["new"]}
    assert list(store.index("f").having("new")) == [b"fresh", b"gone", b"late", b"live"]


def test_a_batch_that_ends_in_a_version_without_entries_leaves_none(store: octavo.Store) -> None:
    with store.batch() as batch:
        batch.put("", "k", b"", index={"f": "a"})
        batch.put("", "k", b"")
    assert pairs(store) == []
    flush(store)
    assert pairs(store) == []


# ---------------------------------------------------------------- atomic


def put_both(store: octavo.Store, index: object) -> None:
    with store.batch() as batch:
        batch.put("", "other", b"2")
        batch.put("", "k", b"2", index=index)  # type: ignore[arg-type]


def test_a_put_whose_index_is_wrong_writes_nothing(store: octavo.Store) -> None:
    store.put("k", b"1", index={"f": "a"})
    before = store.last_sqn
    for index in ({"f": 1.5}, {"f": ["a", None]}, {"": "a"}, {"f": b"x" * 1025}, 5, {"f": True}):
        with pytest.raises(octavo.Misuse, match="index"):
            store.put("k", b"2", index=index)
        with pytest.raises(octavo.Misuse, match="index"):
            put_both(store, index)
    assert store.last_sqn == before
    assert (store["k"], store.index_of("k"), "other" in store) == (b"1", {b"f": ["a"]}, False)


def test_an_edit_that_makes_the_set_too_large_leaves_its_batch_undone(store: octavo.Store) -> None:
    store.put("k", b"1", index={"f": range(4096)})
    before = store.last_sqn
    with pytest.raises(octavo.Misuse, match="4097 entries"):
        put_both(store, octavo.IndexEdit(add={"f": 4096}))
    assert (store.last_sqn, store["k"], "other" in store) == (before, b"1", False)


def test_what_an_iterable_of_terms_raises_reaches_the_caller(store: octavo.Store) -> None:
    def failing() -> Iterator[str]:
        yield "a"
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        store.put("k", b"1", index={"f": failing()})
    assert "k" not in store


def test_a_condition_that_fails_leaves_the_index_alone(store: octavo.Store) -> None:
    sqn = store.put("k", b"1", index={"f": "a"})
    for index in ({"f": "b"}, octavo.IndexEdit(add={"f": "b"})):
        with pytest.raises(octavo.Conflict):
            store.put("k", b"2", index=index, if_sqn=sqn + 1)
    assert pairs(store) == [("a", b"k")]
    store.put("k", b"2", index=octavo.IndexEdit(add={"f": "b"}), if_sqn=sqn)
    assert pairs(store) == [("a", b"k"), ("b", b"k")]


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (5, "index=5"),
        ([("f", "a")], "index="),
        ({"f": None}, "index field 'f'"),
        ({"f": 1.5}, "index field 'f'"),
        ({"f": [None]}, "index field 'f'.*NoneType"),
        ({"f": True}, "index field 'f'.*bool"),
        ({"f": [[]]}, "index field 'f'.*list"),
        ({"": "a"}, "index field ''"),
        ({5: "a"}, "index field 5"),
        ({"x" * 256: "a"}, "index field"),
        ({"\ud800": "a"}, "index field"),
        ({"f": "\ud800"}, "index field 'f'"),
        ({"f": "x" * 1025}, "index field 'f'.*1025 bytes"),
        ({"f": 1 << 1008}, "index field 'f'.*127 bytes"),
        ({"f": range(5000)}, "index has 5000 entries"),
        ({"f": (b"%01000d" % i for i in range(1100))}, "index of 11"),
    ],
)
def test_a_wrong_index_is_refused_by_name(store: octavo.Store, index: object, told: str) -> None:
    with pytest.raises(octavo.Misuse, match=told):
        store.put("k", b"1", index=index)
    assert store.last_sqn == 0


@pytest.mark.parametrize(
    "given",
    [{"add": 5}, {"add": {"f": None}}, {"remove": 5}, {"remove": {"f": 1.5}}, {"remove": {5: "a"}}],
)
def test_a_wrong_edit_is_refused_as_it_is_made(given: dict) -> None:
    with pytest.raises(octavo.Misuse, match=r"index|add|remove"):
        octavo.IndexEdit(**given)


# ---------------------------------------------------------------- queries


@pytest.fixture(params=["memory", "level zero", "merged", "reopened"])
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[octavo.Bucket]:
    """Twenty keys with terms of every type, in each of the places where rows can stand."""
    store = opened(tmp_path / "b", **(ALL if request.param == "memory" else {}))
    bucket = store.bucket(b"books\0")
    for i in range(20):
        bucket.put(b"k%02d" % i, b"", index={"year": 1990 - i // 2, "who": [f"w{i % 3}", b"\0"]})
    if request.param != "memory":
        flush(store)
    if request.param == "merged":
        for number in range(6):
            store.put(b"%d" % number, b"")
            flush(store)
        assert len(store._running.penciller.actor.manifest.levels) > 1
    if request.param == "reopened":
        store.close()
        store = opened(tmp_path / "b")
        bucket = store.bucket(b"books\0")
    yield bucket
    store.close()


def test_a_range_has_its_start_and_not_its_end_both_ways(books: octavo.Bucket) -> None:
    whole = sorted((1990 - i // 2, b"k%02d" % i) for i in range(20))
    year = books.index("year")
    assert list(year.range()) == whole
    assert list(year.range(reverse=True)) == whole[::-1]
    some = [pair for pair in whole if 1984 <= pair[0] < 1987]
    assert list(year.range(1984, 1987)) == some
    assert list(year.range(1984, 1987, reverse=True)) == some[::-1]
    assert list(year.range(1987, 1984)) == []
    assert list(year.range(start=1989)) == whole[-4:]
    assert list(year.range(end=1982)) == whole[:2]
    assert list(year.keys(1984, 1987)) == [key for _, key in some]
    assert list(year.terms(1984, 1987)) == [(1984, 2), (1985, 2), (1986, 2)]
    assert list(year.terms(reverse=True, start=1989)) == [(1990, 2), (1989, 2)]
    assert list(year.having(1986)) == [b"k08", b"k09"]
    assert list(year.having("1986")) == list(year.having(1)) == []


def test_a_range_of_one_type_has_only_terms_of_that_type(books: octavo.Bucket) -> None:
    who = books.index("who")
    assert [term for term, _ in who.range()] == [b"\0"] * 20 + ["w0"] * 7 + ["w1"] * 7 + ["w2"] * 6
    assert {term for term, _ in who.range(start="")} == {"w0", "w1", "w2"}
    assert {term for term, _ in who.range(start=b"")} == {b"\0"}
    assert {term for term, _ in who.range(end="w2")} == {"w0", "w1"}
    assert list(who.range(start=0)) == []


def test_limit_and_after_page_through_a_range_both_ways(books: octavo.Bucket) -> None:
    who = books.index("who")
    for reverse in (False, True):
        whole = list(who.range(reverse=reverse))
        for size in (1, 7, 40, 50):
            found, last = [], None
            while page := list(who.range(limit=size, after=last, reverse=reverse)):
                found += page
                last = page[-1]
                assert len(page) <= size
            assert found == whole
    assert list(who.range(limit=0)) == []
    assert list(who.range(limit=1 << 64)) == list(who.range())
    page = list(who.range("w1", "w2", limit=3))
    assert list(who.range("w1", "w2", after=page[-1])) == list(who.range("w1", "w2"))[3:]


def test_a_position_need_not_be_there_any_more(books: octavo.Bucket) -> None:
    page = list(books.index("year").range(limit=3))
    books.delete(page[-1][1])
    rest = list(books.index("year").range(after=page[-1]))
    assert rest == list(books.index("year").range())[2:]


def test_match_finds_terms_of_its_own_type(books: octavo.Bucket) -> None:
    who = books.index("who")
    assert {term for term, _ in who.range(match="w[12]")} == {"w1", "w2"}
    assert {term for term, _ in who.range(match=b"\\x00")} == {b"\0"}
    assert list(books.index("year").range(match="19")) == []
    assert len(list(who.range(match="w", limit=5))) == 5
    assert {term for term, _ in who.range(match="w", end="w1")} == {"w0"}


def test_ints_of_any_size_and_sign_are_in_the_order_of_their_values(store: octavo.Store) -> None:
    numbers = [s * ((1 << n) + d) for n in (0, 7, 8, 63, 64, 500) for s in (1, -1) for d in (-1, 0)]
    for number in numbers:
        store.put(b"%d" % number, b"", index={"f": number})
    whole = sorted(set(numbers))
    assert [term for term, _ in store.index("f").range()] == whole
    for low in whole:
        assert [term for term, _ in store.index("f").range(low)] == whole[whole.index(low) :]
        assert [t for t, _ in store.index("f").range(end=low)] == whole[: whole.index(low)]


def test_names_full_of_nuls_and_ff_keep_apart(store: octavo.Store) -> None:
    nasty = [b"\0", b"\0\0", b"\0\xff", b"\xff", b"a", b"a\0", b"a\0\0", b"a\xff", b"\xff\0"]
    for name in nasty:
        for field in nasty:
            store.bucket(name).put(name + field, b"", index={field: [field, name, b""]})
    for _ in range(2):
        for name in (*nasty, b""):
            for field in nasty:
                wanted = sorted((term, name + field) for term in {field, name, b""})
                found = list(store.bucket(name).index(field).range())
                assert found == ([] if name == b"" else wanted)
        flush(store)


def test_the_longest_names_terms_and_keys_are_indexed(tmp_path: Path) -> None:
    name, key = b"\0" * 300, b"\0" * ((64 << 10) - 300)
    field, term = b"\0" * 255, b"\0" * 1024
    with opened(tmp_path / "s") as store:
        store.bucket(name).put(key, b"v", index={field: term})
        flush(store)
        store.bucket(name).put(key, b"w", index={field: [term, "x"]})
    with opened(tmp_path / "s") as store:
        flush(store)
        assert list(store.bucket(name).index(field).range()) == [(term, key), ("x", key)]
        assert store.verify().ok
    shutil.rmtree(tmp_path / "s" / "ledger")
    with opened(tmp_path / "s") as store:
        assert list(store.bucket(name).index(field).having(term)) == [key]


def test_text_buckets_give_keys_as_str(store: octavo.Store) -> None:
    bucket = store.bucket("b", text=True)
    bucket.put("é", "v", index={"f": [b"x", "y"]})
    assert list(bucket.index("f").range()) == [(b"x", "é"), ("y", "é")]
    assert list(bucket.index("f").range(after=(b"x", "é"))) == [("y", "é")]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"start": 1.5}, "float"),
        ({"start": True}, "bool"),
        ({"start": 1, "end": "a"}, "start=1 and end='a'"),
        ({"start": b"a", "end": "b"}, "one type"),
        ({"start": "\ud800"}, "index"),
        ({"end": b"x" * 2000}, "2000 bytes"),
        ({"limit": -1}, "limit=-1"),
        ({"limit": 1.5}, "limit=1.5"),
        ({"limit": True}, "limit=True"),
        ({"reverse": 1}, "reverse=1"),
        ({"match": "("}, "match="),
        ({"match": 5}, "match is of type int"),
        ({"after": 5}, "after=5"),
        ({"after": ("a",)}, "after="),
        ({"after": (1.5, "k")}, "float"),
        ({"after": ("a", b"")}, "key is empty"),
        ({"after": ("a", 5)}, "key is of type int"),
    ],
)
def test_a_wrong_query_is_refused_at_once(store: octavo.Store, how: dict, told: str) -> None:
    with pytest.raises(octavo.Misuse, match=told):
        store.index("f").range(**how)
    assert not store._bookie.view.recent.pins, "a refused query still holds a snapshot"


@pytest.mark.parametrize("field", ["", b"", "x" * 256, 5, None, "\ud800"])
def test_a_wrong_field_is_refused(store: octavo.Store, field: object) -> None:
    with pytest.raises(octavo.Misuse, match="index field"):
        store.index(field)  # type: ignore[arg-type]


def test_what_is_said_of_a_wrong_term_names_the_field_as_it_was_given(store: octavo.Store) -> None:
    index = store.index(b"a\0b")
    for ask in (index.having, index.range):
        with pytest.raises(octavo.Misuse, match=r"index field b'a\\x00b': a term"):
            ask(1.5)  # type: ignore[arg-type]


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    store.close()
    for ask in (lambda: store.index("f").range(), lambda: store.index_of("k")):
        with pytest.raises(octavo.Closed):
            ask()


def test_a_query_that_is_broken_off_lets_go_of_its_snapshot(store: octavo.Store) -> None:
    for i in range(300):
        store.put(b"%03d" % i, b"", index={"f": i})
    found = store.index("f").range()
    assert next(found) == (0, b"000")
    del found
    store.snapshot().close()
    assert not store._bookie.view.recent.pins


QUERIES: dict[str, Callable[[octavo.Index[bytes]], octavo.Query[Any]]] = {
    "range": lambda index: index.range(),
    "keys": lambda index: index.keys(match="7"),
    "some": lambda index: index.range(limit=200),
    "having": lambda index: index.having("7"),
    "terms": lambda index: index.terms(),
}


@pytest.mark.parametrize("kind", QUERIES)
def test_a_query_that_is_closed_gives_no_more_and_lets_go_of_its_snapshot(
    store: octavo.Store, kind: str
) -> None:
    for i in range(600):
        store.put(b"%03d" % i, b"", index={"f": [str(i), "7"]})
    every = list(QUERIES[kind](store.index("f")))
    with QUERIES[kind](store.index("f")) as found:
        assert [next(found), next(found)] == every[:2]
        assert store.stats()["snapshots"] == 1
    assert store.stats()["snapshots"] == 0
    assert list(found) == []
    found.close()


def test_a_query_lets_go_of_its_snapshot_with_the_last_pair_of_its_limit(
    store: octavo.Store,
) -> None:
    for i in range(300):
        store.put(b"%03d" % i, b"", index={"f": i})
    found = store.index("f").range(limit=3)
    assert len(list(found)) == 3
    assert store.stats()["snapshots"] == 0


def test_terms_are_counted_over_windows(store: octavo.Store) -> None:
    terms = [b"", b"a", "", "a", -1, 0, 1]
    for i in range(3000):
        store.put(b"%04d" % i, b"", index={"f": [terms[i % 7], terms[i * i % 5]]})
    wanted = Counter(term for term, _ in store.index("f").range())
    assert sum(wanted.values()) > 3000
    assert dict(store.index("f").terms()) == wanted
    assert list(store.index("f").terms(reverse=True)) == [*store.index("f").terms()][::-1]


# ---------------------------------------------------------------- snapshots


@pytest.mark.parametrize("merged", [False, True])
def test_a_snapshot_keeps_the_index_of_its_moment(store: octavo.Store, merged: bool) -> None:
    for i in range(30):
        store.put(b"%02d" % i, b"old", index={"f": ["all", i]})
    if merged:
        flush(store)
    before = pairs(store)
    with store.snapshot() as snap:
        for i in range(0, 30, 2):
            store.put(b"%02d" % i, b"new", index={"f": ["all", i + 100]})
        for i in range(1, 30, 4):
            store.delete(b"%02d" % i)
        store.put(b"29", b"new", index=octavo.IndexEdit(add={"f": "more"}, remove={"f": "all"}))
        now = pairs(store)
        assert now != before
        for _ in range(8):
            assert pairs(snap) == before
            assert pairs(snap, reverse=True) == before[::-1]
            assert pairs(store) == now
            assert snap.index_of(b"00") == {b"f": [0, "all"]}
            store.put("push", b"")
            flush(store)
        assert list(snap.index("f").having("all")) == [b"%02d" % i for i in range(30)]


def test_entries_that_come_and_go_in_one_memory_table_are_each_snapshots_own(
    store: octavo.Store,
) -> None:
    taken = []
    for i in range(12):
        store.put("k", b"", index={"f": ["x", i % 3]} if i % 4 else None)
        taken.append((store.snapshot(), pairs(store)))
    for _ in range(2):
        for snap, expected in taken:
            assert pairs(snap) == expected
        flush(store)
    for snap, _ in taken:
        snap.close()


def test_a_live_query_reads_one_moment(store: octavo.Store) -> None:
    for i in range(100):
        store.put(b"%03d" % i, b"", index={"f": i})
    found = store.index("f").range()
    first = next(found)
    for i in range(100):
        store.put(b"%03d" % i, b"", index={"f": i + 1000})
    flush(store)
    assert [first, *found] == [(i, b"%03d" % i) for i in range(100)]


# ---------------------------------------------------------------- what comes after


@pytest.mark.parametrize("how", ["reopened", "killed", "ledger deleted", "compacted"])
def test_the_index_outlives(tmp_path: Path, clock: WallClock, how: str) -> None:
    store = opened(tmp_path / "s", clock_ms=clock)
    for i in range(400):
        key = b"%02d" % (i * 7 % 40)
        if i % 11 == 3:
            store.delete(key)
        elif i % 11 == 4:
            store.put(key, b"v%d" % i, index=octavo.IndexEdit(add={"f": i % 5}))
        elif i % 11 == 5:
            store.put(key, b"v%d" % i, index={"f": "dying"}, ttl=i)
        else:
            store.put(key, b"v%d" % i, index={"f": [i % 5, f"t{i % 3}", b"\0\xff"]})
    clock.now += 200_000
    before = pairs(store)
    entries = {key: store.index_of(key) for key in store}
    assert len({type(term) for term, _ in before}) == 3
    path = tmp_path / "s"
    if how == "killed":
        path = killed(store, tmp_path / "t")
    if how == "compacted":
        store.compact()
        assert pairs(store) == before
    store.close()
    if how in ("ledger deleted", "compacted"):
        shutil.rmtree(path / "ledger")
    with opened(path, clock_ms=clock) as store:
        assert pairs(store) == before
        assert {key: store.index_of(key) for key in store} == entries
        flush(store)
        assert pairs(store) == before
        assert store.verify().ok


def test_merges_drop_stale_entries(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        for i in range(2000):
            store.put(b"%02d" % (i % 50), b"", index={"f": i})
        for i in range(50):
            store.delete(b"%02d" % i)
        flush(store)
        for _ in range(6):
            store.put("k", b"")
            flush(store)
        levels = store.stats()["ledger"]["levels"]
        assert sum(level["rows"] for level in levels) < 300
        assert pairs(store) == []


def test_the_change_feed_tells_index_entries_and_types(tmp_path: Path) -> None:
    note = octavo.Tag(index=lambda key, value: {"size": len(value)})
    with octavo.open(tmp_path / "s", tags={"note": note}) as store:
        store.put(b"k", b"v", index={"f": ["a", 7]})
        store.bucket("b", tag="note").put(b"n", b"1234")
        first, second = store.changes()
        assert (first.tag, first.index) == ("standard", {b"f": [7, "a"]})
        assert (second.tag, second.index, second.bucket) == ("note", {b"size": [4]}, b"b")


def test_the_change_feed_of_a_head_only_store_tells_sub_keys(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        store.head_bucket("b").put("k", b"v", sub_key="s")
        (change,) = store.changes()
        assert (change.key, change.sub_key, change.value) == (b"k", b"s", b"v")
        assert change.tag == "head_only"


def test_the_longest_entry_of_all_outlives_memory(tmp_path: Path) -> None:
    """Escapes double the name of a bucket of NULs, and the field and the term: the row's key is
    longer than that of any object."""
    bucket, field, term = b"\0" * 65_535, b"\0" * 255, b"\0" * 1024
    with opened(tmp_path / "s") as store:
        nuls = store.bucket(bucket)
        nuls.put(b"k", b"v", index={field: [term]})
        flush(store)
        assert list(nuls.index(field).having(term)) == [b"k"]
        assert nuls.get(b"k") == b"v"
        assert store.verify().problems == []
    with opened(tmp_path / "s") as store:
        assert list(store.bucket(bucket).index(field).having(term)) == [b"k"]
        assert store.compact().skipped == ()


def test_a_date_is_no_term_and_the_error_says_what_is(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store", worker=False) as store:
        with pytest.raises(octavo.Misuse, match=r"int, bytes or str; a date as its isoformat\(\)"):
            store.put("k", b"v", index={"day": datetime.date(2026, 1, 2)})  # type: ignore[dict-item]
        assert store.last_sqn == 0


@pytest.mark.parametrize("way", ["put", "batch", "edit"])
def test_keys_of_index_entries_count_as_bytes_of_memory(tmp_path: Path, way: str) -> None:
    """Each repeats its object's key: 4,096 of them may be 256 MiB, of a record of 1 MiB."""
    with octavo.open(tmp_path / "s", push_bytes=1 << 20, worker=False) as store:
        for n in range(5):
            terms = list(range(1000 * n, 1000 * n + 500))
            key = b"%d" % n * 1000
            if way == "put":
                store.put(key, b"", index={"f": terms})
            elif way == "batch":
                with store.batch() as batch:
                    batch.put("", key, b"", index={"f": terms})
            else:
                store.put(key, b"", index=octavo.IndexEdit(add={"f": terms}))
            assert len(store._bookie.view.recent.rows) <= 3 * 501
        assert len(pairs(store)) == 2500


def test_a_page_behind_a_pair_outside_of_its_range_stays_in_the_range(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        for number in range(10):
            store.put(b"%d" % number, b"v", index={"n": number})
        index = store.index("n")
        wanted = [(number, b"%d" % number) for number in range(3, 6)]
        assert list(index.range(3, 6, after=(1, b"1"))) == wanted
        assert list(index.range(3, 6, after=(8, b"8"), reverse=True)) == wanted[::-1]
        assert list(index.range(3, 6, after=(8, b"8"))) == []
        assert list(index.range(3, 6, after=(1, b"1"), reverse=True)) == []
        assert list(index.range(3, 6, after=(4, b"4"))) == wanted[2:]
