"""Finds runs of whole records, one behind another with no number left out, so that a journal file
whose records are not known yet is read by short loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from mmap import mmap
from struct import Struct
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.journal import record

MOST = 1024
"""The most records of a run, so that little is held at a time."""

_EVEN_BYTES = 1 << 18
_EVEN_LEAST = 16
"""Records of one length are taken together: at most _EVEN_BYTES at a time, and at least
_EVEN_LEAST records."""

_COPIED_BYTES = 1 << 16
"""A longer value is hashed where it stands, without a copy."""

_LARGEST = (1 << 62) - MOST
"""No first number above this is believed."""

_FORMS = {
    record.EXPIRY: "Q", record.METADATA: "I", record.INDEX: "I", record.BATCH: "II",
    record.LZ4: "I",
}  # fmt: skip
"""The struct formats of the optional fields, by flag, in the order in which they stand."""


class Family(NamedTuple):
    """What many records have in common."""

    kind: int
    tag: int
    bucket: bytes


_NO_FAMILY = Family(0, 0, b"")


class Run(NamedTuple):
    """Whole records, header and value verified: everything but metadata and values. The only object
    made for each record is its key, since there are millions of them, and they stay."""

    relative_sqn: int
    """The number of the first record."""
    starts: Sequence[int]
    end: int
    """Where the last one ends; each of the others ends where the next one starts."""
    keys: Sequence[bytes]
    families: Sequence[Family]
    """That of each record; equal families are one object."""
    expiries: Mapping[int, int]
    """ms UTC, by the relative numbers of the records that expire; the next two likewise."""
    indexes: Mapping[int, bytes]
    """Index changes."""
    batches: Mapping[int, tuple[int, int]]
    """(the record's place in its batch, from 0; how many records that has)."""

    def behind(self, relative: int) -> Run:
        """The rest of the run: the records of higher numbers than ``relative``."""
        skip = relative + 1 - self.relative_sqn
        if skip <= 0:
            return self
        return self._replace(
            relative_sqn=relative + 1,
            starts=self.starts[skip:],
            keys=self.keys[skip:],
            families=self.families[skip:],
        )

    @property
    def family(self) -> Family | None:
        """The family of all records, if they have the same one; else None."""
        one = self.families[0]
        return one if self.families.count(one) == len(self.families) else None


class _Form(NamedTuple):
    """How a record is laid out, as the middle of its header says."""

    kind: int
    tag: int
    bucket_at: int
    key_at: int
    fields: Callable[..., tuple[Any, ...]] | None
    """Unpacks the optional fields; None: there are none."""
    lengths: slice
    """Which of these are lengths of what stands behind the key."""
    expires: bool
    indexed: bool
    """Whether the last of the lengths is that of index changes."""
    batch: slice | None
    """Which of the optional fields tell the place in a batch."""


def runs(buffer: bytes | mmap, at: int, end: int, seed: int) -> Iterator[Run]:
    """The runs from ``at`` on, each beginning where the one before it ends, up to what is in no
    run. Nothing from ``end`` on is looked at. Some 0.7 us a small record, 1 us where they have
    optional fields, and 0.35 us where many puts are of one length."""
    last = end - record.FIXED_BYTES - record.SUMS_BYTES
    families: dict[Family, Family] = {}
    together = _EVEN_LEAST  # grows with success: to find that many are not alike takes long
    while at <= last:
        key_length, content, number, middle, key_1, _ = record.PLAIN.unpack_from(buffer, at)
        form = _form(middle)
        first = int.from_bytes(number, "big")
        if form is None or key_length != record.CDB_KEY_LENGTH or first > _LARGEST:
            return
        run = None
        if form.fields is None:
            apart, head_bytes = 16 + content, form.key_at + key_1 + 1
            count = min(together, MOST, min(end - at, _EVEN_BYTES) // apart)
            if count >= _EVEN_LEAST and head_bytes + record.SUMS_BYTES <= apart:
                run = _evenly_apart(buffer, at, count, apart, head_bytes, form, first, seed)
                together = min(2 * together, MOST) if run else _EVEN_LEAST
        run = run or _one_by_one(buffer, at, end, first, seed, families)
        if run is None:
            return
        yield run
        at = run.end


@lru_cache(maxsize=256)
def _form(middle: bytes) -> _Form | None:
    """How records of this middle are laid out; None: such records are in no run."""
    magic, version, kind, tag, flags, bucket_bytes = record.unpack_middle(middle)
    forms = {flag: form for flag, form in _FORMS.items() if flags & flag}
    if (
        (magic, version) != (record.MAGIC, record.VERSION)
        or not record.PUT <= kind <= record.KEY_DELTA
        or flags != sum(forms)
    ):
        return None
    layout = Struct("<" + "".join(forms.values()))
    lengths = int(record.EXPIRY in forms)
    batch = lengths + (record.METADATA in forms) + (record.INDEX in forms)
    bucket_at = record.FIXED_BYTES + layout.size
    return _Form(
        kind, tag, bucket_at, bucket_at + bucket_bytes, layout.unpack_from if forms else None,
        slice(lengths, batch), record.EXPIRY in forms, record.INDEX in forms,
        slice(batch, batch + 2) if record.BATCH in forms else None,
    )  # fmt: skip


def _evenly_apart(
    buffer: bytes | mmap,
    at: int,
    count: int,
    apart: int,
    head_bytes: int,
    form: _Form,
    first: int,
    seed: int,
) -> Run | None:
    """The run of ``count`` records from ``at`` on, if they are whole and differ from the one there
    only in numbers, times, keys and values. Each step of bytecode serves all of them: a slice with
    a step is one byte of each record."""
    stop, key_at = at + count * apart, form.key_at
    for further in (1, count - 1):  # most that are not alike differ here
        place = at + further * apart
        number = (first + further).to_bytes(8, "big")
        if buffer[place : place + 16] != buffer[at : at + 8] + number:
            return None
    value_bytes = apart - head_bytes - record.SUMS_BYTES
    parts = _layout(f"{head_bytes}s8s{value_bytes}s", count).unpack_from(buffer, at)
    heads = parts[0::3]
    joined = b"".join(heads)
    numbers = b"".join(record.numbers(first, count))
    for place in range(8):
        if joined[8 + place :: head_bytes] != numbers[place::8]:
            return None
    for place in (*range(8), *range(16, 26), *range(record.FIXED_BYTES, key_at)):
        if joined[place::head_bytes] != joined[place : place + 1] * count:
            return None
    hashes = tuple(map(xxh3, heads, map(seed.__xor__, range(at, stop, apart))))
    pack = _layout("Q", count).pack
    head_sums, value_sums = pack(*hashes), pack(*map(xxh3, parts[2::3], hashes))
    said = b"".join(parts[1::3])
    for place in range(4):
        if said[place::8] != head_sums[place::8] or said[4 + place :: 8] != value_sums[place::8]:
            return None
    rest = apart - head_bytes
    keys = _layout(f"{key_at}x{head_bytes - key_at}s{rest}x", count).unpack_from(buffer, at)
    families = [Family(form.kind, form.tag, heads[0][form.bucket_at : key_at])] * count
    return Run(first, range(at, stop, apart), stop, keys, families, {}, {}, {})


@lru_cache(maxsize=16)
def _layout(of_each: str, count: int) -> Struct:
    return Struct("<" + of_each * count)


@lru_cache(maxsize=4)
def _numbers(first: int, count: int) -> tuple[bytes, ...]:
    """As record.numbers, cached for runs that begin in the midst of these, as many do where numbers
    are left out."""
    return record.numbers(first, count)


def _one_by_one(
    buffer: bytes | mmap,
    at: int,
    end: int,
    first: int,
    seed: int,
    families: dict[Family, Family],
) -> Run | None:
    """The run from ``at`` on, up to the next number that MOST divides, of records of any form;
    None where the first is not whole. ``families``: those met so far, for equal ones to be one."""
    last = end - record.FIXED_BYTES - record.SUMS_BYTES
    unpack, sums = record.PLAIN.unpack_from, record.unpack_sums
    length_of_number, low_32 = record.CDB_KEY_LENGTH, record.LOW_32
    middle = bucket = None
    family = _NO_FAMILY
    starts: list[int] = []
    keys: list[bytes] = []
    of: list[Family] = []
    expiries: dict[int, int] = {}
    indexes: dict[int, bytes] = {}
    batches: dict[int, tuple[int, int]] = {}
    begun = first - first % MOST
    for relative, expected in enumerate(_numbers(begun, MOST)[first - begun :], first):
        if at > last:
            break
        key_length, content, number, like, key_1, _ = unpack(buffer, at)
        if like != middle:
            form = _form(like)
            if form is None:
                break
            middle, bucket = like, None
            kind, tag, bucket_at, key_at, fields, lengths, expires, indexed, in_batch = form
        stop = at + 16 + content
        head_bytes = key_end = key_at + key_1 + 1
        if (
            number != expected
            or key_length != length_of_number
            or not at + key_end + 8 <= stop <= end
        ):
            break
        if fields is not None:
            told = fields(buffer, at + record.FIXED_BYTES)
            head_bytes += sum(told[lengths])
            if (
                head_bytes > record.MAX_HEADER_BYTES
                or at + head_bytes + 8 > stop
                or (expires and not told[0])  # no writer of ours does that
            ):
                break
        head_end = at + head_bytes
        head = buffer[at:head_end]
        h = xxh3(head, seed ^ at)
        head_sum, value_sum = sums(buffer, head_end)
        if h & low_32 != head_sum:
            break
        value_at = head_end + 8
        if stop - value_at <= _COPIED_BYTES:
            h = xxh3(buffer[value_at:stop], h)
        else:
            h = xxh3(memoryview(buffer)[value_at:stop], h)
        if h & low_32 != value_sum:
            break
        if head[bucket_at:key_at] != bucket:
            bucket = head[bucket_at:key_at]
            family = Family(kind, tag, bucket)
            family = families.setdefault(family, family)
        starts.append(at)
        keys.append(head[key_at:key_end])
        of.append(family)
        if fields is not None:
            if expires:
                expiries[relative] = told[0]
            if indexed:
                indexes[relative] = head[head_bytes - told[lengths][-1] :]
            if in_batch is not None:
                batches[relative] = told[in_batch]
        at = stop
    if not starts:
        return None
    return Run(first, starts, at, keys, of, expiries, indexes, batches)
