"""Asks the system at once for all that is about to be read of a ledger file: see cold_pages.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.files.kernels.arrays import np
from octavo.files.kernels.cold_pages import COLD, ask_to_read
from octavo.files.ledger.sst_layout import ROW_COLUMNS, Section

if TYPE_CHECKING:
    from octavo.files.ledger.sst import Sst


def ask_for_rows(sst: Sst, low: int, high: int, columns: tuple[Section, ...] = ROW_COLUMNS) -> None:
    """Ask for some columns, and the keys, of rows [low, high). 10 us."""
    edges = []
    for kind in columns:
        if kind in sst.layout.sections:
            offset, length = sst.layout.sections[kind]
            width = length // sst.rows
            edges.append((offset + low * width, offset + high * width))
    keys_at, ends = sst.section_at(Section.KEYS), sst.column(Section.KEY_ENDS, "I")
    edges.append((keys_at + ends[low], keys_at + ends[high]))
    starts, stops = np.array(edges, dtype=np.int64).T
    COLD.ahead(sst.buffer, starts, stops)


def ask_for_slot(sst: Sst, h32: int) -> None:
    """Ask for what ``probe`` of this hash will read first. 1 us."""
    at = sst.section_at(Section.TABLE) + 4 * (h32 * sst.layout.homes >> 32)
    ask_to_read(sst.buffer, at, at + 4)


def ask_for_sqn(sst: Sst, row: int) -> None:
    """Ask for the sqn of a row. 1 us."""
    at, width = sst.section_at(Section.SQNS), sst.sqns.itemsize
    ask_to_read(sst.buffer, at + width * row, at + width * (row + 1))
