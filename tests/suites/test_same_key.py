"""One key that is written again and again."""

from __future__ import annotations

import threading
from pathlib import Path

from beside import LITTLE, Beside, seeded, until, value

import octavo


def test_the_newest_version_is_read_after_every_write_and_every_life(tmp_path: Path) -> None:
    rng = seeded("versions")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for turn in range(5):
            for number in range(600):
                sqn = beside.put(b"", b"key", value(rng, rng.randrange(200)))
                if number % 10 == 0:
                    assert beside.store.get(b"key") == beside.content[b"", b"key"]
                    head = beside.store.head(b"key")
                    assert head is not None
                    assert head.sqn == sqn, turn
            assert len(beside.store) == 1
            beside.reopen()
            beside.check()


def test_a_few_hot_keys_take_little_room_after_compaction(tmp_path: Path) -> None:
    rng = seeded("hot")
    with Beside(tmp_path / "store", **LITTLE) as beside:
        for _ in range(6000):
            beside.put(b"", b"%d" % rng.randrange(5), value(rng, 300))
        before = beside.store.stats()["journal"]["sealed_bytes"]
        until(lambda: beside.store.stats()["journal"]["unsealed_files"] == 0, "files are sealed")
        done = beside.store.compact()
        assert done.records_dropped > 5000
        assert beside.store.stats()["journal"]["sealed_bytes"] < before / 10
        beside.check()
        beside.reopen()
        beside.check()


def test_versions_that_snapshots_need_stay_and_others_go(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store", **LITTLE) as store:
        snapshots = []
        for number in range(2000):
            store.put("key", str(number))
            if number % 100 == 0:
                snapshots.append((number, store.snapshot()))
        store.compact()
        for number, snapshot in snapshots:
            assert snapshot.get("key") == b"%d" % number
            snapshot.close()
        assert store.get("key") == b"1999"


def test_threads_that_count_with_conditions_lose_no_step(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store", **LITTLE) as store:
        store.put("count", "0")

        def add() -> None:
            for _ in range(150):
                while True:
                    head = store.head("count")
                    assert head is not None
                    with store.snapshot() as snapshot:
                        now = int(snapshot.get("count"))
                        found = snapshot.head("count")
                    try:
                        store.put("count", str(now + 1), if_sqn=found.sqn)
                        break
                    except octavo.Conflict:
                        continue

        threads = [threading.Thread(target=add) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.get("count") == b"450"


def test_a_reopening_after_overwrites_starts_no_background_job(tmp_path: Path) -> None:
    with Beside(tmp_path / "store") as beside:
        for _ in range(100):
            beside.put(b"", b"key", b"v")
        beside.reopen()
        stats = beside.store.stats()
        assert stats["jobs"]["totals"] == {}
        assert stats["replayed_at_open"] == 100
        beside.check()
