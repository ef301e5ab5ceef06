"""Read everything, believe nothing: what ``store.verify()`` and ``octavo verify`` do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.journal_file import JournalFile
from octavo.actors.reader import LEASE_SECONDS, Reader
from octavo.actors.startup import Running
from octavo.actors.view import Head
from octavo.files import cdb, index_terms, ledger_key, record
from octavo.files.bounds import HEAD_ROWS, OBJECTS
from octavo.files.errors import OctavoError
from octavo.files.lifecycle import State
from octavo.files.live_batches import buckets_of, heads_of, keys_of
from octavo.manifest.ledger_entry import LedgerEntry

Progress = Callable[[str, int, int], None]

STEP = 1024
MOST_KEYS = 4 << 20
"""Keys of which the newest record is kept in mind at once."""


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
    recalculated = frozenset(running.identity.tags.recalculated())
    reader = Reader(running.bookie.actor, LEASE_SECONDS, renewing=True)
    try:
        files = [file for file in reader.view.journal.files if file.base <= reader.sqn]
        count = sum(map(_records_of, files))
        newest = _Newest(count // MOST_KEYS + 1)
        steps = [
            *_journal_steps(running, reader, newest),
            *_ledger_steps(reader),
            ("ledger and journal", _agreement(running, reader, newest, recalculated)),
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


def _records_of(file: JournalFile) -> int:
    try:
        return len(file.offsets or file.ensure_open()[1])
    except OctavoError:
        return 0  # told when the file is read


Step = tuple[str, Iterator[Report]]


def _journal_steps(running: Running, reader: Reader, newest: _Newest) -> Iterator[Step]:
    for directory, manifest in (
        ("journal manifest", running.inker.actor.manifest),
        ("ledger manifest", reader.view.ledger),
    ):
        yield directory, _checked(manifest.check)
    for file in reader.view.journal.files:
        yield f"journal {file.name}", _journal_file(running, file, reader.sqn, newest)


def _ledger_steps(reader: Reader) -> Iterator[Step]:
    for level in reader.view.ledger.levels:
        for entry in level:
            yield f"ledger {entry.name}", _ledger_file(entry)


def _checked(check: Callable[[], None]) -> Iterator[Report]:
    check()
    yield Report()


def _journal_file(
    running: Running, file: JournalFile, upto: int, newest: _Newest
) -> Iterator[Report]:
    length = 0
    if file.state is State.SEALED:
        view = memoryview(running.disk.map(file.path))
        cdb.read_header(view[: cdb.RECORDS_AT], file.path)
        trailer, _ = cdb.sealed_offsets(view, file.path)
        cdb.verify_tables(view, trailer, file.path)
        cdb.read_origin(view, trailer, file.path)
        length = len(view)
        entry = next((e for e in running.inker.actor.manifest.entries if e.name == file.name), None)
        if entry is not None:
            covered = entry.last_sqn - entry.base_sqn + 1
            yield Report(
                problems=_unequal(
                    file.path, "its manifest", (entry.bytes, covered), (length, trailer.count)
                )
            )
    records = 0
    problems: list[str] = []
    for sqn in file.sqns(file.base, upto):
        try:
            newest.note(sqn, file.read(sqn))
        except OctavoError as wrong:
            problems.append(str(wrong))
        records += 1
        if records % STEP == 0:
            yield Report(records=STEP)
    yield Report(
        journal_files=1,
        records=records % STEP,
        bytes=length or (file.offsets[-1] if file.offsets else 0),
        problems=problems,
    )


def _unequal(path: str, whose: str, told: Sequence[object], found: Sequence[object]) -> list[str]:
    if list(told) == list(found):
        return []
    return [f"{path}: {whose} says {told} of it; it is {found}"]


def _ledger_file(entry: LedgerEntry) -> Iterator[Report]:
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
        problems=_unequal(entry.file.path, "the ledger's manifest", told, found),
    )


# ---------------------------------------------------------------- ledger and journal


class _Newest:
    """The newest record of each key whose hash falls into one of several equal parts: parts, so
    that memory stays bounded."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.part = 0
        self.sqns: dict[int, int] = {}  # by the hash of the ledger key

    def mine(self, key: bytes) -> int | None:
        """The key's hash, if it is of the current part."""
        found = xxh3(key)
        return found if found % self.parts == self.part else None

    def note(self, sqn: int, change: record.Record | record.Header) -> None:
        """A record, later than those of its key that were noted before."""
        if change.kind != record.KEY_DELTA:
            found = self.mine(ledger_key.prefix(change.tag, change.bucket) + change.key)
            if found is not None:
                self.sqns[found] = sqn


def _agreement(
    running: Running, reader: Reader, newest: _Newest, recalculated: frozenset[int]
) -> Iterator[Report]:
    """The newest record of each key is what the ledger and memory have of it, and what they have
    is in the journal. The first part of the keys was noted while the journal was read."""
    for part in range(newest.parts):
        if part:
            newest.part, newest.sqns = part, {}
            yield from _noted(reader, newest)
        yield from _ledger_against_journal(running, reader, newest, recalculated)
        yield from _left_over(reader, newest)


def _noted(reader: Reader, newest: _Newest) -> Iterator[Report]:
    for file in reader.view.journal.files:
        for number, sqn in enumerate(file.sqns(file.base, reader.sqn)):
            if not number % STEP:
                yield Report()
            try:
                newest.note(sqn, file.header(sqn))
            except OctavoError:
                continue  # told already


def _ledger_against_journal(
    running: Running, reader: Reader, newest: _Newest, recalculated: frozenset[int]
) -> Iterator[Report]:
    """Every live key's version is its newest record, and is as the ledger says."""
    bound = HEAD_ROWS if running.identity.head_only else OBJECTS
    bases = reader.view.journal.bases
    trimmed = bases[0] - 1 if running.identity.head_only and bases else 0
    for batch in reader.batches(bound, heads=True):
        keys, heads = keys_of(batch), heads_of(batch)
        for prefix, low, high in buckets_of(batch):
            problems: list[str] = []
            count = 0
            for key, head in zip(keys[low:high], heads[low:high], strict=True):
                whole = prefix + key
                found = newest.mine(whole)
                if found is None:
                    continue
                count += 1
                if head.sqn > trimmed:
                    problems += _recorded(reader, whole, head, recalculated)
                    latest = newest.sqns.pop(found, head.sqn)
                    if latest != head.sqn:
                        problems.append(
                            f"ledger key {whole[:80]!r}: the ledger has sqn {head.sqn} of it, the "
                            f"journal sqn {latest}"
                        )
            yield Report(keys=count, problems=problems)


def _recorded(reader: Reader, key: bytes, head: Head, recalculated: frozenset[int]) -> list[str]:
    """What is wrong with the record of a live ledger key, and with its index entries."""
    try:
        file = reader.view.journal.file_of(head.sqn)
        header = file.header(head.sqn)
    except OctavoError as wrong:
        return [f"{wrong} (ledger key {key[:80]!r})"]
    where = f"{file.path}: sqn {head.sqn}"
    if ledger_key.prefix(header.tag, header.bucket) + header.key != key:
        return [f"{where} is not of ledger key {key[:80]!r}"]
    told = (head.size, head.written_at, head.expires_at or 0, head.metadata)
    found = (header.size, header.time_ms, header.expiry_ms, header.metadata)
    if header.tag in recalculated:  # the journal has what the functions said at the put
        return _unequal(where, "the ledger", told[:3], found[:3])
    problems = _unequal(where, "the ledger", told, found)
    if header.index_changes:
        for entry in index_terms.ledger_keys(
            header.tag, header.bucket, header.key, header.index_changes
        ):
            if reader.view.newest(entry, reader.sqn) != head.sqn:
                problems.append(f"{where}: its index entry {entry[:80]!r} is not in the ledger")
    return problems


def _left_over(reader: Reader, newest: _Newest) -> Iterator[Report]:
    """Keys that are not live: their newest records are deletes, or expired."""
    journal = reader.view.journal
    problems: list[str] = []
    for number, sqn in enumerate(newest.sqns.values()):
        if not number % STEP:
            yield Report(problems=problems)
            problems = []
        header = journal.file_of(sqn).header(sqn)
        if header.kind == record.PUT and not 0 < header.expiry_ms <= reader.now_ms:
            key = ledger_key.prefix(header.tag, header.bucket) + header.key
            problems.append(
                f"{journal.file_of(sqn).path}: sqn {sqn} is the newest of ledger key {key[:80]!r}, "
                "but the ledger says it is absent"
            )
    yield Report(problems=problems)
