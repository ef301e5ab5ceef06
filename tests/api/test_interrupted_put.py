"""Ctrl-C in the middle of a put: it is written and known, or neither; and the store goes on."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

import octavo

ROUNDS = 150
SEED = 5


@pytest.mark.parametrize("size", [100, 3000], ids=["plain", "compressed"])
def test_an_interrupted_put_leaves_memory_and_journal_alike(tmp_path: Path, size: int) -> None:
    print("seed", SEED)
    moments = random.Random(SEED)
    earlier = signal.signal(signal.SIGALRM, signal.default_int_handler)
    done = 0
    try:
        with octavo.open(tmp_path / "store", worker=False) as store:
            known: dict[bytes, bytes] = {}
            since = 0
            for _ in range(ROUNDS):
                with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it may come anywhere in it
                    while True:  # one that meets a callback of the interpreter is swallowed there
                        signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.0001, 0.0004))
                        for _ in range(300):
                            done += 1
                            store.put(b"%d" % (done % 40), (b"%d " % done).ljust(size, b"."))
                signal.setitimer(signal.ITIMER_REAL, 0)
                for change in store.changes(since):
                    known[change.key] = change.value
                    since = change.sqn
                assert since == store.last_sqn
                assert dict(store.items()) == known
                assert {key: store.get(key) for key in known} == known
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
