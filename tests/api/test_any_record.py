"""Whatever a put says beside its value, every read of a value finds that, wherever it is."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from whole_store import flush

import octavo
from octavo.actors.bookie import Bookie

KEYS = 400
SAID: tuple[dict[str, Any], ...] = (
    {},
    {"metadata": b"m"},
    {"metadata": b"meta" * 500},
    {"ttl": 3600},
    {"index": {"f": 1}},
    {"index": {"f": [1, 2], "g": "term"}, "metadata": b"m", "ttl": 3600},
)
Wanted = dict[bytes, bytes]


def filled(store: octavo.Store, seed: int) -> dict[str, Wanted]:
    """Puts of all kinds in two buckets, by themselves and in batches; what is there then."""
    rng = random.Random(f"any record {seed}")
    values = (b"", b"v" * 30, rng.randbytes(50), rng.randbytes(3000), b"text " * 1000)
    wanted: dict[str, Wanted] = {"": {}, "other": {}}
    for _ in range(KEYS):
        with store.batch() as batch:
            for _ in range(rng.choice((1, 1, 2, 3))):
                name, value, said = rng.choice(("", "other")), rng.choice(values), rng.choice(SAID)
                # One key begins as another goes on: with metadata behind it they look alike.
                key = b"k" * rng.randrange(1, 4) + b"%d" % rng.randrange(KEYS)
                key += b"m" * rng.randrange(3)
                wanted[name][key] = value
                batch.put(name, key, value, **said)
        name, key, value = rng.choice(("", "other")), b"k%d" % rng.randrange(KEYS), b"alone"
        wanted[name][key] = value
        store.bucket(name).put(key, value, **rng.choice(SAID))
    return wanted


def same(source: Any, wanted: dict[str, Wanted]) -> None:
    for name, rows in wanted.items():
        bucket, keys = source.bucket(name), sorted(rows)
        assert [bucket.get(key) for key in keys] == [rows[key] for key in keys]
        assert bucket.get_many(keys) == [rows[key] for key in keys]
        assert list(bucket.items()) == [(key, rows[key]) for key in keys]
        for low in range(0, len(keys), 50):  # short scans
            found = list(bucket.items(start=keys[low], limit=20))
            assert found == [(key, rows[key]) for key in keys[low : low + 20]]
        for key in keys:
            for other in (key + b"m", key[:-1]):
                if other and other not in rows:
                    assert bucket.get(other) is None


@pytest.fixture(params=[0, 1 << 20], ids=["no cache", "cache"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"read_cache_bytes": request.param, "worker": False}


@pytest.mark.parametrize("where", ["memory", "frozen memory", "the ledger", "a sealed file"])
@pytest.mark.parametrize("seed", range(2))
def test_every_read_gives_the_value_of_any_put(
    tmp_path: Path, options: dict[str, Any], where: str, seed: int
) -> None:
    print("seed", seed)
    store = octavo.open(tmp_path / "s", **options)
    if where == "frozen memory":
        store._bookie.clerk = None  # it stays so
    wanted = filled(store, seed)
    if where == "frozen memory":
        store._bookie.actor_ref.call(Bookie.push)
        assert store._bookie.view.frozen
    elif where == "the ledger":
        flush(store)
        assert store._bookie.view.ledger.levels
    elif where == "a sealed file":
        store.backup(tmp_path / "b")  # seals the file that is being written
        store.close()
        store = octavo.open(tmp_path / "b", **options)
    with store:
        same(store, wanted)
        with store.snapshot() as snapshot:
            same(snapshot, wanted)
            store.put("k0", b"later")
            store.bucket("other").put("k0", b"later")
            same(snapshot, wanted)
