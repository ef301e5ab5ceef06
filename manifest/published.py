"""Published snapshots: a state of the store that other processes read, in a directory of its own.

    <store>/snapshots/<id>/
        manifest        what is in it; written last, so a directory without one is an orphan
        *.sst           ledger files: links, and side files with the rows that were in memory
        *.cdb           journal files: links
        making          locked by the process that fills the directory, while it does
        reading         in a reader's own: locked by the reader, for as long as it lives
        replaced        another one took its name: it goes on without, until its lease ends
        *.log           unsealed ones of a store that another process had open: links, too, with
        *.offsets       where their whole records begin: native u32, then xxh3-64 of those

An id is the moment of its making, ms UTC in 12 hexadecimal digits, a hyphen, and 8 random ones.
The file ``manifest`` is a payload (packing.py) of magic ``OPS1`` and xxh3-64 of it:

    sqn, taken at, expires at (ms UTC), number of types; name, store's id; the types' numbers, and
    of each the live keys and their values' bytes, both + 1, or 0 where they were not counted;
    names of those types that have one; the manifest of the ledger and that of the journal

Files are never changed once they are here, and removing a snapshot only unlinks: first the
manifest, so whoever opens a file later than that finds it missing and looks at the lease again.
"""

from __future__ import annotations

import contextlib
import errno
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from xxhash import xxh3_64_intdigest as xxh3

from octavo.files.argument_checks import shown
from octavo.files.door.disk import TEMPORARY_SUFFIX, Disk, refuse_links
from octavo.files.door.file_lock import FileLock
from octavo.files.errors import OUT_OF_MEANS, Corruption, Misuse, OctavoError, SnapshotExpired
from octavo.files.messages import messages_of
from octavo.manifest.file_name import is_plain
from octavo.manifest.journal_manifest import JournalManifest
from octavo.manifest.ledger_manifest import LedgerManifest
from octavo.manifest.packing import Packer, Unpacker
from octavo.manifest.store_identity import IDENTITY

log = messages_of("octavo.published")

SNAPSHOTS = "snapshots"
MANIFEST = "manifest"
GRACE_MS = 300_000
"""How long after the end of its lease a snapshot is removed: clocks of hosts differ."""
MAKING = "making"
"""A file whose lock tells others that the snapshot is being made, however long that takes."""
READING = "reading"
"""A file of a snapshot that is for one reader alone; its lock ends with the reader, however it
ends."""
REPLACED = "replaced"
"""Marks a snapshot that has lost its name. It is a file, since a process that renews the lease
meanwhile writes the manifest as it was."""
ORPHAN_MS = 3_600_000
"""How old, by its id, a directory without a manifest and without a maker must be to be removed:
until then a maker may come, or one of an earlier release be at work."""
MAX_NAME_BYTES = 255
_ROUNDS = 8
"""How often a removal is tried: each renewal meanwhile may put the manifest back. Also how often a
name is looked for: a look misses it if it passes to another snapshot just then."""

_MAGIC = b"OPS1"
_VERSION = 1
_MAX_BYTES = 256 << 20
_SUM_BYTES = 8


@dataclass(frozen=True, slots=True)
class Counted:
    """How much of a type of objects a snapshot has."""

    keys: int | None
    """Live keys, exactly; None: they were not counted."""
    bytes: int | None
    """Of their values, before compression; None: they were not counted."""
    name: str = ""
    """The type's name."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published snapshot, as it says of itself."""

    id: str
    path: str
    """Its directory, which other processes can be given."""
    name: str
    """"" where it has none."""
    sqn: int
    """The last sequence number that is in it."""
    taken_at: int
    """What had expired by then is absent, ms UTC."""
    expires_at: int
    """From then on reading it raises SnapshotExpired, unless it is renewed; ms UTC."""
    counts: Mapping[int, Counted]
    """By type of objects, a number: what is in it. Types without a key may be left out."""
    store_id: str
    ledger: LedgerManifest = field(repr=False)
    journal: JournalManifest = field(repr=False)

    @property
    def keys(self) -> int | None:
        """Live keys of all types of objects, exactly; None: they were not counted."""
        return _total([count.keys for count in self.counts.values()])

    @property
    def bytes(self) -> int | None:
        """Bytes of the live values, before compression; None: they were not counted."""
        return _total([count.bytes for count in self.counts.values()])

    def check(self, now_ms: int) -> None:
        """Raise SnapshotExpired if it may no longer be read."""
        if now_ms >= self.expires_at:
            raise SnapshotExpired(
                f"the published snapshot {self.id} expired at {self.expires_at} (ms UTC); "
                "publish another one (in Spark: load again, leaseSeconds says for how long), or "
                "renew in time"
            )


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return None if len(known) < len(counts) else sum(known)


def in_store(text: str, path: str, store: str) -> str:
    """``text`` with the paths of a snapshot's links replaced by those of the store's own files."""
    linked = re.compile(re.escape(f"{path}/") + r"([0-9a-f-]+)\.(sst|cdb|log)")  # no side file
    return linked.sub(
        lambda of: f"{store}/{'ledger' if of[2] == 'sst' else 'journal'}/{of[1]}.{of[2]}", text
    )


def new_id(now_ms: int) -> str:
    """An id that no other snapshot has."""
    return f"{now_ms:012x}-{secrets.randbits(32):08x}"


def made_at(name: str) -> int | None:
    """The moment of an id, ms UTC; None: it is no id."""
    stamp, dash, rest = name.partition("-")
    if not dash or len(stamp) != 12 or len(rest) != 8:
        return None
    try:
        int(rest, 16)
        return int(stamp, 16)
    except ValueError:
        return None


# ---------------------------------------------------------------- one snapshot


def encode(snapshot: Published) -> bytes:
    """The file ``manifest``. O(files)."""
    out = Packer(_MAGIC, _VERSION)
    for number in (snapshot.sqn, snapshot.taken_at, snapshot.expires_at, len(snapshot.counts)):
        out.number(number)
    out.strings([b"=" + snapshot.name.encode(), b"=" + snapshot.store_id.encode()])
    counts = list(snapshot.counts.values())
    out.integers(list(snapshot.counts))
    out.integers([0 if count.keys is None else count.keys + 1 for count in counts])
    out.integers([0 if count.bytes is None else count.bytes + 1 for count in counts])
    out.strings([b"=" + count.name.encode() for count in counts])
    out.strings([snapshot.ledger.encode(), snapshot.journal.encode()])
    payload = out.payload()
    return payload + xxh3(payload).to_bytes(_SUM_BYTES, "little")


def decode(stored: bytes, id: str, path: str, *, files: bool = True) -> Published:
    """What ``encode`` made, checked; without ``files`` both manifests are empty, and it is not
    O(files). Raises Corruption, UnsupportedFormat."""
    payload, told = stored[:-_SUM_BYTES], stored[-_SUM_BYTES:]
    file = f"{path}/{MANIFEST}"
    if xxh3(payload).to_bytes(_SUM_BYTES, "little") != told:
        raise Corruption(file, len(payload), "checksum of a published snapshot's manifest")
    found = Unpacker(payload, file, _MAGIC, _VERSION)
    sqn, taken_at, expires_at, types = (found.number() for _ in range(4))
    if types > 256:
        raise found.wrong("more types than there can be", expected=256, found=types)
    name, store_id = found.strings(2)
    tags, keys, sizes = (found.integers(types) for _ in range(3))
    names = found.strings(types)
    ledger, journal = found.strings(2)
    found.end()
    try:
        texts = [text[1:].decode() for text in (name, store_id, *names)]
    except UnicodeDecodeError as wrong:
        raise found.wrong(f"a name: {wrong}") from None
    counts = {
        tag: Counted(keys[at] - 1 if keys[at] else None, sizes[at] - 1 if sizes[at] else None, text)
        for at, (tag, text) in enumerate(zip(tags, texts[2:], strict=True))
    }
    return Published(
        id, path, texts[0], sqn, taken_at, expires_at, counts, texts[1],
        LedgerManifest.decode(ledger) if files else LedgerManifest.empty(),
        JournalManifest.decode(journal) if files else JournalManifest.empty(),
    )  # fmt: skip


def write(disk: Disk, snapshot: Published) -> None:
    """Write the manifest, atomically and durably: it makes the snapshot readable, or its lease
    another one. Two processes may do so at once: one of the two leases counts."""
    path = f"{snapshot.path}/{MANIFEST}"
    disk.write_atomically(path, encode(snapshot), _aside(path))


def _aside(path: str) -> str:
    """A name that nobody else gives."""
    return f"{path}-{secrets.randbits(64):016x}{TEMPORARY_SUFFIX}"


def read(disk: Disk, path: str, *, files: bool = True) -> Published:
    """The snapshot in a directory; ``files`` as in ``decode``. Raises SnapshotExpired where it is
    gone, Corruption."""
    id = path.rpartition("/")[2]
    refuse_links(disk, path)
    try:
        stored = disk.read(f"{path}/{MANIFEST}", _MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise _gone(disk, path) from None
    found = decode(stored, id, path, files=files)
    if found.name and disk.exists(f"{path}/{REPLACED}"):
        return replace(found, name="")
    return found


def _gone(disk: Disk, path: str) -> SnapshotExpired:
    store, _, id = path.rsplit("/", 2)
    if not disk.exists(f"{store}/{IDENTITY}"):
        return SnapshotExpired(f"there is no store at {store} any more: it was removed or moved")
    return SnapshotExpired(
        f"the published snapshot {id} is gone, and {path} with it: it was released, or its lease "
        "ran out"
    )


def renewed(disk: Disk, path: str, expires_at: int, now_ms: int) -> Published:
    """Extend the lease to ``expires_at``, ms UTC. A later end stays: others may count on it. Raises
    SnapshotExpired if the lease had ended."""
    found = read(disk, path)
    found.check(now_ms)
    found = replace(found, expires_at=max(found.expires_at, expires_at))
    try:
        write(disk, found)
    except FileNotFoundError:
        raise _gone(disk, path) from None
    return found


def remove(disk: Disk, path: str) -> None:
    """Remove a snapshot, its manifest first. One that is gone is fine. O(files)."""
    for _ in range(_ROUNDS):
        if _removed(disk, path):
            return


def _removed(disk: Disk, path: str) -> bool:
    """Try to remove a snapshot; False: something is there again."""
    try:
        _hide(disk, path)
        names = disk.listdir(path)
    except FileNotFoundError:
        return True
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(f"{path}/{name}")
    try:
        disk.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise
        return error.errno == errno.ENOENT
    return True


def _hide(disk: Disk, path: str) -> None:
    """Take the manifest away, durably, or a power cut could leave it without its files. Raises
    FileNotFoundError where the directory is gone."""
    manifest = f"{path}/{MANIFEST}"
    hidden = _aside(manifest)
    with contextlib.suppress(FileNotFoundError):
        disk.rename(manifest, hidden)
    try:
        disk.sync_dir(path)
    except OSError:
        # A later sync that goes well would not show that this failed: the next try hides it anew.
        with contextlib.suppress(OSError):
            disk.link(hidden, manifest)  # never over the manifest of a renewal meanwhile
        raise


# ---------------------------------------------------------------- all of a store


def directories(disk: Disk, store: str) -> list[str]:
    """Where snapshots of the store are or were being made, oldest first."""
    root = f"{store}/{SNAPSHOTS}"
    refuse_links(disk, root)
    try:
        names = disk.listdir(root)
    except FileNotFoundError:  # none was made yet; or the store is being destroyed
        return []
    found = [f"{root}/{name}" for name in names if made_at(name) is not None]
    return [path for path in found if not disk.is_link(path)]


def listed(disk: Disk, store: str) -> Iterator[Published]:
    """Yield the published snapshots of a store, oldest first, without their files (see ``decode``).
    Those that cannot be read are left out, with a warning; but raises OSError if this process
    itself is out of descriptors or memory. Expired ones are included until they are swept.
    O(snapshots)."""
    for path in directories(disk, store):
        try:
            yield read(disk, path, files=False)
        except SnapshotExpired:
            continue  # an orphan, or just released
        except (OctavoError, OSError) as wrong:
            if isinstance(wrong, OSError) and wrong.errno in OUT_OF_MEANS:
                raise
            log.warning("%s is left out: %s", path, wrong)


def found(disk: Disk, store: str, wanted: str, now_ms: int) -> Published:
    """The snapshot of this id or name, without its files. Raises SnapshotExpired, Misuse where
    there is none."""
    if is_plain(wanted) and made_at(wanted) is not None:
        there = read(disk, f"{store}/{SNAPSHOTS}/{wanted}", files=False)
        there.check(now_ms)
        return there
    before = None
    for _ in range(_ROUNDS):  # a look can miss the name while it passes to another
        looked = list(listed(disk, store))
        named = [each for each in looked if each.name == wanted]
        live = [each for each in named if now_ms < each.expires_at]
        if live:
            return live[-1]
        names = [(each.id, each.name) for each in looked]
        if names == before:
            break
        before = names
    if named:
        named[-1].check(now_ms)
    raise Misuse(f"{store} has no published snapshot {wanted!r}: store.published() lists them")


def sweep(disk: Disk, store: str, now_ms: int) -> list[str]:
    """Remove snapshots that expired, that killed readers left, or that were never finished, once
    their maker was killed or they are old. Returns their ids. O(snapshots)."""
    gone = []
    for path in directories(disk, store):
        id = path.rpartition("/")[2]
        orphan = False
        try:
            # Asked before the manifest is read: a maker that lets go has written it.
            making = f"{path}/{MAKING}"
            begun = disk.exists(making) or _is_old(id, now_ms)
            orphan = begun and not disk.is_held(making)
            over = read(disk, path, files=False).expires_at + GRACE_MS <= now_ms
            over = over or _is_left(disk, f"{path}/{READING}")
        except (SnapshotExpired, Corruption):
            over = orphan
        except (OctavoError, OSError) as wrong:  # a newer release may sweep it, say
            log.warning("%s is left alone: %s", path, wrong)
            continue
        if over:
            try:
                remove(disk, path)
                gone.append(id)
            except OSError as error:
                log.warning("%s cannot be removed: %s", path, error)
    return gone


def hold(disk: Disk, path: str) -> FileLock:
    """Make a new file that this process has locked from the first moment it is there, until the
    lock that this returns is released or the process ends. Raises OSError."""
    aside = _aside(path)
    disk.create(aside).close()
    held = disk.hold_file(aside)
    disk.rename(aside, path)
    return held


def _is_left(disk: Disk, path: str) -> bool:
    """Whether the process that made this file by ``hold`` is gone."""
    return disk.exists(path) and not disk.is_held(path)


def _is_old(id: str, now_ms: int) -> bool:
    return (made_at(id) or 0) + ORPHAN_MS <= now_ms


def with_name(disk: Disk, store: str, name: str, now_ms: int) -> list[Published]:
    """The live snapshots of this name, without their files. There is more than one only if a
    replacement was cut short; readers take the last. Raises Misuse for an impossible name."""
    if not name:
        return []
    if len(name.encode(errors="replace")) > MAX_NAME_BYTES or made_at(name) is not None:
        raise Misuse(
            f"name={shown(name)}: allowed are up to {MAX_NAME_BYTES} bytes that do not look like "
            "an id"
        )
    known = listed(disk, store)
    return [each for each in known if each.name == name and now_ms < each.expires_at]


def take_name(disk: Disk, holders: list[Published]) -> None:
    """Take the name from these snapshots, durably: from all of them, or else none. Raises
    OSError."""
    marked = []
    try:
        for each in holders:
            marked.append(mark := f"{each.path}/{REPLACED}")
            with contextlib.suppress(FileNotFoundError):  # it was released meanwhile
                disk.create(mark).close()
                disk.sync_dir(each.path)
    except BaseException:
        for mark in reversed(marked):
            with contextlib.suppress(OSError):
                disk.unlink(mark)
        raise
