"""Reads and checks everything in a store: what ``store.verify()`` and ``octavo verify`` do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from octavo.actors.journal_file import JournalFile
from octavo.actors.opening.identity import Identity
from octavo.actors.opening.startup import Running
from octavo.actors.progress import Progress
from octavo.actors.reader import Reader
from octavo.agreement import STEP, Both, Noted, Report, agreement, unequal
from octavo.files.door.disk import Disk
from octavo.files.door.unreadable import Unreadable, refuse_unreadable
from octavo.files.errors import OctavoError, SnapshotExpired, StorageFull, room_for
from octavo.files.journal import cdb
from octavo.files.journal.journal_windows import read_windows, verify_windows
from octavo.files.journal.record_digests import check_values
from octavo.files.journal.sealed_records import file_records
from octavo.files.kernels.spill import ScratchFailed
from octavo.files.lifecycle import State
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.ledger_entry import LedgerEntry

__all__ = ["Report", "verify"]

MOST_KEYS = 2 << 20
"""Records, and so keys, that are compared at once."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What is verified, apart from the view of a reader."""

    disk: Disk
    identity: Identity
    journal: JournalManifest
    scratch: str
    """A directory in which scratch files can be made."""


def verify(running: Running, progress: Progress) -> Report:
    """Verify the store as it is now: see ``verified``."""
    inker = running.inker.actor
    what = Verified(running.disk, running.identity, inker.manifest, inker.directory)
    with closing(Reader(running.bookie.actor)) as reader:
        return verified(what, reader, progress)


def verified(what: Verified, reader: Reader, progress: Progress) -> Report:
    """Check every checksum and invariant of every file, then the journal against the ledger. More
    than two million records go through scratch files of 60 bytes a record. Raises StorageFull,
    StorageFailed if those cannot be written."""
    report = Report()
    unreadable: list[str] = []
    bits = (_records(what.journal, reader) // MOST_KEYS).bit_length()
    with closing(Both(what.disk, what.scratch, bits, reader.sqn)) as both:
        steps = [
            *_journal_steps(what, reader, both),
            *_ledger_steps(what.disk, reader),
            ("ledger and journal", _agreement(what, reader, both, unreadable)),
        ]
        for done, (part, work) in enumerate(steps):
            progress(part, done, len(steps))
            try:
                with room_for(f"reading of {part}"):
                    for found in work:
                        report.bytes += found.bytes
                        report.records += found.records
                        report.keys += found.keys
                        report.journal_files += found.journal_files
                        report.ledger_files += found.ledger_files
                        report.problems += found.problems
                        reader.renew()
            except (StorageFull, ScratchFailed, SnapshotExpired):
                raise  # no damage: this process is short of something, or too late
            except (OctavoError, OSError) as wrong:
                reader.check()  # raises if it was closed, say, which is no damage
                report.problems.append(str(wrong))
                if isinstance(wrong, Unreadable):
                    unreadable.append(part)
        progress("done", len(steps), len(steps))
    return report


def _records(journal: JournalManifest, reader: Reader) -> int:
    """About how many records there are, without a look at any file."""
    return sum(
        entry.count if (entry := journal.find(file.base)) and entry.count else len(file.offsets)
        for file in _files(reader)
    )


def _files(reader: Reader) -> list[JournalFile]:
    """The files with a record that the reader sees. The active file, if it has none, is left out:
    when a commit brings files it is removed, even if it is being read."""
    return [file for file in reader.view.journal.files if file.base <= reader.sqn]


Step = tuple[str, Iterator[Report]]


def _journal_steps(what: Verified, reader: Reader, both: Both) -> Iterator[Step]:
    yield "journal manifest", _checked(what.journal.check)
    yield "ledger manifest", _checked(reader.view.ledger.check)
    for file in _files(reader):
        yield f"journal {file.name}", _journal_file(what, file, reader.sqn, both)


def _ledger_steps(disk: Disk, reader: Reader) -> Iterator[Step]:
    for entry in reader.view.ledger.entries:
        yield f"ledger {entry.name}", _ledger_file(disk, entry)


def _agreement(
    what: Verified, reader: Reader, both: Both, unreadable: list[str]
) -> Iterator[Report]:
    """See ``agreement``: it looks at all files, so it is done only if all can be read."""
    if unreadable:
        told = "not compared, for there are files that cannot be read: octavo.repair saves the rest"
        yield Report(problems=[f"ledger and journal: {told}"])
    else:
        yield from agreement(what.identity, what.journal.horizon, reader, both)


def _checked(check: Callable[[], None]) -> Iterator[Report]:
    check()
    yield Report()


def _journal_file(what: Verified, file: JournalFile, upto: int, both: Both) -> Iterator[Report]:
    length = 0
    file.by_name(partial(refuse_unreadable, what.disk))
    if file.state is State.SEALED:
        view = memoryview(what.disk.map(file.path))
        cdb.read_header(view[: cdb.RECORDS_AT], file.path)
        trailer, _ = cdb.sealed_offsets(view, file.path)
        cdb.verify_tables(view, trailer, file.path)
        read_windows(view, trailer, file.path)
        cdb.read_origin(view, trailer, file.path)
        length = len(view)
        entry = what.journal.find(file.base)
        if entry is not None and entry.name == file.name:
            covered = entry.last_sqn - entry.base_sqn + 1
            yield Report(
                problems=unequal(
                    file.path, "its manifest", (entry.bytes, covered), (length, trailer.count)
                )
            )
        if records := _whole_file(what.disk, file, both):
            yield Report(journal_files=1, records=records, bytes=length)
            # Only once its records are found whole: a damaged record is the better message.
            verify_windows(view, trailer, file.path)
            return
    records = 0
    problems: list[str] = []
    for sqn in file.sqns(file.base, upto):
        try:
            both.note(sqn, file.read(sqn))
        except StorageFull:
            raise
        except OctavoError as wrong:
            problems.append(str(wrong))
        records += 1
        if records % STEP == 0:
            both.settle()
            yield Report(records=STEP)
    yield Report(
        journal_files=1,
        records=records % STEP,
        bytes=length or (file.offsets[-1] if file.offsets else 0),
        problems=problems,
    )


def _whole_file(disk: Disk, file: JournalFile, both: Both) -> int:
    """Check a sealed file by array kernels. Returns how many records it has, or 0 if anything is
    wrong with any of them: reading them one by one then tells what it is."""
    noted: list[Noted] = []
    try:
        view, table, stretches = file_records(disk, file.path, file.seed, file.base)
        for stretch in stretches:
            check_values(view, stretch.head, file.seed, file.path)
            noted.append(both.of_stretch(stretch))
    except OctavoError:
        return 0
    both.note_all(noted)
    return len(table.numbers)


def _ledger_file(disk: Disk, entry: LedgerEntry) -> Iterator[Report]:
    refuse_unreadable(disk, entry.file.path)
    sst = entry.file.reader()
    sst.verify()
    told = (
        entry.rows, entry.bytes, entry.tombstones, entry.expiring, entry.first_key, entry.last_key,
        entry.min_sqn - entry.sqn_base, entry.max_sqn - entry.sqn_base,
    )  # fmt: skip
    found = (
        sst.rows, sst.bytes, sst.tombstones, sst.expiring, sst.first_key, sst.last_key,
        sst.min_sqn, sst.max_sqn,
    )  # fmt: skip
    yield Report(
        ledger_files=1,
        bytes=entry.bytes,
        problems=unequal(entry.file.path, "the ledger's manifest", told, found),
    )
