"""Measures reads of stores that are larger than memory, with memory and page cache limited.

    python scripts/bench/cold.py [--size 1024] [--store-mb 3000] [--memory-mb 800] [--seconds 8]
        [--stores octavo,rocksdb,rocksblob,lmdb] [DIRECTORY]

Each store is loaded with values that do not compress, in random order, and merges as far as it does
unasked. Then, with an empty page cache, in a memory control group (so it needs root, and Linux):
random gets by one thread and by four, gets of 100 keys, scans of 50 items, all items. Prints
operations a second, and the ratio to the better of RocksDB and its BlobDB in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from octavo_adapter import OctavoStore
from peers import PEERS, Peer, Rocks
from workload import directory, key, settle

_GROUPS = Path("/sys/fs/cgroup")
_THREADS = 4
_MANY, _SHORT = 100, 50
_NOISE = np.random.default_rng(5).bytes(16 << 20)


def value(number: int, size: int) -> bytes:
    """The number, then noise from a place that the number gives."""
    start = number * 7919 % (len(_NOISE) - size)
    return number.to_bytes(8, "little") + _NOISE[start : start + size - 8]


def build(peer: Peer, count: int, size: int) -> None:
    order = np.random.default_rng(1).permutation(count).tolist()
    for at in range(0, count, 1000):
        peer.put_many([(key(number), value(number, size)) for number in order[at : at + 1000]])
    if isinstance(peer, OctavoStore):
        settle(peer._store)
    elif isinstance(peer, Rocks):
        peer.settle()


def items_from(name: str, peer: Any, first: bytes) -> Iterable[tuple[bytes, bytes]]:
    """The items from a key on."""
    if name == "octavo":
        found: Iterable[tuple[bytes, bytes]] = peer._store.items(first, None)
        return found
    if name == "lmdb":
        return _lmdb_from(peer, first)
    rocks: Iterable[tuple[bytes, bytes]] = peer._db.items(from_key=first)
    return rocks


def _lmdb_from(peer: Any, first: bytes) -> Iterator[tuple[bytes, bytes]]:
    with peer._env.begin() as transaction, transaction.cursor() as cursor:
        if cursor.set_range(first):
            yield from cursor.iternext()


def get_many(name: str, peer: Any, keys: list[bytes]) -> list[bytes | None]:
    """The values of some keys, by one call where there is one."""
    if name == "octavo":
        found: list[bytes | None] = peer._store.get_many(keys)
        return found
    if name == "lmdb":
        return [peer.get(one) for one in keys]
    rocks: list[bytes | None] = peer._db[keys]
    return rocks


def rate(seconds: float, step: Callable[[], int]) -> float:
    """How much ``step``, which returns how much it did, does in a second."""
    began, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        done += step()
    return done / passed


def measured(name: str, path: str, count: int, size: int, seconds: float) -> dict[str, float]:
    """Rates of one store, in this process."""
    peer = PEERS[name][0]()
    peer.open(path)

    def gets(seed: int) -> Callable[[], int]:
        chance = np.random.default_rng(seed)

        def few() -> int:
            for number in chance.integers(0, count, 16).tolist():
                if peer.get(key(number)) != value(number, size):
                    raise AssertionError(f"{name}: the value of {number} is another")
            return 16

        return few

    chance = np.random.default_rng(7)

    def many() -> int:
        numbers = chance.integers(0, count, _MANY).tolist()
        found = get_many(name, peer, [key(number) for number in numbers])
        if found != [value(number, size) for number in numbers]:
            raise AssertionError(f"{name}: values are others")
        return 1

    def scan() -> int:
        first = key(int(chance.integers(0, count)))
        if not list(islice(items_from(name, peer, first), _SHORT)):
            raise AssertionError(f"{name}: nothing from {first!r} on")
        return 1

    every = iter(())  # type: Iterator[tuple[bytes, bytes]]

    def some() -> int:
        nonlocal every
        taken = sum(1 for _ in islice(every, 1024))
        if not taken:
            every = iter(peer.iter_items())
        return taken

    out = {"get": rate(seconds, gets(1))}
    rates: list[float] = []
    threads = [
        threading.Thread(target=lambda seed=seed: rates.append(rate(seconds, gets(seed))))
        for seed in range(_THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out["get, 4 threads"] = sum(rates)
    out["get, 100 a call"] = rate(seconds, many)
    out["scan of 50"] = rate(seconds, scan)
    out["items"] = rate(seconds, some)
    peer.close()
    return out


class Group:
    """A memory control group, of either version."""

    def __init__(self, limit_bytes: int) -> None:
        first = (_GROUPS / "memory").is_dir()
        self.path = (_GROUPS / "memory" if first else _GROUPS) / f"octavo-cold-{os.getpid()}"
        try:
            self.path.mkdir()
            limit = "memory.limit_in_bytes" if first else "memory.max"
            (self.path / limit).write_text(str(limit_bytes))
        except OSError as wrong:
            raise SystemExit(
                f"{self.path}: {wrong}; this measure needs root and cgroups"
            ) from wrong

    def enter(self) -> None:
        """In the process that is to be limited."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def close(self) -> None:
        for _ in range(100):  # a process that was killed leaves a little later
            if not (self.path / "cgroup.procs").read_text():
                break
            time.sleep(0.05)
        self.path.rmdir()


def _forget(path: str) -> None:
    """Empty the page cache of a store's files."""
    for file in Path(path).rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _child(arguments: argparse.Namespace, name: str, path: str, what: str) -> Any:
    command = [
        sys.executable, __file__, "--size", str(arguments.size), "--seconds",
        str(arguments.seconds), "--store-mb", str(arguments.store_mb), "--run", what, name, path,
    ]  # fmt: skip
    group = Group(arguments.memory_mb << 20) if what == "read" else None
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, preexec_fn=group.enter if group else None
        )
    except subprocess.CalledProcessError as failed:
        killed = group is not None and failed.returncode == -signal.SIGKILL
        why = f"{arguments.memory_mb} MB are too few for its process" if killed else "see above"
        raise SystemExit(f"{name}: {why}") from failed
    finally:
        if group is not None:
            group.close()
    return json.loads(done.stdout or "null")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--store-mb", type=int, default=3000)
    parser.add_argument("--memory-mb", type=int, default=800)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--stores", default="octavo,rocksdb,rocksblob,lmdb")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("directory", nargs="?", type=directory)
    arguments = parser.parse_args()
    count = (arguments.store_mb << 20) // arguments.size
    if arguments.run:
        what, name, path = arguments.run
        if what == "read":
            rates = measured(name, path, count, arguments.size, arguments.seconds)
            print(json.dumps(rates))
            return
        peer = PEERS[name][0]()
        peer.open(path)
        build(peer, count, arguments.size)
        peer.close()
        return
    Group(1 << 30).close()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
        for name in arguments.stores.split(","):
            path = str(Path(place) / name)
            Path(path).mkdir()
            _child(arguments, name, path, "build")
            _forget(path)
            found[name] = _child(arguments, name, path, "read")
            print(name, {what: round(one) for what, one in found[name].items()}, flush=True)
    best = [rates for name, rates in found.items() if name in ("rocksdb", "rocksblob")]
    for what, one in found.get("octavo", {}).items():
        if best:
            print(f"{what:16} {one / max(rates[what] for rates in best):6.2f} of RocksDB's rate")


if __name__ == "__main__":
    main()
