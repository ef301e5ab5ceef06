"""Finds the newest replaced version of each key: under the strategy retain, compaction keeps that
one, without its value (a key delta), and no older ones.

A key is named by the sqn of its newest version, which no other key has. What a survey finds is in a
scratch file, which lives as long as one compaction:

    magic 8s, number of keys u64, xxh3-64 of the rest u64
    u64 x n   sqn of the newest version of each key that has older ones, ascending
    u64 x n   sqn of the newest of these older ones
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import Any

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.jobs import live_records
from octavo.files.jobs.live_records import Sqns
from octavo.files.journal import record
from octavo.files.journal.sealed_records import Stretch, records_of
from octavo.files.kernels.arrays import np, npt
from octavo.files.ledger import few_maps

Newest = tuple[Sqns, Sqns]
"""(sqns that name keys, ascending; sqn of the newest replaced version of each)."""

RETAIN = "retain"
_FRONT = Struct("<8sQQ")
_MAGIC = b"OCTAVOD\n"


def retained(strategies: Mapping[str, str]) -> list[int]:
    """Tags whose replaced versions leave key deltas."""
    return [int(tag) for tag, strategy in strategies.items() if strategy == RETAIN]


def newest_of(names: Sqns, sqns: Sqns) -> Newest:
    """(each name once, ascending; the highest of its sqns). O(n log n)."""
    order = np.lexsort((sqns, names))
    names, sqns = names[order], sqns[order]
    last = np.append(names[1:] != names[:-1], np.ones(min(len(names), 1), dtype=np.bool_))
    return names[last], sqns[last]


def is_newest(names: Sqns, sqns: Sqns, known: Newest) -> npt.NDArray[np.bool_]:
    """Which of these replaced versions are, as far as is known, the newest of their keys."""
    if not len(known[0]):
        return np.ones(len(names), dtype=np.bool_)
    at = np.minimum(np.searchsorted(known[0], names), len(known[0]) - 1)
    older: npt.NDArray[np.bool_] = (known[0][at] == names) & (sqns < known[1][at])
    return ~older


def survey(
    disk: Disk,
    *,
    journal: str,
    ledger: str,
    levels: Sequence[Sequence[few_maps.Told]],
    files: Sequence[dict[str, Any]],
    now_ms: int,
    strategies: Mapping[str, str],
    scratch: str,
) -> dict[str, Any]:
    """Find the newest replaced version of each key and write the scratch file.

    The result's ``stale``: by name of file, the bytes of its key deltas that are not the newest. A
    file that cannot be read is left out. Reads all headers: O(records).
    """
    known = few_maps.opened(disk, ledger, levels)
    tags = retained(strategies)
    columns: list[tuple[Sqns, Sqns]] = []
    deltas: list[tuple[str, Sqns, Sqns, npt.NDArray[np.int64]]] = []
    for file in files:
        before = len(columns)
        for stretch in _readable(disk, journal, file):
            if stretch is None:
                del columns[before:], deltas[before:]
                break
            head, rows = stretch.head, stretch.rows
            newest = live_records.newest_of(known, rows.keys, rows.hashes)
            replaced = np.flatnonzero(
                (newest.sqns > rows.sqns) & np.isin(head.tags, tags) & (head.kinds != record.DELETE)
            )
            columns.append((newest.sqns[replaced], rows.sqns[replaced]))
            delta = replaced[head.kinds[replaced] == record.KEY_DELTA]
            deltas.append(
                (file["name"], newest.sqns[delta], rows.sqns[delta], stretch.sizes[delta])
            )
    names = np.concatenate([each[0] for each in columns]) if columns else np.empty(0, np.uint64)
    sqns = np.concatenate([each[1] for each in columns]) if columns else np.empty(0, np.uint64)
    found = newest_of(names, sqns)
    body = found[0].tobytes() + found[1].tobytes()
    made = disk.create(f"{journal}/{scratch}")
    try:
        made.write_all(_FRONT.pack(_MAGIC, len(found[0]), xxh3(body)) + body)
    finally:
        made.close()
    stale: dict[str, int] = {}
    for name, newest_sqns, sqns, sizes in deltas:
        older = int(sizes[~is_newest(newest_sqns, sqns, found)].sum())
        stale[name] = stale.get(name, 0) + older
    return {"stale": stale}


def _readable(disk: Disk, journal: str, file: dict[str, Any]) -> Iterator[Stretch | None]:
    """The records of a file; then None if it cannot be read, which compaction itself reports."""
    try:
        yield from records_of(disk, journal, file)[2]
    except (Corruption, FileNotFoundError):
        yield None


def read(disk: Disk, path: str) -> Newest:
    """What a survey found. Raises Corruption."""
    buffer = disk.map(path)
    if len(buffer) < _FRONT.size:
        raise Corruption(path, 0, "scratch file of key deltas cut short")
    magic, count, expected = _FRONT.unpack_from(buffer)
    body = memoryview(buffer)[_FRONT.size :]
    if magic != _MAGIC or len(body) != 16 * count or xxh3(body) != expected:
        raise Corruption(path, 0, "scratch file of key deltas")
    table = np.frombuffer(body, dtype=np.uint64)
    return table[:count], table[count:]
