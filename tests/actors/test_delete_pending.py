"""When a replaced ledger file may go."""

from __future__ import annotations

from pathlib import Path

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.penciller import Penciller


def test_a_sweep_between_a_merge_and_the_bookies_new_view_takes_no_file(tmp_path: Path) -> None:
    # A snapshot that ended just then swept files which the next snapshot's view still named.
    with octavo.open(tmp_path / "s", push_rows=64, push_bytes=64 << 10, worker=False) as store:
        clerk = store._running.clerk.actor
        penciller = store._running.penciller
        told = clerk.on_change

        def swept_first(manifest: object, saved: object) -> int:
            if saved is None:
                penciller.call(Penciller.sweep)
                with store.snapshot() as snap:
                    counted.append(len(snap) == len(keys))
            return told(manifest, saved)

        keys: set[bytes] = set()
        counted: list[bool] = []
        clerk.on_change = swept_first
        for i in range(6):
            fresh = [b"%d" % (j * (i + 1)) for j in range(100)]
            keys.update(fresh)
            store.put_many((key, b"v") for key in fresh)
            store._running.bookie.call(Bookie.push)
            while penciller.call(Penciller.next_task) is not None:
                clerk.enter()  # serves its inbox: the work itself
                clerk.leave()
        assert store.stats()["ledger"]["rows_merged"] > 0
        assert counted
        assert all(counted)
