"""Files of a journal whose manifest was lost, where there are many."""

from __future__ import annotations

from functools import partial
from unittest.mock import Mock

from counted_lines import lines_of

from octavo.files.journal import cdb
from octavo.manifest import adoption
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest


def chosen_of(count: int) -> None:
    """Choose among so many files, every second of which was compacted."""
    entries = [JournalEntry(f"{n}", 10 * n + 1, 10 * n + 10, 10, 100, n) for n in range(count)]
    files = [
        adoption._Sealed(cdb.Origin(entry.seed % 2, entry.base_sqn, entry.last_sqn, 0, 0), entry)
        for entry in entries
    ]
    names = {entry.name for entry in entries}
    manifest = JournalManifest.empty().edit(ceiling=10 * count + 1)
    made, _ = adoption._chosen(Mock(), "s", manifest, names, files)
    assert made.entries == tuple(entries)


def test_to_choose_among_four_times_as_many_takes_about_four_times_as_long() -> None:
    # It grew with their square.
    few, many = (lines_of(partial(chosen_of, count)) for count in (100, 400))
    assert many < 6 * few
