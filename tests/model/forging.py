"""Changes of a store's files: bits, sectors, and lies with right checksums over them.

``spliced`` and ``forged`` choose from what a specimen has and answer (what it is, what makes it so
in a copy). The forger knows the formats: he changes a field and makes every checksum anew that
stands above it, so that the checks behind the checksums are reached.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import file_parts
from specimens import files_of
from xxhash import xxh3_64_hexdigest
from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.errors import OctavoError
from octavo.files.journal import cdb, record
from octavo.files.ledger.sst_layout import HEADER_BYTES, WINDOW_BYTES
from octavo.manifest import log_file, published
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.ledger_manifest import LedgerManifest

Make = Callable[[Path], None]
Change = tuple[str, Make]
SECTOR = 512
U64 = (1 << 64) - 1
NUMBERS = (
    0, 1, 2, 7, 255, 65_535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40,
    (1 << 63) - 1, 1 << 63, U64,
)  # fmt: skip
PATHS = (
    "../secret", "../../secret", "/etc/passwd", "..", ".", "a/../../b", "/", "OCTAVO", "LOCK",
    "manifest", "x" * 250, "..sst", "a b", "\\..\\x",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    *PATHS, *NUMBERS, -1, 1e308, float("nan"), "", "\0", "\ud800", "a" * 70_000, None, True, [], {},
    [[[]]], {"a": {}}, [1] * 9000,
)  # fmt: skip


def flip(file: Path, at: int, bit: int) -> None:
    """One bit of a file."""
    whole = bytearray(file.read_bytes())
    whole[at] ^= 1 << bit
    file.write_bytes(whole)


# ---------------------------------------------------------------- without knowledge


def spliced(home: Path, names: tuple[str, ...], rng: random.Random) -> tuple[str, str, Make]:
    """Sectors zeroed, cut, doubled, exchanged, or taken from elsewhere: (which specimen, what is
    wrong with it, what makes it so)."""
    name, file, part = file_parts.at_random(home, names, rng)
    _, other, _ = file_parts.at_random(home, (name,), rng)
    whole, away = (home / name / file).read_bytes(), (home / name / other).read_bytes()
    what, content = damaged(whole, part, away, other, rng)
    return name, f"{file}: {what}", lambda place: put(place / file, content)


def damaged(
    whole: bytes, part: file_parts.Part, away: bytes, other: str, rng: random.Random
) -> tuple[str, bytes]:
    """(what was done, the content of a file damaged), from somewhere in a part of it on, by bytes
    of its own and of another's."""
    low = file_parts.byte_of(part, rng.randrange(file_parts.size_of(part)))
    size = rng.choice((1, 4, 64, SECTOR, SECTOR, 4096))
    if rng.random() < 0.5:
        low, size = low // SECTOR * SECTOR, -(-size // SECTOR) * SECTOR
    high = min(low + size, len(whole))
    from_at = rng.randrange(len(away))
    piece = away[from_at : from_at + high - low]
    made = {
        "zeroed": whole[:low] + bytes(high - low) + whole[high:],
        "full of ones": whole[:low] + b"\xff" * (high - low) + whole[high:],
        "full of noise": whole[:low] + rng.randbytes(high - low) + whole[high:],
        "cut off": whole[:low],
        "zero from there on": whole[:low] + bytes(len(whole) - low),
        "left out": whole[:low] + whole[high:],
        "there twice": whole[:high] + whole[low:],
        f"from {from_at} of {other}": whole[:low] + piece + whole[low + len(piece) :],
        "followed by noise": whole + rng.randbytes(high - low),
        f"all of it {other}": away,
    }
    how = rng.choice(list(made))
    return f"bytes {low} to {high}: {how}", made[how]


def put(file: Path, content: bytes) -> None:
    file.unlink(missing_ok=True)
    file.write_bytes(content)


# ---------------------------------------------------------------- with right checksums


def forged(home: Path, name: str, rng: random.Random) -> Change:
    """Some file says what no release of ours ever wrote, or is no file."""
    files = files_of(home / name)
    if rng.random() < 0.2:
        return _no_file(rng, rng.choice(files))
    if rng.random() < 0.1:
        return _stranger(home, name, rng, files)
    # Kinds of files, not files: there are many copies of journal files in snapshots.
    kinds: dict[str, list[str]] = {}
    for file in files:
        kinds.setdefault(file_parts.kind_of(file), []).append(file)
    kinds.pop("other")
    kind = rng.choice(sorted(kinds))
    file = rng.choice(kinds[kind])
    whole = (home / name / file).read_bytes()
    content = whole
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content = FORGERS[kind](content, Path(file).name, rng)
    what = "unchanged" if content == whole else "forged"
    return f"{file} {what}", lambda place: put(place / file, content)


def forged_json(whole: bytes, name: str, rng: random.Random) -> bytes:
    """A field of a JSON file, at any depth."""
    try:
        told = json.loads(whole)
    except (ValueError, RecursionError):
        return whole  # it was forged already
    told.pop("checksum", None)
    at: Any = told
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = rng.choice(keys)
        if isinstance(at[key], (dict, list)) and at[key] and rng.random() < 0.7:
            at = at[key]
            continue
        if rng.random() < 0.2:
            del at[key]
        else:
            at[key] = rng.choice(ODD)
        break
    if rng.random() < 0.05:
        return b"[" * rng.choice((100, 100_000))
    told["checksum"] = xxh3_64_hexdigest(json.dumps(told, sort_keys=True).encode())
    return json.dumps(told).encode()


def _field(whole: bytearray, at: int, rng: random.Random) -> None:
    width = rng.choice((1, 2, 4, 4, 8))
    whole[at : at + width] = rng.choice(NUMBERS).to_bytes(8, "little")[:width]


def _entries(manifest: Any, entries: list[Any], rng: random.Random) -> list[Any]:
    """Entries of a manifest, some of which cannot be."""
    if not entries:
        return entries
    how = rng.randrange(6)
    at = rng.randrange(len(entries))
    if how == 0:
        entries[at] = replace(entries[at], name=rng.choice(PATHS))
    elif how == 1:
        entries.append(entries[at])
    elif how == 2:
        entries[at] = replace(entries[at], name=entries[rng.randrange(len(entries))].name)
    else:
        entry = entries[at]
        names = [f.name for f in fields(entry) if isinstance(getattr(entry, f.name), int)]
        entries[at] = replace(entries[at], **{rng.choice(names): rng.choice(NUMBERS)})
    return entries


def forged_ledger_manifest(payload: bytes, rng: random.Random) -> bytes:
    """The ledger's manifest, with an entry or a number that cannot be."""
    made = LedgerManifest.decode(payload)
    if rng.random() < 0.2:
        name = rng.choice(("persisted_sqn", "expired_ms"))
        return replace(made, **{name: rng.choice(NUMBERS)}).encode()
    entries = _entries(made, [entry for level in made.levels for entry in level], rng)
    return replace(made, levels=(tuple(entries),), firsts=((),)).encode()


def forged_journal_manifest(payload: bytes, rng: random.Random) -> bytes:
    """The journal's."""
    made = JournalManifest.decode(payload)
    if rng.random() < 0.3:
        name = rng.choice(("ceiling", "horizon", "version"))
        return replace(made, **{name: rng.choice(NUMBERS)}).encode()
    return replace(made, entries=tuple(_entries(made, list(made.entries), rng))).encode()


def forged_log(whole: bytes, name: str, rng: random.Random) -> bytes:
    """A file of a change log: its header, or what a record of it says."""
    who = log_file.id_of(name)
    if who is None:
        return whole
    try:
        file = log_file.parse(who, name, whole)
    except OctavoError:
        return whole  # it was forged already
    if file.header is None or not file.records:
        return whole
    begins, follows, parent = file.header
    if rng.random() < 0.2:
        follows = rng.choice(NUMBERS)
    if rng.random() < 0.2:
        parent = rng.choice(((who.epoch, 0), (rng.choice(NUMBERS), rng.choice(NUMBERS))))
    out = log_file.header(who, begins, follows, parent)
    changed = rng.randrange(len(file.records))
    for number, each in enumerate(file.records):
        payload, sequence, epoch, kind = each.payload, each.sequence, who.epoch, each.kind
        if number == changed:
            how = rng.randrange(8)
            if how < 3 and each.kind == log_file.SNAPSHOT:
                of_ledger = payload[:3] == b"OLM"
                try:
                    payload = (forged_ledger_manifest if of_ledger else forged_journal_manifest)(
                        payload, rng
                    )
                except (OctavoError, OverflowError, ValueError):
                    pass  # it was forged already
            elif how < 5:
                content = bytearray(payload)
                _field(content, rng.randrange(len(content) or 1), rng)
                payload = bytes(content)
            elif how == 5:
                sequence = rng.choice(NUMBERS)
            elif how == 6:
                kind = rng.choice((0, 1, 2, 3, 255))
            else:
                payload = rng.randbytes(rng.randrange(200))
        out += log_file.record(who.seed, len(out), kind, epoch, sequence, payload)
    return out


def forged_published(whole: bytes, name: str, rng: random.Random) -> bytes:
    """The manifest of a published snapshot."""
    try:
        found = published.decode(whole, "id", "path")
        journal = JournalManifest.decode(forged_journal_manifest(found.journal.encode(), rng))
    except (OctavoError, OverflowError, ValueError):
        payload = bytearray(whole[:-8])
        _field(payload, rng.randrange(len(payload)), rng)
        return bytes(payload) + xxh3(bytes(payload)).to_bytes(8, "little")
    if rng.random() < 0.5:
        entries = _entries(found.ledger, [e for level in found.ledger.levels for e in level], rng)
        found = replace(found, ledger=replace(found.ledger, levels=(tuple(entries),), firsts=((),)))
    return published.encode(replace(found, journal=journal, sqn=rng.choice((found.sqn, *NUMBERS))))


def resealed(image: bytearray) -> bytes:
    """A ledger file with right checksums over wrong contents."""
    data_at = int.from_bytes(image[HEADER_BYTES : HEADER_BYTES + 8], "little")
    sections = int.from_bytes(image[HEADER_BYTES + 52 : HEADER_BYTES + 56], "little")
    at = HEADER_BYTES + 72 + 24 * sections
    if sections < 100 and data_at < len(image):
        for start in range(data_at, len(image), WINDOW_BYTES):
            total = xxh3(bytes(image[start : start + WINDOW_BYTES]))
            image[at : at + 8] = total.to_bytes(8, "little")
            at += 8
    return summed(image)


def summed(image: bytearray) -> bytes:
    """A ledger file with right checksums over its header and its summary."""
    length = int.from_bytes(image[24:28], "little")
    summary = bytes(image[HEADER_BYTES : HEADER_BYTES + length])
    image[32:40] = xxh3(summary).to_bytes(8, "little")
    image[56:64] = xxh3(bytes(image[:56])).to_bytes(8, "little")
    return bytes(image)


def forged_ledger_file(whole: bytes, name: str, rng: random.Random) -> bytes:
    """A number anywhere in a ledger file, its summary or its header."""
    image = bytearray(whole)
    data_at = int.from_bytes(image[HEADER_BYTES : HEADER_BYTES + 8], "little")
    zone = rng.randrange(3)
    if zone == 0:
        at = rng.randrange(8, 56)
    elif zone == 1:
        at = HEADER_BYTES + rng.randrange(0, max(min(data_at, len(image)) - HEADER_BYTES, 4), 4)
    else:
        at = rng.randrange(min(data_at, len(image) - 1), len(image)) & ~3
    length = len(image)
    _field(image, at, rng)
    del image[length:]
    return resealed(image)


def forged_journal(whole: bytes, name: str, rng: random.Random) -> bytes:
    """A record, the offsets or the trailer of a journal file."""
    seed = int(name.rpartition(".")[0][-16:], 16)
    image = bytearray(whole)
    trailer = None
    try:
        trailer = cdb.read_trailer(bytes(image[-cdb.TRAILER_BYTES :]), len(image), name)
    except OctavoError:
        pass
    end = len(image) if trailer is None else trailer.tables_at
    try:
        found = list(cdb.scan(bytes(image), cdb.RECORDS_AT, end, seed, []))
    except OctavoError:
        return whole  # it was forged already
    how = rng.randrange(4)
    if trailer is not None and how == 0:
        told = {f.name: getattr(trailer, f.name) for f in fields(trailer)}
        changed = rng.choice([key for key in told if key not in ("sparse", "compacted")])
        told[changed] = rng.choice(NUMBERS)
        if rng.random() < 0.2:
            told["sparse"] = not told["sparse"]
        try:
            image[-cdb.TRAILER_BYTES :] = cdb.trailer_bytes(cdb.Trailer(**told))
        except struct.error:
            pass
    elif trailer is not None and how == 1:
        low, high = trailer.offsets_at, trailer.offsets_at + trailer.offsets_bytes
        at = rng.randrange(low, high) & ~3
        image[at : at + 4] = rng.choice(NUMBERS).to_bytes(8, "little")[:4]
        total = xxh3(bytes(image[low:high]))
        image[-cdb.TRAILER_BYTES :] = cdb.trailer_bytes(replace(trailer, offsets_sum=total))
    elif found:
        _forged_record(image, rng.choice(found), seed, rng)
    return bytes(image)


def _forged_record(image: bytearray, row: cdb.Scanned, seed: int, rng: random.Random) -> None:
    """A field of a record's header, or its value."""
    check = seed ^ row.at
    head = record.parse_header(bytes(image[row.at : row.end]), check, row.end - row.at)
    sums_at = row.at + head.header_bytes
    if rng.random() < 0.2 and head.value_bytes:
        at = sums_at + 8 + rng.randrange(head.value_bytes)
        image[at] ^= 1 << rng.randrange(8)
    else:
        _field(image, row.at + rng.randrange(head.header_bytes - 8), rng)
    h = xxh3(bytes(image[row.at : sums_at]), check)
    value = bytes(image[sums_at + 8 : row.end])
    image[sums_at : sums_at + 8] = record.pack_sums(h & 0xFFFFFFFF, xxh3(value, h) & 0xFFFFFFFF)


def forged_offsets(whole: bytes, name: str, rng: random.Random) -> bytes:
    """Where the records of a pinned tail begin."""
    table = bytearray(whole[:-8])
    if rng.random() < 0.3:
        table += rng.randbytes(rng.choice((4, 5, 400)))
    else:
        at = rng.randrange(len(table)) & ~3
        table[at : at + 4] = rng.choice(NUMBERS).to_bytes(8, "little")[:4]
    return bytes(table) + xxh3(bytes(table)).to_bytes(8, "little")


def forged_live(whole: bytes, name: str, rng: random.Random) -> bytes:
    """Which sequence numbers are live: the header, the page numbers, or the pages."""
    image = bytearray(whole)
    if rng.random() < 0.2:
        del image[rng.randrange(len(image) + 1) :]  # the forgery before may have left nothing
        image += rng.randbytes(rng.choice((0, 1, 8, 9000)))
    if image:
        ends = (min(16, len(image)), min(40, len(image)), len(image))
        _field(image, rng.randrange(rng.choice(ends)), rng)
    pages = int.from_bytes(image[12:16], "little")
    first = 24 + 16 * pages
    if pages < 100 and first <= len(image):
        for page in range(pages):
            at = first + 8192 * page
            total = xxh3(bytes(image[at : at + 8192]))
            image[24 + 8 * (pages + page) : 32 + 8 * (pages + page)] = total.to_bytes(8, "little")
        image[16:24] = xxh3(bytes(image[24:first])).to_bytes(8, "little")
    return bytes(image)


FORGERS: dict[str, Callable[[bytes, str, random.Random], bytes]] = {
    "json": forged_json,
    "log": forged_log,
    "published": forged_published,
    "ledger": forged_ledger_file,
    "sealed": forged_journal,
    "active": forged_journal,
    "offsets": forged_offsets,
    "live": forged_live,
}


# ---------------------------------------------------------------- what is no file of ours


NO_FILES = (
    "gone", "directory", "fifo", "socket", "sparse", "empty", "link out", "dangling link",
    "link to a directory", "link to itself", "link to a device",
)  # fmt: skip


def _no_file(rng: random.Random, file: str) -> Change:
    """Something else under the name of a file or of a directory."""
    if rng.random() < 0.4 and "/" in file:
        file = file.rpartition("/")[0]
    how = rng.choice(NO_FILES)

    def make(place: Path) -> None:
        at = place / file
        if at.is_dir():
            at.rename(place.parent / "moved away")
        else:
            at.unlink()
        put_no_file(at, how, place.parent.parent)

    return f"{file}: {how}", make


def put_no_file(at: Path, how: str, outside: Path) -> None:
    """Where nothing is, put one of NO_FILES; links lead to ``outside``."""
    if how == "directory":
        at.mkdir()
        (at / "x").write_text("x")
    elif how == "fifo":
        os.mkfifo(at)
    elif how == "socket":
        here = os.getcwd()
        os.chdir(at.parent)  # the names of sockets are short
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(at.name[:100])
        finally:
            os.chdir(here)
    elif how == "sparse":
        with open(at, "wb") as made_file:
            made_file.truncate(1 << 34)
    elif how == "empty":
        at.touch()
    elif how == "link out":
        at.symlink_to(os.path.relpath(outside / "secret", at.parent))
    elif how == "link to a directory":
        (outside / "elsewhere").mkdir(exist_ok=True)
        (outside / "elsewhere" / "manifest").touch()
        at.symlink_to(outside / "elsewhere")
    elif how == "dangling link":
        at.symlink_to(outside / "nothing here")
    elif how == "link to itself":
        at.symlink_to(at.name)
    elif how == "link to a device":
        at.symlink_to("/dev/zero")


def _stranger(home: Path, name: str, rng: random.Random, files: list[str]) -> Change:
    """A file more than there should be, under a name that means something."""
    folders = (
        "", "journal", "ledger", "journal/manifest", "ledger/manifest", "snapshots", "staging",
    )  # fmt: skip
    names = (
        f"{rng.choice(NUMBERS):016x}-{rng.choice(NUMBERS):016x}.log",
        f"{rng.choice(NUMBERS):016x}-{rng.choice(NUMBERS):016x}.cdb",
        f"{rng.choice(NUMBERS):016x}-00000001.log",
        "ffffffffffffffff-00000001.log",
        "REBUILD", "UPDATING", "x.tmp", "00000001-00000001-x.sst",
        "ffffffffffff-ffffffff", "000000000000-00000000", "job", "OCTAVO", ".hidden", "a\nb",
    )  # fmt: skip
    folder, called, source = rng.choice(folders), rng.choice(names), rng.choice(files)
    content = (home / name / source).read_bytes() if rng.random() < 0.7 else b""
    as_folder = rng.random() < 0.2

    def make(place: Path) -> None:
        at = place / folder
        if not at.is_dir():
            return
        at = at / called
        if as_folder:
            if at.is_file():  # OCTAVO, where the folder is the store's own
                at.unlink()
            at.mkdir(exist_ok=True)
        elif not at.is_dir():
            put(at, content)

    kind = "a directory" if as_folder else source
    return f"{folder}/{called} is there too: {kind}", make
