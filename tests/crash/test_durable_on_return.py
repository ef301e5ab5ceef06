"""What returned stays: a power cut right after a call, and in between the steps whose order
matters, on a simulated disk. Each fsync that something rests on has a test here or in one of the
other files of this directory; scripts/campaigns/mutants.py takes them away one by one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pykka import ActorRegistry
from simdisk import MODES, SimCrash, SimDisk
from whole_store import flush

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.keeping import ingest as ingests
from octavo.actors.keeping.backup import backup
from octavo.actors.keeping.repair import DAMAGED, repair_files
from octavo.actors.keeping.restoring import restore_on
from octavo.actors.opening import identity as identities
from octavo.actors.opening import shutdown, startup
from octavo.actors.opening.options import Options
from octavo.actors.published_reader import PublishedReader
from octavo.destroying import destroy_on
from octavo.files.door.disk import Disk
from octavo.files.errors import OctavoError
from octavo.files.handover import staged_files, staging
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.jobs import sealing
from octavo.files.journal import cdb
from octavo.manifest import pinning, published
from octavo.pipeline.feed_files import JournalLook
from octavo.snapshot import SnapshotBucket

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))
SEEDS = 4
HOUR_MS = 3_600_000
Content = dict[bytes, bytes]
pytestmark = pytest.mark.usefixtures("small_reserve")


def opened(disk: Disk, path: str = "/s", **options: object) -> octavo.Store:
    given = {"worker": False, "roll_count": 256, "compact_every_seconds": None} | options
    return octavo.Store(startup.start(path, Options(**given), disk))  # type: ignore[arg-type]


def filled(store: octavo.Store, count: int, what: bytes = b"value") -> Content:
    wanted = {b"%03d" % n: what + b" %d" % n for n in range(count)}
    store.put_many(wanted.items())
    return wanted


def images(disk: SimDisk) -> Iterator[tuple[str, SimDisk]]:
    """What a power cut may leave of a disk now."""
    for mode in MODES:
        for seed in range(1 if mode in ("nothing", "all") else SEEDS):
            yield f"OCTAVO_SEED={SEED} {mode} {seed}", disk.after_crash(mode, SEED + seed)


def forgotten() -> None:
    """Their machine has no power: nobody must ask them anything any more."""
    for ref in ActorRegistry.get_all():
        ActorRegistry.unregister(ref)


def cuts(
    before: Callable[[], SimDisk], act: Callable[[SimDisk], object]
) -> Iterator[tuple[str, SimDisk]]:
    """Images of every cut while ``act`` runs on what ``before`` made, and of one after it."""
    point = 0
    while True:
        point += 1
        disk = before()
        disk.crash_at(disk.ops + point)
        try:
            act(disk)
        except (SimCrash, OctavoError):
            pass  # an error: the power went on a background thread
        crashed = disk.crashed
        if crashed:
            forgotten()
        for where, image in images(disk):
            yield f"cut at operation {point}, {where}", image
        if not crashed:
            return


def holds(image: Disk, wanted: Content, where: str, path: str = "/s") -> list[str]:
    """A store of an image opens with exactly this, and is sound; its notes."""
    store = opened(image, path)
    try:
        assert dict(store.items()) == wanted, where
        report = store.verify()
        assert report.ok, (where, report.problems[:3])
        return notes(store)
    finally:
        shutdown.stop(store._running)


def notes(store: octavo.Store) -> list[str]:
    """What the opening noted, but for the header of a journal file without a record in it."""
    harmless = ("its name is believed", "held no record")
    return [note for note in store.stats()["notes"] if not any(mark in note for mark in harmless)]


# ---------------------------------------------------------------- the journal


def test_a_closed_store_is_durable() -> None:
    disk = SimDisk()
    store = opened(disk)
    wanted = filled(store, 300) | {b"last": b"in a file of its own"}
    store.put(b"last", wanted[b"last"])
    store.close()
    for where, image in images(disk):
        assert holds(image, wanted, where) == [], where


def _batch(store: octavo.Store, sync: bool | None, **more: Any) -> None:
    with store.batch(sync=sync) as batch:
        batch.put("", b"a", b"new", **more)
        batch.delete("", b"b")


def _pairs() -> Iterator[tuple[str, str]]:
    """They are converted, and a few that need not be."""
    yield "a", "new"


WRITES: dict[str, tuple[Callable[[octavo.Store, bool | None], object], Content]] = {
    "plain put": (
        lambda s, sync: s.put(b"a", b"new", **({} if sync is None else {"sync": sync})),
        {b"a": b"new", b"b": b"old"},
    ),
    "put": (lambda s, sync: s.put(b"a", b"new", sync=sync), {b"a": b"new", b"b": b"old"}),
    "put with metadata": (
        lambda s, sync: s.put(b"a", b"new", sync=sync, metadata=b"m"), {b"a": b"new", b"b": b"old"}
    ),
    "put of an edit of the index": (
        lambda s, sync: s.put(b"a", b"new", sync=sync, index=octavo.IndexEdit(add={"f": "t"})),
        {b"a": b"new", b"b": b"old"},
    ),
    "delete": (lambda s, sync: s.delete(b"a", sync=sync), {b"b": b"old"}),
    "delete_many": (lambda s, sync: s.delete_many([b"a", b"b"], sync=sync), {}),
    "delete_many of one": (lambda s, sync: s.delete_many([b"a"], sync=sync), {b"b": b"old"}),
    "put_many": (
        lambda s, sync: s.put_many([(b"a", b"new")] * 100, sync=sync), {b"a": b"new", b"b": b"old"}
    ),
    "put_many of text": (
        lambda s, sync: s.put_many(_pairs(), sync=sync), {b"a": b"new", b"b": b"old"}
    ),
    "batch": (_batch, {b"a": b"new"}),
    "batch with metadata": (lambda s, sync: _batch(s, sync, metadata=b"m"), {b"a": b"new"}),
}  # fmt: skip


@pytest.mark.parametrize("always", [False, True], ids=["by call", "always"])
@pytest.mark.parametrize("way", WRITES)
def test_each_way_of_writing_is_durable_where_that_is_asked_for(way: str, always: bool) -> None:
    write, wanted = WRITES[way]
    disk = SimDisk()
    store = opened(disk, sync="always" if always else "none")
    store.put_many({b"a": b"old", b"b": b"old"}, sync=True)
    write(store, None if always else True)
    for where, image in images(disk):
        holds(image, wanted, where)
    store.close()


HEAD_WRITES: dict[str, Callable[[octavo.Store, bool | None], object]] = {
    "put": lambda s, sync: s.head_bucket("").put("a", "new", sync=sync),
    "delete": lambda s, sync: s.head_bucket("").delete("a", sync=sync),
}


@pytest.mark.parametrize("always", [False, True], ids=["by call", "always"])
@pytest.mark.parametrize("way", [*HEAD_WRITES, "batch"])
def test_so_is_each_of_a_head_only_store(way: str, always: bool) -> None:
    disk = SimDisk()
    store = opened(disk, sync="always" if always else "none", mode="head_only")
    store.head_bucket("").put("a", "old", sync=True)
    sync = None if always else True
    if way == "batch":
        with store.head_batch(sync=sync) as batch:
            batch.put("", "a", "new")
    else:
        HEAD_WRITES[way](store, sync)
    for where, image in images(disk):
        found = opened(image, mode="head_only")
        assert found.head_bucket("").get("a") == (None if way == "delete" else b"new"), where
        found.close()
    store.close()


def test_the_ledger_names_nothing_that_the_journal_may_lose() -> None:
    def before() -> SimDisk:
        disk = SimDisk()
        opened(disk).close()
        return disk

    def act(disk: SimDisk) -> None:
        store = opened(disk)
        filled(store, 100)
        store._running.bookie.call(Bookie.push)
        shutdown.stop(store._running)

    for where, image in cuts(before, act):
        store = opened(image)
        for key in store:
            assert store.get(key) is not None, where
        report = store.verify()
        assert report.ok, (where, report.problems[:3])
        shutdown.stop(store._running)


def unsealed() -> tuple[SimDisk, dict[str, object], bytes]:
    """(what a kill leaves, arguments of the job that seals its active file, the offsets)."""
    disk = SimDisk()
    store = opened(disk, sync="always")
    for n in range(20):
        store.put(b"%d" % n, b"x" * 100)
    active = store._inker.active
    told = {
        "directory": "/s/journal", "name": active.name, "seed": active.seed,
        "sealed_name": active.name.replace(".log", ".cdb"), "first_ms": 1, "last_ms": 2,
    }  # fmt: skip
    offsets = active.offsets.tobytes()
    forgotten()
    return disk.after_kill(), told, offsets


def test_pointers_come_after_the_tables_they_lead_to() -> None:
    made, told, offsets = unsealed()
    whole = made.after_crash("all")
    sealing.seal(whole, offsets, **told)  # type: ignore[arg-type]
    name, sealed = f"/s/journal/{told['name']}", f"/s/journal/{told['sealed_name']}"
    tables = whole.read(sealed, 1 << 20)[cdb.POINTERS_BYTES :]
    for where, image in cuts(
        lambda: made.after_crash("all"),
        lambda disk: sealing.seal(disk, offsets, **told),  # type: ignore[arg-type]
    ):
        for path in filter(image.exists, (name, sealed)):
            found = image.read(path, 1 << 20)
            if any(found[: cdb.POINTERS_BYTES]) or path == sealed:
                assert found[cdb.POINTERS_BYTES :] == tables, where
            if path == sealed:
                trailer, _ = cdb.sealed_offsets(found, where)
                cdb.verify_tables(found, trailer, where)


def test_a_sealed_file_is_durable_under_its_new_name_alone() -> None:
    made, told, offsets = unsealed()
    disk = made.after_crash("all")
    sealing.seal(disk, offsets, **told)  # type: ignore[arg-type]
    for where, image in images(disk):
        assert image.exists(f"/s/journal/{told['sealed_name']}"), where
        assert not image.exists(f"/s/journal/{told['name']}"), where


def test_a_file_that_a_killed_worker_sealed_is_durable_under_that_name() -> None:
    made, told, offsets = unsealed()
    point = 0
    while True:
        point += 1
        disk = made.after_crash("all")
        disk.crash_at(disk.ops + point)
        with pytest.raises(SimCrash):
            sealing.seal(disk, offsets, **told)  # type: ignore[arg-type]
        again = disk.after_kill()  # of the worker only
        if again.exists(f"/s/journal/{told['sealed_name']}"):
            break
    sealing.seal(again, offsets, **told)  # type: ignore[arg-type]
    for where, image in images(again):
        assert image.exists(f"/s/journal/{told['sealed_name']}"), where


def test_what_a_feed_tells_is_durable() -> None:
    disk = SimDisk()
    store = opened(disk)
    store.sync()
    for n in range(10):
        store.put(b"%d" % n, b"not synced")
    told = JournalLook(disk, "/s").newest()
    assert told == store.last_sqn
    for where, image in images(disk):
        again = opened(image)
        assert again.last_sqn >= told, where
        assert len(again) == 10, where
        shutdown.stop(again._running)
    store.close()


# ---------------------------------------------------------------- snapshots for others


def reads(image: Disk, path: str, where: str) -> Content:
    """What a published snapshot holds."""
    found = published.read(image, path)
    reader = PublishedReader(image, found, lambda: found.taken_at, 64)
    bucket = SnapshotBucket(reader, identities.read(image, "/s"), b"")  # type: ignore[arg-type]
    return {key: bucket[key] for key in bucket}


@pytest.mark.parametrize("added", [{}, {b"new": b"1"}], ids=["all in the ledger", "in memory"])
def test_a_published_snapshot_is_durable(added: Content) -> None:
    def before() -> SimDisk:
        disk = SimDisk()
        store = opened(disk)
        filled(store, 30)
        flush(store)
        store.close()
        return disk

    def act(disk: SimDisk) -> None:
        store = opened(disk)
        for key, value in added.items():
            store.put(key, value)
        # Counting writes a file, which makes the names of all others durable with its own.
        store.snapshot().publish(count=bool(added))
        shutdown.stop(store._running)

    wanted = {b"%03d" % n: b"value %d" % n for n in range(30)} | added
    seen = 0
    for where, image in cuts(before, act):
        for path in published.directories(image, "/s"):
            if image.exists(f"{path}/manifest"):
                assert reads(image, path, where) == wanted, where
                seen += 1
    assert seen >= 14


def test_a_removed_snapshot_is_gone_or_whole() -> None:
    made = SimDisk()
    store = opened(made)
    wanted = filled(store, 30)
    path = store.snapshot().publish().path
    shutdown.stop(store._running)
    for where, image in cuts(
        lambda: made.after_crash("all"), lambda disk: published.remove(disk, path)
    ):
        if image.exists(f"{path}/manifest"):
            assert reads(image, path, where) == wanted, where


def test_a_pinned_snapshot_is_durable() -> None:
    disk = SimDisk()
    store = opened(disk)
    wanted = filled(store, 20)
    found = pinning.pin(disk, "/s", HOUR_MS, 1_800_000_000_000)
    for where, image in images(disk):
        assert reads(image, found.path, where) == wanted, where
    store.close()


def pinned_sqn(disk: Disk) -> int:
    return pinning.pin(disk, "/s", HOUR_MS, 1_800_000_000_000).sqn


def fed_sqn(disk: Disk) -> int:
    return JournalLook(disk, "/s").newest()


def test_what_is_told_of_a_pinned_store_stays_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is written, and not synced, as its file is being pinned."""
    disk = SimDisk()
    store = opened(disk, sync="none")
    wanted = filled(store, 20)
    real = pinning.recovery.growing_tail

    def more(*which: Any) -> Any:
        store.put(b"more", b"value")
        return real(*which)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(pinning.recovery, "growing_tail", more)
        assert pinning.pin(disk, "/s", HOUR_MS, 1_800_000_000_000).sqn == 21
    for where, image in images(disk):
        found = opened(image)
        assert dict(found.items()) == wanted | {b"more": b"value"}, where
        found.close()
    store.close()


@pytest.mark.parametrize("told", [pinned_sqn, fed_sqn])
def test_a_commit_that_is_told_before_its_owner_has_synced_it_stays(
    monkeypatch: pytest.MonkeyPatch, told: Callable[[Disk], int]
) -> None:
    disk = SimDisk()
    store = opened(disk)
    writer = StagedWriter(disk, "/s", "j", "0-0", now_ms=1)
    writer.put_many(b"", [b"loaded"], [b"value"])
    writer.finish()
    real = disk._sync
    looking: list[bool] = []
    left: list[tuple[str, SimDisk]] = []

    def late(call: str, node: Any, path: str) -> None:
        if path.startswith("/s/journal/manifest/") and not looking and not left:
            looking.append(True)
            if told(disk) == 1:
                left.extend(images(disk))
            looking.clear()
        real(call, node, path)

    monkeypatch.setattr(disk, "_sync", late)
    store.ingest("j", ["0-0"])
    monkeypatch.undo()
    store.close()
    assert left
    for where, image in left:
        found = opened(image)
        assert dict(found.items()) == {b"loaded": b"value"}, where
        found.close()


# ---------------------------------------------------------------- backups and what comes of them


def backed_up(disk: SimDisk, *, copy: bool = False) -> Content:
    """A backup of a store of 300 keys at /b."""
    store = opened(disk)
    wanted = filled(store, 300)
    flush(store)
    if copy:
        disk.fail("link", 1, errno.EXDEV, lasting=True)
    backup(store._running, "/b", ledger=True, copy=copy)
    disk.heal()
    shutdown.stop(store._running)
    return wanted


@pytest.mark.parametrize("copy", [False, True], ids=["linked", "copied"])
def test_a_backup_is_durable(copy: bool) -> None:
    disk = SimDisk()
    wanted = backed_up(disk, copy=copy)
    there = {folder: disk.listdir(f"/b/{folder}") for folder in ("journal", "ledger")}
    for where, image in images(disk):
        for folder, names in there.items():
            assert image.listdir(f"/b/{folder}") == names, (where, folder)
        assert holds(image, wanted, where, "/b") == [], where


def updating(disk: SimDisk, *, compacts: bool = True, ledger: bool = True) -> Content:
    """The second backup, after a compaction: files come and go."""
    store = opened(disk)
    wanted = filled(store, 300, b"newer")
    if compacts:
        store.compact()
    backup(store._running, "/b", ledger=ledger, copy=False)
    shutdown.stop(store._running)
    return wanted


def test_a_backup_that_was_brought_up_to_date_is_durable() -> None:
    disk = SimDisk()
    backed_up(disk)
    wanted = updating(disk, ledger=False)  # whose files go
    there = {folder: disk.listdir(f"/b/{folder}") for folder in ("journal", "ledger")}
    for where, image in images(disk):
        for folder, names in there.items():
            assert image.listdir(f"/b/{folder}") == names, (where, folder)
        assert holds(image, wanted, where, "/b") == [], where


def test_a_name_that_a_killed_process_gave_a_backup_is_durable_once_it_is_up_to_date() -> None:
    disk = SimDisk()
    backed_up(disk)
    disk.rename("/b", "/named")  # as the last thing that one did
    store = opened(disk)
    wanted = filled(store, 300, b"newer")
    backup(store._running, "/named", ledger=True, copy=False)
    shutdown.stop(store._running)
    for where, image in images(disk):
        assert holds(image, wanted, where, "/named") == [], where


def test_a_backup_that_went_back_stays_as_it_was() -> None:
    """An update that was cut off is undone by the next opening, once and for all."""
    done = SimDisk()
    wanted = backed_up(done)

    def cut_off(point: int) -> SimDisk:
        disk = done.after_crash("all")
        disk.crash_at(disk.ops + point)
        try:
            updating(disk, compacts=False)
        except (SimCrash, OctavoError):
            pass
        forgotten()
        return disk.after_crash("all")

    whole = done.after_crash("all")
    updating(whole, compacts=False)
    halves = 0
    for point in range(whole.ops, 0, -1):
        left = cut_off(point)
        if "UPDATING" not in left.listdir("/b/journal"):
            if halves:
                break
            continue
        halves += 1
        store = opened(left, "/b", sync="always")
        if dict(store.items()) != wanted:  # it had got so far that it counts
            shutdown.stop(store._running)
            continue
        for where, image in images(left):
            holds(image, wanted, f"cut at {point}, {where}", "/b")
        shutdown.stop(store._running)
    assert halves > 5


@pytest.mark.parametrize("sqn", [None, 200])
def test_a_restored_store_is_durable(sqn: int | None) -> None:
    disk = SimDisk()
    wanted = backed_up(disk)
    restore_on(disk, "/b", "/r", sqn=sqn, time_ms=None, copy=False)
    kept = dict(list(wanted.items())[:sqn])
    for where, image in images(disk):
        assert holds(image, kept, where, "/r") == [], where


# ---------------------------------------------------------------- jobs from elsewhere


def attempt(disk: SimDisk) -> None:
    writer = StagedWriter(disk, "/s", "j", "0", now_ms=4 * 10**12, file_records=50)
    keys = [b"job %03d" % n for n in range(120)]
    writer.put_many(b"", keys, [b"from elsewhere"] * 120)
    writer.finish()


def test_a_finished_attempt_is_durable() -> None:
    def before() -> SimDisk:
        disk = SimDisk()
        opened(disk).close()
        return disk

    seen = 0
    for where, image in cuts(before, attempt):
        if image.exists("/s/staging/j/0.json"):
            told = staging.read_attempt(image, "/s", "j", "0")
            assert told.count == 120, where
            staged_files.check(image, "/s/staging/j", told)
            seen += 1
    assert seen >= 14


def test_an_ingested_job_needs_no_new_ledger() -> None:
    disk = SimDisk()
    store = opened(disk)
    wanted = filled(store, 10)
    attempt(disk)
    ingests.ingest(store._running, "j", ["0"])
    wanted |= {b"job %03d" % n: b"from elsewhere" for n in range(120)}
    for where, image in images(disk):
        assert holds(image, wanted, where) == [], where
    store.close()


# ---------------------------------------------------------------- repair


def damaged() -> tuple[SimDisk, Content]:
    """A store of which a sealed file has damaged hash tables."""
    disk = SimDisk()
    store = opened(disk)
    wanted = filled(store, 300)
    store.close()
    name = next(name for name in disk.listdir("/s/journal") if name.endswith(".cdb"))
    whole = disk.read(f"/s/journal/{name}", 1 << 20)
    file = disk.reopen(f"/s/journal/{name}", len(whole))
    file.pwrite(b"\xff" * 8, 16)
    file.sync()
    file.close()
    return disk, wanted


def test_what_repair_puts_aside_is_durable() -> None:
    for where, image in cuts(lambda: damaged()[0], lambda disk: repair_files(disk, "/s")):
        journal = [name for name in image.listdir("/s/journal") if name.endswith(".cdb")]
        whole = image.read(f"/s/journal/{journal[0]}", 1 << 20)
        if whole[16:24] != b"\xff" * 8:  # it was written anew
            assert image.listdir(f"/s/{DAMAGED}"), where


def test_what_repair_wrote_anew_is_durable() -> None:
    disk, wanted = damaged()
    done = repair_files(disk, "/s")
    assert done.rewritten
    for where, image in images(disk):
        holds(image, wanted, where)


def test_a_manifest_that_repair_put_aside_stays_there() -> None:
    disk = SimDisk()
    store = opened(disk)
    wanted = filled(store, 300)
    store.close()
    folder = "/s/journal/manifest"
    for name in disk.listdir(folder):
        whole = disk.read(f"{folder}/{name}", 1 << 20)
        disk.unlink(f"{folder}/{name}")
        # Right checksums over changes that contradict each other: no state can be told.
        file = disk.create(f"{folder}/{name}")
        file.write_all(contradicting(name, whole))
        file.sync()
        file.close()
    disk.sync_dir(folder)
    done = repair_files(disk, "/s")
    assert done.moved
    for where, image in images(disk):
        assert image.listdir(folder) == [], where
        holds(image, wanted, where)


def contradicting(name: str, whole: bytes) -> bytes:
    """A file of a change log whose second change is missing, without any damage."""
    from octavo.manifest.log_file import CHANGE, HEADER_BYTES, id_of, record

    who = id_of(name)
    assert who is not None
    head = len(whole[:HEADER_BYTES])
    added = b""
    snapshot = int.from_bytes(whole[head + 4 : head + 8], "little") + 40
    at = head + snapshot
    for sequence in (1, 3):
        added += record(who.seed, at + len(added), CHANGE, who.epoch, sequence, b"nothing")
    return whole[:at] + added


# ---------------------------------------------------------------- the end of a store


def closed() -> SimDisk:
    disk = SimDisk()
    store = opened(disk, "/home/s")
    filled(store, 20)
    store.close()
    return disk


def test_a_destroyed_store_keeps_its_mark_to_the_end() -> None:
    for where, image in cuts(closed, lambda disk: destroy_on(disk, "/home/s")):
        if image.exists("/home/s") and not image.exists("/home/s/OCTAVO"):
            assert set(image.listdir("/home/s")) <= {"LOCK"}, where


def test_a_destroyed_store_stays_away() -> None:
    disk = closed()
    destroy_on(disk, "/home/s")
    for where, image in images(disk):
        assert not image.exists("/home/s"), where
