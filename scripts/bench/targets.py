"""Compares Octavo's rates with other stores' and with targets: each kind of work, by size of value.

    python scripts/bench/targets.py [--size 128,1024,...] [--reps 3] [--n N] [--json OUT] KVBENCH
    python scripts/bench/targets.py --report OUT...

KVBENCH is the path of the larger benchmark's kvbench.py; it does most of the work, with Octavo and
the peers in turns. Arrow batches, which it does not know, are measured here, against the peers'
iterators. A cell has the ratio of Octavo's rate to a peer's in the same run, and the target ratio:
R is the better of RocksDB and its BlobDB, L is LMDB. An exclamation mark marks a missed target;
then F is the ratio that the floor reaches in the same run: the same work in Python with nothing but
the calls that cannot be left out (floor_adapter.py, floor_arrow.py).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from floor_adapter import FloorStore
from peers import PEERS
from side_by_side import Workload, _timed, installed

TARGETS = """
load, random keys          | load_rand     | 1.0 R        | 1.1 R        | 2.2 R, 1.0 L | 4.0 R
load, sequential keys      | load_seq      | 0.5 R        | 0.8 R        | 2.0 R        | 4.0 R
put_many of 1,000          | load_batch    | 1.2 R        | 1.5 R        | 2.5 R, 1.2 L | 4.0 R
durable put                | put_durable   | 1.0 R        | 1.0 R        | 1.5 R        | 2.0 R
durable batches of 1,000   | batch_durable | 1.0 R        | 1.5 R        | 1.8 R        | 3.0 R
get, uniform               | get_rand      | 1.0 R        | 1.1 R        | 1.3 R        | 1.3 R
get, Zipfian               | get_zipf      | 1.6 R, 0.8 L | 2.3 R, 1.0 L | 3.0 R        | 4.0 R
get_many of 100            | get_many      | 0.9 R        | 1.2 R        | 1.3 R        | 1.3 R
get of an absent key       | get_miss      | 0.35 R       | 0.4 R        | 0.6 R        | 0.8 R
head                       | head          | 1.3 R        | 2.0 R        | 4.0 R, 1.2 L | 8.0 R
list of keys               | scan_keys     | 1.0 R        | 3.0 R, 1.5 L | 10 R         | 20 R
keys as Arrow batches      | arrow_keys    | 4.0 R        | 10 R         | 40 R         | 80 R
heads as Arrow batches     | arrow_heads   | 4.0 R        | 10 R         | 40 R         | 80 R
scan of items              | scan_items    | 0.25 R       | 0.7 R        | 1.5 R        | 1.5 R
items as Arrow batches     | arrow_items   | 0.6 R        | 1.5 R        | 1.5 R        | 1.5 R
YCSB A                     | ycsb_a        | 1.0 R        | 1.2 R        | 2.0 R        | 3.0 R
YCSB B                     | ycsb_b        | 1.8 R        | 2.0 R        | 3.0 R        | 5.0 R
YCSB E                     | ycsb_e        | 0.2 R        | 0.6 R        | 1.4 R        | 1.4 R
4 threads: puts            | put_4t        | 1.0 R        | 1.0 R        | 1.0 R        | 1.0 R
4 threads: gets            | get_4t        | 1.0 R        | 1.0 R        | 1.0 R        | 1.0 R
"""
SIZES = (128, 1024, 8192, 65536)
KEYS = {128: 500_000, 1024: 200_000, 8192: 30_000, 65536: 4_000}
WORKLOADS = "seq,batch,durable,threads,get,head,scan,ycsb"
ADAPTERS = {"octavo_adapter.py:OctavoStore": "octavo", "floor_adapter.py:FloorStore": "floor"}
PEER_LETTERS = {"R": ("rocksdb", "rocksblob"), "L": ("lmdb",)}
ARROW_STORES = ("octavo", "rocksdb", "rocksblob", "lmdb", "floor")
_COLUMNS = {
    "arrow_keys": ["key"],
    "arrow_heads": ["key", "sqn", "size", "metadata", "written_at", "expires_at"],
    "arrow_items": ["key", "value"],
}
_TURNS = 3


# ------------------------------------------------------------------ Arrow batches


def arrow_child(name: str, number: int, size: int, seed: int, directory: str) -> dict[str, Any]:
    """Rows a second of whole folds in a store that was closed and opened again; of a peer, what
    its iterators give."""
    work = Workload(number, size, seed)
    store: Any = PEERS[name][0]()
    store.open(directory)
    pairs = list(zip(work.keys, work.values, strict=True))
    for at in range(0, number, 1000):
        store.put_many(pairs[at : at + 1000])
    store.close()
    store = PEERS[name][0]()
    store.open(directory)
    if name == "octavo":
        import octavo

        store.close()
        store = octavo.open(directory)
    folds: dict[str, Callable[[], int]] = {
        what: partial(_rows, store, columns) for what, columns in _COLUMNS.items()
    }
    out: dict[str, Any] = {}
    for what, fold in folds.items():
        if fold() != number:
            raise SystemExit(f"{name}: {what} gave another number of rows than was written")
        out[what] = {"ops": number, "sec": min(_timed(fold) for _ in range(_TURNS)), "cpu": 0.0}
    store.close()
    return out


def _rows(store: Any, columns: list[str]) -> int:
    """How many rows a fold of these columns gives."""
    if isinstance(store, FloorStore):
        from floor_arrow import batches

        return sum(batch.num_rows for batch in batches(store, columns))
    if hasattr(store, "snapshot"):
        with store.snapshot() as snap:
            return sum(batch.num_rows for batch in snap.to_arrow(columns=columns))
    return sum(1 for _ in (store.iter_items() if "value" in columns else store.iter_keys()))


def arrow_records(sizes: list[int], number: int | None, reps: int, seed: int) -> list[Any]:
    """A record for each run, as the larger benchmark has them."""
    records = []
    for rep in range(reps):
        for size in sizes:
            keys = number or KEYS.get(size, 10_000)
            for name in ARROW_STORES:
                print(f"Arrow batches, {size} bytes, run {rep + 1}: {name}", file=sys.stderr)
                directory = tempfile.mkdtemp(prefix="octavo-bench-")
                try:
                    what = json.dumps([name, keys, size, seed + rep, directory])
                    done = subprocess.run(
                        [sys.executable, __file__, "--child", what],
                        stdout=subprocess.PIPE, check=True,
                    )  # fmt: skip
                finally:
                    shutil.rmtree(directory, ignore_errors=True)
                metrics = json.loads(done.stdout)
                records.append({"store": name, "size": size, "n": keys, "metrics": metrics})
    return records


# ------------------------------------------------------------------ the table


def rates(records: list[Any]) -> dict[tuple[int, str, str], float]:
    """Median operations a second by (size, store, metric)."""
    found = defaultdict(list)
    for record in records:
        name = ADAPTERS.get(Path(record["store"]).name, record["store"])
        for metric, step in record["metrics"].items():
            if isinstance(step, dict) and step.get("sec"):
                found[record["size"], name, metric].append(step["ops"] / step["sec"])
    return {key: statistics.median(values) for key, values in found.items()}


def cell(found: dict[tuple[int, str, str], float], size: int, metric: str, targets: str) -> str:
    """Ratio beside target, for each peer that is aimed at."""
    ours = found.get((size, "octavo", metric))
    parts = []
    for target in targets.split(","):
        wanted, letter = target.split()
        theirs = max(found.get((size, peer, metric), 0.0) for peer in PEER_LETTERS[letter])
        if ours and theirs:
            ratio = ours / theirs
            missed = "!" if ratio < float(wanted) else " "
            floor = found.get((size, "floor", metric))
            reached = f"; F {floor / theirs:.2f}" if floor and missed == "!" else ""
            parts.append(f"{ratio:.2f}{missed}({wanted} {letter}{reached})")
    return " ".join(parts) or "-"


def report(records: list[Any]) -> None:
    """Print the table of what these records hold."""
    found = rates(records)
    sizes = [size for size in SIZES if any(key[0] == size for key in found)]
    rows = [["Octavo / peer (aim)", *(f"{size} B" for size in sizes)]]
    for line in TARGETS.strip().splitlines():
        label, metric, *aims = (part.strip() for part in line.split("|"))
        rows.append(
            [label, *(cell(found, size, metric, aims[SIZES.index(size)]) for size in sizes)]
        )
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    for row in rows:
        print("".join(one.ljust(width) for one, width in zip(row, widths, strict=True)).rstrip())


def main() -> None:
    """Parse the arguments and run."""
    shown = argparse.RawDescriptionHelpFormatter
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    arguments.add_argument("kvbench", nargs="?", help="path of kvbench.py")
    arguments.add_argument("--size", default=",".join(map(str, SIZES)), help="value sizes")
    arguments.add_argument("--reps", type=int, default=3, help="repetitions")
    arguments.add_argument("--n", type=int, help="keys; default: by size")
    arguments.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    arguments.add_argument("--workloads", default=WORKLOADS, help="default: %(default)s")
    arguments.add_argument("--json", help="write what was measured here")
    arguments.add_argument("--report", nargs="+", help="only print the table of these")
    arguments.add_argument("--child", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.child:
        print(json.dumps(arrow_child(*json.loads(given.child))))
        return
    if given.report:
        report([r for name in given.report for r in json.loads(Path(name).read_text())["records"]])
        return
    if not given.kvbench or not Path(given.kvbench).is_file():
        arguments.error("the path of kvbench.py is needed")
    missing = {str(PEERS[name][1]) for name in set(ARROW_STORES) - set(installed())}
    if missing:
        arguments.error(f"not installed: {', '.join(sorted(missing))}; install them with pip")
    ours, floor = (str(Path(__file__).with_name(name)) for name in ADAPTERS)
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as place:
        out = Path(place) / "out.json"
        more = ["--n", str(given.n)] if given.n else []
        subprocess.run(
            [
                sys.executable, given.kvbench, "--json", str(out), "--size", given.size,
                "--reps", str(given.reps), "--seed", str(given.seed),
                "--workloads", given.workloads,
                "--stores", f"{ours},rocksdb,rocksblob,lmdb,{floor}", *more,
            ],
            stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        document = json.loads(out.read_text())
    sizes = [int(size) for size in given.size.split(",")]
    document["records"] += arrow_records(sizes, given.n, given.reps, given.seed)
    if given.json:
        Path(given.json).write_text(json.dumps(document, indent=1) + "\n")
    report(document["records"])


if __name__ == "__main__":
    main()
