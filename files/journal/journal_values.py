"""Finds and reads values in journal records, many at a time: framing and keys are checked by array
kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from mmap import mmap
from typing import NamedTuple, TypeAlias

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.journal import record
from octavo.files.journal.record import FIXED_BYTES, LEAST_BYTES, LOW_32, SUMS_BYTES
from octavo.files.journal.sparse_offsets import SparseOffsets
from octavo.files.kernels.arrays import np, npt
from octavo.files.kernels.byte_strings import (
    Ints,
    Mask,
    Words,
    array_of,
    gather,
    numbers_at,
    windows,
)
from octavo.files.kernels.columns import Bytes, Strings, names_at
from octavo.files.kernels.xxh3_columns import xxh3_of

Offsets: TypeAlias = "npt.NDArray[np.uint32] | Sequence[int]"
"""A file's table of offsets, plain or sparse; what is no array is viewed as one, not copied."""

FIXED_FIELDS = [
    ("key", "<u4"), ("content", "<u4"), ("number", ">u8"), ("magic", "V2"), ("version", "u1"),
    ("kind", "u1"), ("tag", "u1"), ("flags", "u1"), ("bucket", "<u2"), ("key_1", "<u2"),
    ("time", "<u8"),
]  # fmt: skip
"""The fixed part of a record, as record.py has it; see fixed_fields."""
_SMALL_BYTES = 4096
_MANY = 2048
"""From so many records on, array kernels compute checksums more cheaply."""
_MOST_WORDS = 16
"""Keys of up to so many words of 8 bytes are compared all at once."""
_VISITED_BYTES = 40
assert _VISITED_BYTES <= LEAST_BYTES  # not a guard


@cache
def _visited() -> np.dtype[np.void]:
    """The fields that are looked at in each record. ``middle``: all from the magic to the bucket's
    length. The size is in whole words, so that fields are aligned in an array of such: unaligned
    ones cost several times as much."""
    fields = {
        "content": ("<u4", 4), "middle": ("<u8", 16), "kind": ("u1", 19), "tag": ("u1", 20),
        "flags": ("u1", 21), "bucket": ("<u2", 22), "key_1": ("<u2", 24),
    }  # fmt: skip
    formats, places = zip(*fields.values(), strict=True)
    return np.dtype(
        {"names": [*fields], "formats": formats, "offsets": places, "itemsize": _VISITED_BYTES}
    )


@cache
def optional_bytes() -> Ints:
    """How many bytes the optional fields take, by flags."""
    fields = record.OPTIONAL_FIELDS
    return np.array([sum(n for flag, n in fields if flags & flag) for flags in range(64)])


def fixed_fields(raw: Bytes, starts: Ints) -> npt.NDArray[np.void]:
    """The fixed fields, by name, of the records that begin at ``starts``; copied."""
    return windows(raw, FIXED_BYTES)[starts].view(np.dtype(FIXED_FIELDS))


Right: TypeAlias = "Callable[[Ints, Ints, Ints], Mask]"
"""Given where records begin, where their headers end, and where they end: which of them are as they
were written."""
Check: TypeAlias = "int | Right"
"""How records are checked: by their own checksums, given the file's seed, or by a function."""


class Frames(NamedTuple):
    """Where the parts of some records stand in their file."""

    starts: Ints
    keys_at: Ints
    head_ends: Ints
    ends: Ints
    raw_bytes: Ints
    """Bytes of the value before compression; -1 where it is stored as it is."""
    bucket_bytes: Ints
    key_bytes: Ints


def spans(offsets: Offsets, relative: Ints) -> tuple[Ints, Ints]:
    """(where the records of these relative numbers begin, where they end at the latest); 0 and 0
    where the file has no such number."""
    starts = np.zeros(len(relative), dtype=np.int64)
    limits = np.zeros(len(relative), dtype=np.int64)
    if isinstance(offsets, SparseOffsets):
        numbers, table = array_of(offsets.numbers), array_of(offsets.starts)
        at = np.searchsorted(numbers, relative)
        there = np.flatnonzero(at < len(numbers))
        there = there[numbers[at[there]] == relative[there]]
        places = at[there]
    else:
        table = np.asarray(offsets, dtype=np.uint32)
        if _are_a_range(relative, len(table) - 1):
            edges = table[relative[0] : relative[-1] + 2].astype(np.int64)
            return edges[:-1], edges[1:]
        if len(relative) and relative.min() >= 0 and relative.max() < len(table) - 1:
            neighbours = np.ndarray((len(table) - 1,), "V8", table, 0, (4,))  # one visit for both
            pairs = neighbours[relative].view(np.uint32)
            return pairs[::2].astype(np.int64), pairs[1::2].astype(np.int64)
        there = np.flatnonzero((relative >= 0) & (relative < len(table) - 1))
        places = relative[there]
    starts[there] = table[places]
    limits[there] = table[places + 1]
    return starts, limits


def _are_a_range(relative: Ints, count: int) -> bool:
    """Whether these are consecutive numbers within [0, count)."""
    if not len(relative) or relative[0] < 0 or relative[-1] >= count:
        return False
    apart = relative[-1] - relative[0] == len(relative) - 1
    return bool(apart) and bool((relative[1:] > relative[:-1]).all())


def _inside(raw: Bytes, starts: Ints, limits: Ints) -> Ints:
    """Which records may be whole: those long enough for one, and within the file."""
    return np.flatnonzero((limits - starts >= LEAST_BYTES) & (limits <= len(raw)))


def puts_of(
    mapped: mmap | bytes,
    offsets: Offsets,
    relative: Ints,
    seed: int,
    most_bytes: int,
) -> list[tuple[bytes, bytes, bytes] | None]:
    """(bucket, key, value) of the puts at some relative numbers in a journal file, in order; fewer
    than asked for if the compressed ones would take more than ``most_bytes`` decompressed.

    None where the record is not whole, or not a put: decode it in full and learn why. Both
    checksums are compared: some 0.6 us a record, and the hashing of its bytes.
    """
    out: list[tuple[bytes, bytes, bytes] | None] = [None] * len(relative)
    if not len(mapped):
        return out
    raw = np.frombuffer(mapped, dtype=np.uint8)
    starts, limits = spans(offsets, relative)
    inside = _inside(raw, starts, limits)
    good, frames = _framed(raw, starts[inside], limits[inside], None)
    rows = np.flatnonzero(good)
    filled = np.cumsum(np.maximum(frames.raw_bytes[rows], 0))
    if len(filled) and filled[-1] > most_bytes:
        rows = rows[: max(int(np.searchsorted(filled, most_bytes, side="right")), 1)]
        del out[int(inside[rows[-1]]) + 1 :]
    starts, keys_at, head_ends = frames.starts[rows], frames.keys_at[rows], frames.head_ends[rows]
    parts = zip(
        inside[rows].tolist(),
        starts.tolist(),
        (keys_at - frames.bucket_bytes[rows]).tolist(),
        keys_at.tolist(),
        (keys_at + frames.key_bytes[rows]).tolist(),
        head_ends.tolist(),
        frames.ends[rows].tolist(),
        numbers_at(raw, head_ends, "<u4").tolist(),
        numbers_at(raw, head_ends + 4, "<u4").tolist(),
        frames.raw_bytes[rows].tolist(),
        strict=True,
    )
    for row, start, bucket_at, key_at, key_end, head_end, end, head_sum, value_sum, packed in parts:
        h = xxh3(mapped[start:head_end], seed ^ start)
        stored = mapped[head_end + SUMS_BYTES : end]
        if h & LOW_32 != head_sum or xxh3(stored, h) & LOW_32 != value_sum:
            continue
        value = stored if packed < 0 else _decompressed(stored, packed)
        if value is not None:
            out[row] = mapped[bucket_at:key_at], mapped[key_at:key_end], value
    return out


def _decompressed(stored: bytes | memoryview, raw_bytes: int) -> bytes | None:
    try:
        return record.decompress(stored, raw_bytes)
    except ValueError:
        return None


def _framed(raw: Bytes, starts: Ints, limits: Ints, tag: int | None) -> tuple[Mask, Frames]:
    """(which records are puts that fill [start, limit), of this tag if one is given; where their
    parts are).

    Nothing is read beyond a limit: where a length leads there, the record is not whole.
    """
    # One visit to each record: they stand far apart, and each visit waits for memory.
    head = windows(raw, _VISITED_BYTES)[starts].view(_visited())
    fields = head
    if len(head) > 1 and bool((head["middle"] == head["middle"][0]).all()):
        fields = head[:1]  # all of them share its middle
    flags = fields["flags"]
    good: Mask = np.empty(len(starts), np.bool_)
    good[:] = (fields["kind"] == record.PUT) & (flags < 64)
    if tag is not None:
        good &= fields["tag"] == tag
    bucket_bytes: Ints = np.broadcast_to(fields["bucket"].astype(np.int64), starts.shape)
    key_bytes = head["key_1"].astype(np.int64) + 1
    ends = starts + 16 + head["content"]
    keys_at = starts + FIXED_BYTES + bucket_bytes
    raw_bytes = np.full(len(starts), -1, dtype=np.int64)
    head_ends = keys_at + key_bytes
    if flags.any():
        flags = head["flags"]
        optional = optional_bytes()[flags & 63]
        good &= starts + FIXED_BYTES + optional + SUMS_BYTES <= limits
        keys_at += optional
        head_ends += optional + _more(raw, starts + FIXED_BYTES, flags, good, raw_bytes)
    good &= (head_ends + SUMS_BYTES <= ends) & (ends == limits)
    nowhere = np.flatnonzero(~good)
    keys_at[nowhere] = head_ends[nowhere] = ends[nowhere] = starts[nowhere]
    return good, Frames(starts, keys_at, head_ends, ends, raw_bytes, bucket_bytes, key_bytes)


def _more(raw: Bytes, at: Ints, flags: npt.NDArray[np.uint8], good: Mask, raw_bytes: Ints) -> Ints:
    """How many bytes of each good record's header stand behind its key, as its optional fields say,
    which begin at ``at``. Sizes of values before compression go into ``raw_bytes``."""
    more = np.zeros(len(at), dtype=np.int64)
    at = at.copy()
    for flag, size in record.OPTIONAL_FIELDS:
        has = np.flatnonzero(good & ((flags & flag) != 0))
        if not len(has):
            continue
        if flag in (record.METADATA, record.INDEX, record.SUB_KEY):
            more[has] += numbers_at(raw, at[has], f"<u{size}")
        elif flag == record.LZ4:
            raw_bytes[has] = numbers_at(raw, at[has], f"<u{size}")
        at[has] += size
    return more


def _of_these_keys(raw: Bytes, frames: Frames, bucket: bytes | Strings, keys: Strings) -> Mask:
    """Which records are of this bucket (or these, one each) and of these keys, one each."""
    starts, keys_at = frames.starts, frames.keys_at
    long = len(bucket) if isinstance(bucket, bytes) else bucket.lengths
    same: Mask = (frames.key_bytes == keys.lengths) & (frames.bucket_bytes == long)
    same &= keys_at > starts
    if not isinstance(bucket, bytes):
        rows = np.flatnonzero(same & (bucket.lengths > 0))
        if len(rows):
            names = bucket.picked(rows)
            stored = Strings(raw, keys_at[rows] - names.lengths, names.lengths)
            same[rows] = _equal(stored, names)
    elif bucket:
        rows = np.flatnonzero(same)
        found = windows(raw, len(bucket))[keys_at[rows] - len(bucket)]
        wanted = np.frombuffer(bucket, dtype=np.uint8)
        equal = (found.view(np.uint8).reshape(-1, len(bucket)) == wanted).all(axis=1)
        same[rows[~equal]] = False
    if same.all() and len(same):
        return _equal(Strings(raw, keys_at, keys.lengths), keys)
    rows = np.flatnonzero(same)
    if len(rows):
        given = keys.picked(rows)
        same[rows] = _equal(Strings(raw, keys_at[rows], given.lengths), given)
    return same


def _equal(strings: Strings, others: Strings) -> Mask:
    """Which pairs of strings are equal. Both of a pair are equally long; there is a pair."""
    lengths = strings.lengths
    longest = int(lengths.max())
    words = (longest + 7) >> 3
    wide = 8 * words
    if words > _MOST_WORDS:
        return _equal_one_by_one(strings, others)
    last = int(strings.starts.max()), int(others.starts.max())
    if last[0] + wide > len(strings.blob) or last[1] + wide > len(others.blob):
        return _equal_at_the_end(strings, others, wide)
    # Compared as if all were as long as the longest; then what is behind a string is masked.
    found, wanted = (
        windows(part.blob, wide)[part.starts].view(np.uint64).reshape(-1, words)
        for part in (strings, others)
    )
    found ^= wanted
    if int(lengths.min()) < longest:
        found &= _within(words)[lengths]
    elif longest < wide:
        found &= _within(words)[longest]
    if not found.any():
        return np.ones(len(lengths), np.bool_)
    same: Mask = np.logical_not(found.any(axis=1))
    return same


def _equal_at_the_end(strings: Strings, others: Strings, wide: int) -> Mask:
    """As ``_equal``, where some strings begin less than ``wide`` bytes before their blob ends."""
    room = strings.starts + wide <= len(strings.blob)
    room &= others.starts + wide <= len(others.blob)
    equal = np.zeros(len(room), np.bool_)
    for these, compare in ((room, _equal), (~room, _equal_one_by_one)):
        rows = np.flatnonzero(these)
        if len(rows):
            equal[rows] = compare(strings.picked(rows), others.picked(rows))
    return equal


def _equal_one_by_one(strings: Strings, others: Strings) -> Mask:
    """As ``_equal``, byte by byte, however long the strings are and wherever they end."""
    one, other = (gather(part.blob, part.starts, part.lengths) for part in (strings, others))
    equal = np.ones(len(strings.lengths), np.bool_)
    wrong = np.flatnonzero(one.blob != other.blob)
    equal[np.searchsorted(one.offsets, wrong, side="right") - 1] = False
    return equal


@cache
def _within(words: int) -> npt.NDArray[np.uint64]:
    """A mask for each length of a string in so many words: ones over its bytes, zeros behind."""
    at = np.arange(8 * words + 1)
    return np.where(at[:-1] < at[:, None], 255, 0).astype(np.uint8).view(np.uint64)


class Places(NamedTuple):
    """Where the values of some puts stand in their file, an element each."""

    good: Mask
    """Which are whole puts of the right keys; for the others the columns mean nothing."""
    at: Ints
    lengths: Ints
    """Bytes as stored."""
    raw_bytes: Ints
    """Bytes of the value before compression; -1 where it is stored as it is."""

    def some(self, rows: Ints) -> Places:
        """The places of some of the puts."""
        return Places(self.good[rows], self.at[rows], self.lengths[rows], self.raw_bytes[rows])


def places_at(
    mapped: mmap | bytes,
    starts: Ints,
    limits: Ints,
    check: Check | None,
    tag: int,
    bucket: bytes | Strings,
    keys: Strings,
) -> Places:
    """Where the value of each key's put stands, in records at these ``starts`` and ``limits``, one
    a key, as ``spans`` gives them. ``bucket``: that of all keys, or of each.

    Framing and keys are compared, 0.05 us a record; given a check, so are both checksums: some
    0.5 us a record more, and the hashing of its bytes.
    """
    count = len(starts)
    out = Places(
        np.zeros(count, np.bool_),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
        np.full(count, -1, np.int64),
    )
    if not len(mapped):
        return out
    raw = np.frombuffer(mapped, dtype=np.uint8)
    inside = _inside(raw, starts, limits)
    at: Ints | slice = inside if len(inside) < count else slice(None)
    good, frames = _framed(raw, starts[at], limits[at], tag)
    names = names_at(bucket, at)
    out.good[at] = good & _of_these_keys(raw, frames, names, keys.picked(at))
    values_at = frames.head_ends + SUMS_BYTES
    out.at[at] = values_at
    out.lengths[at] = frames.ends - values_at
    out.raw_bytes[at] = frames.raw_bytes
    if check is not None:
        rows = np.flatnonzero(out.good)
        values_at = out.at[rows]
        found = starts[rows], values_at - SUMS_BYTES, values_at + out.lengths[rows]
        out.good[rows] = right_of(mapped, *found, check)
    return out


def places_unseen(
    mapped: mmap | bytes,
    starts: Ints,
    limits: Ints,
    seed: int,
    tag: int,
    bucket: bytes | Strings,
    keys: Strings,
) -> tuple[Places, tuple[Words, Ints]]:
    """As places_at, but only the checksums of headers are compared. What each value must hash to
    (seeds, lower halves) is returned for the caller to compare. 0.3 us a record more than without
    checksums."""
    found = places_at(mapped, starts, limits, None, tag, bucket, keys)
    seeds, sums = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.int64)
    rows = np.flatnonzero(found.good)
    if len(rows):
        cut, raw = memoryview(mapped), np.frombuffer(mapped, dtype=np.uint8)
        ends = found.at[rows] - SUMS_BYTES
        heads = zip(starts[rows].tolist(), ends.tolist(), strict=True)
        seeds[rows] = np.array([xxh3(cut[at:end], seed ^ at) for at, end in heads], np.uint64)
        sums[rows] = numbers_at(raw, ends + 4, "<u4")
        found.good[rows] = (seeds[rows] & np.uint64(LOW_32)) == numbers_at(raw, ends, "<u4")
    return found, (seeds, sums)


def right_of(mapped: mmap | bytes, starts: Ints, head_ends: Ints, ends: Ints, check: Check) -> Mask:
    """Which of these records, whose framing fits, are as they were written."""
    if isinstance(check, int):
        return checksums_right(mapped, starts, head_ends, ends, check)
    return check(starts, head_ends, ends)


def checksums_right(
    mapped: mmap | bytes, starts: Ints, head_ends: Ints, ends: Ints, seed: int
) -> Mask:
    """Which of these records, whose framing fits, match both their checksums."""
    raw = np.frombuffer(mapped, dtype=np.uint8)
    if len(starts) >= _MANY:
        hashes = xxh3_of(
            raw, starts, head_ends - starts, starts.astype(np.uint64) ^ np.uint64(seed)
        )
        values_at = head_ends + SUMS_BYTES
        sums = np.stack([hashes, xxh3_of(raw, values_at, ends - values_at, hashes)], axis=1)
    else:
        sums = _sums_one_by_one(mapped, starts, head_ends, ends, seed)
    sums &= np.uint64(LOW_32)
    right: Mask = sums[:, 0] == numbers_at(raw, head_ends, "<u4")
    right &= sums[:, 1] == numbers_at(raw, head_ends + 4, "<u4")
    return right


def _sums_one_by_one(
    mapped: mmap | bytes, starts: Ints, head_ends: Ints, ends: Ints, seed: int
) -> Words:
    """What the header and the value of each record hash to."""
    # Small values are cheaper to copy: one after the other uses the same memory.
    large = int((ends - starts).sum()) > _SMALL_BYTES * len(starts)
    cut = memoryview(mapped) if large else mapped
    found: list[int] = []
    add = found.append
    places = zip(starts.tolist(), head_ends.tolist(), ends.tolist(), strict=True)
    for start, head_end, end in places:  # a loop is cheaper here than mapped calls are
        h = xxh3(cut[start:head_end], seed ^ start)
        add(h)
        add(xxh3(cut[head_end + SUMS_BYTES : end], h))
    return np.array(found, dtype=np.uint64).reshape(-1, 2)
