"""Ctrl-C in the middle of a put: it is written and known, or neither; and the store goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from ctrl_c import CtrlC

import octavo

ROUNDS = 150
SEED = 5


@pytest.mark.parametrize("size", [100, 3000], ids=["plain", "compressed"])
def test_an_interrupted_put_leaves_memory_and_journal_alike(tmp_path: Path, size: int) -> None:
    done = 0
    with CtrlC(SEED) as ctrl_c, octavo.open(tmp_path / "store", worker=False) as store:

        def put() -> None:
            nonlocal done
            done += 1
            store.put(b"%d" % (done % 40), (b"%d " % done).ljust(size, b"."))

        known: dict[bytes, bytes] = {}
        since = 0
        for _ in range(ROUNDS):
            ctrl_c.during(put, 0.0001, 0.0004, 300)
            for change in store.changes(since):
                assert change.value is not None
                known[change.key] = change.value
                since = change.sqn
            assert since == store.last_sqn
            assert dict(store.items()) == known
            assert {key: store.get(key) for key in known} == known
