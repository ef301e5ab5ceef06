"""Read everything, believe nothing: what ``store.verify()`` and ``octavo verify`` do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from octavo.actors.journal_file import JournalFile
from octavo.actors.reader import LEASE_SECONDS, Reader
from octavo.actors.startup import Running
from octavo.files import cdb
from octavo.files.errors import OctavoError
from octavo.files.lifecycle import State

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Report:
    """What was looked at, and what was wrong with it."""

    journal_files: int = 0
    ledger_files: int = 0
    records: int = 0
    keys: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing was wrong."""
        return not self.problems


def verify(running: Running, progress: Progress | None) -> Report:
    """Every checksum and invariant of every file, then the journal against the ledger."""
    report = Report()
    reader = Reader(running.bookie.actor, LEASE_SECONDS, renewing=True)
    try:
        steps = [
            *_journal_steps(running, reader),
            *_ledger_steps(reader),
            ("ledger against journal", _agreement(reader)),
        ]
        for done, (what, work) in enumerate(steps):
            if progress is not None:
                progress(what, done, len(steps))
            try:
                for found in work:
                    report.bytes += found.bytes
                    report.records += found.records
                    report.keys += found.keys
                    report.journal_files += found.journal_files
                    report.ledger_files += found.ledger_files
                    report.problems += found.problems
                    reader.renew()
            except (OctavoError, OSError) as wrong:
                report.problems.append(str(wrong))
        if progress is not None:
            progress("done", len(steps), len(steps))
    finally:
        reader.close()
    return report


Step = tuple[str, Iterator[Report]]


def _journal_steps(running: Running, reader: Reader) -> Iterator[Step]:
    for directory, manifest in (
        ("journal manifest", running.inker.actor.manifest),
        ("ledger manifest", reader.view.ledger),
    ):
        yield directory, _checked(manifest.check)
    for file in reader.view.journal.files:
        yield f"journal {file.name}", _journal_file(running, file, reader.sqn)


def _ledger_steps(reader: Reader) -> Iterator[Step]:
    for level in reader.view.ledger.levels:
        for entry in level:
            yield f"ledger {entry.name}", _ledger_file(entry)


def _checked(check: Callable[[], None]) -> Iterator[Report]:
    check()
    yield Report()


def _journal_file(running: Running, file: JournalFile, upto: int) -> Iterator[Report]:
    records = 0
    length = 0
    problems: list[str] = []
    if file.state is State.SEALED:
        buffer = running.disk.map(file.path)
        view = memoryview(buffer)
        trailer = cdb.read_trailer(bytes(view[-cdb.TRAILER_BYTES :]), len(view), file.path)
        stored = view[trailer.offsets_at : len(view) - cdb.TRAILER_BYTES]
        cdb.read_offsets(stored, trailer, file.path)
        cdb.verify_tables(view, trailer, file.path)
        cdb.read_header(view[: cdb.RECORDS_AT], file.path)
        length = len(view)
    for sqn in file.sqns(file.base, upto):
        try:
            file.read(sqn)
        except OctavoError as wrong:
            problems.append(str(wrong))
        records += 1
        if records % 1024 == 0:
            yield Report(records=1024)
    yield Report(
        journal_files=1,
        records=records % 1024,
        bytes=length or (file.offsets[-1] if file.offsets else 0),
        problems=problems,
    )


def _ledger_file(entry: object) -> Iterator[Report]:
    sst = entry.file.reader()  # type: ignore[attr-defined]
    sst.verify()
    yield Report(ledger_files=1, bytes=entry.bytes)  # type: ignore[attr-defined]


def _agreement(reader: Reader) -> Iterator[Report]:
    """Every live key's newest version is in the journal, under that key."""
    from octavo.actors.scan import bounds
    from octavo.files import ledger_key

    for bucket in reader.buckets():
        bound = bounds(ledger_key.prefix(ledger_key.STANDARD, bucket), None, None, None, False)
        for window in reader.windows(bound):
            problems = []
            for key, found in zip(window.keys, window.found(), strict=True):
                file = reader.view.journal.file_of(found.sqn)
                try:
                    header = file.header(found.sqn)
                    if header.key != key or header.bucket != bucket:
                        problems.append(f"{file.path}: sqn {found.sqn} is not of key {key[:80]!r}")
                except OctavoError as wrong:
                    problems.append(f"{wrong} (key {key[:80]!r} of bucket {bucket[:80]!r})")
            yield Report(keys=len(window.keys), problems=problems)
