"""Scans: the iterators over a range that bucket.keys(), items(), values() and heads() return.

A scan is an ``itertools.chain``, and is drained at that speed; where it stands is worked out only
when its position is asked for.

A position is text: base64 (URL-safe, without padding) of

    version u8 | flags u8 | range, 8 bytes | key | xxh3-64 of all before, low 4 bytes

The range is xxh3-64 of the bucket's ledger-key prefix, the bounds and the direction, so that a
position is only valid with these. Without a key (a flag) it is the place before the first one.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.journal_file import JournalFile
from octavo.actors.reader import STEP, Reader
from octavo.actors.scanning.batch_values import BatchValues, OpenJournal, few_a_file
from octavo.actors.scanning.batches import BatchWindow
from octavo.actors.scanning.read_values import STRETCH_BYTES, Last, Opened, each_item, read_values
from octavo.actors.scanning.scan_windows import Window
from octavo.drained import Drained
from octavo.files.argument_checks import shown
from octavo.files.errors import Misuse
from octavo.files.journal.record import LOW_32
from octavo.files.kernels.arrays import np
from octavo.files.kernels.freed_memory import keep_freed
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.chosen_rows import Segments
from octavo.files.ledger.head import Head
from octavo.files.ledger.ledger_key import MAX_KEY_BYTES
from octavo.files.ledger.live_batches import parts_of

T = TypeVar("T")

LEAST_FIRST = 16
"""Rows to find at first, however few are wanted."""
_VERSION = 1
_HAS_KEY = 1
_FRONT_BYTES = 10
_SUM_BYTES = 4
_LONGEST_TOKEN = (MAX_KEY_BYTES + _FRONT_BYTES + _SUM_BYTES + 2) // 3 * 4
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
"""The mapping of ``urlsafe_b64decode``, which itself would ignore any other characters."""
_SHORT = 128
"""Rows that an item scan reads one by one. Later ones are read up to STEP at a time, with at most
STRETCH_BYTES of values, or a single one."""
_AHEAD = 4
"""At most one row is read for each so many given, so that a broken-off scan has read few more."""
_LOCATED_ROWS, _LOCATED_BYTES = 1 << 13, 16 << 20
"""So many rows of a batch, or bytes of their values, are located together at most, and no more than
were given so far."""
_TOGETHER = 2048
"""So many located values are cut out together at most, and no more than were given so far. It is so
many since, if they are in dozens of files, a kernel then gets dozens of each."""
_LARGE_BYTES = 24 << 10
"""Values of at least so many bytes on average are not located ahead."""
_FIRST = 16
"""How many values the first stretch has."""


def range_of(bound: Bounds) -> bytes:
    """The hash that ties a position to a bucket, bounds and a direction. O(bytes of the bounds)."""
    parts = (bound.prefix, bound.low, b"" if bound.high is None else b"\x01" + bound.high)
    whole = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return xxh3(whole, bound.reverse).to_bytes(8, "little")


def encode(of: bytes, key: bytes | None) -> str:
    """A position behind ``key``, or (None) before the first one, in the range ``of``."""
    flags = 0 if key is None else _HAS_KEY
    whole = bytes((_VERSION, flags)) + of + (key or b"")
    whole += (xxh3(whole) & LOW_32).to_bytes(_SUM_BYTES, "little")
    return base64.urlsafe_b64encode(whole).rstrip(b"=").decode("ascii")


def decode(of: bytes, resume: object) -> bytes | None:
    """The key that a position stands behind; None: before the first one.

    Raises Misuse if it is no position, was altered, or is of another range.
    """
    if not isinstance(resume, str):
        raise Misuse(
            f"resume is of type {type(resume).__name__}: allowed is a scan's position, a str"
        )
    try:
        if len(resume) > _LONGEST_TOKEN:
            raise ValueError
        packed = resume.encode("ascii")
        padded = packed.translate(_TO_STANDARD) + b"=" * (-len(packed) % 4)
        whole = base64.b64decode(padded, validate=True)
        if base64.urlsafe_b64encode(whole).rstrip(b"=") != packed:
            raise ValueError  # it has "+", "/", or unused bits set in the last character
        if len(whole) < _FRONT_BYTES + _SUM_BYTES:
            raise ValueError
        body, stored = whole[:-_SUM_BYTES], whole[-_SUM_BYTES:]
        if (xxh3(body) & LOW_32).to_bytes(_SUM_BYTES, "little") != stored:
            raise ValueError
    except (ValueError, binascii.Error, UnicodeEncodeError):
        raise Misuse(f"resume={shown(resume)} is no position of a scan, or was altered") from None
    version, flags, key = body[0], body[1], body[_FRONT_BYTES:]
    if version != _VERSION or flags & ~_HAS_KEY or bool(key) != bool(flags & _HAS_KEY):
        raise Misuse(
            f"resume is a position of version {version}: this release reads version {_VERSION}"
        )
    if body[2:_FRONT_BYTES] != of:
        raise Misuse(
            "resume is a position in another range: allowed is one that was taken with the same "
            "bucket, start, end, prefix and reverse"
        )
    return key or None


class Place:
    """Where a scan stands: written by what feeds the scan, read by its ``position``. It holds what
    is being drained, which must not hold it: see Last."""

    __slots__ = ("bound", "done", "last", "part", "stretch")

    def __init__(self, bound: Bounds, behind: bytes | None) -> None:
        self.bound = bound
        self.last = Last(behind)
        """The key given last or, while there is a ``stretch``, the one before it."""
        self.stretch: list[bytes] = []
        """The keys being given at C speed; empty while each one is written to ``last``."""
        self.part: Any = iter(())
        """The iterator being drained. While there is a stretch it is a list's, which knows how much
        is left of it."""
        self.done = False
        """Whether the range has been read to its end."""

    def key(self) -> bytes | None:
        """The key of what was given last; None if nothing was yet. O(1)."""
        if self.stretch:
            given: int = len(self.stretch) - self.part.__length_hint__()
            if given:
                return self.stretch[given - 1]
        return self.last.key

    def giving(self, stretch: list[bytes], part: list[Any]) -> Iterator[Any]:
        """Note that ``part`` is given next, one item for each of these keys; returns an
        iterator."""
        self.settle()
        self.stretch, self.part = stretch, iter(part)
        return self.part  # type: ignore[no-any-return]

    def giving_each(self, part: Iterator[Any]) -> Iterator[Any]:
        """Note that what is given next comes from a generator that writes each key to ``last``."""
        self.settle()
        self.part = part
        return part

    def settle(self) -> None:
        """Note that all of the current part was given."""
        self.last.key = self.key()
        self.stretch, self.part = [], iter(())

    def close(self) -> None:
        """Have the current part give nothing more."""
        part, keys = self.part, len(self.stretch)
        self.settle()
        if keys:
            part.__setstate__(keys)
        elif hasattr(part, "close"):
            part.close()


class Scan(Drained[T]):
    """An iterator over a range that knows its position.

    It reads from a snapshot, which it releases at its end, when it is closed (``close()``, or a
    ``with`` block) or when nothing refers to it any more. Not for use by two threads at once.
    """

    _place: Place

    @property
    def position(self) -> str | None:
        """Where the scan stands: after what it gave last. None once the range has been read to its
        end.

        Printable text, to be passed as ``resume=`` to a later call, also in another process, with
        the same bucket, start, end, prefix and reverse. What is read (keys, items, values, heads),
        the filters and the limit may differ. On a live bucket that call also sees what was written
        ahead of the position meanwhile. As long as 4/3 of the key and 20 characters. O(1).
        """
        place = self._place
        return None if place.done else encode(range_of(place.bound), place.key())

    def __contains__(self, wanted: object) -> bool:
        """Whether it gives ``wanted``: reads on until it does. ``key in bucket`` is one lookup.

        Raises Misuse for a str where bytes come out, and the other way round: never equal.
        """
        for found in self:
            if found == wanted:
                return True
            if isinstance(wanted, str | bytes) and type(found) is not type(wanted):
                raise Misuse(
                    f"this scan gives {type(found).__name__}, and is asked for a "
                    f"{type(wanted).__name__}; `key in bucket` takes both"
                )
        return False

    def __repr__(self) -> str:
        key = self._place.key()
        if self._place.done:
            return "<octavo.Scan at its end>"
        return f"<octavo.Scan {'at its beginning' if key is None else f'behind {shown(key)}'}>"


Give = Callable[[Reader, Window, Place], Iterator[Iterator[Any]]]
"""Makes what a scan gives of a window, in parts, each noted in the place."""


def parts(
    reader: Reader,
    windows: Iterable[Window],
    place: Place,
    keep: Callable[[Window], None] | None,
    limit: int | None,
    give: Give,
) -> Iterator[Iterator[Any]]:
    """Yield what a scan drains: for each window what ``give`` makes of it, up to ``limit`` rows.

    Closes the reader at the end. A broken-off scan only drops its reader: the collector may be
    doing that, in any turn, and must not ask for another turn.
    """
    if limit != 0:
        for window in windows:
            if keep is not None:
                with reader.reading():
                    keep(window)
            if limit is not None:
                window.cut(limit)
                limit -= len(window.keys)
            yield from give(reader, window, place)
            if limit == 0:
                break
        else:
            place.settle()
            place.done = True
    reader.close()


def in_segments(reader: Reader, bound: Bounds, segments: Segments) -> Iterator[Window]:
    """Yield windows of those rows of a bucket's range that are in some segments."""
    return map(BatchWindow, reader.batches(bound, segments, heads=True))


def keys_of(reader: Reader, window: Window, place: Place) -> Iterator[Iterator[Any]]:
    """Yield the keys of a window, in stretches."""
    for stretch in reader.steps(window.keys):
        yield place.giving(stretch, stretch)


class Text:
    """Decodes what scans with ``text=True`` give."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def out(self, found: bytes) -> str:
        """``found`` as text. Raises Misuse."""
        try:
            return found.decode()
        except UnicodeDecodeError as wrong:
            raise Misuse(
                f"bucket {self._name!r} was opened with text=True, but holds {found[:40]!r}: "
                f"{wrong}"
            ) from None

    def keys_of(self, reader: Reader, window: Window, place: Place) -> Iterator[Iterator[Any]]:
        """Yield the keys of a window as text, in stretches."""
        for stretch in reader.steps(window.keys):
            decoded: list[str] = []
            try:
                decoded.extend(map(bytes.decode, stretch))
            except UnicodeDecodeError:
                yield place.giving(stretch[: len(decoded)], decoded)
                self.out(stretch[len(decoded)])
            yield place.giving(stretch, decoded)


class Items:
    """Gives the pairs, or the values, of windows of one bucket. Values are read one by one while
    the scan may be a short one, then a stretch at a time, but never many bytes."""

    def __init__(self, name: bytes, tag: int, text: Text | None, *, with_keys: bool) -> None:
        self._name = name
        self._tag = tag
        self._text = text
        self._with_keys = with_keys
        self._mean = STRETCH_BYTES // _FIRST  # mean bytes of a value in the stretch before
        self._given = 0
        self._opened: Callable[[JournalFile], Opened] | None = None
        self._located: BatchValues | None = None
        self._looked = 0  # how many had been given at the last look at the lease

    def __call__(self, reader: Reader, window: Window, place: Place) -> Iterator[Iterator[Any]]:
        self._looked = self._given
        if self._given >= _SHORT:
            keep_freed()
        # Large values are hashed and cut out one by one, so that they come from memory only once.
        if isinstance(window, BatchWindow) and self._mean < _LARGE_BYTES:
            yield from self._of_batch(reader, window, place)
            return
        keys, sqns = window.keys, window.sqns()
        low = 0
        if self._given < _SHORT:
            low = min(_SHORT - self._given, len(keys))
            yield self._one_by_one(reader, keys[:low], sqns[:low], place, window)
        yield from self._in_stretches(reader, keys[low:], sqns[low:], place)

    def _in_stretches(
        self, reader: Reader, keys: list[bytes], sqns: list[int], place: Place
    ) -> Iterator[Iterator[Any]]:
        """Yield what is given of these rows; values are read a stretch at a time."""
        low = 0
        while low < len(keys):
            high = low + max(min(STRETCH_BYTES // self._mean, STEP, self._given // _AHEAD), 1)
            stretch = keys[low:high]
            if self._opened is None:
                self._opened = OpenJournal().open
            values = read_values(
                reader, self._name, stretch, sqns[low:high], self._tag, self._opened
            )
            low += len(values)
            yield self._together(reader, stretch, values, place)

    def _one_by_one(
        self, reader: Reader, keys: list[bytes], sqns: list[int], place: Place, of: Window
    ) -> Iterator[Any]:
        """What is given of these rows; each value is read on request, unless its item is kept."""
        self._given += len(keys)
        last = place.last if self._text is None else None
        kept = reader.kept_items(of, place.bound.prefix)
        items: Iterator[Any] = each_item(reader, self._name, keys, sqns, self._tag, last, kept=kept)
        if self._text is not None:
            items = self._decoded(items, place.last)
        elif not self._with_keys:
            items = _values_of(items)
        return place.giving_each(items)

    def _of_batch(
        self, reader: Reader, window: BatchWindow, place: Place
    ) -> Iterator[Iterator[Any]]:
        """Yield what is given of many rows, whose values array kernels locate together."""
        if self._located is None:
            self._located = BatchValues(reader)
        first = 0
        while first < len(window.keys):
            rest = window.batch._replace(rows=window.batch.rows[first:])
            rows = min(max(self._given, _SHORT), _LOCATED_ROWS)
            part = next(parts_of(rest, rows, _LOCATED_BYTES, by_values=True))
            if few_a_file(reader, part):
                sqns = part.columns.sqns[part.rows].tolist()
                first, keys = first + len(sqns), window.keys[first : first + len(sqns)]
                yield from self._in_stretches(reader, keys, sqns, place)
                continue
            located = self._located.locate(part, of=rest)
            filled = np.cumsum(located.sizes()).tolist()
            low, end = 0, len(located)
            while low < end:
                before = filled[low - 1] if low else 0
                most = min(low + max(min(self._given, _TOGETHER), STEP), end)
                high = bisect_right(filled, before + STRETCH_BYTES, low, most)
                values = located.values(low, max(high, low + 1))
                stretch = window.keys[first + low : first + low + len(values)]
                low += len(values)
                for at in range(0, len(values), STEP):  # the lease is looked at before each
                    few = slice(at, at + STEP)
                    yield self._together(reader, stretch[few], values[few], place)
            first += end

    def _together(
        self, reader: Reader, keys: list[bytes], values: list[bytes], place: Place
    ) -> Iterator[Any]:
        """What is given of the first keys, as many as there are values."""
        if self._given - self._looked >= STEP:
            reader.step()
            self._looked = self._given
        self._given += len(values)
        self._mean = sum(map(len, values)) // len(values) + 1
        if len(values) < len(keys):
            keys = keys[: len(values)]
        if self._text is not None:
            return place.giving_each(self._decoded(zip(keys, values, strict=True), place.last))
        if self._with_keys:
            return place.giving(keys, list(zip(keys, values, strict=True)))
        return place.giving(keys, values)

    def _decoded(self, pairs: Iterable[tuple[bytes, bytes]], last: Last) -> Iterator[Any]:
        out = self._text.out  # type: ignore[union-attr]
        for key, value in pairs:
            given = (out(key), out(value)) if self._with_keys else out(value)
            last.key = key
            yield given


def _values_of(items: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for _, value in items:
        yield value


class Heads:
    """Gives (key, head) of each row of a window."""

    def __init__(
        self, text: Text | None, build: Callable[[bytes, Head], Any] | None = None
    ) -> None:
        """``build``: makes the type's head from (key, Head)."""
        self._text = text
        self.build = build

    def __call__(self, reader: Reader, window: Window, place: Place) -> Iterator[Iterator[Any]]:
        with reader.reading():
            keys, heads = window.keys, window.heads()
        for low in range(0, len(keys), STEP):
            reader.step()
            stretch = keys[low : low + STEP]
            found: list[Any] = heads[low : low + STEP]
            if self.build is not None:
                found = list(map(self.build, stretch, found))
            names = stretch if self._text is None else list(map(self._text.out, stretch))
            yield place.giving(stretch, list(zip(names, found, strict=True)))
