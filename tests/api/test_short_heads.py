"""The first heads of a scan, which are looked up by their keys, are those that all of them are."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from whole_store import Clock, flush, opened

import octavo
from octavo.actors import reader
from octavo.actors.bookie import Bookie

SEED = int(os.environ.get("OCTAVO_SEED", "1"))
KEYS = [b"%03d" % number for number in range(120)]
NOW = 1_700_000_000_000


def changed(bucket: octavo.Bucket, rng: random.Random, times: int) -> None:
    for _ in range(times):
        key = rng.choice(KEYS)
        if rng.random() < 0.25:
            bucket.delete(key)
        else:
            ttl = rng.choice([None, None, 1, 1000])
            bucket.put(key, rng.randbytes(9), metadata=rng.randbytes(rng.randrange(9)), ttl=ttl)


@pytest.mark.parametrize("case", range(12))
def test_few_heads_are_the_first_of_all(tmp_path: Path, case: int) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(f"{SEED} {case}")
    clock = Clock(NOW)
    with opened(tmp_path / "s", clock_ms=lambda: int(clock.now), push_rows=1 << 16) as store:
        bucket = store.bucket(b"b\x00")
        for step in rng.choices(["push", "flush", "nothing"], k=3):
            changed(bucket, rng, 60)
            if step == "push":
                store._running.bookie.call(Bookie.push)
            elif step == "flush":
                flush(store)
        with store.snapshot() as snapshot:
            changed(bucket, rng, 40)  # what the snapshot needs is set aside
            clock.now += 2000
            for where in (bucket, snapshot.bucket(b"b\x00"), bucket):
                for reverse in (False, True):
                    every = [(key, where.head(key)) for key in sorted(KEYS, reverse=reverse)]
                    every = [(key, head) for key, head in every if head is not None]
                    assert list(where.heads(reverse=reverse)) == every
                    for limit in (1, 3, 4, 5, 16, 17, 32, 33):
                        found = where.heads(reverse=reverse, limit=limit)
                        assert list(found) == every[:limit]
                        if len(every) > limit:
                            rest = where.heads(reverse=reverse, resume=found.position)
                            assert list(rest) == every[limit:]


@pytest.mark.parametrize("mode", ["standard", "head_only"])
def test_a_snapshot_that_is_closed_as_its_heads_are_looked_up_says_so(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_fields = reader.plain_fields
    with opened(tmp_path / "s", mode=mode) as store:
        of_heads = mode == "head_only"
        bucket = store.head_bucket("b") if of_heads else store.bucket("b")
        bucket.put("k", b"old")
        snapshot = store.snapshot()
        bucket.put("k", b"new")

        def closed_meanwhile(tag: int, name: bytes) -> bytes:
            snapshot.close()  # as another thread may: what was set aside for it goes
            return plain_fields(tag, name)

        monkeypatch.setattr(reader, "plain_fields", closed_meanwhile)
        scan = snapshot.head_bucket("b").rows() if of_heads else snapshot.bucket("b").heads()
        with pytest.raises(octavo.Closed, match="snapshot was closed"):
            next(scan)
