"""The shortest path to the value of a put: for live reads and for snapshots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from struct import error as StructError  # noqa: N812

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.reading.guide import Step
from octavo.actors.reading.read_cache import ReadCache
from octavo.actors.reading.values_ahead import ask_for
from octavo.actors.view import View
from octavo.files.errors import Corruption
from octavo.files.journal import record, short_value
from octavo.files.journal.record import FRAME_BYTES, LOW_32
from octavo.files.kernels.cold_pages import COLD
from octavo.files.ledger.rows import TOMBSTONE
from octavo.files.ledger.sst import Sst
from octavo.files.ledger.sst_ahead import ask_for_slot, ask_for_sqn

_sum_at, _moment_at = record.unpack_u32, record.unpack_u64
forms_of = short_value.forms
_FEW = 8
_DELETED = -1
"""Stands for an sqn: the row is a delete's."""


class PlainReads(ABC):
    """Reads values of the newest state, or of a snapshot's."""

    cache: ReadCache

    @abstractmethod
    def _get_with_care(self, ledger_key: bytes) -> bytes | None:
        """The value by the long path, which decides every case and names every error."""

    @abstractmethod
    def _moment_ms(self, view: View) -> int:
        """The moment to judge expiry by, ms UTC."""

    def _get_by_record(
        self, view: View, sqn: int, ledger_key: bytes, bucket_and_key: bytes, plain: bytes
    ) -> bytes | None:
        """The value of a put that may expire, whose sqn memory or the ledger told. It is not put
        into the cache, which knows no moments of expiry."""
        try:
            value = self._in_record(view, sqn, bucket_and_key, plain)
        except (FileNotFoundError, Corruption):
            value = None
        return self._get_with_care(ledger_key) if value is None else value

    def _in_record(self, view: View, sqn: int, bucket_and_key: bytes, plain: bytes) -> bytes | None:
        """The value in the record of ``sqn``; None if the record is of something else, or expired.
        Raises FileNotFoundError, Corruption."""
        file = view.journal.file_of(sqn)
        data, at = file.raw(sqn - file.base)
        return short_value.value_of(
            data, 0, len(data), file.seed ^ at, bucket_and_key, plain, self._moment_ms(view)
        )

    def _get_from_memory(
        self, view: View, sqn: int, ledger_key: bytes, bucket_and_key: bytes, plain: bytes
    ) -> bytes | None:
        bases, files = view.journal
        last = sqn >= bases[-1]  # most recent changes are in the active file
        file = files[-1] if last else files[bisect_right(bases, sqn) - 1]
        try:
            value = file.value(sqn - file.base, bucket_and_key, plain)
        except (FileNotFoundError, Corruption):  # compacted or rolled since the view was taken
            return self._get_with_care(ledger_key)
        if value is None:
            return self._get_with_care(ledger_key)
        self.cache.fill(view, ledger_key, sqn, value)
        return value

    def get_from_ledger(
        self,
        view: View,
        steps: tuple[Step, ...],
        h32: int,
        ledger_key: bytes,
        bucket_and_key: bytes,
        plain: bytes,
    ) -> bytes | None:
        """The value of a key that is neither in the view's memory nor in the cache, but may be in
        these steps of its guide; or None. ``h32``: low half of the ledger key's xxh3-64. The lines
        of JournalFile.raw and short_value.value_of are repeated here, to save calls."""
        bases, files = view.journal
        slots, shift = view.guide.sqns
        told = slots[h32 >> shift]  # most likely the sqn of this key's newest row; 0: unknown
        try:
            while True:
                if not (sqn := told):
                    sqn = _sqn_by_steps(steps, h32, ledger_key)
                    if not sqn:
                        return None
                    if sqn == _DELETED:
                        return self._get_with_care(ledger_key)
                journal = files[bisect_right(bases, sqn) - 1]
                mapped, offsets = journal.reading
                relative = sqn - journal.base
                value = None
                expires = False
                if mapped is None or COLD.left:
                    value = journal.value(relative, bucket_and_key, plain)
                    if value is None:
                        value, expires = self._in_record(view, sqn, bucket_and_key, plain), True
                elif relative >= 0:
                    at = offsets[relative]
                    end = offsets[relative + 1]
                    value_at = at + FRAME_BYTES + len(bucket_and_key)
                    head = mapped[at : value_at - 8]
                    named, raw_at = head[34:], 0
                    if (fields := head[19:24]) != plain:
                        named = b""
                        if form := forms_of(plain).get(fields):
                            more, lengths, raw_at, expires = form
                            value_at += more
                            for place in lengths:
                                value_at += _sum_at(mapped, at + place)[0]
                            if value_at <= end and not (
                                expires and _moment_at(mapped, at + 34)[0] <= self._moment_ms(view)
                            ):
                                head = mapped[at : value_at - 8]
                                named = head[34 + more : 34 + more + len(bucket_and_key)]
                    if named == bucket_and_key and value_at <= end:
                        found = mapped[value_at:end]
                        h = xxh3(head, journal.seed ^ at)
                        # Seeded by the header's hash, so this checksum covers both.
                        if xxh3(found, h) & LOW_32 == _sum_at(mapped, value_at - 4)[0]:
                            value = found
                            if raw_at:
                                value = record.decompress(found, _sum_at(head, raw_at)[0])
                if value is not None:
                    if not expires:
                        self.cache.fill(view, ledger_key, 0, value)
                    return value
                if not told:
                    return self._get_with_care(ledger_key)
                told = 0  # the record is another key's, or damaged: ask the places
        except (FileNotFoundError, Corruption, IndexError, ValueError, StructError):
            return self._get_with_care(ledger_key)

    def ask_for(self, view: View, ledger_keys: Iterable[bytes]) -> None:
        """Ask for the values of these keys that are in the view's files, all at once, since they
        are about to be read and reads wait for a device. Some 4 us each."""
        entries, tables = self.cache.entries, (view.recent, *view.frozen)
        slots, shift = view.guide.sqns
        places, mask, tails = view.guide.way
        sqns: list[int] = []
        sought: list[_Sought] = []
        for key in ledger_keys:
            if key in entries or any(key in table.rows for table in tables):
                continue
            h = xxh3(key)
            if sqn := slots[(h & LOW_32) >> shift]:
                sqns.append(sqn)
            elif steps := tails[places[h & mask]]:
                sought.append((steps, h & LOW_32, key))
        ask_for(view.journal, sqns + _sqns_of(sought))


_Sought = tuple[tuple[Step, ...], int, bytes]
"""(the steps that may have a key, the low half of its hash, the key)"""


def _sqns_of(sought: list[_Sought]) -> list[int]:
    """The sqns of the rows that some keys may have. If the ledger is not in memory, either, its
    parts are first asked for, slots and then rows."""
    before = COLD.reads()
    found = [_place(*each) for each in sought[:_FEW]]
    if COLD.reads() != before:
        for steps, h32, key in sought[_FEW:]:
            with suppress(FileNotFoundError, Corruption):
                for sst, _ in _ssts(steps, key):
                    ask_for_slot(sst, h32)
    found += [_place(*each) for each in sought[_FEW:]]
    rows = [place for place in found if place is not None]
    for sst, row, _ in rows[_FEW:]:
        ask_for_sqn(sst, row)
    return [sst.sqns[row] + base for sst, row, base in rows]


def _ssts(steps: tuple[Step, ...], ledger_key: bytes) -> Iterator[tuple[Sst, int]]:
    """The ledger files that may have a key, newest first, with the base of their sqns."""
    for firsts, file, base, entries in steps:
        if firsts is not None:
            place = entries[bisect_right(firsts, ledger_key) - 1]
            file, base = place.file, place.sqn_base
        yield file.sst or file.reader(), base


def _place(steps: tuple[Step, ...], h32: int, ledger_key: bytes) -> tuple[Sst, int, int] | None:
    """The newest row that a key may have: (its file, its number, the base of the file's sqns).
    None if there is none, or on an error, which the read itself will raise."""
    try:
        for sst, base in _ssts(steps, ledger_key):
            if (row := sst.probe(h32)) >= 0:
                return sst, row, base
    except (FileNotFoundError, Corruption):
        pass
    return None


def _sqn_by_steps(steps: tuple[Step, ...], h32: int, ledger_key: bytes) -> int:
    """Sqn of the newest row that a key may have in these steps of a guide; _DELETED for a delete;
    0 if there is none. The key is not compared. The lines of Sst.probe are repeated here. Raises
    FileNotFoundError, Corruption."""
    for firsts, file, base, entries in steps:
        if firsts is not None:
            place = entries[bisect_right(firsts, ledger_key) - 1]
            file, base = place.file, place.sqn_base
        sst = file.sst
        if sst is None or sst.swift is None:
            sst = file.reader()
            row = sst.probe(h32)
            if row < 0:
                continue
            flags, sqns = sst.flags, sst.sqns
        else:
            table, homes, row_bits, low_bits, row_mask, flags, sqns = sst.swift
            at = h32 * homes >> 32
            slot = table[at]
            wanted = h32 & low_bits
            while slot and slot >> row_bits != wanted:
                at += 1
                slot = table[at]
            if not slot:
                continue
            row = (slot & row_mask) - 1
        sqn: int = sqns[row] + base
        return _DELETED if flags is not None and flags[row] & TOMBSTONE else sqn
    return 0
