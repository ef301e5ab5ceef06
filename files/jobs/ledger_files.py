"""The jobs that make ledger files: level zero from the journal, merges from other ledger files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.journal import journal_names, journal_rows, record
from octavo.files.kernels.arrays import np, npt
from octavo.files.ledger import merge, sorted_files
from octavo.files.ledger.few_maps import Told, most_maps, opened
from octavo.files.ledger.rows import Rows


def _names(stem: str) -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{stem}-{next(numbers):04x}.sst"


def level_zero(
    disk: Disk,
    offsets: bytes,
    *,
    journal: str,
    ledger: str,
    stem: str,
    parts: Sequence[dict[str, Any]],
    max_rows: int,
    max_bytes: int,
) -> dict[str, Any]:
    """Write new ledger files from stretches of journal files: one sorted run, or as many as it
    takes to have no more than ``PART_BYTES`` of rows or so in memory.

    ``offsets`` and ``parts``: see ``level_zero_rows``. The result's ``damaged`` says which records
    were stepped over.
    """
    damaged: list[str] = []
    rows = level_zero_rows(disk, offsets, damaged, journal=journal, parts=parts)
    written = write_sorted(
        disk, rows, ledger=ledger, stem=stem, max_rows=max_rows, max_bytes=max_bytes
    )
    return {**written, "damaged": damaged}


def level_zero_rows(
    disk: Disk,
    offsets: bytes,
    damaged: list[str],
    *,
    journal: str,
    parts: Sequence[dict[str, Any]],
    without_tags: Sequence[int] = (),
) -> Iterator[Rows]:
    """The rows of stretches of journal files, some at a time. Records that are stepped over are
    added to ``damaged``.

    A part (``name``, ``seed``, ``base_sqn``, ``first``, ``count``) is ``count`` records of a file
    from the relative number ``first`` on; ``offsets`` has theirs, part after part: native u32,
    one more than records. Of a ``sparse`` part it has their relative numbers before that.
    Objects whose tag is in ``without_tags`` are left out.
    """
    tables = np.frombuffer(offsets, dtype=np.uint32)
    at = 0
    many = len(parts) > most_maps()
    for part in parts:
        numbers = tables[at : at + part["count"]] if part.get("sparse") else None
        at += 0 if numbers is None else len(numbers)
        table = tables[at : at + part["count"] + 1]
        at += len(table)
        buffer = journal_names.by_either_name(f"{journal}/{part['name']}", disk.map)
        view = memoryview(buffer)
        if numbers is None:
            found = _rows_of(view, table, part, without_tags, damaged)
        else:
            here = {**part, "first": 0, "base_sqn": 0}
            sqns = numbers.astype(np.uint64) + np.uint64(part["base_sqn"])
            found = (
                replace(rows, sqns=sqns[rows.sqns.astype(np.int64)])
                for rows in _rows_of(view, table, here, without_tags, damaged)
            )
        yield from map(journal_rows.apart, found) if many else found


def write_sorted(
    disk: Disk, parts: Iterable[Rows], *, ledger: str, stem: str, max_rows: int, max_bytes: int
) -> dict[str, Any]:
    """Write rows, in any order, as new ledger files, durably. As many neighbouring parts as may be
    in memory are sorted together, each key's newest version alone; later files are newer."""
    made = sorted_files.SortedFiles(
        disk, ledger, _names(stem), max_rows=max_rows, max_bytes=max_bytes
    )
    with made as files:
        for rows in journal_rows.together(parts):
            merge.add_rows(files, rows)
            del rows  # before the next ones are made
    return {"files": [summary.told() for summary in made.made]}


def _rows_of(
    view: memoryview,
    table: npt.NDArray[np.uint32],
    part: dict[str, Any],
    without_tags: Sequence[int],
    damaged: list[str],
) -> Iterator[Rows]:
    """The rows of a part. A record whose header is damaged is left out and added to ``damaged``:
    one bit must not keep all others out of the ledger. Raises Corruption where that does not
    help."""
    first, seed, base, name = (part[key] for key in ("first", "seed", "base_sqn", "name"))
    try:
        return journal_rows.rows_of(view, table, first, seed, base, name, without_tags)
    except Corruption:
        holes = [-1, *_damaged_records(view, table, seed), len(table) - 1]
        if len(holes) == 2:
            raise
    damaged += [
        f"{name} at offset {table[hole]}: the record of sqn {base + first + hole} is damaged"
        for hole in holes[1:-1]
    ]
    return itertools.chain.from_iterable(
        journal_rows.rows_of(
            view, table[low + 1 : high + 1], first + low + 1, seed, base, name, without_tags
        )
        for low, high in itertools.pairwise(holes)
    )


def _damaged_records(view: memoryview, table: npt.NDArray[np.uint32], seed: int) -> Iterator[int]:
    """Which records of a table of offsets have no whole header. Parses each one: O(records)."""
    for number, (at, end) in enumerate(itertools.pairwise(table.tolist())):
        if at == end:
            continue
        try:
            head = view[at : min(end, at + record.MAX_HEADER_BYTES)]
            record.parse_header(head, seed ^ at, end - at)
        except record.NotARecord:
            yield number


def merge_files(
    disk: Disk,
    *,
    ledger: str,
    stem: str,
    inputs: Sequence[Told],
    basement: bool,
    now_ms: int,
    max_rows: int,
    max_bytes: int,
    levels: Sequence[Sequence[Told]] = (),
    low: bytes = b"",
    high: bytes | None = None,
) -> dict[str, Any]:
    """Merge sorted files into sorted, disjoint ones: see merge.merge, also for the result's
    ``expired_ms``."""
    found = merge.merge(
        disk,
        ledger,
        inputs,
        _names(stem),
        basement=basement,
        now_ms=now_ms,
        max_rows=max_rows,
        max_bytes=max_bytes,
        ledger=levels,
        low=low,
        high=high,
    )
    files = [summary.told() for summary in found.files]
    return {"files": files, "expired_ms": found.expired_ms}


def check_ledger(disk: Disk, *, ledger: str, files: Sequence[Told]) -> dict[str, Any]:
    """Compare every checksum of these ledger files. Raises Corruption for the first that is not
    whole."""
    for sst, _ in opened(disk, ledger, [files])[0]:
        sst.ensure_whole()
    return {}
