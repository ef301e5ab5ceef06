"""Checks bounds that Octavo must keep by itself: bytes written, latencies, syncs, opening, memory.

    python scripts/bench/limits.py [--only NAME,...] [--scale 1.0] [--json OUT] [DIRECTORY]

Each measure runs in a process of its own, on a store of its own, and prints what was measured
beside its bound; an exclamation mark marks a bound that was missed. Scale 1 takes minutes, and 3 GB
of disk. `load`, twenty million puts over ten minutes, is measured only if --only names it. Beside
it runs a witness, a process without Octavo that wakes every millisecond and appends 128 bytes to a
file: its waits are the machine's doing. growth.py, the other half, measures what changes with size.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from octavo_adapter import READ_CACHE_BYTES
from workload import Values, directory, key, settle

_FSYNC_SECONDS = 500e-6
_LOAD_PUTS, _LOAD_SECONDS = 20_000_000, 600.0
_PIECE = 1000
_STALL = 0.05
_WITNESS = """
import json, os, sys, time
clock, stalls = time.monotonic, []
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
print(flush=True)
began = clock()
while os.getppid() == int(sys.argv[2]):
    time.sleep(0.001)
    os.write(file, bytes(128))
    now = clock()
    if now - began > 0.02:
        print(json.dumps([began, now]), flush=True)
    began = now
"""


class Figure(NamedTuple):
    """What was measured beside its bound; ``None``: there is none, and it is shown for
    comparison."""

    what: str
    measured: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def missed(self) -> bool:
        """Whether the bound does not hold."""
        over = self.at_most is not None and self.measured > self.at_most
        return over or (self.at_least is not None and self.measured < self.at_least)


def open_store(path: Path, **options: Any) -> Any:
    """A store with the benchmark's options."""
    import octavo

    return octavo.open(path, **{"read_cache_bytes": READ_CACHE_BYTES} | options)


def fill(store: Any, values: Values, count: int, group: int = 1000) -> None:
    """Put the keys numbered [0, count), in groups."""
    for at in range(0, count, group):
        numbers = range(at, min(at + group, count))
        store.put_many((key(number), values.of(number)) for number in numbers)


def fill_buckets(store: Any, values: Values, count: int) -> None:
    """Put the same one by one, in a hundred buckets by turns; every second one has metadata."""
    buckets = [store.bucket(f"bucket {number}") for number in range(100)]
    for number in range(count):
        metadata = b"some metadata" if number & 1 else b""
        buckets[number % 100].put(key(number), values.of(number), metadata=metadata)


def microseconds(work: Callable[[], object]) -> float:
    """How long that takes."""
    began = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began) / 1e3


def written_bytes() -> int:
    """Bytes of pages dirtied by this process and by children that ended."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def disk_bytes(path: Path) -> int:
    """Blocks taken by the files below a directory, hard links once."""
    found = {(s.st_dev, s.st_ino): s.st_blocks * 512 for p in path.rglob("*") if (s := p.stat())}
    return sum(found.values())


# ------------------------------------------------------------------ the measures


def amplification(place: Path, scale: float) -> Iterator[Figure]:
    """Random load, 30 % overwritten, everything merged."""
    for size, count, bound in (
        (128, 500_000, 2.0), (1024, 200_000, 1.15), (8192, 25_000, 1.0), (65536, 3_000, 1.0)
    ):  # fmt: skip
        count = int(count * scale)
        values = Values(size)
        before = written_bytes()
        store = open_store(place / str(size))
        for number in range(count):
            store.put(key(number), values.of(number))
        for number in random.Random(2).sample(range(count), count * 3 // 10):
            store.put(key(number), values.of(number + 1))
        settle(store)
        store.close()
        put = count * 13 // 10 * (size + 16)
        yield Figure(f"bytes written / put, {size} B", (written_bytes() - before) / put, bound)


def space(place: Path, scale: float) -> Iterator[Figure]:
    """A third overwritten, then compacted."""
    count = int(200_000 * scale)
    values = Values(1024)
    store = open_store(place / "store")
    fill(store, values, count)
    for number in range(0, count, 3):
        store.put(key(number), values.of(number + 1))
    store.compact()
    store.close()
    ratio = disk_bytes(place / "store") / (count * 1040)
    yield Figure("disk / live after compaction, 1 KiB", ratio, 0.75)


def latencies(place: Path, scale: float) -> Iterator[Figure]:
    """Single puts while merging and compaction run, then gets."""
    count = int(600_000 * scale)
    values = Values(1024)
    store = open_store(place / "store", compact_every_seconds=1.0)
    chance = random.Random(3)
    clock, put, taken = time.perf_counter_ns, store.put, []
    for _ in range(0, count, _PIECE):
        numbers = [chance.randrange(count // 6) for _ in range(_PIECE)]
        pairs = [(key(number), values.of(number)) for number in numbers]
        before = clock()
        for each, value in pairs:
            put(each, value)
            now = clock()
            taken.append(now - before)
            before = now
    taken.sort()
    yield Figure("put p50 us, 1 KiB", taken[len(taken) // 2] / 1e3)
    yield Figure("put p99 us, 1 KiB", taken[int(len(taken) * 0.99)] / 1e3, 30)
    yield Figure("put p99.9 us, 1 KiB", taken[int(len(taken) * 0.999)] / 1e3, 300)
    jobs = store.stats()["jobs"]["totals"]
    yield Figure("merges meanwhile", jobs.get("merge", {}).get("runs", 0), at_least=1)
    yield Figure("compactions meanwhile", jobs.get("compact", {}).get("runs", 0), at_least=1)
    get, found = store.get, 0
    taken.clear()
    for number in (chance.randrange(count // 6) for _ in range(count // 2)):
        asked = key(number)
        before = clock()
        found += get(asked) is not None
        taken.append(clock() - before)
    taken.sort()
    yield Figure("get p99.9 us, 1 KiB", taken[int(len(taken) * 0.999)] / 1e3, 100)
    yield Figure("keys found", found, at_least=1)
    store.close()


def syncs(place: Path, scale: float) -> Iterator[Figure]:
    """Durable puts from eight threads where an fsync takes 500 us."""
    calls = [0]

    def slow(sync: Callable[[Any], None]) -> Callable[[Any], None]:
        def call(descriptor: Any) -> None:
            began = time.perf_counter()
            calls[0] += 1
            sync(descriptor)
            time.sleep(max(0.0, _FSYNC_SECONDS - (time.perf_counter() - began)))

        return call

    os.fsync, os.fdatasync = slow(os.fsync), slow(os.fdatasync)  # type: ignore[assignment]
    count = max(800, int(4000 * scale))
    value = Values(1024).of(1)
    store = open_store(place / "store", sync="always")

    def puts(thread: int, each: int) -> None:
        for number in range(each):
            store.put(key(thread * count + number), value)

    puts(9, 200)
    one = count / 4 / (microseconds(lambda: puts(8, count // 4)) / 1e6)
    before = calls[0]
    threads = [threading.Thread(target=puts, args=(n, count // 8)) for n in range(8)]

    def all_of_them() -> None:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    eight = count // 8 * 8 / (microseconds(all_of_them) / 1e6)
    yield Figure("durable puts/s, one thread", one)
    yield Figure("fsyncs a put, 8 threads", (calls[0] - before) / (count // 8 * 8), 0.25)
    yield Figure("8 threads / one thread", eight / one, at_least=4)
    store.close()


def keeping(place: Path, scale: float) -> Iterator[Figure]:
    """Snapshot, backup, opening after a close and after a kill, rebuild."""
    count = int(200_000 * scale)
    path = place / "store"
    values = Values(1024)
    store = open_store(path)
    fill(store, values, count)
    settle(store)
    taken = []
    for _ in range(200):
        began = time.perf_counter_ns()
        snapshot = store.snapshot()
        taken.append((time.perf_counter_ns() - began) / 1e3)
        snapshot.close()
    yield Figure("snapshot us", statistics.median(taken), 50)
    store.backup(place / "first")  # seals the active file
    store.put("one", "more")
    before = written_bytes()
    taken = [
        microseconds(lambda each=each: store.backup(place / f"b{each}")) / 1e3  # type: ignore[misc]
        for each in range(5)
    ]
    yield Figure("backup ms, 1 KiB", statistics.median(taken), 20)
    yield Figure("bytes a backup writes", (written_bytes() - before) / 5, 1 << 20)
    store.close()
    taken = []
    for _ in range(5):
        began = time.perf_counter_ns()
        store = open_store(path)
        taken.append((time.perf_counter_ns() - began) / 1e6)
        store.close()
    yield Figure("opening ms, after a close", statistics.median(taken), 50)
    for size, what in ((1024, ""), (128, ""), (128, " in 100 buckets, half with metadata")):
        yield from _killed(place / f"killed{size}{len(what)}", size, what, scale)
    count = int(1_000_000 * scale)
    store = open_store(place / "large")
    fill(store, values, count)
    store.close()
    for file in (place / "large" / "ledger").rglob("*"):
        if file.is_file():
            file.unlink()
    began = time.perf_counter_ns()
    store = open_store(place / "large")
    taken_s = (time.perf_counter_ns() - began) / 1e9
    yield Figure("rebuild s, 1 M keys of 1 KiB", taken_s, 6.0 * scale)
    if sum(1 for _ in store) != count:
        raise SystemExit("the rebuilt store has another number of keys than was written")
    store.close()


def _killed(path: Path, size: int, what: str, scale: float) -> Iterator[Figure]:
    count = int((48 << 20) * scale) // (size + 60)
    child = os.fork()
    if not child:
        store = open_store(path, push_rows=4_000_000, push_bytes=1 << 30)
        if what:
            fill_buckets(store, Values(size), count)
        else:
            fill(store, Values(size), count)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    began = time.perf_counter()
    store = open_store(path)
    taken = (time.perf_counter() - began) * 1e3
    name = f"opening ms, after SIGKILL, 48 MiB of {size} B{what} unmerged"
    yield Figure(name, taken, None if what else 400)
    buckets = map(store.bucket, store.buckets()) if what else (store,)
    if sum(1 for bucket in buckets for _ in bucket) != count:
        raise SystemExit("the opened store has another number of keys than was written")
    store.close()


def starting(place: Path, scale: float) -> Iterator[Figure]:
    """Importing, and an empty store."""
    took = {"": 0.0, "import octavo": 0.0}
    for code in took:
        command = [sys.executable, "-c", code]
        runs = [microseconds(lambda: subprocess.run(command, check=True)) for _ in range(9)]  # noqa: B023
        took[code] = statistics.median(runs) / 1e3
    yield Figure("import octavo ms", took["import octavo"] - took[""], 80)
    code = "import octavo, sys; print(sum(n in sys.modules for n in ('pyspark', 'pyarrow')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    yield Figure("of pyspark and pyarrow loaded", int(loaded.stdout), 0)
    import octavo

    octavo.open(place / "zero").close()
    taken = []
    for each in range(9):
        began = time.perf_counter_ns()
        store = octavo.open(place / f"empty{each}")
        taken.append((time.perf_counter_ns() - began) / 1e6)
        store.close()
    yield Figure("opening a new store ms", statistics.median(taken), 10)


def load(place: Path, scale: float) -> Iterator[Figure]:
    """Twenty million puts of 128 B, evenly over ten minutes, and what the witness saw."""
    count = int(_LOAD_PUTS * scale)
    rate = _LOAD_PUTS / _LOAD_SECONDS
    values = Values(128)
    witness = subprocess.Popen(
        [sys.executable, "-c", _WITNESS, str(place / "witness"), str(os.getpid())],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert witness.stdout is not None
    witness.stdout.readline()
    store = open_store(place / "store")
    clock, put, taken, stalls = time.monotonic, store.put, [], []
    start = clock()
    for at in range(0, count, _PIECE):
        pairs = [(key(number), values.of(number)) for number in range(at, at + _PIECE)]
        before = clock()
        for each, value in pairs:
            put(each, value)
            now = clock()
            taken.append(int((now - before) * 1e8))
            if now - before > _STALL:
                stalls.append((before, now))
            before = now
        time.sleep(max(0.0, start + (at + _PIECE) / rate - clock()))
    witness.terminate()
    seen = [json.loads(line) for line in witness.stdout]
    taken.sort()
    for part in (0.5, 0.99, 0.999):
        yield Figure(f"put p{part * 100:g} us, 128 B", taken[int(len(taken) * part)] / 100)
    yield Figure("longest put ms", taken[-1] / 1e5)
    shared = [any(b < end and e > begin for b, e in seen) for begin, end in stalls]
    yield Figure("puts over 50 ms", len(stalls), 0)
    yield Figure("... while the witness, too, waited over 20 ms", sum(shared))
    yield Figure("the witness waited over 50 ms", sum(e - b > _STALL for b, e in seen))
    store.close()


MEASURES: dict[str, Callable[[Path, float], Iterator[Figure]]] = {
    "amplification": amplification,
    "space": space,
    "latencies": latencies,
    "syncs": syncs,
    "keeping": keeping,
    "starting": starting,
    "load": load,
}


def child(name: str, scale: float, directory: str | None) -> None:
    """One measure, a line of JSON a figure."""
    with tempfile.TemporaryDirectory(prefix="octavo-limits-", dir=directory) as place:
        for figure in MEASURES[name](Path(place), scale):
            print(json.dumps(figure), flush=True)


def show(figure: Figure) -> None:
    """A line of the table."""
    bound = f"at most {figure.at_most:,g}" if figure.at_most is not None else ""
    bound = f"at least {figure.at_least:,g}" if figure.at_least is not None else bound
    mark = "!" if figure.missed else " "
    print(f"{figure.what:<52}{figure.measured:>12,.2f}{mark} {bound}", flush=True)


def main() -> None:
    """Parse the arguments and run."""
    shown = argparse.RawDescriptionHelpFormatter
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    arguments.add_argument("directory", type=directory, nargs="?", help="where the stores are made")
    usual = ",".join(name for name in MEASURES if name != "load")
    arguments.add_argument("--only", default=usual, help="default: %(default)s")
    arguments.add_argument("--scale", type=float, default=1.0, help="share of the full size")
    arguments.add_argument("--json", help="write the figures here")
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.child:
        child(given.child, given.scale, given.directory)
        return
    out = {}
    for name in given.only.split(","):
        if name not in MEASURES:
            arguments.error(f"unknown measure {name!r}; known are {', '.join(MEASURES)}")
        command = [sys.executable, __file__, "--child", name, "--scale", str(given.scale)]
        command += [given.directory] if given.directory else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                figure = Figure(*json.loads(line))
                out[figure.what] = figure.measured
                show(figure)
        if running.returncode:
            raise SystemExit(f"{name} ended with {running.returncode}")
    if given.json:
        Path(given.json).write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
