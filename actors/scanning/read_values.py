"""Reads the values of rows that a scan found, with one read of the journal each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from mmap import mmap
from struct import error as StructError  # noqa: N812

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.journal_file import JournalFile
from octavo.actors.reader import Reader
from octavo.actors.reading.values_ahead import in_turn
from octavo.actors.scanning.kept_items import ItemsOfBucket
from octavo.actors.view import JournalView
from octavo.files.errors import Corruption, OctavoError
from octavo.files.journal import record, short_value
from octavo.files.journal.record import LOW_32
from octavo.files.ledger import ledger_key

_sum_at = record.unpack_u32
_KEY_AT = record.FIXED_BYTES
_MOST_FILES = 16
"""So many files are remembered, which keeps their maps alive, however many are read from."""
STRETCH_BYTES = 512 << 10
"""Bytes of values that are read together."""
Opened = tuple[mmap | bytes, Sequence[int]]
"""A file's map and the offsets of its records."""
_Way = tuple[int, int, mmap | bytes, Sequence[int], int]
"""How to read from a file: its first sqn, and the next file's; its map (of the file being written,
as far as that reaches); the offsets; the file's seed."""


class Last:
    """The last key that a scan gave, written here by the iterator that gives. That does not refer
    to the scan: in a cycle, a broken-off scan would stay until Python's collector runs."""

    __slots__ = ("key",)

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key


def read_values(
    reader: Reader,
    bucket: bytes,
    keys: Sequence[bytes],
    sqns: Sequence[int],
    tag: int,
    opened: Callable[[JournalFile], Opened] | None = None,
) -> list[bytes]:
    """The values of some rows of a bucket, as ``each_item`` gives them, up to the one with which
    they reach ``STRETCH_BYTES`` together.

    If one cannot be read, those before it are returned, fewer than requested; if it is the first,
    the error is raised. Raises Corruption, SnapshotExpired, Closed.
    """
    out: list[bytes] = []
    left = STRETCH_BYTES
    try:
        for _, value in each_item(reader, bucket, keys, sqns, tag, None, opened):
            out.append(value)
            left -= len(value)
            if left <= 0:
                break
    except OctavoError:
        if not out:
            raise
    return out


def each_item(
    reader: Reader,
    bucket: bytes,
    keys: Sequence[bytes],
    sqns: Sequence[int],
    tag: int,
    last: Last | None,
    opened: Callable[[JournalFile], Opened] | None = None,
    kept: ItemsOfBucket | None = None,
) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of some rows of a bucket, in their order, checksums verified; each is
    read when asked for, its key written to ``last``. Some 1.2 us each, and their bytes. ``opened``
    maps the file being written, if much of it is read; ``kept`` has items, and takes new ones.

    Raises Corruption, SnapshotExpired, Closed.
    """
    last = last or Last()
    bases = reader.view.journal.bases
    plain = short_value.plain_fields(tag, bucket)
    forms = short_value.forms(plain)
    value_from = record.FRAME_BYTES + len(bucket)
    cached, rows = reader.cached(), reader.view.recent.rows
    prefix = ledger_key.prefix(tag, bucket)
    low = high = 0
    ways: dict[int, _Way] = {}
    if kept is not None:
        (newer_keys, newer), (older_keys, older) = kept.newer, kept.older
    for key, sqn in zip(keys, in_turn(reader.view.journal, sqns), strict=True):
        if kept is not None:
            if (value := newer.get(sqn)) is None:
                value = older.get(sqn)
            if value is not None and (newer_keys.get(sqn) or older_keys[sqn]) == key:
                last.key = key
                yield key, value
                continue
        if (
            cached
            and (value := cached.get(name := prefix + key)) is not None
            # The cached value is its key's newest. It was fetched before these checks, which tell
            # whether the newest version is the one that the scan found.
            and reader.is_newest()
            and rows.get(name, sqn) == sqn
        ):
            last.key = key
            yield key, value
            continue
        try:
            if not low <= sqn < high:
                number = bisect_right(bases, sqn)
                way = ways.get(number) or _way(reader.view.journal, number, opened)
                low, high, mapped, offsets, seed = way
                if high and len(ways) < _MOST_FILES:  # each map holds a descriptor
                    ways[number] = way
            # The same lines are in PlainReads.get_from_ledger: inlined, since a call would cost.
            at = offsets[row := sqn - low]
            end = offsets[row + 1]
            value_at = at + value_from + len(key)
            head = mapped[at : value_at - 8]
            named, raw_at = bucket + key if bucket else key, 0
            if (fields := head[19:24]) == plain:
                found = head[_KEY_AT:]
            else:
                more, lengths, raw_at, _ = forms[fields]
                value_at += more
                for place in lengths:
                    value_at += _sum_at(mapped, at + place)[0]
                head = mapped[at : min(value_at, end) - 8]  # bounded: a damaged length may be huge
                found = head[_KEY_AT + more :][: len(named)]
            value = mapped[value_at:end]
            if (
                found != named
                or value_at > end
                or xxh3(value, xxh3(head, seed ^ at)) & LOW_32 != _sum_at(mapped, value_at - 4)[0]
            ):
                value = _read(reader, bucket, key, sqn, plain)
            elif raw_at:
                value = record.decompress(value, _sum_at(head, raw_at)[0])
        except (Corruption, FileNotFoundError, LookupError, ValueError, StructError):
            # Again the long way, whose error names what is damaged, or the lease that has expired.
            with reader.reading():
                value = _read(reader, bucket, key, sqn, plain)
        if kept is not None:
            kept = kept.keep(sqn, key, value)
        last.key = key
        yield key, value


def _way(
    journal: JournalView,
    number: int,
    opened: Callable[[JournalFile], Opened] | None,
) -> _Way:
    """How to read from file ``number - 1``."""
    if not number:  # the sqn is below all files: file_of raises the error
        return 0, 0, b"", (), 0
    bases, file = journal.bases, journal.files[number - 1]
    high = bases[number] if number < len(bases) else 1 << 64
    whole, offsets = file.reading
    if whole is None and opened is not None:
        whole, offsets = opened(file)
    mapped = file.growing.mapped if whole is None else whole
    # Without a map, no sqn is within [low, 0): so the next one looks again.
    return bases[number - 1], high if mapped else 0, mapped, offsets, file.seed


def _read(reader: Reader, bucket: bytes, key: bytes, sqn: int, plain: bytes) -> bytes:
    """Read the value of a put of this key, however its record is stored."""
    file = reader.view.journal.file_of(sqn)
    data, at = file.raw(sqn - file.base)
    # ``now_ms=0``, since whether it has expired was decided where the row was found.
    found = short_value.value_of(data, 0, len(data), file.seed ^ at, bucket + key, plain, now_ms=0)
    return _with_care(file, sqn, key) if found is None else found


def _with_care(file: JournalFile, sqn: int, key: bytes) -> bytes:
    whole = file.read(sqn)
    if whole.key != key:
        raise Corruption(
            file.path,
            0,
            f"sqn {sqn} is of another key than the ledger says",
            expected=key[:80],
            found=whole.key[:80],
        )
    if whole.kind != record.PUT:
        raise Corruption(
            file.path,
            0,
            f"sqn {sqn} is no put, though the ledger says it is: was the clock set back?",
        )
    return whole.value
