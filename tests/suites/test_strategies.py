"""Recovery strategies and the way from one to another: what a compaction leaves, what a lost
ledger is rebuilt to."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from whole_store import SEED, flush, opened

import octavo
from octavo import Tag
from octavo.files.journal import record

SMALL = {"roll_size_bytes": 1 << 20, "roll_count": 256}


def version(number: int) -> Tag:
    """Functions of a type as they were in one release of a program."""
    return Tag(
        metadata=lambda key, value: b"%d:%s" % (number, value[:3]),
        index=lambda key, value: {f"v{number}": value[-1:], "size": len(value)},
    )


def work(store: octavo.Store, rng: random.Random, rounds: int = 900) -> None:
    """Puts, overwrites and deletes of a standard and a user-defined type."""
    for i in range(rounds):
        key = b"%03d" % rng.randrange(90)
        for tag in ("standard", "doc"):
            bucket = store.bucket("b", tag=tag)
            if rng.random() < 0.15:
                bucket.delete(key)
            elif tag == "doc":
                bucket.put(key, b"doc %d" % i)
            else:
                bucket.put(key, b"obj %d" % i, metadata=b"m%d" % i, index={"f": [i % 9, "x"]})


def state(store: octavo.Store) -> dict[str, Any]:
    """All that a reader can see, but what functions of the type say."""
    out: dict[str, Any] = {}
    for tag in ("standard", "doc"):
        bucket = store.bucket("b", tag=tag)
        out[tag] = list(bucket.items())
        out[tag, "sqn"] = [(key, head.sqn, head.written_at) for key, head in bucket.heads()]
    standard = store.bucket("b")
    out["metadata"] = [(key, head.metadata) for key, head in standard.heads()]
    out["f"] = list(standard.index("f").range())
    return out


def derived(store: octavo.Store) -> list:
    """What functions of the type said."""
    bucket = store.bucket("b", tag="doc")
    return [
        [(key, head.metadata) for key, head in bucket.heads()],
        *(list(bucket.index(field).range()) for field in ("v1", "v2", "size")),
    ]


def by_version(store: octavo.Store, number: int) -> list:
    """What functions of a version say of what is there."""
    items = list(store.bucket("b", tag="doc").items())
    ends = sorted((value[-1:], key) for key, value in items)
    return [
        [(key, b"%d:%s" % (number, value[:3])) for key, value in items],
        ends if number == 1 else [],
        ends if number == 2 else [],
        sorted((len(value), key) for key, value in items),
    ]


@pytest.mark.parametrize("strategy", ["recovr", "retain", "recalc"])
def test_a_rebuild_after_compaction(tmp_path: Path, strategy: str) -> None:
    path = tmp_path / "s"
    strategies = {"doc": strategy, "standard": "retain" if strategy == "retain" else "recovr"}
    with opened(path, tags={"doc": version(1)}, strategies=strategies, **SMALL) as store:
        work(store, random.Random(SEED))
        store.compact()
        before, said = state(store), derived(store)
        assert said == by_version(store, 1)
        assert store.verify().ok
    shutil.rmtree(path / "ledger")
    with opened(path, tags={"doc": version(2)}, **SMALL) as store:
        assert state(store) == before
        assert derived(store) == (by_version(store, 2) if strategy == "recalc" else said)
        assert store.verify().ok


@pytest.mark.parametrize("strategy", ["recovr", "retain"])
def test_retain_keeps_a_key_delta_of_each_key_and_recovr_none(
    tmp_path: Path, strategy: str
) -> None:
    with opened(tmp_path / "s", strategies={"standard": strategy}, **SMALL) as store:
        for number in range(30):
            for i in range(50):
                store.put(b"%02d" % i, b"v%d" % number, metadata=b"m%d" % number)
        store.compact()
        kinds = [
            file.header(sqn).kind
            for file in store._inker.view.files
            for sqn in file.sqns(0, store.last_sqn)
        ]
        deltas = kinds.count(record.KEY_DELTA)
        assert kinds.count(record.PUT) >= 50
        assert deltas == 0 if strategy == "recovr" else 0 < deltas <= 100
        assert dict(store.items()) == {b"%02d" % i: b"v29" for i in range(50)}


def test_transitions_of_a_store_that_lives_on(tmp_path: Path) -> None:
    """recovr, retain, recalc and back: work, compaction and a lost ledger under each."""
    path, rng = tmp_path / "s", random.Random(SEED + 1)
    said: list = []
    steps = ["recovr", "retain", "recalc", "retain", "recovr", "recalc"]
    for at, strategy in enumerate(steps):
        release = 1 + at % 2
        chosen = {"doc": strategy, "standard": "recovr" if strategy == "recalc" else strategy}
        with opened(path, tags={"doc": version(release)}, strategies=chosen, **SMALL) as store:
            work(store, rng, 400)
            flush(store)
            store.compact()
            work(store, rng, 30)
            before, said = state(store), derived(store)
            assert store.verify().ok
        with opened(path, tags={"doc": version(release)}, **SMALL) as store:
            assert (state(store), derived(store)) == (before, said)
        shutil.rmtree(path / "ledger")
        with opened(path, tags={"doc": version(release)}, **SMALL) as store:
            assert state(store) == before
            assert derived(store) == (by_version(store, release) if strategy == "recalc" else said)
            assert store.verify().ok
