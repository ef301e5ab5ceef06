"""Measures shapes of work that the other benches lack: Octavo and RocksDB in turns, in one process.

    python scripts/bench/shapes.py [--only TEXT] [--keys 200000] [--turns 15] [--sizes 100,1000]
        [--commits] [--json OUT] [DIRECTORY]

Each group of shapes has a store of its own on each side. A turn does the same operations on one
side after the other; which is first changes from turn to turn, and one more turn in front only
warms up. Prints for each shape the microseconds of an operation, as the median of the turns, and
the median of the turns' ratios: the peer's time to Octavo's, so above 1 Octavo is quicker. The JSON
also has the calling thread's CPU time. It stops unless both sides read the same, and have the same
keys at the end of a group. Where a peer keeps something in front of its values (metadata, say), it
is spared the work of taking that off. Values from 4 KiB up, and those of mixed sizes, are measured
against BlobDB, too. In the names of shapes, "items, 20" is 20 items in a row from anywhere;
"known": the sqn that if_sqn needs is at hand; "reopened": closed and opened again, nothing that is
read cached by either.

--only: shapes with that text in their name. --keys: how many of 100 bytes; of larger values fewer.
--commits: instead of the shapes, small commits into a closed store.
Takes three to four minutes, and 2 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path
from typing import Any

from shape_commits import commits
from shape_groups import Group, Shape, groups
from shape_peers import SIDES, Side
from workload import directory

Row = dict[str, str | float]


def run(group: Group, shapes: dict[str, Shape], place: Path, turns: int) -> Iterator[Row]:
    """Make the stores, do the shapes, compare all keys, remove the stores."""
    sides: list[Side] = []
    try:
        for name in ("octavo", *group.peers):
            (place / name).mkdir()
            side = SIDES[name](place / name, cached=True)
            group.build(side)
            if group.reopened:
                side.close()
                side = SIDES[name](place / name, cached=False)
            side.front = 0 if name == "octavo" else group.front
            sides.append(side)
        for side in sides:
            side.settle()
        for name, shape in shapes.items():
            yield from by_turns(name, shape, sides, group.peers, turns)
        if len({told(side.every_key(), 0) for side in sides}) > 1:
            raise SystemExit(f"{group.name}: the sides have not the same keys at the end")
    finally:
        for side in sides:
            side.close()
        for name in ("octavo", *group.peers):
            shutil.rmtree(place / name, ignore_errors=True)


def by_turns(
    name: str, shape: Shape, sides: list[Side], peers: tuple[str, ...], turns: int
) -> Iterator[Row]:
    """What each peer's operation takes beside Octavo's, in microseconds. One turn more warms up."""
    wall: list[list[float]] = [[] for _ in sides]
    cpu: list[list[float]] = [[] for _ in sides]
    for turn in range(turns + 1):
        chance = random.Random(f"{name} {turn}")
        given = [shape.arguments(chance) for _ in range(shape.number)]
        seen: dict[tuple[int, int], str] = {}
        for at in [*range(turn % len(sides), len(sides)), *range(turn % len(sides))]:
            call = getattr(sides[at], shape.method)
            began_cpu, began = time.thread_time(), time.perf_counter()
            found = list(starmap(call, given))
            wall[at].append((time.perf_counter() - began) / shape.number * 1e6)
            cpu[at].append((time.thread_time() - began_cpu) / shape.number * 1e6)
            what = told(found, sides[at].front) if shape.reads else (len(found), 0)
            seen[what] = ("octavo", *peers)[at]
        if len(seen) > 1:
            counts = ", ".join(f"{side} {number:,}" for (number, _), side in seen.items())
            raise SystemExit(f"{name}: what the sides gave is not the same; so many: {counts}")
    for at, peer in enumerate(peers, 1):
        ratios = [other / own for own, other in zip(wall[0][1:], wall[at][1:], strict=True)]
        yield {
            "shape": name,
            "peer": peer,
            "octavo_us": statistics.median(wall[0][1:]),
            "peer_us": statistics.median(wall[at][1:]),
            "ratio": statistics.median(ratios),
            "octavo_cpu_us": statistics.median(cpu[0][1:]),
            "peer_cpu_us": statistics.median(cpu[at][1:]),
        }


def told(found: Any, front: int) -> tuple[int, int]:
    """How many rows, or values, there are, and a hash of them all; values, which are bytes or come
    last in a row, from ``front`` on."""
    if isinstance(found, bytes):
        return 1, hash(found[front:])
    if isinstance(found, tuple):
        return 1, hash((*found[:-1], found[-1][front:]))
    if isinstance(found, list):
        parts = [told(each, front) for each in found]
        return sum(number for number, _ in parts), hash(tuple(parts))
    return int(found is not None), hash(found)


def show(row: Row) -> None:
    """A line of the table."""
    print(
        f"{row['shape']:<52}{row['octavo_us']:>11,.2f}{row['peer_us']:>11,.2f}"
        f"{row['ratio']:>7.2f}  {row['peer']}",
        flush=True,
    )


def main() -> None:
    """Parse the arguments and run."""
    shown = argparse.RawDescriptionHelpFormatter
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    arguments.add_argument("directory", type=directory, nargs="?", help="where stores are made")
    arguments.add_argument("--only", default="", metavar="TEXT")
    arguments.add_argument("--keys", type=int, default=200_000)
    arguments.add_argument("--turns", type=int, default=15)
    arguments.add_argument("--sizes", default="100,1000", help="bytes of a value")
    arguments.add_argument("--commits", action="store_true")
    arguments.add_argument("--json", help="write the figures here")
    given = arguments.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="octavo-shapes-", dir=given.directory) as where:
        if given.commits:
            rows.append(commits(Path(where), given.keys))
        else:
            print(f"{'shape':<52}{'Octavo us':>11}{'peer us':>11}{'ratio':>7}")
            for group in groups(given.keys, [int(size) for size in given.sizes.split(",")]):
                named = {f"{group.name}: {each.name}": each for each in group.shapes}
                shapes = {name: each for name, each in named.items() if given.only in name}
                for row in run(group, shapes, Path(where), given.turns) if shapes else ():
                    show(row)
                    rows.append(row)
            if not rows:
                arguments.error(f"no shape has {given.only!r} in its name")
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
