"""Values of rows that a scan found, one journal read each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from mmap import mmap

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.journal_file import JournalFile
from octavo.actors.reader import Reader
from octavo.files import record
from octavo.files.errors import Corruption

_LOW_32 = record.LOW_32
_sum_at = record.unpack_sum
_KEY_AT = record.FIXED_BYTES
Opened = tuple[mmap | bytes, Sequence[int]]
"""A file's map and the offsets of its records."""


def read_values(
    reader: Reader,
    bucket: bytes,
    keys: Sequence[bytes],
    sqns: Sequence[int],
    tag: int,
    opened: Callable[[JournalFile], Opened] | None = None,
) -> list[bytes]:
    """The values of some rows of a bucket, in their order, checksums verified. Some 1.2 us each,
    and their bytes. ``opened`` maps a file that is being written, for those who read much of it.

    Where one cannot be read those before it come, fewer than were asked for; if that is the
    first, what is wrong is raised. Raises Corruption, SnapshotExpired, Closed.
    """
    bases, files = reader.view.journal
    plain = record.plain_fields(tag, bucket)
    value_from = record.FIXED_BYTES + record.SUMS_BYTES + len(bucket)
    out: list[bytes] = []
    low = high = 0
    try:
        for key, sqn in zip(keys, sqns, strict=True):
            if not low <= sqn < high:
                place = bisect_right(bases, sqn)
                file = files[place - 1]
                low = bases[place - 1] if place else sqn + 1  # below the first: file_of says so
                high = bases[place] if place < len(bases) else 1 << 64
                mapped, offsets = file.reading
                if mapped is None and opened is not None:
                    mapped, offsets = opened(file)
                seed = file.seed
            if mapped is None or sqn < low:
                out.append(_read(reader, bucket, key, sqn, plain))
                continue
            # LiveReads.get_from_ledger has the same lines: no call between here and the file.
            relative = sqn - low
            at = offsets[relative]
            end = offsets[relative + 1]
            value_at = at + value_from + len(key)
            head = mapped[at : value_at - 8]
            if (
                head[19:24] == plain
                and head[_KEY_AT:] == (bucket + key if bucket else key)
                and end >= value_at
            ):
                value = mapped[value_at:end]
                if xxh3(value, xxh3(head, seed ^ at)) & _LOW_32 == _sum_at(mapped, value_at - 4)[0]:
                    out.append(value)
                    continue
            out.append(_read(reader, bucket, key, sqn, plain))
    except (Corruption, FileNotFoundError, IndexError):
        if out:
            return out
        # Told as it is meant: an expired lease lets files go, and the short way names nothing.
        with reader.reading():
            return [_read(reader, bucket, keys[0], sqns[0], plain)]
    return out


def _read(reader: Reader, bucket: bytes, key: bytes, sqn: int, plain: bytes) -> bytes:
    """The value of any record that is a put of this key, however it is stored."""
    file = reader.view.journal.file_of(sqn)
    data, at = file.raw(sqn - file.base)
    found = record.value_of(data, file.seed ^ at, bucket + key, plain)
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
            file.path, 0, f"sqn {sqn} is no put, as the ledger says: did the clock go back?"
        )
    return whole.value
