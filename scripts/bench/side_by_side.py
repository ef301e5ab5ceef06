"""Runs the small bench: the same steps on each store, interleaved, each in a process of its own.

Prints operations a second, as the median of the repetitions, and the ratio to a baseline measured
in the same run. Look at the ratios: absolute figures differ from machine to machine, and on a
shared one from minute to minute. Every read is compared with what was written.

Steps: put (random keys, one by one), put_many (groups of 1,000), then, after closing and opening
again: get (random), miss (absent keys), head, keys, items (all of them, in order).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import PEERS, Peer
from workload import Values
from workload import key as key_of

STEPS = ("put", "put_many", "get", "miss", "head", "keys", "items")
LATENCIES = ("put p50 us", "put p99 us", "put p99.9 us", "put max us")
_TOTAL_BYTES = 128 << 20
_MOST_KEYS = 200_000
_GROUP = 1000


class Workload:
    """Keys in random order and values that are half random, half text; the same for a seed."""

    def __init__(self, number: int, size: int, seed: int) -> None:
        chance = random.Random(seed)
        self.keys = list(map(key_of, range(number)))
        chance.shuffle(self.keys)
        self.values = list(map(Values(size).of, range(number)))
        self.order = list(range(number))
        chance.shuffle(self.order)


def run_store(name: str, number: int, size: int, seed: int, directory: str) -> dict[str, float]:
    """All steps on one store; operations a second, and microseconds for latencies."""
    work = Workload(number, size, seed)
    out: dict[str, float] = {}
    store = PEERS[name][0]()
    store.open(_new(directory, "one"))
    out |= _puts(store, work)
    store.close()
    store = PEERS[name][0]()
    path = _new(directory, "many")
    store.open(path)
    pairs = list(zip(work.keys, work.values, strict=True))
    out["put_many"] = number / _timed(
        lambda: [store.put_many(pairs[at : at + _GROUP]) for at in range(0, number, _GROUP)]
    )
    store.close()
    store = PEERS[name][0]()
    store.open(path)
    out |= _reads(store, work)
    store.close()
    return out


def _new(directory: str, name: str) -> str:
    path = Path(directory) / name
    path.mkdir()
    return str(path)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _puts(store: Peer, work: Workload) -> dict[str, float]:
    put = store.put
    clock = time.perf_counter_ns
    taken = []
    began = before = clock()
    for key, value in zip(work.keys, work.values, strict=True):
        put(key, value)
        now = clock()
        taken.append(now - before)
        before = now
    seconds = (before - began) / 1e9
    taken.sort()
    at = [taken[int(len(taken) * part)] / 1e3 for part in (0.5, 0.99, 0.999)]
    figures = [*at, taken[-1] / 1e3]
    return {"put": len(taken) / seconds} | dict(zip(LATENCIES, figures, strict=True))


def _reads(store: Peer, work: Workload) -> dict[str, float]:
    number = len(work.keys)
    asked = [work.keys[i] for i in work.order]
    absent = [key + b"-" for key in asked]
    for key in asked[: number // 10]:
        store.get(key)  # bring the files into the page cache

    found: list[Any] = []
    out = {"get": number / _timed(lambda: found.extend(map(store.get, asked)))}
    _require(found == [work.values[i] for i in work.order], "get")
    found = []
    out["miss"] = number / _timed(lambda: found.extend(map(store.get, absent)))
    _require(not any(value is not None for value in found), "miss")
    found = []
    out["head"] = number / _timed(lambda: found.extend(map(store.head, asked)))
    _require(all(value is not None for value in found), "head")
    found = []
    out["keys"] = number / _timed(lambda: found.extend(store.iter_keys()))
    _require(found == sorted(work.keys), "keys")
    found = []
    out["items"] = number / _timed(lambda: found.extend(store.iter_items()))
    _require(found == sorted(zip(work.keys, work.values, strict=True)), "items")
    return out


def _require(holds: bool, step: str) -> None:
    if not holds:
        raise SystemExit(f"{step} gave something else than was written")


# ---------------------------------------------------------------- the parent


def child(name: str, number: int, size: int, seed: int, base: str | None) -> dict[str, float]:
    """``run_store`` in a process and a directory of its own."""
    directory = tempfile.mkdtemp(prefix="octavo-bench-", dir=base)
    try:
        what = json.dumps([name, number, size, seed, directory])
        done = subprocess.run(
            [sys.executable, __file__, "--child", what],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def report(
    size: int, number: int, names: list[str], runs: dict[str, list[dict[str, float]]], baseline: str
) -> dict[str, dict[str, float]]:
    """Print the medians and the ratios; the medians."""
    medians = {
        name: {step: statistics.median(run[step] for run in runs[name]) for step in runs[name][0]}
        for name in names
    }
    head = "".join(f"{name:>12}" for name in names)
    print(f"\n{number:,} values of {size:,} bytes, medians of {len(runs[names[0]])}")
    print(f"\n{'operations/s':<14}{head}")
    for step in STEPS:
        print(f"{step:<14}" + "".join(f"{medians[name][step]:>12,.0f}" for name in names))
    for step in LATENCIES:
        print(f"{step:<14}" + "".join(f"{medians[name][step]:>12,.1f}" for name in names))
    if baseline in medians:
        print(f"\n{'ratio to':<14}{head}\n{baseline}")
        for step in STEPS:
            base = medians[baseline][step]
            print(f"{step:<14}" + "".join(f"{medians[name][step] / base:>12.2f}" for name in names))
    sys.stdout.flush()
    return medians


def installed() -> list[str]:
    """Names of the stores that can be run here."""
    return [
        name
        for name, (_, module) in PEERS.items()
        if module is None or importlib.util.find_spec(module) is not None
    ]


def main() -> None:
    """Parse the arguments and run."""
    shown = argparse.RawDescriptionHelpFormatter
    arguments = argparse.ArgumentParser(
        prog="scripts/bench/bench", description=__doc__, formatter_class=shown
    )
    arguments.add_argument("--size", default="128,1024,8192,65536", help="value sizes")
    arguments.add_argument("--n", type=int, help="keys; default: 128 MiB, at most 200,000")
    arguments.add_argument("--reps", type=int, default=3, help="repetitions")
    arguments.add_argument("--stores", default=",".join(installed()), help="default: %(default)s")
    arguments.add_argument("--baseline", default="rocksdb", help="default: %(default)s")
    arguments.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    arguments.add_argument("--dir", help="where the stores are made; default: the temporary one")
    arguments.add_argument("--json", help="write the medians here")
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.child:
        print(json.dumps(run_store(*json.loads(given.child))))
        return
    names = given.stores.split(",")
    for name in names:
        if name not in PEERS:
            arguments.error(f"unknown store {name!r}; known are {', '.join(PEERS)}")
    medians = {}
    for size in map(int, given.size.split(",")):
        number = given.n or min(_MOST_KEYS, max(1000, _TOTAL_BYTES // size))
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for repetition in range(given.reps):
            turn = repetition % len(names)
            for name in names[turn:] + names[:turn]:
                print(f"{size} bytes, run {repetition + 1}: {name}", file=sys.stderr, flush=True)
                runs[name].append(child(name, number, size, given.seed + repetition, given.dir))
        medians[size] = report(size, number, names, runs, given.baseline)
    if given.json:
        Path(given.json).write_text(json.dumps(medians, indent=1) + "\n")


if __name__ == "__main__":
    main()
