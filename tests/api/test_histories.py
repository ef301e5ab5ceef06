"""Many threads on few keys, beside compaction, backups, snapshots and a close: for each key there
is an order of its calls that explains every answer."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from calling_threads import OPTIONS, Threads, name_of
from histories import READS, Call, wrong

import octavo
from octavo.files.journal.short_value import ALL_EXPIRED

SEED = os.environ.get("OCTAVO_SEED", "20261121")


def test_calls_of_many_threads_have_an_order(tmp_path: Path) -> None:
    print(f"OCTAVO_SEED={SEED}")
    with octavo.open(tmp_path / "s", **OPTIONS) as store:
        history = Threads(store, SEED).run(
            [store.compact, lambda: store.backup(tmp_path / "b"), lambda: store.snapshot().close()]
        )
        assert wrong(history) == []
        assert len([call for call in history if call.condition is not None]) > 20
        newest = {}
        for call in sorted(history, key=lambda call: call.sqn):
            if call.kind not in READS:
                newest[call.key] = call.value
        found = {key: name_of(store.get(key)) for key in newest}
        assert found == newest
        assert store.verify().ok


def test_what_was_answered_before_a_close_is_there(tmp_path: Path) -> None:
    store = octavo.open(tmp_path / "s", **OPTIONS)
    threads = Threads(store, SEED, calls=100_000)
    begun = threading.Event()

    def close() -> None:
        while sum(map(len, threads.noted)) < 500:
            begun.wait(0.001)
        store.close()

    history = threads.run([close])
    assert wrong(history) == []
    with octavo.open(tmp_path / "s", **OPTIONS) as store:
        for key in {call.key for call in history}:
            writes = [call for call in history if call.key == key and call.kind not in READS]
            last = max(writes, key=lambda call: call.sqn, default=NEVER)
            cut_short = [some[key] for some in threads.unanswered.values() if key in some]
            possible = [last.value, *cut_short, None] if cut_short else [last.value]
            assert last.sqn == 0 or name_of(store.get(key)) in possible


def test_a_read_that_meets_a_roll_looks_again(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", roll_count=256, worker=False) as store:
        store.put(b"k", b"old")
        bookie, views = store._bookie, []

        def read(view: object) -> object:
            if not views:  # memory is the same, the journal has gone on in another file
                store.put_many((b"%d" % n, b"v") for n in range(300))
                store.put(b"k", b"new")
            views.append(view)
            return view.get(store._prefix + b"k", 1 << 63, 0)  # type: ignore[attr-defined]

        assert bookie._retried(read)[0] == b"new"
        assert len(views) == 2
        assert store.stats()["notes"] == []


def test_a_short_read_of_memory_that_meets_a_roll_looks_again(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", roll_count=256, worker=False) as store:
        store.put(b"k", b"old")
        bookie = store._bookie
        view = bookie.view
        store.put_many((b"%d" % n, b"v") for n in range(300))
        sqn = store.put(b"k", b"newer")  # the table of that view tells of it, its files do not
        asked = (store._prefix + b"k", b"k", store._plain)
        assert bookie._get_from_memory(view, sqn, *asked) == b"newer"
        assert bookie._head_from_memory(view, sqn, *asked, ALL_EXPIRED).size == 5
        assert store.stats()["notes"] == []


PUT = Call(b"k", "put", 1, 4, b"a", 1)
INDEXED = PUT._replace(indexed=True)
NEVER = Call(b"k", "delete", 0, 0, None)


@pytest.mark.parametrize(
    "history",
    [
        [PUT, Call(b"k", "get", 5, 6, None)],
        [PUT, Call(b"k", "get", 5, 6, b"other")],
        [PUT, Call(b"k", "put", 5, 8, b"b", 2), Call(b"k", "get", 9, 10, b"a")],
        [Call(b"k", "get", 1, 2, b"a"), Call(b"k", "put", 3, 4, b"a", 1)],
        [Call(b"k", "put", 1, 2, b"a", 9), Call(b"k", "put", 3, 4, b"b", 8)],
        [PUT, Call(b"k", "put", 5, 6, b"b", 2, condition=0)],
        [PUT, PUT],
        [PUT, Call(b"k", "put", 5, 8, b"b", 2), Call(b"k", "head", 9, 10, None, 1)],
        [PUT, Call(b"k", "key", 5, 6, None)],
        [PUT, Call(b"k", "entry", 5, 6, b"a")],
        [INDEXED, Call(b"k", "entry", 5, 6, None)],
        [INDEXED, Call(b"k", "behind", 5, 6, b"b")],
        [INDEXED, Call(b"k", "before", 5, 6, b"a")],
        [
            PUT, Call(b"l", "put", 5, 8, b"b", 2),
            Call(b"k", "get", 2, 9, None, moment=2), Call(b"l", "get", 2, 9, b"b", moment=2),
        ],
    ],
    ids=[
        "lost", "invented", "stale", "foreseen", "order", "condition", "twice", "stale head",
        "lost key", "invented entry", "lost entry", "behind", "before", "moment",
    ],
)  # fmt: skip
def test_the_check_of_histories_has_teeth(history: list[Call]) -> None:
    assert wrong(history) != []


def test_calls_at_the_same_time_may_happen_in_either_order() -> None:
    overlapping = [PUT, Call(b"k", "get", 2, 3, None), Call(b"k", "get", 2, 3, b"a")]
    assert wrong(overlapping) == []
    one = [PUT, INDEXED._replace(key=b"l", sqn=2), Call(b"k", "get", 2, 9, b"a", moment=2)]
    assert wrong([*one, Call(b"l", "behind", 2, 9, b"a", moment=2)]) == []
