"""The shortest path to the head of a key: for live reads and for snapshots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.reading.guide import ROW_BITS, ROW_MASK, Step
from octavo.actors.reading.read_cache import ReadCache
from octavo.actors.view import View
from octavo.files.errors import Corruption
from octavo.files.journal import record
from octavo.files.journal.record import FRAME_BYTES, LOW_32
from octavo.files.journal.short_head import head_of
from octavo.files.ledger.head import Head
from octavo.files.ledger.ledger_key import end_of_prefix
from octavo.files.ledger.rows import TOMBSTONE
from octavo.files.ledger.sst import Sst

_FOR_HEADS = 3
"""A shift: kept heads of the ledger may take an eighth of the read cache's limit, on top of it."""
_made = tuple.__new__


class PlainHeads(ABC):
    """Heads of the newest state, or of a snapshot's."""

    view: View
    cache: ReadCache

    @abstractmethod
    def _head_with_care(self, ledger_key: bytes) -> Head | None:
        """Head by the long path, which decides every case and names every error."""

    @abstractmethod
    def _moment_ms(self, view: View) -> int:
        """The moment to judge expiry by, ms UTC."""

    def _head_from_memory(
        self,
        view: View,
        sqn: int,
        ledger_key: bytes,
        bucket_and_key: bytes,
        plain: bytes,
        now_ms: int,
    ) -> Head | None:
        bases, files = view.journal
        if sqn >= bases[-1]:  # as get_recent: plain, and in the file that is being written
            file = files[-1]
            offsets, mapped, relative = file.offsets, file.growing.mapped, sqn - file.base
            if relative < len(offsets) - 1:
                at, end = offsets[relative], offsets[relative + 1]
                value_at = at + FRAME_BYTES + len(bucket_and_key)
                head = mapped[at : value_at - 8]
                named = head[19:24] == plain and head[34:] == bucket_and_key
                if named and value_at <= end <= len(mapped):
                    h = xxh3(head, file.seed ^ at)
                    if h & LOW_32 == record.unpack_u32(mapped, value_at - 8)[0]:
                        time_ms = record.unpack_u64(head, 26)[0]
                        return _made(Head, (sqn, end - value_at, b"", time_ms, None))
        file = files[bisect_right(bases, sqn) - 1]
        try:
            data, at = file.raw(sqn - file.base)
        except (FileNotFoundError, Corruption):  # compacted or rolled since the view was taken
            return self._head_with_care(ledger_key)
        found = head_of(data, file.seed ^ at, bucket_and_key, plain, now_ms)
        if found is None:
            return self._head_with_care(ledger_key)
        return _made(Head, (sqn, *found))

    def head_in_ledger(self, view: View, ledger_key: bytes) -> Head | None:
        """Head of the live version of a key that is not in the view's memory; None if there is
        none. Raises Corruption."""
        guide = view.guide
        if (heads := guide.heads) and (found := heads.get(ledger_key)) is not None:
            return found
        cut = end_of_prefix(ledger_key)
        front, key = ledger_key[:cut], ledger_key[cut:]
        h32 = xxh3(ledger_key) & LOW_32
        slots, shift, parts = guide.rows
        if not (slot := slots[h32 >> shift]):
            return None
        part = parts[slot >> ROW_BITS]
        if (
            part is not None
            and (sst := part[1].sst) is not None
            and (columns := sst.head_columns) is not None
        ):
            buffer, at, ends, sqns, sizes, times, time_base = columns
            row = slot & ROW_MASK
            if buffer[at + ends[row] : at + ends[row + 1]] == key and (
                part[0] == front or (part[0] is None and sst.prefix_of(row) == front)
            ):
                if part[3]:
                    return self.head_of_row(view, sst, row, part[2])
                told = sqns[row] + part[2], sizes[row], b"", times[row] + time_base, None
                found = _made(Head, told)
                if heads is not None:
                    heads[ledger_key] = found
                return found
        places, mask, tails = guide.way
        steps = tails[places[h32 & mask]]
        return self.head_by_steps(view, steps, h32, ledger_key, front, key) if steps else None

    def head_by_steps(
        self,
        view: View,
        steps: tuple[Step, ...],
        h32: int,
        ledger_key: bytes,
        front: bytes,
        key: bytes,
    ) -> Head | None:
        """Head of a key that is not in the view's memory but may be in these steps of its guide, if
        the guide's table of rows did not tell. ``h32``: see get_from_ledger. ``front`` and ``key``:
        the ledger key's prefix, and the rest. The lines of ``Sst.find`` are repeated here."""
        try:
            for firsts, file, base, entries in steps:
                if firsts is not None:
                    place = entries[bisect_right(firsts, ledger_key) - 1]
                    file, base = place.file, place.sqn_base
                sst = file.sst
                if sst is None or sst.swift_head is None:
                    sst = file.reader()
                    row = sst.find(ledger_key, h32)
                    if row < 0:
                        continue
                    return self.head_of_row(view, sst, row, base)
                table, homes, row_bits, low_bits, row_mask, prefix, metas, flags, columns = (
                    sst.swift_head
                )
                buffer, keys_at, ends, sqns, sizes, times, time_base = columns
                if prefix != front:
                    continue
                at = h32 * homes >> 32
                wanted = h32 & low_bits
                while slot := table[at]:
                    if slot >> row_bits == wanted:
                        end = slot & row_mask
                        row = end - 1
                        if buffer[keys_at + ends[row] : keys_at + ends[end]] == key:
                            if metas or (flags is not None and flags[row]):
                                return self.head_of_row(view, sst, row, base)
                            told = sqns[row] + base, sizes[row], b"", times[row] + time_base, None
                            found = _made(Head, told)
                            if (heads := view.guide.heads) is not None:
                                heads[ledger_key] = found
                            return found
                    at += 1
        except (FileNotFoundError, Corruption):
            return self._head_with_care(ledger_key)
        return None

    def head_of_row(self, view: View, sst: Sst, row: int, base: int) -> Head | None:
        """Head of a row of any kind in a ledger file; None for a delete, or if it has expired.
        Raises Corruption, FileNotFoundError."""
        expires_at = None
        if flags := sst.flags[row]:
            if flags & TOMBSTONE:
                return None
            expires_at = sst.expiry(row)
            if expires_at <= self._moment_ms(view):
                return None
        told = sst.sqns[row] + base, sst.sizes[row], sst.meta(row), sst.time(row), expires_at
        return _made(Head, told)

    def wants_heads(self) -> None:
        """Call Guide.wanted for heads; to be called at one head in many."""
        self.view.guide.wanted(heads=True, room=self.cache.limit >> _FOR_HEADS)
