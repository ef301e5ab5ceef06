"""Pinning a store from another process, without its owner's help: link, then look again.

Files of a store are only ever added, sealed under a new name, and unlinked. So whoever links all
files that the two manifests name, and then finds both manifests as they were, has a state of the
store. The tails of the journal, which no manifest names yet, are linked and read up to their last
whole record, and made durable before they count.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.door.disk import Disk
from octavo.files.errors import Busy, Corruption, Misuse, OctavoError
from octavo.files.jobs import ledger_files
from octavo.files.journal import cdb, journal_names, record
from octavo.files.journal.journal_names import LOG, SEALED
from octavo.files.journal.sparse_offsets import cut
from octavo.files.ledger import ledger_key
from octavo.files.messages import messages_of
from octavo.manifest import (
    adoption,
    change_log,
    published,
    recovery,
    same_store,
    store_identity,
    unsynced,
    update_mark,
)
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest
from octavo.manifest.ledger_entry import LedgerEntry
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.level_sizes import MAX_FILE_BYTES, MAX_FILE_ROWS
from octavo.manifest.published import Counted, Published
from octavo.manifest.same_store import Folders
from octavo.manifest.snapshot_draft import SIDE, Draft

log = messages_of("octavo.published")

ATTEMPTS = 50
DAMAGED = 4
"""How many attempts in a row may meet what looks like damage: one may, while the store is being
opened."""
OFFSETS = ".offsets"
_SAME_BYTES = 64 << 10
_LARGER = 4
"""A side file stays if it has so many times as many records as are newer."""


@dataclass(frozen=True, slots=True)
class Manifests:
    """Both manifests, as their logs had them at a moment."""

    ledger: LedgerManifest
    journal: JournalManifest
    opening: tuple[int, int]
    """Epochs of the two logs, which tell the store's newest opening from those before."""
    journal_epoch: int
    """The one that wrote the journal's."""
    journal_log: change_log.Recovered = field(repr=False)
    """What the journal's is made of."""

    @property
    def mark(self) -> tuple[object, ...]:
        """What changes with every change of either."""
        return *self.opening, self.ledger.version, self.journal.version


def pin(
    disk: Disk, store: str, lease_ms: int, now_ms: int, before: Published | None = None
) -> Published:
    """Publish a snapshot of the newest state of the store at ``store``, whether it is open
    elsewhere or not. O(files), and reading the journal's unsealed tail, except what ``before``, an
    earlier snapshot that is still there, has of it.

    Raises Misuse if there is no store, Busy if it changed during each attempt, Corruption, and
    StorageFailed if an fsync of that tail failed: nobody can make it durable here.
    """
    try:
        identity = store_identity.fields_of(disk, store)
    except (FileNotFoundError, NotADirectoryError):
        raise Misuse(f"there is no store at {store}") from None
    draft = Draft(disk, store, now_ms)
    try:
        found, tails, begins = _linked(disk, store, draft)
        if store_identity.is_head_only(identity):
            persisted_sqn = found.ledger.persisted_sqn
            adoption.refuse_lost_ledger(f"{store}/ledger", persisted_sqn, found.journal)
        return _finished(disk, draft, identity, found, tails, begins, lease_ms, now_ms, before)
    except Corruption as damage:
        draft.discard()
        raise draft.original(damage) from None
    except BaseException:
        draft.discard()
        raise


def pin_again(disk: Disk, store: str, path: str, lease_ms: int, now_ms: int) -> Published:
    """Publish the state of the published snapshot at ``path`` again; this one outlives its release.
    O(files). Raises SnapshotExpired, Corruption."""
    found = published.read(disk, path)
    found.check(now_ms)
    names = [entry.name for entry in found.ledger.entries]
    names += [entry.name for entry in found.journal.entries]
    names += [name + OFFSETS for name in names if name.endswith(LOG)]
    draft = Draft(disk, store, now_ms)
    try:
        for name in names:
            draft.link_side(path, name)
        return draft.finish(
            name="",
            store_id=found.store_id,
            sqn=found.sqn,
            taken_at=found.taken_at,
            expires_at=now_ms + lease_ms,
            counts=found.counts,
            ledger=found.ledger,
            journal=found.journal,
        )
    except FileNotFoundError as missing:
        draft.discard()
        published.read(disk, path)  # raises SnapshotExpired if it was released meanwhile
        raise Corruption(str(missing.filename), 0, "is missing") from missing
    except BaseException:
        draft.discard()
        raise


def read_manifests(disk: Disk, store: str, known: Manifests | None = None) -> Manifests:
    """Read both manifests of a store, open or not. ``known``: what this gave before; its journal's
    is taken if that is still the same. Raises Corruption."""
    ledger = change_log.recover_whole(disk, f"{store}/ledger/manifest")
    journal = change_log.recover_whole(disk, f"{store}/journal/manifest")
    if known is not None and known.journal_log == journal:
        made = known.journal
    else:
        made = JournalManifest.replayed(journal.snapshot, journal.changes)
    kept = update_mark.ledger_of(disk, store, journal, ledger)
    return Manifests(kept, made, (ledger.epoch, journal.epoch), journal.state_epoch, journal)


def _linked(disk: Disk, store: str, draft: Draft) -> tuple[Manifests, list[str], int]:
    """Link the files of one state: (its manifests, the names of the journal's tails that have
    begun, oldest first, the base sqn of the last tail, even if that has no record)."""
    missed: set[object] = set()
    damaged = 0
    opening = None
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(0.002 * attempt)
        try:
            before = read_manifests(disk, store)
            if before.opening != opening:  # an opening may have remade files under their names
                draft.drop_others(set())
                opening = before.opening
            names = {entry.name for entry in before.ledger.entries}
            for name in names:
                draft.link_ledger(name)
            for entry in before.journal.entries:
                draft.link_journal(entry.name)
                names.add(entry.name)
            tails = [draft.link_journal(name) for name in _tails(disk, f"{store}/journal", before)]
            again = _tails(disk, f"{store}/journal", before)
            # An undecided commit has a file behind it that fills only once it is decided.
            begun = {name for name in tails if _is_begun(disk, f"{draft.path}/{name}")}
            after = read_manifests(disk, store, before)
        except (FileNotFoundError, Corruption) as moved:
            # Merged, sealed or compacted away meanwhile; or a log caught as it is being replaced.
            if isinstance(moved, FileNotFoundError):
                missed.add(moved.filename)
                # If it is not always the same file, the store is only changing all the time.
                last = attempt == ATTEMPTS - 1 and len(missed) == 1
                if last or not disk.exists(f"{store}/journal"):
                    raise _missing(disk, store, moved) from moved
            elif (damaged := damaged + 1) > DAMAGED:
                raise
            continue
        damaged = 0
        if _missed(tails, again):
            continue  # a listing of hundreds of names can miss one that is just being renamed
        if before.mark == after.mark:
            with unsynced.marking(disk, draft.journal):
                change_log.settle(disk, f"{draft.journal}/manifest")
            adoption.refuse_older(disk, draft.path, tails, before.journal, draft.journal)
            _refuse_earlier_ledger(store, before)
            draft.drop_others(names | begun)
            bases = [who[0] for who in map(journal_names.identity, tails) if who is not None]
            return before, sorted(begun), max(bases, default=0)
    raise Busy(f"{store} changed {ATTEMPTS} times while it was being pinned; try again")


def _is_begun(disk: Disk, path: str) -> bool:
    """Whether anything follows the header; it need not be the first record, if that was lost."""
    size, at = record.FIXED_BYTES, cdb.RECORDS_AT
    while piece := disk.pread(path, size, at):
        if piece.count(0) < len(piece):
            return True
        size, at = cdb.AHEAD_BYTES, at + len(piece)
    return False


def _missing(disk: Disk, store: str, what: FileNotFoundError) -> OctavoError:
    """The error for a file that is missing for good."""
    if not disk.exists(f"{store}/journal"):
        return store_identity.without_journal(disk, store)
    return Corruption(
        str(what.filename), 0, "is missing; open the store for writing, which recovers what can be"
    )


def _missed(tails: list[str], again: list[str]) -> bool:
    """Whether the second listing shows a file that the first one should have had. One that was
    begun in between is younger than all of the first, and not sealed."""
    seen = set(filter(None, map(journal_names.identity, tails)))
    newest = max(seen, default=(0, 0))
    return any(
        who is not None and who not in seen and (name.endswith(SEALED) or who < newest)
        for name, who in zip(again, map(journal_names.identity, again), strict=True)
    )


def _refuse_earlier_ledger(store: str, found: Manifests) -> None:
    """Raise Corruption if the ledger may name what the journal has dropped since."""
    if adoption.outdated(found.ledger.persisted_sqn, found.journal):
        raise Corruption(
            f"{store}/ledger/manifest", 0,
            "is older than the journal's last compaction; open the store for writing, which makes "
            "the ledger anew",
        )  # fmt: skip


def _refuse_another_ledger(
    disk: Disk, draft: Draft, found: Manifests, tails: list[recovery.Tail]
) -> None:
    """Raise Corruption if the ledger is of another journal."""
    where = Folders(disk, draft.path, draft.path)
    told = same_store.beyond(found.ledger, found.journal)
    if told := told or same_store.difference(where, found.ledger, found.journal, tails):
        raise Corruption(draft.ledger, 0, f"{told}; open the store for writing")


def _tails(disk: Disk, directory: str, found: Manifests) -> list[str]:
    """Names of journal files above all that the manifest has, oldest first; of a file with two
    names the sealed one."""
    manifest = found.journal
    last = max((entry.last_sqn for entry in manifest.entries), default=0)
    there = set(disk.listdir(directory))
    out = []
    loaded = found.ledger.loaded
    for name in sorted(
        adoption.may_belong(disk, directory, there, manifest, found.journal_epoch, loaded)
    ):
        who = journal_names.identity(name)
        if who is not None and who[0] > last and not journal_names.is_sealed_too(name, there):
            out.append(name)
    return out


def _finished(
    disk: Disk,
    draft: Draft,
    identity: dict[str, object],
    found: Manifests,
    tails: list[str],
    begins: int,
    lease_ms: int,
    now_ms: int,
    before: Published | None,
) -> Published:
    entries = list(found.journal.entries)
    same = {entry.name for entry in entries}
    unsealed: list[tuple[JournalEntry, recovery.Tail]] = []
    for name in tails:
        entry, tail, continues = _tail(disk, draft, name, before)
        if entry.count:
            entries.append(entry)
            unsealed.append((entry, tail))
        if continues:
            same.add(name)
    sqn = max([found.ledger.persisted_sqn, *(entry.last_sqn for entry in entries)])
    kept, persisted = _kept(draft, found.ledger, before, same, sqn)
    seen = set() if before is None else {entry.name for entry in before.ledger.entries}
    if before is None or not {entry.name for entry in found.ledger.entries} <= seen:
        _refuse_another_ledger(disk, draft, found, [tail for _, tail in unsealed])
    files = [*((entry, None) for entry in found.journal.entries), *unsealed]
    added = kept + _side_files(disk, draft, files, persisted)
    return draft.finish(
        name="",
        store_id=str(identity["id"]),
        sqn=sqn,
        taken_at=found.ledger.now_ms(now_ms),
        expires_at=now_ms + lease_ms,
        counts=_uncounted(identity),
        ledger=found.ledger.edit(added, persisted_sqn=sqn),
        journal=JournalManifest.empty().edit(
            entries,
            ceiling=max([sqn, *_gone(disk, draft, found, max(sqn, begins - 1))[-1:]]) + 1,
            horizon=found.journal.horizon,
        ),
    )


def _gone(disk: Disk, draft: Draft, found: Manifests, newest: int) -> range:
    """The sqns behind ``newest`` that the store had when it was closed: see JournalManifest.gone.
    Empty if the manifest has changed since: a writing owner reserves more before it gives the last
    ones."""
    gone = found.journal.gone(newest)
    if not gone:
        return gone
    try:
        same = change_log.recover_whole(disk, f"{draft.journal}/manifest") == found.journal_log
    except (FileNotFoundError, Corruption):  # it is just being replaced
        same = False
    return gone if same else range(0)


def unsealed_offsets(disk: Disk, path: str) -> array[int]:
    """Read where the records of a pinned, unsealed journal file begin, and where the last one ends.
    Raises Corruption."""
    stored = disk.read(path + OFFSETS, cdb.MAX_FILE_BYTES)
    whole = len(stored) >= 12 and len(stored) % 4 == 0
    if not whole or xxh3(stored[:-8]) != int.from_bytes(stored[-8:], "little"):
        raise Corruption(path + OFFSETS, 0, "offsets of an unsealed journal file")
    return array("I", stored[:-8])


def _known(disk: Disk, before: str, now: str, name: str) -> array[int] | None:
    """The offsets that an earlier snapshot at ``before`` has of a tail, if the file at ``now`` is
    the same that far (another store may have been put in the place of this one); else None."""
    try:
        known = unsealed_offsets(disk, f"{before}/{name}")
        low = max(known[-1] - _SAME_BYTES, 0)
        old, new = (disk.pread(f"{at}/{name}", known[-1] - low, low) for at in (before, now))
    except FileNotFoundError:  # it was sealed before, or released since
        return None
    except Corruption as damage:  # the file itself is there, and is read from its beginning
        log.warning("%s", damage)
        return None
    return known if old == new and len(new) == known[-1] - low else None


def _tail(
    disk: Disk, draft: Draft, name: str, before: Published | None
) -> tuple[JournalEntry, recovery.Tail, bool]:
    """Read a tail: (its entry for a manifest, its whole records, whether it continues one of
    ``before``). It is made durable; the offsets of an unsealed one are written beside it."""
    path = f"{draft.path}/{name}"
    known = None
    if before is not None and name.endswith(LOG):
        known = _known(disk, before.path, draft.path, name)
    tail = recovery.growing_tail(disk, path, name, known)
    with unsynced.marking(disk, draft.journal):
        disk.sync_file(path)  # after the read: before, it might miss the last records
        if known is None:  # else the earlier snapshot did it
            disk.sync_dir(draft.journal)  # the owner may never have synced the file's name
    if not tail.sealed and len(tail.offsets) > 1:
        table = tail.offsets.tobytes()
        disk.write_atomically(path + OFFSETS, table + xxh3(table).to_bytes(8, "little"))
    count = len(tail.offsets) - 1
    entry = JournalEntry(
        name=name,
        base_sqn=tail.base_sqn,
        last_sqn=tail.base_sqn + count - 1 if count else tail.base_sqn,
        count=count,
        bytes=disk.size(path) if tail.sealed else tail.offsets[-1],
        seed=tail.seed,
    )
    return entry, tail, known is not None


def _kept(
    draft: Draft, ledger: LedgerManifest, before: Published | None, same: set[str], sqn: int
) -> tuple[list[LedgerEntry], int]:
    """Link side files of ``before`` that are right for a state up to ``sqn``, too: (those, up to
    which sqn rows are in them or in the ledger). ``same``: journal files that still have what they
    had then. A side file that is not much larger than all that is newer is made anew together with
    that, so that they stay few, and no record is read often."""
    persisted = ledger.persisted_sqn
    if before is None or not {entry.name for entry in before.journal.entries} <= same:
        return [], persisted
    then = before.ledger.entries
    kept = [entry for entry in then if entry.name.startswith(SIDE)][::-1]  # oldest first
    if [e.name for e in then if not e.name.startswith(SIDE)] != [e.name for e in ledger.entries]:
        return [], persisted
    top = lowest = before.sqn if kept else persisted
    while kept:
        below = kept[-2].max_sqn if len(kept) > 1 else persisted
        if kept[-1].max_sqn <= lowest and top - below >= _LARGER * (sqn - top):
            break
        lowest = min(lowest, kept.pop().min_sqn - 1)  # of two that share sqns neither stays alone
        top = below
    try:
        for entry in kept:
            draft.link_side(before.path, entry.name)
    except FileNotFoundError:  # it was released meanwhile
        return [], persisted
    return kept, top


def _side_files(
    disk: Disk,
    draft: Draft,
    files: Sequence[tuple[JournalEntry, recovery.Tail | None]],
    above: int,
) -> list[LedgerEntry]:
    """Write the rows that the ledger does not have yet, those above the sqn ``above``, as files of
    level zero. ``files``: the journal's; unsealed ones with their records."""
    parts, tables = [], []
    for entry, tail in files:
        if entry.last_sqn <= above:
            continue
        path = f"{draft.path}/{entry.name}"
        offsets: Sequence[int] = (
            tail.offsets if tail else cdb.sealed_offsets(disk.map(path), path)[1]
        )
        low = max(above + 1 - entry.base_sqn, 0)
        taken = cut(offsets, low, len(offsets) - 1)
        parts.append(taken.part(entry.name, entry.seed, entry.base_sqn, low))
        tables.append(taken.table)
    if not parts:
        return []
    made = ledger_files.level_zero(
        disk, b"".join(tables), journal=draft.path, ledger=draft.path, stem=f"{SIDE}-{draft.id}",
        parts=parts, max_rows=MAX_FILE_ROWS, max_bytes=MAX_FILE_BYTES,
    )  # fmt: skip
    return draft.side_files(made)


def _uncounted(identity: dict[str, object]) -> dict[int, Counted]:
    if store_identity.is_head_only(identity):
        return {ledger_key.HEAD_ONLY: Counted(None, None, "head_only")}
    types = store_identity.types_of(identity)
    return {number: Counted(None, None, name) for name, number in types.items()}
