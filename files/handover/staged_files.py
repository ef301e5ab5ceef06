"""Checks the files of an attempt in staging against what the attempt says of them."""

from __future__ import annotations

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.handover.staging import Attempt, StagedLedger
from octavo.files.journal import cdb
from octavo.files.ledger.sorted_files import Summary
from octavo.files.ledger.sst import Sst


def check(disk: Disk, where: str, attempt: Attempt) -> None:
    """Check that the files are there and are those that the attempt made, by lengths and checksums
    of tables. Raises Corruption."""
    for journal in attempt.journals:
        path = f"{where}/{journal.name}"
        try:
            size = disk.size(path)
            header = cdb.read_header(disk.pread(path, cdb.RECORDS_AT, 0), path)
            tail = disk.pread(path, cdb.TRAILER_BYTES, max(size - cdb.TRAILER_BYTES, 0))
        except FileNotFoundError:
            raise Corruption(path, 0, "the file is missing") from None
        trailer = cdb.read_trailer(tail, size, path)
        found = (size, trailer.count, trailer.seed, header.seed, header.base_sqn, tail[-8:])
        expected = (
            journal.bytes, journal.count, journal.seed, journal.seed, 0,
            journal.digest.to_bytes(8, "little"),
        )  # fmt: skip
        if found != expected:
            raise Corruption(
                path, 0, "is another file than its attempt made", expected=expected, found=found
            )
        for ledger in journal.ledgers:
            path = f"{where}/{ledger.name}"
            try:
                sst = Sst(disk.map(path), path)
            except FileNotFoundError:
                raise Corruption(path, 0, "the file is missing") from None
            if StagedLedger(**Summary.of(ledger.name, sst.layout).told()) != ledger:
                raise Corruption(path, 0, "is another file than its attempt made")
