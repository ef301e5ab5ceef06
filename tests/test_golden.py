"""Stores of every format version that was ever released open for ever, with exactly what they held;
what a newer release made is refused by name. Golden stores are made by
scripts/campaigns/make_golden.py and never changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from forging import resealed
from golden_contents import contents
from specimens import NAMES, options
from xxhash import xxh3_64_hexdigest
from xxhash import xxh3_64_intdigest as xxh3

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.handover import inbox, staging
from octavo.files.journal import cdb, record
from octavo.files.ledger.sst import Sst
from octavo.manifest import log_file, published
from octavo.manifest.change_log import recover
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.packing import Unpacker

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
NEWEST = GOLDEN / VERSIONS[-1]


def test_there_is_a_golden_store_with_every_kind_of_file() -> None:
    for pattern in (
        "closed/journal/*.cdb", "closed/journal/*.log", "closed/journal/manifest/*.log",
        "closed/ledger/*.sst", "closed/ledger/manifest/*.log", "closed/snapshots/*/manifest",
        "closed/snapshots/*/*.offsets", "closed/snapshots/*/side*.sst", "closed/staging/*/*.json",
        "closed/inbox/*.request", "closed/inbox/*.answer", "closed/waste/*", "closed/CONSUMERS",
        "closed/OCTAVO", "killed/journal/*.log", "backup/journal/*.cdb", "head_only/ledger/*.sst",
    ):  # fmt: skip
        assert list(NEWEST.glob(pattern)), pattern


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_store_says_what_it_always_said(tmp_path: Path, version: str, name: str) -> None:
    wanted = json.loads((GOLDEN / version / "contents.json").read_text())[name]
    shutil.copytree(GOLDEN / version / name, tmp_path / "s")
    assert contents(tmp_path / "s", options(name)) == wanted
    # And once more, now that this release has written its own files beside them.
    again = contents(tmp_path / "s", options(name))
    assert {key: again[key] for key in wanted if key != "notes"} == {
        key: wanted[key] for key in wanted if key != "notes"
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_store_is_rebuilt_restored_and_compacted(tmp_path: Path, version: str) -> None:
    wanted = json.loads((GOLDEN / version / "contents.json").read_text())
    for name in ("closed", "killed", "backup"):
        place = tmp_path / name
        shutil.copytree(GOLDEN / version / name, place)
        octavo.restore(place, tmp_path / f"{name}-restored")
        found = contents(tmp_path / f"{name}-restored", options(name))
        shutil.rmtree(place / "ledger")
        rebuilt = contents(place, options(name))
        for key in ("standard ", "standard docs", "user ", "user docs", "index"):
            assert found[key] == wanted[name][key], (name, key)
            assert rebuilt[key] == wanted[name][key], (name, key)
        with octavo.open(place, **options(name)) as store:  # type: ignore[arg-type]
            before = dict(store.items())
            store.compact()
            assert dict(store.items()) == before
            assert store.verify().ok


def test_golden_ledger_files_have_sqns_as_their_versions_say() -> None:
    for version in VERSIONS:
        for path in (GOLDEN / version).rglob("*.sst"):
            image = path.read_bytes()
            width = 8 if int(version) < 4 else 4
            assert (image[8], Sst(image, str(path)).sqns.itemsize) == (8 // width, width), path


# ---------------------------------------------------------------- what is newer


def one(pattern: str) -> Path:
    return sorted(NEWEST.glob(pattern))[0]


def newer_journal(path: Path) -> object:
    whole = bytearray(path.read_bytes()[: cdb.RECORDS_AT])
    at = cdb.RECORDS_AT - cdb.HEADER_BYTES
    whole[at + 8] = 77
    whole[-8:] = xxh3(bytes(whole[at:-8])).to_bytes(8, "little")
    return cdb.read_header(bytes(whole), str(path))


def newer_sealed(path: Path) -> object:
    tail = bytearray(path.read_bytes()[-cdb.TRAILER_BYTES :])
    tail[8] = 77
    tail[-8:] = xxh3(bytes(tail[:-8])).to_bytes(8, "little")
    return cdb.read_trailer(bytes(tail), path.stat().st_size, str(path))


def newer_record(path: Path) -> object:
    seed = int(path.stem[-16:], 16)
    whole = path.read_bytes()
    at = cdb.RECORDS_AT
    head = record.parse_header(whole[at:], seed ^ at, len(whole) - at)
    changed = bytearray(whole[at : at + head.header_bytes])
    changed[18] = 77
    h = xxh3(bytes(changed), seed ^ at)
    made = bytes(changed) + record.pack_sums(h & 0xFFFFFFFF, 0) + whole[at + len(changed) + 8 :]
    return record.parse_header(made, seed ^ at, len(made))


def newer_ledger(path: Path) -> object:
    image = bytearray(path.read_bytes())
    image[8] = 77
    return Sst(resealed(image), str(path))


def newer_log(path: Path) -> object:
    who = log_file.id_of(path.name)
    assert who is not None
    whole = bytearray(path.read_bytes())
    whole[8] = 77
    total = xxh3(bytes(whole[: log_file.HEADER.size]), who.seed)
    whole[log_file.HEADER.size : log_file.HEADER_BYTES] = total.to_bytes(8, "little")
    return log_file.parse(who, str(path), bytes(whole))


def newer_manifest(kind: type[JournalManifest] | type[LedgerManifest], path: Path) -> object:
    payload = bytearray(recover(RealDisk(), str(path.parent)).snapshot or b"")
    payload[4] = 77
    return kind.decode(bytes(payload))


def newer_published(path: Path) -> object:
    payload = bytearray(path.read_bytes()[:-8])
    payload[4] = 77
    stored = bytes(payload) + xxh3(bytes(payload)).to_bytes(8, "little")
    return published.decode(stored, "id", str(path.parent))


def newer_json(path: Path, home: Path) -> None:
    told = json.loads(path.read_text())
    told.pop("checksum")
    told["format"] = 77
    told["checksum"] = xxh3_64_hexdigest(json.dumps(told, sort_keys=True).encode())
    place = home / path.relative_to(NEWEST / "closed")
    place.write_text(json.dumps(told))


NEWER: dict[str, Callable[[], object]] = {
    "journal file": lambda: newer_journal(one("closed/journal/*.log")),
    "sealed journal file": lambda: newer_sealed(one("closed/journal/*.cdb")),
    "journal record": lambda: newer_record(one("closed/journal/*.log")),
    "ledger file": lambda: newer_ledger(one("closed/ledger/*.sst")),
    "change log": lambda: newer_log(one("closed/ledger/manifest/*.log")),
    "journal manifest": lambda: newer_manifest(
        JournalManifest, one("closed/journal/manifest/*.log")
    ),
    "ledger manifest": lambda: newer_manifest(LedgerManifest, one("closed/ledger/manifest/*.log")),
    "published snapshot": lambda: newer_published(one("closed/snapshots/*/manifest")),
    "packed manifest": lambda: Unpacker(b"OJM1\x4d\0", "manifest", b"OJM1", 3),
}


@pytest.mark.parametrize("what", NEWER)
def test_what_a_newer_release_made_is_refused_by_name(what: str) -> None:
    with pytest.raises(octavo.UnsupportedFormat, match=r"made by a newer Octavo|version 77"):
        NEWER[what]()


def test_a_newer_store_and_job_are_refused_by_name(tmp_path: Path) -> None:
    shutil.copytree(NEWEST / "closed", tmp_path / "s")
    newer_json(one("closed/staging/*/*.json"), tmp_path / "s")
    with pytest.raises(octavo.UnsupportedFormat, match="format 77"):
        staging.read_attempt(RealDisk(), str(tmp_path / "s"), "waiting", "0")
    newer_json(one("closed/OCTAVO"), tmp_path / "s")
    with pytest.raises(octavo.UnsupportedFormat, match="format 77"):
        octavo.open(tmp_path / "s")


def test_messages_of_the_golden_store_are_read(tmp_path: Path) -> None:
    shutil.copytree(NEWEST / "closed/inbox", tmp_path / "inbox")
    for path in (tmp_path / "inbox").iterdir():
        told = inbox.read(RealDisk(), str(tmp_path), path.name)
        assert told is not None
        assert told.get("job") == "waiting" or told.get("error") == "Busy"
