"""The kinds of files of a store and what each consists of, so that damage reaches all of it.

By bytes most damage would be in the records and tables of journal files, of which every snapshot
has copies, and none in a header: here each kind of file has its share, and so has each part of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeAlias

from specimens import files_of

from octavo.files.jobs import live_bits
from octavo.files.journal import cdb, record
from octavo.files.ledger import sst_layout
from octavo.manifest import log_file

Part: TypeAlias = tuple[tuple[int, int], ...]
"""Stretches [low, high) of a file, ascending."""
Parts: TypeAlias = dict[str, Part]
"""Name: where it stands, in all files of one kind under the same names; none is empty."""

U64_BYTES = 8
MANIFEST_FRONT_BYTES = 64
"""Of a published snapshot: its numbers, at least, before names and entries."""


def kind_of(file: str) -> str:
    """The format of a file: one that ``parts`` knows; "other" for those without one."""
    name = file.rpartition("/")[2]
    if "manifest/" in file:
        return "log"
    if name == "manifest":
        return "published"
    if name.endswith(".cdb"):
        return "sealed"
    if name.endswith(".log"):
        return "active"
    if name.endswith(".sst"):
        return "ledger"
    if name.endswith(".offsets"):
        return "offsets"
    if name == live_bits.NAME:
        return "live"
    return "other" if name in ("LOCK", "RESERVE") else "json"


def share_of(file: str) -> str:
    """What has one share of the damage: a kind of file in one folder of a store, but all that is
    JSON together, which is small, and all that has no format."""
    kind = kind_of(file)
    return kind if kind in ("json", "other") else f"{kind} of {file.partition('/')[0]}/"


# ---------------------------------------------------------------- what a file consists of


def of_sealed(content: bytes) -> Parts:
    """A sealed journal file."""
    trailer = cdb.read_trailer(content[-cdb.TRAILER_BYTES :], len(content), "sealed")
    origin_at = trailer.windows_at + trailer.windows_bytes
    end = len(content) - cdb.TRAILER_BYTES
    return {
        **_front(),
        **_records(content, trailer.tables_at, trailer.seed),
        "tables": ((trailer.tables_at, trailer.offsets_at),),
        "offsets": ((trailer.offsets_at, trailer.windows_at),),
        "windows": ((trailer.windows_at, origin_at),),
        "origin": ((origin_at, end),),
        "trailer": ((end, len(content)),),
    }


def of_active(content: bytes) -> Parts:
    """A journal file that is being written."""
    header = cdb.read_header(content[: cdb.RECORDS_AT], "active")
    return {**_front(), **_records(content, len(content), header.seed)}


def _front() -> Parts:
    at = cdb.POINTERS_BYTES
    return {"pointers": ((0, at),), "header": ((at, cdb.RECORDS_AT),)}


def _records(content: bytes, end: int, seed: int) -> Parts:
    heads, values = [], []
    for row in cdb.scan(content, cdb.RECORDS_AT, end, seed, []):
        head = record.parse_header(content[row.at : row.end], seed ^ row.at, row.end - row.at)
        cut = row.at + head.header_bytes + U64_BYTES
        heads.append((row.at, cut))
        values.append((cut, row.end))
    return {"heads of records": tuple(heads), "values": tuple(values)}


def of_ledger(content: bytes) -> Parts:
    """A ledger file: each section is a part."""
    layout, _ = sst_layout.decode(memoryview(content), "ledger")
    begin = sst_layout.HEADER_BYTES
    sections = {
        kind.name: ((at, at + length),) for kind, (at, length) in layout.sections.items()
    }  # fmt: skip
    return {"header": ((0, begin),), "summary": ((begin, layout.data_at),), **sections}


def of_log(content: bytes) -> Parts:
    """A file of a change log."""
    at, heads, payloads, sums = log_file.HEADER_BYTES, [], [], []
    while at < len(content):
        length = log_file.HEAD.unpack_from(content, at)[1]
        payload_at = at + log_file.HEAD_BYTES
        heads.append((at, payload_at))
        payloads.append((payload_at, payload_at + length))
        at += log_file.RECORD_BYTES + length
        sums.append((at - U64_BYTES, at))
    return {
        "header": ((0, log_file.HEADER_BYTES),),
        "heads of records": tuple(heads),
        "payloads": tuple(payloads),
        "checksums": tuple(sums),
    }


def of_published(content: bytes) -> Parts:
    """The manifest of a published snapshot."""
    end = len(content) - U64_BYTES
    return {
        "front": ((0, MANIFEST_FRONT_BYTES),),
        "entries": ((MANIFEST_FRONT_BYTES, end),),
        "checksum": ((end, len(content)),),
    }


def of_live(content: bytes) -> Parts:
    """Which sequence numbers are live."""
    first = 24 + 16 * int.from_bytes(content[12:16], "little")
    return {"header": ((0, 24),), "table": ((24, first),), "pages": ((first, len(content)),)}


def of_offsets(content: bytes) -> Parts:
    """Where the records of a pinned tail begin."""
    end = len(content) - U64_BYTES
    return {"table": ((0, end),), "checksum": ((end, len(content)),)}


_KNOWN: dict[str, Callable[[bytes], Parts]] = {
    "sealed": of_sealed,
    "active": of_active,
    "ledger": of_ledger,
    "log": of_log,
    "published": of_published,
    "live": of_live,
    "offsets": of_offsets,
}


def parts(file: str, content: bytes) -> Parts:
    """What an undamaged file consists of; small ones without parts of one that has their name."""
    known = _KNOWN.get(kind_of(file))
    name = file.rpartition(".")[2].rpartition("/")[2]
    found = known(content) if known else {name: ((0, len(content)),)}
    return {name: there for name, part in found.items() if (there := _not_empty(part))}


def _not_empty(part: Part) -> Part:
    return tuple((low, high) for low, high in part if low < high)


# ---------------------------------------------------------------- choosing among them

Place: TypeAlias = tuple[str, str, Part]
"""(specimen, file, one part of it)."""


@cache
def places(home: Path, names: tuple[str, ...]) -> dict[str, dict[str, list[Place]]]:
    """Of these specimens: share: part: every place that is one."""
    found: dict[str, dict[str, list[Place]]] = {}
    for name in names:
        for file in files_of(home / name):
            there = parts(file, (home / name / file).read_bytes())
            for called, part in there.items():
                share = found.setdefault(share_of(file), {})
                share.setdefault(called, []).append((name, file, part))
    return found


def in_turn(home: Path, names: tuple[str, ...], number: int) -> tuple[str, Place, int]:
    """(share and part, the place, how often it was there before): the shares take turns, and so
    do the parts of each and the files that have such a part."""
    shares = places(home, names)
    share = sorted(shares)[number % len(shares)]
    number //= len(shares)
    called = sorted(shares[share])[number % len(shares[share])]
    number //= len(shares[share])
    there = shares[share][called]
    return f"{share} {called}", there[number % len(there)], number // len(there)


def at_random(home: Path, names: tuple[str, ...], rng: random.Random) -> Place:
    """One place: each share is as likely, and so is each part of it."""
    shares = places(home, names)
    share = shares[rng.choice(sorted(shares))]
    return rng.choice(share[rng.choice(sorted(share))])


def byte_of(part: Part, number: int) -> int:
    """Where the ``number``-th byte of a part stands in the file, counted round and round."""
    number %= size_of(part)
    for low, high in part:
        if number < high - low:
            return low + number
        number -= high - low
    raise IndexError(number)


def size_of(part: Part) -> int:
    """Bytes of it."""
    return sum(high - low for low, high in part)
