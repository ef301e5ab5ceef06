"""Publishes a snapshot of an open store as files through which other processes read it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.actors.bookie import Bookie
from octavo.actors.closed_meanwhile import or_closed
from octavo.actors.compacting.compaction import seal_waiting
from octavo.actors.inker import Inker
from octavo.actors.journal_file import JournalFile
from octavo.actors.opening.identity import Identity
from octavo.actors.penciller_clerk import stretches
from octavo.actors.reader import Reader
from octavo.actors.view import JournalView, View
from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption, Misuse, StorageFailed, StorageFull, storage_error
from octavo.files.ledger import ledger_key
from octavo.files.lifecycle import State
from octavo.files.unbroken import unbroken
from octavo.manifest import published
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.level_sizes import MAX_FILE_BYTES, MAX_FILE_ROWS
from octavo.manifest.published import Counted, Published
from octavo.manifest.snapshot_draft import SIDE, Draft


@or_closed
def publish(
    bookie: Bookie,
    identity: Identity,
    reader: Reader,
    name: str,
    lease_ms: int,
    *,
    counted: bool,
    replacing: bool,
) -> Published:
    """See Snapshot.publish. Runs in the caller's thread, which holds no turn; ``reader`` keeps the
    files meanwhile. Raises Misuse (for the name), SnapshotExpired, StorageFull, StorageFailed,
    Corruption."""
    inker: Inker = bookie.inker
    disk, store = inker.disk, inker.store
    with bookie.publishing:
        now_ms = bookie.clock_ms()
        try:
            published.sweep(disk, store, now_ms)
            before = published.with_name(disk, store, name, now_ms)
            if before and not replacing:
                raise Misuse(
                    f"name={name!r}: the published snapshot {before[0].id} has it; release that, "
                    "or publish with replace=True"
                )
            inker.make_durable(reader.sqn)
            files = _sealed_up_to(bookie, reader.view.journal, reader.sqn)
            draft = Draft(disk, store, now_ms)
            try:
                made = _filled(draft, bookie, identity, reader, files, counted=counted)
                expires_at = bookie.clock_ms() + lease_ms
                done = draft.finish(name=name, expires_at=expires_at, **made)
            except Corruption as damage:
                draft.discard()
                reader.damaged(found := draft.original(damage))
                raise found from None
            except BaseException:
                draft.discard()
                raise
            with unbroken:
                _instead_of(disk, before, draft)
            return done
        except OSError as error:
            reader.check()
            why = disk.reason(error)
            told = storage_error(why, store)
            # Nothing in the store is in doubt: only the snapshot was not made.
            raise (told if isinstance(told, StorageFull) else StorageFailed(str(why))) from error


def _instead_of(disk: Disk, before: list[Published], draft: Draft) -> None:
    """Replace those published under the name before: readers by name find the new one from now
    on."""
    try:
        published.take_name(disk, before)
    except BaseException:
        draft.discard()
        raise


def _sealed_up_to(bookie: Bookie, journal: JournalView, upper: int) -> list[JournalFile]:
    """Have the files of a view that hold the records up to ``upper`` sealed; returns these
    files."""
    inker: Inker = bookie.inker
    bookie.actor_ref.call(_rolled_past, upper)
    seal_waiting(inker, upto=upper)
    files = [file for file in journal.files if file.base <= upper]
    for file in files:
        if file.state in (State.WRITING, State.ROLLED):
            raise inker.why_not_sealed(file.path)
    return files


def _rolled_past(bookie: Bookie, upper: int) -> None:
    """In the Bookie's turn: roll the active file if this sqn is in it."""
    active = bookie.inker.active
    if active is not None and active.base <= upper and len(active.offsets) > 1:
        bookie.inker.roll()


def _filled(
    draft: Draft,
    bookie: Bookie,
    identity: Identity,
    reader: Reader,
    files: list[JournalFile],
    *,
    counted: bool,
) -> dict[str, Any]:
    """Link and write all that belongs to the snapshot; returns what its manifest is to say."""
    view, sqn = reader.view, reader.sqn
    try:
        for entry in view.ledger.entries:
            draft.link_ledger(entry.name)
        for file in files:
            draft.link_journal(file.name)
    except FileNotFoundError as missing:
        raise reader.gone(missing) from missing
    known = {entry.name: entry for entry in bookie.inker.manifest.entries}
    entries = [known.get(file.name) or _entry(file) for file in files]
    ledger = _with_side_files(draft, bookie, view, files, sqn)
    return {
        "store_id": identity.id,
        "sqn": sqn,
        "taken_at": reader.now_ms,
        "counts": _counts(draft, bookie, identity, ledger, reader.now_ms, counted=counted),
        "ledger": ledger,
        "journal": JournalManifest.empty().edit(
            [replace(entry, file=None) for entry in entries],
            ceiling=max([sqn, *(entry.last_sqn for entry in entries)]) + 1,
            horizon=bookie.inker.manifest.horizon,
        ),
    }


def _entry(file: JournalFile) -> JournalEntry:
    """The manifest entry of a sealed file that the newest manifest no longer has."""
    mapped, offsets = file.ensure_open()
    count = len(offsets) - 1
    return JournalEntry(file.name, file.base, file.base + count - 1, count, len(mapped), file.seed)


def _with_side_files(
    draft: Draft, bookie: Bookie, view: View, files: list[JournalFile], sqn: int
) -> LedgerManifest:
    """Write what the view has in memory as files of level zero; returns the view's ledger with
    them."""
    parts, offsets = stretches(JournalView.of(files), view.ledger.persisted_sqn, sqn)
    added: list[LedgerEntry] = []
    if parts and bookie.clerk is not None:
        made = bookie.clerk.actor.runner.run(
            "level_zero",
            offsets,
            journal=draft.path,
            ledger=draft.path,
            stem=SIDE,
            parts=parts,
            max_rows=MAX_FILE_ROWS,
            max_bytes=MAX_FILE_BYTES,
        )
        added = draft.side_files(made)
    return view.ledger.edit(added, persisted_sqn=sqn)


def _counts(
    draft: Draft,
    bookie: Bookie,
    identity: Identity,
    ledger: LedgerManifest,
    now_ms: int,
    *,
    counted: bool,
) -> dict[int, Counted]:
    heads = {ledger_key.HEAD_ONLY: "head_only"}
    names = heads if identity.head_only else identity.tags.names()
    if not counted or bookie.clerk is None:
        return {number: Counted(None, None, name) for number, name in names.items()}
    result = bookie.clerk.actor.runner.run(
        "count",
        ledger=draft.path,
        levels=ledger.for_jobs(),
        now_ms=now_ms,
        head_only=identity.head_only,
    )
    found = result["counts"]
    out = {}
    for number, name in names.items():
        keys, size = found.get(str(number), (0, 0))
        out[number] = Counted(keys, size, name)
    return out
