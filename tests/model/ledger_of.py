"""The rows of a closed store's ledger, whatever levels they lie in."""

from __future__ import annotations

import time
from typing import NamedTuple

from octavo.files.door.disk import Disk, RealDisk
from octavo.files.ledger import index_terms, ledger_key
from octavo.files.ledger.rows import TOMBSTONE
from octavo.files.ledger.sst import Sst
from octavo.manifest import change_log
from octavo.manifest.ledger_manifest import LedgerManifest


class Row(NamedTuple):
    """The newest version of a ledger key."""

    sqn: int
    flags: int
    size: int
    time: int
    expiry: int
    meta: bytes


Ledger = dict[bytes, Row]


def manifest_of(path: str, disk: Disk | None = None) -> LedgerManifest:
    found = change_log.recover(disk or RealDisk(), f"{path}/ledger/manifest")
    assert not found.damaged
    return LedgerManifest.replayed(found.snapshot, found.changes)


def ledger_of(path: str, disk: Disk | None = None) -> Ledger:
    """Newest rows by ledger key, deletes and stale index entries included; the manifest holds."""
    disk = disk or RealDisk()
    manifest = manifest_of(path, disk)
    manifest.check()
    rows: Ledger = {}
    for level in manifest.levels:
        for entry in level:
            sst = Sst(disk.map(f"{path}/ledger/{entry.name}"), entry.name)
            sst.verify()
            assert (sst.rows, sst.bytes) == (entry.rows, entry.bytes)
            for row, key in enumerate(sst.ledger_keys(0, sst.rows)):
                found = Row(
                    sst.sqns[row] + entry.sqn_base, sst.flags[row], sst.sizes[row], sst.time(row),
                    sst.expiry(row), sst.meta(row),
                )  # fmt: skip
                if key not in rows or rows[key].sqn < found.sqn:
                    rows[key] = found
    return rows


def merged_down(rows: Ledger, now_ms: int | None = None) -> Ledger:
    """What is left of them where nothing lies below: no delete, nothing expired, no index entry
    of a version that was replaced."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    left = {}
    for key, row in rows.items():
        if row.flags & TOMBSTONE or 0 < row.expiry <= now_ms:
            continue
        tag, bucket, user_key = ledger_key.split(key)
        if tag == ledger_key.INDEX:
            of, name = index_terms.object_of(user_key)
            newest = rows.get(ledger_key.prefix(of, bucket) + name)
            if newest is None or newest.sqn != row.sqn:
                continue
        left[key] = row
    return left
