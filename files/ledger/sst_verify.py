"""Checks everything that must hold in a ledger file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.files.errors import Corruption
from octavo.files.kernels.arrays import np
from octavo.files.kernels.byte_strings import array_of
from octavo.files.kernels.key_order import key_order
from octavo.files.ledger.hashing import hash_column
from octavo.files.ledger.rows import EXPIRES, TOMBSTONE, Columns
from octavo.files.ledger.sst_layout import Section
from octavo.files.ledger.sst_writer import hash_table

if TYPE_CHECKING:
    from octavo.files.ledger.sst import Sst


def check(sst: Sst) -> None:
    """Raise Corruption where the file is not what it must be. Some 0.4 us a row.

    Checksums, and what lookups check; keys strictly ascending; hashes; a hash table that finds
    each row; flags that agree with expiries; counts, lowest and highest sqn, first and last key
    as the summary says.
    """
    columns = sst.columns()
    _check_order(sst, columns)
    _check_hashes(sst, columns)
    flags = columns.flags
    expires = (flags & EXPIRES) != 0
    moments = np.zeros(sst.rows, np.uint64) if columns.expiries is None else columns.expiries
    unknown = int((flags & ~np.uint8(TOMBSTONE | EXPIRES)).max())
    disagree = int(np.count_nonzero(expires != (moments > 0)))
    for what, expected, found in (
        ("unknown flags", 0, unknown),
        ("rows whose flag and expiry disagree", 0, disagree),
        ("tombstones", sst.tombstones, int(np.count_nonzero(flags & TOMBSTONE))),
        ("rows that expire", sst.expiring, int(np.count_nonzero(expires))),
        ("lowest sqn", sst.min_sqn, int(columns.sqns.min())),
        ("highest sqn", sst.max_sqn, int(columns.sqns.max())),
        ("first key", sst.first_key, sst.ledger_key(0)),
        ("last key", sst.last_key, sst.ledger_key(sst.rows - 1)),
    ):
        if expected != found:
            raise Corruption(sst.name, 0, what, expected=expected, found=found)


def _check_order(sst: Sst, columns: Columns) -> None:
    order, firsts = key_order(columns.keys, columns.groups)
    if len(firsts) != sst.rows or not bool((order == np.arange(sst.rows)).all()):
        raise Corruption(sst.name, sst.section_at(Section.KEYS), "order of the keys")


def _check_hashes(sst: Sst, columns: Columns) -> None:
    hashes = hash_column(columns.whole_keys())
    if not np.array_equal(hashes, columns.hashes):
        raise Corruption(sst.name, sst.section_at(Section.HASHES), "hashes of the keys")
    table = hash_table(hashes, sst.layout.homes, sst.layout.row_bits)
    if not np.array_equal(table, array_of(sst.column(Section.TABLE, "I"))):
        raise Corruption(sst.name, sst.section_at(Section.TABLE), "hash table")
