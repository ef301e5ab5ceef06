"""Many objects are put, by several threads, and every one is fetched, by every way of reading."""

from __future__ import annotations

import threading
from pathlib import Path

from beside import Beside, seeded, value

import octavo

THREADS = 4


def test_many_threads_put_and_everything_is_fetched(tmp_path: Path) -> None:
    rng = seeded("threads")
    shares = [
        {b"%d/%05d" % (thread, number): value(rng, rng.randrange(400)) for number in range(4000)}
        for thread in range(THREADS)
    ]
    everything = {key: what for share in shares for key, what in share.items()}
    options = {"push_rows": 2048, "roll_size_bytes": 1 << 20}
    with octavo.open(tmp_path / "store", **options) as store:
        wrong: list[object] = []

        def put(share: dict[bytes, bytes]) -> None:
            for number, (key, what) in enumerate(share.items()):
                store.put(key, what)
                if number % 50 == 0 and store.get(key) != what:
                    wrong.append(key)

        threads = [threading.Thread(target=put, args=(share,)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        keys = list(everything)
        rng.shuffle(keys)
        assert [store.get(key) for key in keys] == [everything[key] for key in keys]
        assert store.get_many(keys) == [everything[key] for key in keys]
    with octavo.open(tmp_path / "store", **options) as store:
        assert dict(store.items()) == everything
        assert [store.get(key) for key in keys[:4000]] == [everything[key] for key in keys[:4000]]


def test_rounds_of_puts_are_each_fetched(tmp_path: Path) -> None:
    rng = seeded("rounds")
    with Beside(tmp_path / "store", push_rows=1000, roll_size_bytes=1 << 20) as beside:
        for turn in range(6):
            pairs = [(b"%06d" % rng.randrange(50_000), value(rng, 300)) for _ in range(2000)]
            beside.put_many(b"", pairs)
            sample = rng.sample(sorted(beside.content), 500)
            for _, key in sample:
                assert beside.store.get(key) == beside.content[b"", key]
            assert all(beside.store.get(b"absent-%d" % number) is None for number in range(200))
            print("round", turn, "holds", len(beside.content))
        beside.reopen()
        assert dict(beside.store.items()) == beside.of(b"")
        beside.sound()
