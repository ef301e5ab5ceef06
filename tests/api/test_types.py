"""Objects of user-defined types: functions at work in puts, queries and rebuilds."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from whole_store import WallClock, flush, killed, opened

import octavo
from octavo import Tag
from octavo.actors.opening import startup
from octavo.files.journal import journal_rows


def first_word(key: bytes, value: bytes) -> bytes:
    return value.split()[0] if value else b""


def words(key: bytes, value: bytes) -> dict[str, Any]:
    return {"word": value.split(), "size": len(value)}


NOTE = Tag(metadata=first_word, index=words, head=lambda key, head: (key, head.metadata))
RECALC = {"strategies": {"note": "recalc"}}


def indexed(bucket: octavo.Bucket, field: str = "word") -> list:
    return list(bucket.index(field).range())


# ---------------------------------------------------------------- puts


def test_functions_say_metadata_index_and_head(tmp_path: Path) -> None:
    with opened(tmp_path / "s", tags={"note": NOTE}) as store:
        notes = store.bucket("b", tag="note")
        notes.put("k", b"to be")
        notes.put_many([("l", b"not to"), (b"m", b"")])
        notes["n"] = "be it"
        with store.batch() as batch:
            batch.put("b", "o", b"so be", tag="note")
        for _ in range(2):
            assert notes.head("k") == (b"k", b"to")
            assert list(notes.heads()) == [
                (b"k", (b"k", b"to")), (b"l", (b"l", b"not")), (b"m", (b"m", b"")),
                (b"n", (b"n", b"be")), (b"o", (b"o", b"so")),
            ]  # fmt: skip
            assert list(notes.index("word").having(b"be")) == [b"k", b"n", b"o"]
            assert list(notes.index("size").having(5)) == [b"k", b"n", b"o"]
            assert notes["n"] == b"be it"
            flush(store)


def test_a_bucket_is_a_mapping_whatever_its_head_gives(tmp_path: Path) -> None:
    with opened(tmp_path / "s", tags={"note": NOTE}) as store:
        notes = store.bucket("b", tag="note")
        notes.update({"k": b"to be", "l": b"not to", "m": b"be"})
        del notes["k"]
        assert notes.pop("l") == b"not to"
        assert notes.pop("l", None) is None
        with pytest.raises(KeyError):
            del notes["l"]
        assert notes.setdefault("m", b"other") == b"be"
        assert notes.popitem() == (b"m", b"be")
        assert dict(notes) == {}


def test_functions_get_bytes_and_may_give_str_and_nothing(tmp_path: Path) -> None:
    seen = []

    def looks(key: bytes, value: bytes) -> None:
        seen.append((key, value))

    tags = {"a": Tag(index=looks), "b": Tag(metadata=lambda k, v: "é")}
    with opened(tmp_path / "s", tags=tags) as store:
        store.bucket("x", tag="a", text=True).put("é", bytearray(b"1"))
        assert seen == [("é".encode(), b"1")]
        store.bucket("x", tag="b").put("k", b"")
        assert store.bucket("x", tag="b").head("k").metadata == "é".encode()


def test_what_a_put_is_given_comes_before_what_functions_say(tmp_path: Path) -> None:
    with opened(tmp_path / "s", tags={"note": NOTE}) as store:
        notes = store.bucket("b", tag="note")
        notes.put("k", b"to be", metadata=b"mine", index={"word": "mine"})
        assert notes.head("k") == (b"k", b"mine")
        assert indexed(notes) == [("mine", b"k")]
        with pytest.raises(octavo.Misuse, match="derives its entries from the values"):
            notes.put("k", b"x", index=octavo.IndexEdit(add={"word": "y"}))


@pytest.mark.parametrize("empty", [b"", "", bytearray(), memoryview(b"")])
def test_metadata_that_is_empty_is_left_to_the_function(tmp_path: Path, empty: Any) -> None:
    with opened(tmp_path / "s", tags={"note": NOTE}) as store:
        store.bucket("b", tag="note").put("k", b"to be", metadata=empty)
        assert store.bucket("b", tag="note").head("k") == (b"k", b"to")


def test_an_edit_is_fine_where_no_function_says_the_index(tmp_path: Path) -> None:
    with opened(tmp_path / "s", tags={"plain": Tag(metadata=first_word)}) as store:
        plain = store.bucket("b", tag="plain")
        plain.put("k", b"x", index={"f": 1})
        plain.put("k", b"y", index=octavo.IndexEdit(add={"f": 2}))
        assert plain.index_of("k") == {b"f": [1, 2]}


def put_both(store: octavo.Store) -> None:
    with store.batch() as batch:
        batch.put("", "before", b"v")
        batch.put("b", "k", b"v", tag="bad")


@pytest.mark.parametrize("part", ["metadata", "index"])
def test_what_a_function_raises_reaches_the_caller_and_nothing_is_written(
    tmp_path: Path, part: str
) -> None:
    def failing(key: bytes, value: bytes) -> Any:
        raise LookupError("mine")

    with opened(tmp_path / "s", tags={"bad": Tag(**{part: failing})}) as store:
        bad = store.bucket("b", tag="bad")
        for put in (
            lambda: bad.put("k", b"v"),
            lambda: bad.put_many([("k", b"v")]),
            lambda: bad.__setitem__("k", b"v"),
        ):
            with pytest.raises(LookupError, match="mine"):
                put()
        with pytest.raises(LookupError, match="mine"):
            put_both(store)
        assert store.last_sqn == 0
        assert "before" not in store


@pytest.mark.parametrize(
    ("tag", "what"),
    [
        (Tag(metadata=lambda k, v: 5), r"tags\['bad'\]\.metadata gave a int"),
        (Tag(metadata=lambda k, v: None), r"tags\['bad'\]\.metadata gave a NoneType"),
        (Tag(metadata=lambda k, v: "\ud800"), r"tags\['bad'\]\.metadata"),
        (Tag(metadata=lambda k, v: bytes(2 << 20)), r"tags\['bad'\]\.metadata gave 2097152 bytes"),
        (Tag(index=lambda k, v: 5), r"tags\['bad'\]\.index gave a int"),
        (Tag(index=lambda k, v: octavo.IndexEdit()), r"tags\['bad'\]\.index gave a IndexEdit"),
        (Tag(index=lambda k, v: {"f": 1.5}), r"tags\['bad'\]\.index: index field 'f'"),
        (Tag(index=lambda k, v: {"f": range(9999)}), r"tags\['bad'\]\.index: index has 9999"),
    ],
)  # type: ignore[arg-type,return-value,dict-item]
def test_what_a_function_gives_is_checked_and_its_type_named(
    tmp_path: Path, tag: Tag, what: str
) -> None:
    with opened(tmp_path / "s", tags={"bad": tag}) as store:
        with pytest.raises(octavo.Misuse, match=what):
            store.bucket("b", tag="bad").put("k", b"v")
        assert store.last_sqn == 0


# ---------------------------------------------------------------- which objects


def test_one_key_under_two_types_is_two_objects(tmp_path: Path) -> None:
    with opened(tmp_path / "s", tags={"a": Tag(), "b": Tag()}) as store:
        where = {name: store.bucket("x", tag=name) for name in ("standard", "a", "b")}
        for number, (name, bucket) in enumerate(where.items()):
            bucket.put("k", name.encode(), index={"f": [number, 7]})
        where["standard"].delete("k")
        for _ in range(2):
            assert where["standard"].get("k") is None
            assert indexed(where["standard"], "f") == []
            for number, name in ((1, "a"), (2, "b")):
                assert where[name]["k"] == name.encode()
                assert indexed(where[name], "f") == [(number, b"k"), (7, b"k")]
                assert list(where[name].index("f").having(7)) == [b"k"]
            assert list(store.buckets()) == []
            assert list(store.buckets(tag="a")) == [b"x"]
            flush(store)
        with store.snapshot() as snap:
            where["a"].delete("k")
            assert list(snap.bucket("x", tag="a").items()) == [(b"k", b"a")]
            assert indexed(where["b"], "f") == [(2, b"k"), (7, b"k")]


def test_a_type_that_was_not_registered_is_read_and_not_written(tmp_path: Path) -> None:
    with opened(tmp_path / "s", tags={"note": NOTE}) as store:
        store.bucket("b", tag="note").put("k", b"to be")
    with opened(tmp_path / "s") as store:
        notes = store.bucket("b", tag="note")
        assert (notes["k"], list(notes), indexed(notes)) == (
            b"to be", [b"k"], [(b"be", b"k"), (b"to", b"k")],
        )  # fmt: skip
        assert notes.head("k").metadata == b"to"
        before = store.last_sqn
        for write in (
            lambda: notes.put("k", b"x"),
            lambda: notes.put_many([(b"k", b"x")]),
            lambda: notes.put_many([("k", "x")]),
            lambda: notes.delete("k"),
            lambda: notes.pop("k"),
            lambda: notes.clear(),
            lambda: store.batch().put("b", "k", b"x", tag="note"),
            lambda: store.batch().delete("b", "k", tag="note"),
        ):
            with pytest.raises(octavo.Misuse, match="tag='note' was not registered"):
                write()
        assert store.last_sqn == before
        assert notes["k"] == b"to be"


@pytest.mark.parametrize("tag", ["nobody", 5, None, b"standard", []])
def test_an_unknown_type_is_refused_by_name(tmp_path: Path, tag: Any) -> None:
    with opened(tmp_path / "s", tags={"note": NOTE}) as store, store.snapshot() as snap:
        for ask in (
            lambda: store.bucket("b", tag=tag),
            lambda: snap.bucket("b", tag=tag),
            lambda: store.buckets(tag=tag),
            lambda: store.batch().put("b", "k", b"", tag=tag),
            lambda: store.batch().delete("b", "k", tag=tag),
        ):
            with pytest.raises(octavo.Misuse, match="is no type of this store; known are: stand"):
                ask()


# ---------------------------------------------------------------- rebuilds


def fill(store: octavo.Store) -> None:
    notes = store.bucket("b", tag="note")
    for i in range(300):
        notes.put(b"%03d" % (i % 100), b"w%d of %d" % (i % 7, i))
    for i in range(90, 100):
        notes.delete(b"%03d" % i)
    store.put("plain", b"v", metadata=b"m", index={"word": "plain"})
    notes.put("metaless", b"")


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_recalc_works_out_metadata_and_index_anew_by_todays_functions(
    tmp_path: Path, sealed: bool, end: str
) -> None:
    path = tmp_path / "s"
    small = {} if sealed else {"roll_count": 1 << 19, "push_rows": 1 << 20, "push_bytes": 1 << 30}
    store = opened(path, tags={"note": NOTE}, **RECALC, **small)
    fill(store)
    if end == "killed":
        path = killed(store, tmp_path / "t")
    notes = store.bucket("b", tag="note")
    before, entries = dict(notes.items()), indexed(notes)
    store.close()
    shutil.rmtree(path / "ledger")
    later = Tag(
        metadata=lambda key, value: value[-2:],
        index=lambda key, value: {"last": value.split()[-1:], "size": len(value)},
    )
    for _ in range(2):
        with opened(path, tags={"note": later}, **small) as store:
            notes = store.bucket("b", tag="note")
            assert dict(notes.items()) == before
            assert len(before) == 91
            assert indexed(notes) == []
            assert list(notes.index("last").having(b"207")) == [b"007"]
            assert len(list(notes.index("size").keys())) == 91
            assert notes.head("007").metadata == b"07"
            assert store.head("plain").metadata == b"m"
            assert indexed(store.bucket("")) == [("plain", b"plain")]
            assert store.verify().ok
            assert store.stats()["notes"] == []
            flush(store)
    assert len(entries) == 90 * 3


@pytest.mark.parametrize("strategy", ["recovr", "retain"])
def test_other_strategies_take_what_the_records_say(tmp_path: Path, strategy: str) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}, strategies={"note": strategy}) as store:
        fill(store)
        notes = store.bucket("b", tag="note")
        entries, heads = indexed(notes), list(notes.heads())
    shutil.rmtree(path / "ledger")
    with opened(path, tags={"note": replace(NOTE, index=lambda k, v: {"x": 1})}) as store:
        notes = store.bucket("b", tag="note")
        assert (indexed(notes), list(notes.heads())) == (entries, heads)
        assert indexed(notes, "x") == []


def test_a_change_of_strategy_at_open_holds_from_the_next_rebuild(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}) as store:
        fill(store)
        flush(store)
    later = {"note": Tag(index=lambda key, value: {"x": len(value)})}
    with opened(path, tags=later, **RECALC) as store:
        notes = store.bucket("b", tag="note")
        assert len(indexed(notes)) == 90 * 3
        assert indexed(notes, "x") == []
    shutil.rmtree(path / "ledger")
    with opened(path, tags=later) as store:
        notes = store.bucket("b", tag="note")
        assert indexed(notes) == []
        assert len(indexed(notes, "x")) == 91
        flush(store)
    with opened(path, tags={"note": NOTE}, strategies={"note": "recovr"}) as store:
        assert len(indexed(store.bucket("b", tag="note"), "x")) == 91
    shutil.rmtree(path / "ledger")
    with opened(path, tags=later) as store:
        notes = store.bucket("b", tag="note")
        assert (len(indexed(notes)), indexed(notes, "x")) == (90 * 3, [])


def test_a_function_that_fails_in_a_rebuild_is_told_and_the_records_own_is_taken(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}, **RECALC) as store:
        fill(store)
        notes = store.bucket("b", tag="note")
        entries, heads = indexed(notes), dict(notes.heads())
    shutil.rmtree(path / "ledger")

    def picky(key: bytes, value: bytes) -> dict:
        if key == b"007":
            raise LookupError("no seven")
        return {"x": 1}

    with opened(path, tags={"note": replace(NOTE, index=picky, metadata=None)}) as store:
        notes = store.bucket("b", tag="note")
        told = store.stats()["notes"]
        assert len(told) == 1, "an overwritten version's failure is told, too"
        assert "type 'note' failed" in told[0]
        assert "no seven" in told[0]
        assert indexed(notes) == [pair for pair in entries if pair[1] == b"007"]
        assert len(indexed(notes, "x")) == 90
        assert notes.heads().__next__()[1] == heads[b"000"]


def test_what_no_put_would_take_is_told_in_a_rebuild(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}, **RECALC) as store:
        fill(store)
    for tag in (Tag(metadata=lambda k, v: 5), Tag(index=lambda k, v: {"f": 1.5})):  # type: ignore
        shutil.rmtree(path / "ledger")
        with opened(path, tags={"note": tag}) as store:
            told = store.stats()["notes"]
            assert "and 71 more" in told[-1]
            assert all("tags['note']" in note for note in told[:-1])
            assert store.bucket("b", tag="note").head("007").metadata == b"w4"


def test_a_rebuild_without_the_types_functions_is_told(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}, **RECALC) as store:
        fill(store)
        entries = indexed(store.bucket("b", tag="note"))
    shutil.rmtree(path / "ledger")
    with opened(path) as store:
        assert any("'note' is under the strategy recalc" in n for n in store.stats()["notes"])
        assert indexed(store.bucket("b", tag="note")) == entries
    with opened(path) as store:
        assert store.stats()["notes"] == []


def test_who_has_not_the_functions_verifies_what_they_made_in_a_rebuild(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}, **RECALC) as store:
        fill(store)
    shutil.rmtree(path / "ledger")
    later = Tag(metadata=lambda key, value: b"other", index=lambda key, value: {"x": len(value)})
    with opened(path, tags={"note": later}) as store:
        assert store.verify().ok
    with opened(path) as store:
        report = store.verify()
        assert report.ok, report.problems[:3]


@pytest.mark.parametrize("strategy", ["recovr", "retain"])
def test_what_a_rebuild_under_recalc_made_is_no_damage_under_the_next_strategy(
    tmp_path: Path, strategy: Any
) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}, **RECALC) as store:
        fill(store)
    shutil.rmtree(path / "ledger")
    later = Tag(metadata=lambda key, value: b"other", index=lambda key, value: {"x": len(value)})
    opened(path, tags={"note": later}).close()
    for chosen in ({"note": strategy}, {}):  # and at later openings
        with opened(path, tags={"note": later}, strategies=chosen) as store:
            report = store.verify()
            assert report.ok, report.problems[:3]
            store.backup(tmp_path / "backup")
    octavo.restore(tmp_path / "backup", tmp_path / "restored")
    with opened(tmp_path / "restored") as store:
        assert store.verify().ok


def test_a_rebuild_under_recalc_makes_one_run_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}, **RECALC) as store:
        for n in range(20):
            store.put(b"plain%d" % n, b"v")
            store.bucket("notes", tag="note").put(b"n%d" % n, b"v")
    shutil.rmtree(path / "ledger")
    monkeypatch.setattr(journal_rows, "PART_BYTES", 500)
    with opened(path, tags={"note": NOTE}) as store:
        report = store.verify()
        assert report.ok, report.problems[:3]


def test_a_rebuild_that_is_cut_short_works_out_the_rest_at_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}, **RECALC) as store:
        fill(store)
    shutil.rmtree(path / "ledger")
    calls = 0

    def interrupted(key: bytes, value: bytes) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 60:
            raise KeyboardInterrupt
        return b"later"

    later = Tag(metadata=interrupted, index=lambda key, value: {"x": len(value)})
    monkeypatch.setattr(startup, "MAX_FILE_ROWS", 40)
    with pytest.raises(KeyboardInterrupt):
        opened(path, tags={"note": later})
    with opened(path, tags={"note": later}) as store:
        notes = store.bucket("b", tag="note")
        assert {head.metadata for _, head in notes.heads()} == {b"later"}
        assert len(indexed(notes, "x")) == len(notes) == 91
        assert any("not whole" in note for note in store.stats()["notes"])
    with opened(path, tags={"note": later}) as store:
        assert store.stats()["notes"] == []


def test_a_damaged_value_does_not_keep_its_key_out_of_a_rebuild(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with opened(path, tags={"note": NOTE}, **RECALC) as store:
        notes = store.bucket("b", tag="note")
        for i in range(400):
            notes.put(b"%03d" % i, b"value %03d" % i)
        flush(store)
    shutil.rmtree(path / "ledger")
    for file in (path / "journal").glob("*.cdb"):
        content = file.read_bytes()
        if b"value 007" in content:
            file.write_bytes(content.replace(b"value 007", b"valve 007"))
    with opened(path, tags={"note": NOTE}) as store:
        notes = store.bucket("b", tag="note")
        assert any("checksum" in note for note in store.stats()["notes"])
        assert len(notes) == 400
        assert list(notes.index("word").having(b"007")) == [b"007"]
        with pytest.raises(octavo.Corruption):
            notes.get("007")


def test_expired_objects_have_no_entries_after_a_rebuild(tmp_path: Path) -> None:
    clock, path = WallClock(10**6), tmp_path / "s"
    with opened(path, tags={"note": NOTE}, clock_ms=clock, **RECALC) as store:
        notes = store.bucket("b", tag="note")
        for i in range(100):
            notes.put(b"%03d" % i, b"word", ttl=1 + i)
    clock.now += 50_000
    shutil.rmtree(path / "ledger")
    with opened(path, tags={"note": NOTE}, clock_ms=clock) as store:
        notes = store.bucket("b", tag="note")
        assert (
            list(notes.index("word").keys()) == list(notes) == [b"%03d" % i for i in range(50, 100)]
        )
        clock.now += 20_000
        assert list(notes.index("word").keys()) == [b"%03d" % i for i in range(70, 100)]


def test_compacted_and_rebuilt_under_each_strategy(tmp_path: Path) -> None:
    for strategy in ("recovr", "retain", "recalc"):
        path = tmp_path / strategy
        given: dict[str, Any] = {"tags": {"note": NOTE}}
        with opened(path, **given, strategies={"note": strategy, "standard": "retain"}) as store:
            for _ in range(3):
                fill(store)
            store.compact()
            notes = store.bucket("b", tag="note")
            before = (dict(notes.items()), indexed(notes), list(notes.heads()))
            assert store.verify().ok
        shutil.rmtree(path / "ledger")
        with opened(path, **given) as store:
            notes = store.bucket("b", tag="note")
            assert (dict(notes.items()), indexed(notes), list(notes.heads())) == before
            assert indexed(store.bucket("")) == [("plain", b"plain")]
            assert store.verify().ok


def test_json_documents_with_a_field_as_index(tmp_path: Path) -> None:
    """What a user would write."""
    person = Tag(index=lambda key, value: {"city": json.loads(value)["city"]})
    with opened(tmp_path / "s", tags={"person": person}) as store:
        people = store.bucket("people", tag="person", text=True)
        people["ann"] = json.dumps({"city": "Oslo"})
        people["bob"] = json.dumps({"city": "Rome"})
        people["ann"] = json.dumps({"city": "Rome"})
        assert list(people.index("city").having("Rome")) == ["ann", "bob"]
        with pytest.raises(KeyError):
            people["eve"] = json.dumps({})
        assert "eve" not in people


@pytest.mark.parametrize("count", [10, 2000])
def test_a_type_without_objects_has_no_part_in_anothers_index(tmp_path: Path, count: int) -> None:
    with opened(tmp_path / "s", tags={"empty": Tag()}, push_rows=1 << 20) as store:
        for number in range(count):
            store.bucket("b").put(b"%04d" % number, b"", index={"f": number})
        for _ in range(2):
            assert indexed(store.bucket("b", tag="empty"), "f") == []
            assert len(indexed(store.bucket("b"), "f")) == count
            flush(store)
