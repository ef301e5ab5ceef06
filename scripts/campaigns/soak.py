"""Mixed work on one store, as long as you let it: right, verified, no growth in what it holds.

A writer, two readers and a thread that compacts, backs up, publishes and takes snapshots. After
each case all contents are compared with a dict, memory with that of the first cases, and
descriptors and threads with fixed bounds; every tenth verifies the store and opens its backup. A
case continues with the store of the case before, if the same process ran that.
"""

from __future__ import annotations

import atexit
import gc
import os
import random
import shutil
import tempfile
import threading
from pathlib import Path

import octavo

CASE_SECONDS = 1800
STEPS = 12_000
KEYS = 20_000
WARM = 5
"""Cases after which memory has what it needs."""
MOST_GROWTH_BYTES = 96 << 20
MOST_DESCRIPTORS = 160
OPTIONS = {
    "push_rows": 4096,
    "push_bytes": 4 << 20,
    "roll_count": 16384,
    "roll_size_bytes": 8 << 20,
    "read_cache_bytes": 8 << 20,
    "max_open_files": 64,
    "compact_every_seconds": 20.0,
}
_soaks: dict[int, Soak] = {}


def resident_bytes() -> int:
    """Memory of this process that is its own, files aside."""
    pages = Path("/proc/self/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Soak:
    def __init__(self, seed: int) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="octavo-soak-"))
        atexit.register(self.close)
        self.store = octavo.open(self.home / "s", **OPTIONS)
        self.model: dict[bytes, bytes] = {}
        self.seed = seed
        self.memory: list[int] = []
        self.descriptors: list[int] = []
        self.threads: list[int] = []
        self.stop = threading.Event()
        self.failures: list[str] = []
        self.counts: dict[str, int] = {}

    def close(self) -> None:
        self.store.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # ------------------------------------------------------------ the threads

    def write(self, rng: random.Random, steps: int) -> None:
        store, model = self.store, self.model
        for _ in range(steps):
            key = b"%05d" % rng.randrange(KEYS)
            what = rng.random()
            if what < 0.7:
                size = rng.choice((20, 100, 100, 1000, 4000))
                value = key + rng.randbytes(size // 2) + bytes(size // 2)
                store.put(key, value, index={"f": rng.randrange(50)} if what < 0.2 else None)
                model[key] = value
            elif what < 0.85:
                store.delete(key)
                model.pop(key, None)
            elif what < 0.9:
                with store.batch() as batch:
                    for n in range(5):
                        other = b"%05d" % ((int(key) + n) % KEYS)
                        batch.put(b"", other, b"batch of " + key + b"%d" % n)
                        model[other] = b"batch of " + key + b"%d" % n
            else:
                pairs = {b"%05d" % rng.randrange(KEYS): rng.randbytes(80) for _ in range(20)}
                store.put_many(pairs)
                model.update(pairs)

    def read(self, luck: str) -> None:
        rng = random.Random(luck)
        while not self.stop.is_set():
            key = b"%05d" % rng.randrange(KEYS)
            what = rng.random()
            if what < 0.9:
                value = self.store.get(key)
                if value is not None and not value.startswith(b"batch") and len(value) != 80:
                    self._expect(value.startswith(key), f"{key!r} has the value of another")
            elif what < 0.94:
                few = list(self.store.items(start=key, limit=20))
                self._expect(few == sorted(few), "items out of order")
                list(self.store.index("f").range(limit=3))
                list(self.store.keys(prefix=key[:3]))
            elif what < 0.97:
                found = [key for key, _ in zip(self.store.keys(start=key), range(50), strict=False)]
                self._expect(found == sorted(found), "keys out of order")
            else:
                with self.store.snapshot() as snap:
                    one = {k: v for k, v, _ in _first(snap, key)}
                    two = {k: v for k, v, _ in _first(snap, key)}
                    self._expect(one == two, "a snapshot changed")
            self.count("reads")

    def keep_house(self, luck: str) -> None:
        rng = random.Random(luck)
        while not self.stop.is_set():
            what = rng.choice(("compact", "backup", "publish", "index", "stats", "wait"))
            try:
                if what == "compact":
                    self.store.compact()
                elif what == "backup":
                    self.store.backup(self.home / "b")
                elif what == "publish":
                    with self.store.snapshot() as snap:
                        snap.publish().release()
                elif what == "index":
                    sum(1 for _ in self.store.index("f").range(3, 9))
                elif what == "stats":
                    self.store.stats()
                else:
                    self.stop.wait(rng.uniform(0, 0.5))
            except octavo.Busy:
                continue
            self.count(what)

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise AssertionError(otherwise)

    def _guarded(self, work: object, luck: str) -> None:
        try:
            work(luck)  # type: ignore[operator]
        except Exception as error:  # noqa: BLE001 (raised by the case)
            self.failures.append(f"{work}: {error!r}")

    # ------------------------------------------------------------ a case

    def case(self, number: int) -> dict[str, int]:
        self.counts = {}
        self.stop.clear()
        luck = f"{self.seed} {number}"
        threads = [
            threading.Thread(target=self._guarded, args=(work, f"{luck} {n}"), daemon=True)
            for n, work in enumerate((self.read, self.read, self.keep_house))
        ]
        for thread in threads:
            thread.start()
        try:
            self.write(random.Random(luck), STEPS)
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()
        self._expect(not self.failures, "; ".join(self.failures))
        self._expect(dict(self.store.items()) == self.model, "the contents differ from the model")
        if number % 10 == 9:
            report = self.store.verify()
            self._expect(report.ok, f"verify: {report.problems}")
            self.store.backup(self.home / "b")
            with octavo.open(self.home / "b") as backup:
                self._expect(dict(backup.items()) == self.model, "the backup differs")
        if number % 25 == 24:
            self.store.close()
            self.store = octavo.open(self.home / "s", **OPTIONS)
        self._weigh()
        return {"writes": STEPS, **self.counts}

    def _weigh(self) -> None:
        gc.collect()
        self.memory.append(resident_bytes())
        self.descriptors.append(descriptors())
        self.threads.append(threading.active_count())
        first = max(self.memory[:WARM])
        self._expect(
            self.memory[-1] < first + MOST_GROWTH_BYTES,
            f"memory grew from {first:,} to {self.memory[-1]:,} bytes: {self.memory[-50:]}",
        )
        self._expect(
            self.descriptors[-1] <= MOST_DESCRIPTORS, f"descriptors: {self.descriptors[-50:]}"
        )
        self._expect(self.threads[-1] <= 12, f"threads: {self.threads[-50:]}")
        if len(self.memory) % 10 == 0:
            print(
                f"  memory {self.memory[-1] >> 20} MiB (highest {max(self.memory) >> 20}, first "
                f"{first >> 20}), {self.descriptors[-1]} descriptors, {self.threads[-1]} threads",
                flush=True,
            )


def _first(snap: octavo.Snapshot, start: bytes) -> list[tuple[bytes, bytes, int]]:
    found = zip(snap.items(start=start), range(20), strict=False)
    return [(key, value, number) for (key, value), number in found]


def case(seed: int, number: int) -> dict[str, int]:
    soak = _soaks.get(seed)
    if soak is None:
        soak = _soaks[seed] = Soak(seed)
    try:
        return soak.case(number)
    except BaseException:
        del _soaks[seed]
        atexit.unregister(soak.close)
        soak.close()
        raise
