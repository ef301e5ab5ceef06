"""What a user does with a store, call by call."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

import octavo
from octavo.actors.opening.options import OpenOptions, Options


@pytest.fixture
def store(tmp_path: Path):
    with octavo.open(tmp_path / "s", push_rows=64, push_bytes=64 << 10) as opened:
        yield opened


def test_the_types_of_options_are_those_of_the_options() -> None:
    assert list(OpenOptions.__annotations__) == [field.name for field in fields(Options)]


def test_put_returns_ascending_sequence_numbers(store) -> None:
    assert [store.put(b"k%d" % i, b"v") for i in range(3)] == [1, 2, 3]
    assert store.last_sqn == 3


def test_get_gives_bytes_back_for_str_and_bytes_arguments(store) -> None:
    store.put("grüße", "welt")
    assert store.get("grüße") == b"welt"
    assert store["grüße".encode()] == b"welt"
    assert store.get(bytearray("grüße".encode())) == b"welt"


def test_a_text_bucket_gives_str_out(store) -> None:
    words = store.bucket("words", text=True)
    words["a"] = "ä"
    assert words["a"] == "ä"
    assert list(words.items()) == [("a", "ä")]
    assert list(words.keys()) == ["a"]
    assert words.get_many(["a", "b"]) == ["ä", None]


def test_an_absent_key_reads_as_default_and_raises_key_error_by_index(store) -> None:
    assert store.get(b"no") is None
    assert store.get(b"no", b"d") == b"d"
    with pytest.raises(KeyError):
        store[b"no"]
    with pytest.raises(KeyError):
        del store[b"no"]


def test_empty_values_and_the_empty_bucket_name_are_fine(store) -> None:
    store.put(b"k", b"")
    assert store.get(b"k") == b""
    assert store.bucket(b"").get(b"k") == b""


@pytest.mark.parametrize("size", [0, 1, 2047, 2048, 100_000, 3 << 20])
def test_values_of_every_size_come_back(store, size: int) -> None:
    for value in (os.urandom(size), b"x" * size):
        store.put(b"k", value, metadata=b"m")
        assert store.get(b"k") == value
        assert store.head(b"k").size == size
        store.put(b"k", value)
        assert store.get(b"k") == value


def test_head_tells_sqn_size_metadata_and_expiry(store) -> None:
    sqn = store.put(b"k", b"value", metadata=b"meta", expires_at=1 << 45)
    head = store.head(b"k")
    assert (head.sqn, head.size, head.metadata, head.expires_at) == (sqn, 5, b"meta", 1 << 45)
    assert abs(head.written_at / 1000 - datetime.now(UTC).timestamp()) < 60
    assert store.head(b"no") is None


def test_a_key_with_its_expiry_in_the_past_reads_as_absent_everywhere(store) -> None:
    store.put(b"k", b"v", expires_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert store.get(b"k") is None
    assert store.head(b"k") is None
    assert b"k" not in store
    assert list(store.keys()) == []
    assert store.get_many([b"k"]) == [None]


def test_a_put_without_ttl_clears_the_expiry(store) -> None:
    store.put(b"k", b"v", ttl=1000)
    assert store.head(b"k").expires_at is not None
    store.put(b"k", b"v")
    assert store.head(b"k").expires_at is None


def test_if_sqn_writes_only_over_the_named_version(store) -> None:
    first = store.put(b"k", b"1", if_sqn=0)
    second = store.put(b"k", b"2", if_sqn=first)
    with pytest.raises(octavo.Conflict) as raised:
        store.put(b"k", b"3", if_sqn=first)
    assert (raised.value.expected, raised.value.found) == (first, second)
    with pytest.raises(octavo.Conflict):
        store.delete(b"k", if_sqn=0)
    assert store.get(b"k") == b"2"
    store.delete(b"k", if_sqn=second)
    store.put(b"k", b"4", if_sqn=0)


def test_an_expired_key_counts_as_absent_for_if_sqn(store) -> None:
    store.put(b"k", b"v", expires_at=1)
    store.put(b"k", b"w", if_sqn=0)
    assert store.get(b"k") == b"w"


def test_a_batch_is_written_whole_across_buckets(store) -> None:
    with store.batch() as batch:
        batch.put("a", "x", b"1")
        batch.put("", "y", b"2")
        batch.delete("a", "gone")
    assert batch.last_sqn == 3
    assert store.bucket("a").get("x") == b"1"
    assert store.get("y") == b"2"
    assert [c.batch for c in store.changes()] == [(0, 3), (1, 3), (2, 3)]


def test_an_exception_in_a_batch_writes_nothing(store) -> None:
    def broken() -> None:
        with store.batch() as batch:
            batch.put("", "k", b"v")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert store.last_sqn == 0


def test_a_batch_with_a_failing_condition_writes_nothing(store) -> None:
    store.put(b"k", b"v")
    batch = store.batch()
    batch.put("", "other", b"v")
    batch.put("", "k", b"w", if_sqn=99)
    with pytest.raises(octavo.Conflict):
        batch.commit()
    assert store.get(b"other") is None


def filled(bucket, count: int = 300) -> list[bytes]:
    keys = [b"%05d" % (i * 7 % 1000) for i in range(count)]
    for key in keys:
        bucket.put(key, b"v" + key)
    return sorted(set(keys))


@pytest.mark.parametrize("reverse", [False, True])
def test_ranges_are_half_open_in_both_directions(store, reverse: bool) -> None:
    keys = filled(store)
    store.bucket("other").put(b"00500", b"no")
    for start, end in [(None, None), (b"00100", b"00300"), (keys[3], keys[9]), (b"9", None)]:
        want = [k for k in keys if (start is None or k >= start) and (end is None or k < end)]
        if reverse:
            want.reverse()
        assert list(store.keys(start, end, reverse=reverse)) == want
        assert list(store.items(start, end, reverse=reverse)) == [(k, b"v" + k) for k in want]
        assert list(store.values(start, end, reverse=reverse)) == [b"v" + k for k in want]
        assert [k for k, _ in store.heads(start, end, reverse=reverse)] == want


def test_a_prefix_selects_the_keys_that_begin_with_it(store) -> None:
    keys = filled(store)
    for prefix in (b"", b"0", b"003", b"0099", b"x", b"\xff"):
        assert list(store.keys(prefix=prefix)) == [k for k in keys if k.startswith(prefix)]


def test_deleted_keys_leave_scans_and_counts(store) -> None:
    keys = filled(store)
    for key in keys[::2]:
        store.delete(key)
    assert list(store.keys()) == keys[1::2]
    assert len(store) == len(keys[1::2])


def test_an_iterator_is_not_disturbed_by_writes(store) -> None:
    keys = filled(store)
    seen = []
    for key in store:
        seen.append(key)
        store.delete(key)
        store.put(key + b"x", b"new")
    assert seen == keys


def test_buckets_lists_those_that_hold_a_key(store) -> None:
    for name in ("b", "a", "", "a\0b"):
        store.bucket(name).put("k", b"v")
    store.bucket("gone").put("k", b"v")
    store.bucket("gone").delete("k")
    assert list(store.buckets()) == [b"", b"a", b"a\0b", b"b"]


def test_put_many_takes_any_iterable_and_returns_the_last_sqn(store) -> None:
    assert store.put_many((b"%d" % i, b"v") for i in range(1500)) == 1500
    assert store.put_many({"x": "y"}) == 1501
    assert store.put_many([]) == 0
    assert store.get_many([b"7", b"none", "x"]) == [b"v", None, b"y"]


def test_a_snapshot_does_not_see_later_writes(store) -> None:
    keys = filled(store)
    with store.snapshot() as snap:
        sqn = store.last_sqn
        for key in keys:
            store.put(key, b"new")
        store.bucket("late").put("k", b"v")
        store.delete(keys[0])
        assert snap.sqn == sqn
        assert snap.get(keys[0]) == b"v" + keys[0]
        assert snap.head(keys[0]).sqn <= sqn
        assert list(snap.items()) == [(k, b"v" + k) for k in keys]
        assert list(snap.items(reverse=True)) == [(k, b"v" + k) for k in reversed(keys)]
        assert list(snap.buckets()) == [b""]
        assert len(snap) == len(keys)
    assert store.get(keys[1]) == b"new"


def test_a_closed_snapshot_says_so(store) -> None:
    snap = store.snapshot()
    snap.close()
    snap.close()
    with pytest.raises(octavo.Closed):
        snap.get(b"k")


def test_changes_are_the_journal_in_order_with_deletes(store) -> None:
    store.put("a", b"1", metadata=b"m")
    store.delete("a")
    store.bucket("b").put("c", b"2")
    found = list(store.changes())
    assert [(c.sqn, c.kind, c.bucket, c.key, c.value) for c in found] == [
        (1, "put", b"", b"a", b"1"),
        (2, "delete", b"", b"a", None),
        (3, "put", b"b", b"c", b"2"),
    ]
    assert [c.sqn for c in store.changes(since=2)] == [3]


@pytest.mark.parametrize("clean", [True, False])
def test_everything_is_there_after_a_reopen(tmp_path: Path, clean: bool) -> None:
    with octavo.open(tmp_path / "s", push_rows=64) as store:
        keys = filled(store)
        store.delete(keys[5])
        last = store.last_sqn
        if not clean:
            subprocess.run(["cp", "-r", tmp_path / "s", tmp_path / "copy"], check=True)
    with octavo.open(tmp_path / ("s" if clean else "copy")) as store:
        assert list(store.items()) == [(k, b"v" + k) for k in keys if k != keys[5]]
        following = store.put("next", b"v")
        assert following == last + 1 if clean else following > last


def test_a_second_opener_gets_store_locked(store) -> None:
    with pytest.raises(octavo.StoreLocked, match=r"stays open until its close\(\)"):
        octavo.open(store.path)


def test_a_store_that_nothing_refers_to_any_more_is_found_and_can_be_closed(
    tmp_path: Path,
) -> None:
    octavo.open(tmp_path / "lost").put("k", "v")
    gc.collect()
    with pytest.raises(octavo.StoreLocked, match=r"octavo\.open_stores\(\) has"):
        octavo.open(tmp_path / "lost")
    (lost,) = [each for each in octavo.open_stores() if each.path == str(tmp_path / "lost")]
    lost.close()
    with octavo.open(tmp_path / "lost") as again:
        assert again.get("k") == b"v"


def test_open_stores_are_those_that_were_not_closed_by_path(tmp_path: Path) -> None:
    before = octavo.open_stores()
    with octavo.open(tmp_path / "b") as second, octavo.open(tmp_path / "a") as first:
        octavo.open(tmp_path / "c").close()
        with octavo.open(tmp_path / "b", read_only=True):
            assert [each for each in octavo.open_stores() if each not in before] == [first, second]
    assert octavo.open_stores() == before


def test_a_second_process_gets_store_locked(store) -> None:
    code = (
        "import octavo, sys\n"
        "try:\n    octavo.open(sys.argv[1])\nexcept octavo.StoreLocked:\n    print('locked')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, store.path], capture_output=True, text=True, check=True
    )
    assert done.stdout == "locked\n"


def test_calls_on_a_closed_store_raise_closed(tmp_path: Path) -> None:
    store = octavo.open(tmp_path / "s")
    store.put(b"k", b"v")
    store.close()
    store.close()
    calls = [
        lambda: store.put(b"k", b"v"),
        lambda: store.get(b"k"),
        lambda: store.head(b"k"),
        lambda: store.delete(b"k"),
        lambda: list(store.keys()),
        lambda: store.snapshot(),
        lambda: store.batch(),
        lambda: store.changes(),
        lambda: store.sync(),
        lambda: store.stats(),
        lambda: store.put_many([(b"a", b"b")]),
        lambda: store.put_many([]),
        lambda: store.delete_many([]),
        lambda: store.verify(),
        lambda: list(store.buckets()),
        lambda: store.put(b"k", b"v", metadata=b"m"),
    ]
    for call in calls:
        with pytest.raises(octavo.Closed):
            call()


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda s: s.put(b"", b"v"), "key is empty"),
        (lambda s: s.put(1, b"v"), "key is of type int"),
        (lambda s: s.put(b"k", 1), "value is of type int"),
        (lambda s: s.put(b"k" * 65537, b"v"), "65536"),
        (lambda s: s.bucket("b").put(b"k" * 65536, b"v"), "65536"),
        (lambda s: s.put(b"k", b"v", ttl=-1), "ttl=-1"),
        (lambda s: s.put(b"k", b"v", ttl=1, expires_at=2), "ttl and expires_at"),
        (lambda s: s.put(b"k", b"v", expires_at=datetime(2030, 1, 1)), "time zone"),
        (lambda s: s.put(b"k", b"v", expires_at=1_800_000_000), "looks like seconds"),
        (lambda s: s.put(b"k", b"v", metadata=5), "metadata is of type int"),
        (lambda s: s.put(b"k", b"v", metadata=b"m" * ((1 << 20) + 1)), "metadata of"),
        (lambda s: s.put(b"k", b"v", if_sqn=-1), "if_sqn=-1"),
        (lambda s: s.put(b"k", b"v", sync="yes"), "sync='yes'"),
        (lambda s: s.get(None), "key is of type NoneType"),
        (lambda s: s.keys(start=3), "start is of type int"),
        (lambda s: s.keys(prefix=3), "prefix is of type int"),
        (lambda s: s.keys(reverse=1), "reverse=1"),
        (lambda s: s.put_many([(b"k",)]), "pairs holds"),
        (lambda s: s.put_many([b"k"]), "pairs holds"),
        (lambda s: s.bucket(7), "bucket is of type int"),
        (lambda s: s.bucket(b"b" * 65536), "bucket name of 65536"),
        (lambda s: s.snapshot(lease_seconds=0), "lease_seconds=0"),
        (lambda s: s.changes(since=-1), "since=-1"),
        (lambda s: s.put("\udc80", b"v"), "key: "),
    ],
)
def test_misuse_names_the_argument_and_changes_nothing(store, call, names: str) -> None:
    with pytest.raises(octavo.Misuse) as raised:
        list(call(store))
    assert names in str(raised.value)
    assert store.last_sqn == 0


def test_an_option_of_put_that_is_not_there_is_told_of_put(store) -> None:
    with pytest.raises(TypeError, match=r"^Bucket.put\(\) got an unexpected .* 'tll'"):
        store.put(b"k", b"v", tll=3)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"nope": 1}, "unknown option 'nope'; known are: create"),
        ({"sinc": "always"}, "did you mean 'sync'?"),
        ({"readonly": True}, "did you mean 'read_only'?"),
        ({"head_only": True}, "mode='head_only'"),
        ({"sync": "sometimes"}, "sync='sometimes'"),
        ({"sync": 0}, "sync=0"),
        ({"roll_size_bytes": 5}, "roll_size_bytes=5"),
        ({"max_open_files": "many"}, "max_open_files='many'"),
        ({"create": 1}, "create=1"),
    ],
)
def test_a_bad_option_is_named_and_no_store_is_made(
    tmp_path: Path, options: dict, names: str
) -> None:
    with pytest.raises(octavo.Misuse) as raised:
        octavo.open(tmp_path / "s", **options)
    assert names in str(raised.value)
    assert not (tmp_path / "s").exists()


def test_a_directory_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(octavo.Misuse, match=r"letter\.txt"):
        octavo.open(tmp_path)
    with pytest.raises(octavo.Misuse, match="holds no store"):
        octavo.open(tmp_path / "none", create=False)


def test_a_key_of_64_kib_works(store) -> None:
    store.put(b"k" * 65536, b"v")
    assert store.get(b"k" * 65536) == b"v"
    assert list(store.keys()) == [b"k" * 65536]


def test_a_forked_child_refuses_to_use_the_parents_store(store) -> None:
    store.put(b"k", b"v")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.put(b"k", b"w")
        except octavo.Closed:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.put(b"k2", b"v2")
    assert store.get(b"k") == b"v"


def test_many_threads_put_and_get_what_they_put(store) -> None:
    failures: list[object] = []

    def work(number: int) -> None:
        for i in range(300):
            key = b"%d-%d" % (number, i)
            store.put(key, key * 3)
            if store.get(key) != key * 3:
                failures.append(key)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(store) == 1800
    assert sorted(c.sqn for c in store.changes()) == list(range(1, 1801))


def test_sync_always_and_interval_and_call_are_accepted(tmp_path: Path) -> None:
    for number, sync in enumerate(("always", 0.05, "none")):
        with octavo.open(tmp_path / f"s{number}", sync=sync) as store:
            store.put(b"k", b"v")
            store.put(b"k", b"v", sync=True)
            store.put_many([(b"a", b"b")], sync=True)
            store.delete(b"k", sync=True)
            with store.batch(sync=True) as batch:
                batch.put("", "z", b"1")
            store.sync()


def test_verify_finds_nothing_wrong_with_a_sound_store(store) -> None:
    filled(store)
    seen = []
    report = store.verify(progress=lambda what, done, total: seen.append((done, total)))
    assert report.ok, report.problems
    assert report.keys == len(store)
    assert seen[-1][0] == seen[-1][1]


def test_stats_are_plain_values(store) -> None:
    import json

    filled(store)
    assert json.loads(json.dumps(store.stats()))["last_sqn"] == 300
