"""Measures a store as it grows from 1 M to 20 M keys of 128 bytes: puts, gets, opening, memory.

    python scripts/bench/growth.py [--millions 1,2,5,10,20] [--picture docs/growth.svg] [DIRECTORY]

One store grows to each size in turn, by single puts in random order; at each it settles, is closed,
opened, and read at random. Puts and gets are reported in microseconds of wall time, and of the
calling thread's CPU time, on which other work on the machine has little influence. --json writes
the figures; --from reads such figures and only draws them. The picture needs octavo[bench]. Takes
minutes, and 6 GB of disk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from workload import Values, directory, key, settle

import octavo

VALUE_BYTES = 128
_STRETCH = 20_000
_PIECE = 500
_GETS = 60_000
_WARMING = 50_000
_LONG_NS = 50_000_000

Figures = dict[str, float]


def anonymous_mib() -> float:
    """Resident anonymous memory of this process and its workers; maps of files do not count."""
    here = Path("/proc/self")
    found = [here / "status"]
    for children in here.glob("task/*/children"):
        found += [Path(f"/proc/{child}/status") for child in children.read_text().split()]
    kib = 0
    for status in found:
        with contextlib.suppress(OSError):  # it has left meanwhile
            lines = status.read_text().splitlines()
            kib += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return kib / 1024


def waited_for_a_cpu_ns() -> int:
    """How long this thread was ready to run and did not, because others did."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1])
    except OSError:  # not Linux
        return 0


def grow(store: octavo.Store, values: Values, first: int, last: int) -> Figures:
    """Put the keys [first, last), one by one. Medians of stretches towards the end; the slowest put
    of all, less what the thread waited for a CPU meanwhile."""
    cpu, wall, memory = [], [], 0.0
    long_puts = 0
    longest = 0
    put, clock = store.put, time.perf_counter_ns
    for at in range(first, last, _STRETCH):
        spent = 0
        for piece in range(at, min(at + _STRETCH, last), _PIECE):
            numbers = range(piece, min(piece + _PIECE, last))
            pairs = [(key(number), values.of(number)) for number in numbers]
            waited, slowest = waited_for_a_cpu_ns(), 0
            began_cpu = time.thread_time_ns()
            began = before = clock()
            for each, value in pairs:
                put(each, value)
                now = clock()
                if now - before > slowest:
                    slowest = now - before
                before = now
            spent += time.thread_time_ns() - began_cpu
            wall.append((before - began) / len(pairs) / 1e3)
            if slowest > _LONG_NS:  # was it the store, or was no CPU free?
                slowest -= waited_for_a_cpu_ns() - waited
                long_puts += slowest > _LONG_NS
            longest = max(longest, slowest)
        cpu.append(spent / min(_STRETCH, last - at) / 1e3)
        memory = max(memory, anonymous_mib())
    return {
        "put_cpu_us": statistics.median(cpu[-50:]),
        "put_us": statistics.median(wall[-50 * _STRETCH // _PIECE :]),
        "put_max_ms": longest / 1e6,
        "puts_over_50_ms": long_puts,
        "anonymous_mib": memory,
    }


def read(store: octavo.Store, values: Values, count: int, chance: random.Random) -> Figures:
    """Gets of random keys, when files are in the page cache and most of their pages mapped."""
    get = store.get
    for path in Path(store.path).rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
    for _ in range(_WARMING + count // 50):
        get(key(chance.randrange(count)))
    cpu, wall = [], []
    for round_ in range(6):
        numbers = [chance.randrange(count) for _ in range(_GETS // 6)]
        keys = [key(number) for number in numbers]
        began_cpu, began = time.thread_time_ns(), time.perf_counter_ns()
        found = [get(each) for each in keys]
        cpu.append((time.thread_time_ns() - began_cpu) / len(keys) / 1e3)
        wall.append((time.perf_counter_ns() - began) / len(keys) / 1e3)
        if found != [values.of(number) for number in numbers]:
            raise SystemExit(f"round {round_}: a get gave something else than was put")
    return {"get_cpu_us": statistics.median(cpu[1:]), "get_us": statistics.median(wall[1:])}


def measure(directory: str, millions: list[float]) -> list[Figures]:
    """All figures, by size."""
    values, chance = Values(VALUE_BYTES), random.Random(7)
    path = f"{directory}/store"
    out = []
    before = 0
    anonymous = anonymous_mib()
    store = octavo.open(path, read_cache_bytes=0)
    for each in millions:
        count = int(each * 1e6)
        figures: Figures = {"millions": each} | grow(store, values, before, count)
        figures["anonymous_mib"] -= anonymous
        settle(store)
        store.close()
        opened = []
        for _ in range(5):
            began = time.perf_counter_ns()
            store = octavo.open(path, read_cache_bytes=0)
            opened.append((time.perf_counter_ns() - began) / 1e6)
            store.close()
        figures["open_ms"] = min(opened)
        store = octavo.open(path, read_cache_bytes=0)
        figures |= read(store, values, count, chance)
        out.append(figures)
        print(json.dumps(figures), file=sys.stderr, flush=True)
        before = count
    store.close()
    return out


_PANELS = (
    ("put", "us of CPU time", "put_cpu_us"),
    ("get, page cache warm", "us of CPU time", "get_cpu_us"),
    ("open after close", "ms", "open_ms"),
    ("anonymous memory, highest", "MiB", "anonymous_mib"),
)


def draw(rows: list[Figures], target: str) -> None:
    """The curves as a picture; its kind is that of the name's ending."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "octavo"
    plot: Any = import_module("matplotlib.pyplot")
    figure, panels = plot.subplots(1, len(_PANELS), figsize=(13, 3.2), constrained_layout=True)
    size = [row["millions"] for row in rows]
    for panel, (title, unit, name) in zip(panels, _PANELS, strict=True):
        heights = [row[name] for row in rows]
        panel.plot(size, heights, marker="o", color="#23527c", linewidth=1.6)
        panel.set_title(title, fontsize=10)
        panel.set_ylabel(unit, fontsize=9)
        panel.set_xlabel("million keys", fontsize=9)
        panel.set_ylim(0, max(heights) * 1.3)
        panel.grid(alpha=0.25)
        panel.tick_params(labelsize=8)
    figure.savefig(target, metadata={"Date": None} if target.endswith(".svg") else None)


def main() -> None:
    """Parse the arguments and run."""
    shown = argparse.RawDescriptionHelpFormatter
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    arguments.add_argument("directory", type=directory, nargs="?", help="where the store is made")
    arguments.add_argument("--millions", default="1,2,5,10,20", help="sizes; default: %(default)s")
    arguments.add_argument("--picture", help="draw the curves into this file")
    arguments.add_argument("--json", help="write the figures here")
    arguments.add_argument("--from", dest="given", help="draw these figures; measure nothing")
    given = arguments.parse_args()
    if given.given:
        rows = json.loads(Path(given.given).read_text())
    else:
        with tempfile.TemporaryDirectory(prefix="octavo-growth-", dir=given.directory) as made:
            rows = measure(made, [float(each) for each in given.millions.split(",")])
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1) + "\n")
    if given.picture:
        draw(rows, given.picture)
    names = list(rows[0])
    print("".join(f"{name:>17}" for name in names))
    for row in rows:
        print("".join(f"{row[name]:>17,.2f}" for name in names))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
