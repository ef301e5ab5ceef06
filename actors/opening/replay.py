"""Rebuilds the memory table after a stop, from the records that the ledger does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from octavo.actors.memory_table import MemoryTable
from octavo.files.journal import cdb
from octavo.files.journal.record import KEY_DELTA
from octavo.files.journal.runs import Run
from octavo.files.ledger import ledger_key
from octavo.manifest.recovery import Tail


def replayed(tails: Sequence[Tail], persisted_sqn: int) -> tuple[MemoryTable, int]:
    """(a memory table with the changes of these tails, how many they are); clears the changes of
    the tails. Some 0.7 us for each plain record in a run of one bucket, 2 us for others."""
    table = MemoryTable(persisted_sqn)
    prefix_of = lru_cache(maxsize=4096)(ledger_key.prefix)
    count = 0
    for tail in tails:
        for found in tail.changes:
            if isinstance(found, Run):
                count += len(found.keys)
                if not _entered_at_once(table, found, tail.base_sqn, prefix_of):
                    _enter(table, cdb.each_of(found), tail.base_sqn, prefix_of)
            else:
                count += 1
                _enter(table, (found,), tail.base_sqn, prefix_of)
        tail.changes.clear()
    return table, count


def _entered_at_once(
    table: MemoryTable, run: Run, base_sqn: int, prefix_of: Callable[[int, bytes], bytes]
) -> bool:
    """Enter a run at once if all its records are plain and of one family; return whether it was."""
    family = run.family
    if family is None or family.kind == KEY_DELTA or run.indexes or run.expiries:
        return False
    kind, tag, bucket = family
    keys = map(prefix_of(tag, bucket).__add__, run.keys)
    table.enter_run(keys, base_sqn + run.relative_sqn, kind)
    return True


def _enter(
    table: MemoryTable,
    rows: Iterable[cdb.Scanned],
    base_sqn: int,
    prefix_of: Callable[[int, bytes], bytes],
) -> None:
    for row in rows:
        table.enter(prefix_of(row.tag, row.bucket) + row.key, base_sqn + row.relative_sqn, row)
