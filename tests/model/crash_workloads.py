"""The workloads that are cut off at every operation, by name; what the images of each must hold."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from history import History, State, Where, term_of
from look import FIELD, NOW_MS, clock_ms, look, read_all
from one_thread import forget, one_thread, opened
from power_cuts import Counts, Machine, PowerCuts
from simdisk import SimDisk
from whole_store import rolled

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.keeping.ingest import ingest
from octavo.actors.keeping.restoring import restore_on
from octavo.files.handover.staged_writer import StagedWriter
from octavo.repairing import repair_on

KEYS = 12
BUCKETS = (b"", b"docs")

# ---------------------------------------------------------------- single operations


def put(machine: Machine, store: octavo.Store, *, sync: bool | None = None, big: int = 4) -> None:
    """One put, of which one in ``big`` is larger than a sector, some with an index entry."""
    rng, history = machine.rng, machine.history
    where = (rng.choice(BUCKETS), b"k%d" % rng.randrange(KEYS))
    term = rng.randrange(5) if rng.random() < 0.4 else None
    filling = rng.randbytes(rng.randrange(600, 1500) if rng.randrange(big) == 0 else 9)
    value = history.value(filling, term)
    history.begin((where, value))
    bucket = store.bucket(where[0])
    index = None if term is None else {FIELD: term}
    sqn = bucket.put(where[1], value, index=index, sync=sync)
    history.done(sqn, durable=bool(sync) or is_synced(store))


def delete(machine: Machine, store: octavo.Store, *, sync: bool | None = None) -> None:
    rng, history = machine.rng, machine.history
    where = (rng.choice(BUCKETS), b"k%d" % rng.randrange(KEYS))
    history.begin((where, None))
    sqn = store.bucket(where[0]).delete(where[1], sync=sync)
    history.done(sqn, durable=bool(sync) or is_synced(store))


def batch(machine: Machine, store: octavo.Store, *, sync: bool | None = None) -> None:
    """A batch in both buckets, over several sectors."""
    rng, history = machine.rng, machine.history
    changes: list[tuple[Where, bytes | None]] = []
    for key in rng.sample(range(KEYS + 6), rng.randrange(2, 5)):
        where = (rng.choice(BUCKETS), b"k%d" % key)
        filling = rng.randbytes(rng.choice((9, 700)))
        changes.append((where, None if rng.random() < 0.15 else history.value(filling)))
    history.begin(*changes, batch=True)
    with store.batch(sync=sync) as made:
        for (bucket, key), value in changes:
            if value is None:
                made.delete(bucket, key)
            else:
                made.put(bucket, key, value)
    history.done(made.last_sqn, durable=bool(sync) or is_synced(store))


def is_synced(store: octavo.Store) -> bool:
    return store._running.options.sync == "always"


def some(machine: Machine, store: octavo.Store, count: int, *, sync: bool | None = None) -> None:
    """A mixture of them, with some of the background work between."""
    for _ in range(count):
        kind = machine.rng.randrange(10)
        if kind == 0:
            batch(machine, store, sync=sync)
        elif kind < 3:
            delete(machine, store, sync=sync)
        else:
            put(machine, store, sync=sync)
        machine.breathe()


def save(machine: Machine, store: octavo.Store) -> None:
    """Memory goes into a ledger file."""
    store._running.bookie.call(Bookie.push)
    machine.pool.go_on()


def roll(machine: Machine, store: octavo.Store) -> None:
    rolled(store)
    machine.breathe()


def close(machine: Machine, store: octavo.Store) -> None:
    store.close()
    machine.history.all_durable()


# ---------------------------------------------------------------- workloads


def puts(machine: Machine) -> None:
    """Puts, deletes, batches; the journal rolls, memory is saved; each is synced."""
    store = machine.opened()
    for _ in range(3):
        some(machine, store, 14)
        roll(machine, store)
        some(machine, store, 5)
        save(machine, store)
    close(machine, store)


def not_synced(machine: Machine) -> None:
    """As puts, but only now and then one is synced."""
    store = machine.opened(sync="none")
    for turn in range(4):
        some(machine, store, 14)
        put(machine, store, sync=True)
        some(machine, store, 6)
        (roll if turn % 2 else save)(machine, store)
        if turn == 2:
            store.sync()
            machine.history.all_durable()
    close(machine, store)


def batches(machine: Machine) -> None:
    """Batches, of which each is synced or none is, over rolls."""
    store = machine.opened(sync="none")
    for turn in range(14):
        batch(machine, store, sync=machine.rng.random() < 0.5)
        put(machine, store)
        if turn % 5 == 4:
            roll(machine, store)
        machine.breathe()
    close(machine, store)


def merges(machine: Machine) -> None:
    """Memory is saved so often that level zero is merged."""
    store = machine.opened()
    for _ in range(8):
        some(machine, store, 4)
        save(machine, store)
    machine.pool.go_on()
    if machine.disk.at_call is None and not store.stats()["ledger"]["rows_merged"]:
        raise AssertionError("nothing was merged")
    some(machine, store, 3)
    close(machine, store)


def compactions(machine: Machine) -> None:
    """Two compactions of files full of garbage, a few puts between."""
    store = machine.opened()
    for _ in range(3):
        some(machine, store, 14)
        roll(machine, store)
    machine.pool.go_on()
    if not store.compact().records_dropped and machine.disk.at_call is None:
        raise AssertionError("nothing was compacted")
    some(machine, store, 6)
    roll(machine, store)
    store.compact()
    close(machine, store)


def snapshots(machine: Machine) -> None:
    """Snapshots are published and released; live ones hold files."""
    history = machine.history
    store = machine.opened()
    for turn in range(3):
        some(machine, store, 9)
        held = store.snapshot()
        history.pending_snapshot = f"s{turn}"
        shown = held.publish(f"s{turn}", count=turn != 1)
        history.snapshots[f"s{turn}"] = history.now()
        history.pending_snapshot = None
        some(machine, store, 4)
        if turn == 1:
            save(machine, store)
            history.pending_snapshot = "s0"
            store.published("s0")[0].release()
            del history.snapshots["s0"]
            history.pending_snapshot = None
        held.close()
        del shown
    close(machine, store)


def backups(machine: Machine) -> None:
    """A first backup, and one that brings it up to date."""
    history = machine.history
    store = machine.opened()
    for turn in range(3):
        some(machine, store, 8)
        if turn == 1:
            save(machine, store)
        history.pending_backup = history.now()
        store.backup("/backup")
        history.backup, history.pending_backup = history.pending_backup, None
        history.all_durable()
        if turn == 1:
            store.compact()
    some(machine, store, 3)
    close(machine, store)


MANY = 6


def consumers(machine: Machine) -> None:
    """A durable consumer follows puts and deletes of many, and holds its part of the journal back
    from compactions."""
    history, rng = machine.history, machine.rng
    store = machine.opened()
    some(machine, store, 4)
    mail = store.consumer("mail", since=0)
    history.consumed = 0
    for turn in range(4):
        keys = [b"k%d" % key for key in rng.sample(range(KEYS), MANY)]
        values = [history.value(rng.randbytes(9)) for _ in keys]
        history.begin(*(((b"", key), value) for key, value in zip(keys, values, strict=True)))
        history.done(store.put_many(zip(keys, values, strict=True)), durable=True)
        history.begin(*(((b"", key), None) for key in keys[:2]))
        history.done(store.delete_many(keys[:2]), durable=True)
        machine.breathe()
        some(machine, store, 2)
        roll(machine, store)
        if turn % 2:
            seen = [change.sqn for change in mail.changes()]
            if seen != list(range(mail.position + 1, history.highest + 1)):
                raise AssertionError(f"behind {mail.position} the consumer sees {seen}")
            history.pending_consumed = seen[len(seen) // 2]
            mail.acknowledge(history.pending_consumed)
            history.consumed, history.pending_consumed = history.pending_consumed, None
        if turn > 1:
            machine.pool.go_on()
            store.compact()
    close(machine, store)


JOB = 6


def ingests(machine: Machine) -> None:
    """Two jobs' files are staged and taken in, among other writes."""
    history = machine.history
    store = machine.opened()
    some(machine, store, 6)
    for job in range(2):
        changes: list[tuple[Where, bytes | None]] = [
            ((b"", b"k%d" % (2 * n)), history.value(b"job" * n)) for n in range(JOB)
        ]
        for part in (0, 1):
            writer = StagedWriter(
                machine.disk, "/store", f"j{job}", f"a{part}", now_ms=NOW_MS, file_records=2
            )
            mine = changes[part * 3 : part * 3 + 3]
            writer.put_many(b"", [w[1] for w, _ in mine], [v or b"" for _, v in mine])
            writer.finish()
        history.begin(*changes, batch=True)
        machine.loading = True
        done = ingest(store._running, f"j{job}", ["a0", "a1"])
        machine.loading = False
        history.done(done.last_sqn, durable=True)
        some(machine, store, 4)
        machine.pool.go_on()
    close(machine, store)


def _closed_store(machine: Machine) -> None:
    """Sealed files, a ledger of two levels, a clean end."""
    store = machine.opened()
    for turn in range(4):
        some(machine, store, 10)
        roll(machine, store)
        if turn % 2:
            save(machine, store)
    close(machine, store)


def _killed_store(machine: Machine) -> None:
    """As a crash leaves it: everything is to be replayed, and half of it is not sealed."""
    store = machine.opened()
    for turn in range(4):
        some(machine, store, 10)
        if turn:
            rolled(store)
    forget(store)
    machine.disk._locked.clear()  # they go with the machine


def openings(machine: Machine) -> None:
    """A store is opened that was never closed, and closed; then one without its ledger."""
    for turn in range(3):
        store = machine.opened()
        some(machine, store, 2)
        if turn == 1:
            machine.pool.go_on()
        close(machine, store)
        if turn == 1:
            for name in machine.disk.listdir("/store/ledger"):
                if name != "manifest":
                    machine.disk.unlink(f"/store/ledger/{name}")


def repairs(machine: Machine) -> None:
    """A store with damaged ledger, manifest and hash tables is repaired: nothing is lost."""
    repair_on(machine.disk, "/store")
    store = machine.opened()
    some(machine, store, 2)
    close(machine, store)


def _damaged_store(machine: Machine) -> None:
    _closed_store(machine)
    disk = machine.disk
    sealed = [name for name in disk.listdir("/store/journal") if name.endswith(".cdb")]
    for name in sealed[:2]:
        path = f"/store/journal/{name}"
        flip(disk, path, disk.size(path) - 40)
    for name in disk.listdir("/store/ledger"):
        if name.endswith(".sst"):
            flip(disk, f"/store/ledger/{name}", disk.size(f"/store/ledger/{name}") // 2)
    for folder in ("journal",):
        name = disk.listdir(f"/store/{folder}/manifest")[-1]
        flip(disk, f"/store/{folder}/manifest/{name}", 30)


def flip(disk: SimDisk, path: str, at: int) -> None:
    """Damage a byte, in a way that no sync undoes."""
    node = disk._file(path)
    for image in (node.content, node.durable):
        image[at] ^= 0x20


def head_only(machine: Machine) -> None:
    """A head-only store: rows under key and sub-key, batches, its journal trimmed."""
    history, rng = machine.history, machine.rng
    store = machine.opened()
    for turn in range(16):
        changes: list[tuple[Where, bytes | None]] = []
        for key in rng.sample(range(KEYS), rng.randrange(1, 4)):
            where = (b"", b"k%d/%d" % (key, rng.randrange(2)))
            changes.append((where, None if rng.random() < 0.2 else history.value(bytes(20))))
        history.begin(*changes, batch=True)
        with store.head_batch() as made:
            for (bucket, whole), value in changes:
                key, _, sub = whole.partition(b"/")
                if value is None:
                    made.delete(bucket, key, sub_key=sub)
                else:
                    made.put(bucket, key, value, sub_key=sub)
        history.done(made.last_sqn, durable=True)
        machine.breathe()
        if turn % 5 == 4:
            store.trim()
        elif turn % 5 == 2:
            rolled(store)
    close(machine, store)


def restores(machine: Machine) -> None:
    """A backup is restored, whole and to a point in time."""
    history = machine.history
    now = {where: value for where, (value, _) in history.restorable.items()}  # type: ignore[attr-defined]
    history.pending_restore = now
    restore_on(machine.disk, "/store", "/restored", sqn=None, time_ms=None, copy=False)
    history.restored, history.pending_restore = now, None


def restores_to_a_sqn(machine: Machine) -> None:
    """A store is restored to a sequence number in the middle of a file."""
    history = machine.history
    then = {where: value for where, (value, _) in history.restorable.items()}  # type: ignore[attr-defined]
    sqn = history.restorable_sqn  # type: ignore[attr-defined]
    history.pending_restore = then
    restore_on(machine.disk, "/store", "/restored", sqn=sqn, time_ms=None, copy=False)
    history.restored, history.pending_restore = then, None


def _to_be_restored(machine: Machine) -> None:
    _closed_store(machine)
    _note_restorable(machine, machine.history.highest)


def _to_be_restored_in_part(machine: Machine) -> None:
    _closed_store(machine)
    sqns = [each.sqn for found in machine.history.versions.values() for each in found]
    inside = {
        sqn
        for first, members in machine.history.batches.items()
        for sqn in range(first, first + len(members) - 1)
    }
    outside = sorted(set(sqns) - inside)
    _note_restorable(machine, outside[len(outside) // 2 + 3])


def _note_restorable(machine: Machine, sqn: int) -> None:
    history: Any = machine.history
    history.restorable = {}
    for where, versions in history.versions.items():
        upto = [each for each in versions if each.sqn <= sqn]
        if upto and upto[-1].value is not None:
            history.restorable[where] = (upto[-1].value, upto[-1].sqn)
    history.restorable_sqn = sqn


# ---------------------------------------------------------------- a little of everything


def little(machine: Machine) -> None:
    """Each kind of operation once or twice: short enough for a fault at each of its calls."""
    history = machine.history
    store = machine.opened()
    some(machine, store, 3)
    batch(machine, store)
    roll(machine, store)
    some(machine, store, 2)
    save(machine, store)
    some(machine, store, 3)
    history.pending_snapshot = "s"
    store.snapshot().publish("s", count=False)
    history.snapshots["s"] = history.now()
    history.pending_snapshot = None
    store.compact()
    some(machine, store, 2)
    history.pending_backup = history.now()
    store.backup("/backup")
    history.pending_backup = None
    history.all_durable()
    put(machine, store)
    close(machine, store)


def little_not_synced(machine: Machine) -> None:
    """As it is by default: now and then one is synced."""
    store = machine.opened(sync="none")
    for _ in range(2):
        some(machine, store, 4)
        put(machine, store, sync=True)
        roll(machine, store)
        some(machine, store, 2)
        save(machine, store)
    store.sync()
    machine.history.all_durable()
    some(machine, store, 2)
    close(machine, store)


def little_merge(machine: Machine) -> None:
    store = machine.opened(sync="none")
    for _ in range(7):
        put(machine, store)
        save(machine, store)
    close(machine, store)


def little_head_only(machine: Machine) -> None:
    history = machine.history
    store = machine.opened()
    bucket = store.head_bucket(b"")
    for turn in range(6):
        where = (b"", b"k%d/0" % (turn % 3))
        value = None if turn == 4 else history.value(bytes(9))
        history.begin((where, value))
        if value is None:
            sqn = bucket.delete(where[1][:-2], sub_key=b"0")
        else:
            sqn = bucket.put(where[1][:-2], value, sub_key=b"0")
        history.done(sqn, durable=True)
        if turn == 3:
            store.trim()
    close(machine, store)


def little_opening(machine: Machine) -> None:
    """A store is opened that was never closed."""
    store = machine.opened()
    put(machine, store)
    machine.pool.go_on()
    close(machine, store)


def little_reading(machine: Machine) -> None:
    """Each way of reading: right, or an error of ours that says so; and then right."""
    state = machine.history.now()
    store = machine.opened(sync="none", max_open_files=8)
    machine.pool.go_on()
    rows: dict[bytes, Rows] = {name: {} for name in BUCKETS}
    for (name, key), value in sorted(state.items()):
        rows[name][key] = value
    for name in BUCKETS:
        for way in _WAYS:
            _right(machine, store, name, rows[name], way)
    with store.snapshot() as snapshot:
        for way in _WAYS:
            _right(machine, snapshot, b"", rows[b""], way)
    _right(machine, store, b"", {}, _told_of)
    put(machine, store)
    close(machine, store)


Rows = dict[bytes, bytes]


def _right(
    machine: Machine, source: Any, name: bytes, rows: Rows, way: Callable[[Any, bytes, Rows], bool]
) -> None:
    try:
        right = way(source, name, rows)
    except octavo.OctavoError as error:
        machine.raised = machine.raised or error
        right = way(source, name, rows)  # the fault is over
    if not right:
        raise AssertionError(f"{way} of {source} {name!r} is wrong")


def _gets(source: Any, name: bytes, rows: Rows) -> bool:
    bucket = source.bucket(name)
    keys = [b"k%d" % key for key in range(KEYS)]
    return bucket.get_many(keys) == [bucket.get(key) for key in keys] == list(map(rows.get, keys))


def _heads(source: Any, name: bytes, rows: Rows) -> bool:
    bucket = source.bucket(name)
    found = {key: bucket.head(key).size for key in rows}
    return found == {key: head.size for key, head in bucket.heads()} and all(
        found[key] == len(value) for key, value in rows.items()
    )


def _scans(source: Any, name: bytes, rows: Rows) -> bool:
    bucket, keys = source.bucket(name), list(rows)
    return (
        list(bucket.items(limit=3)) == list(rows.items())[:3]
        and list(bucket.keys(prefix=b"k")) == keys
        and list(bucket.values(reverse=True)) == list(rows.values())[::-1]
        and len(bucket) == len(keys)
    )


def _entries(source: Any, name: bytes, rows: Rows) -> bool:
    index = source.bucket(name).index(FIELD)
    terms = {key: term_of(value) for key, value in rows.items()}
    pairs = sorted((term, key) for key, term in terms.items() if term is not None)
    return (
        list(index.range(limit=2)) == pairs[:2]
        and list(index.range()) == pairs
        and all(key in index.having(term) for term, key in pairs)
    )


def _folds(source: Any, name: bytes, rows: Rows) -> bool:
    with source.snapshot() if isinstance(source, octavo.Store) else nullcontext(source) as snapshot:
        bucket = snapshot.bucket(name)
        table = bucket.to_arrow(["key", "value"]).read_all()
        return (
            {item.key: item.value for item in bucket.items_by_sqn()} == rows
            and table.column("key").to_pylist() == list(rows)
            and table.column("value").to_pylist() == list(rows.values())
            and bucket.merkle(256, by="value") == bucket.merkle(256, by="value")
        )


def _told_of(store: Any, _name: bytes, _rows: Rows) -> bool:
    sqns = [change.sqn for change in store.changes(0, compacted=True)]
    report = store.verify()
    if not report.ok:  # what could not be read is told as damage
        raise octavo.StorageFailed(f"verify: {report.problems}")
    return sqns == sorted(set(sqns)) and bool(store.stats(score=True))


_WAYS = (_gets, _heads, _scans, _entries, _folds)


LITTLE: dict[str, tuple[Callable[[Machine], None], Callable[[Machine], None] | None, Any]] = {
    "little": (little, None, {}),
    "little, not synced": (little_not_synced, None, {}),
    "little merge": (little_merge, None, {}),
    "little head-only": (little_head_only, None, {"mode": "head_only"}),
    "little opening": (little_opening, _killed_store, {}),
    "little reading": (little_reading, _closed_store, {}),
}
"""Workloads for faults: (workload, what is there before, options)."""

# ---------------------------------------------------------------- what else an image must hold


class Beside:
    """Looks at another directory of an image: a backup, a restored store."""

    def __init__(self, path: str, now: str, coming: str) -> None:
        self.path, self.now, self.coming = path, now, coming
        self.known: dict[bytes, tuple[str, State]] = {}

    def __call__(self, disk: SimDisk, key: bytes, history: History) -> str:
        now: State | None = getattr(history, self.now)
        coming: State | None = getattr(history, self.coming)
        if not disk.exists(f"{self.path}/OCTAVO"):
            return "" if now is None else f"{self.path} is not there"
        if key not in self.known:
            copy = disk.after_crash("all")
            found = look(copy, self.path, rests=False, verifies=key[0] % 4 == 0, create=False)
            self.known[key] = (found.wrong, found.state)
        wrong, state = self.known[key]
        if wrong:
            return f"{self.path}: {wrong}"
        if state not in (now, coming):
            return f"{self.path} is no point in time: {state}, allowed: {now} or {coming}"
        return ""


class Following:
    """Looks at the consumer of an image: it is where it was, and sees what must have survived."""

    def __init__(self) -> None:
        self.known: dict[bytes, tuple[int, set[int]]] = {}

    def __call__(self, disk: SimDisk, key: bytes, history: History) -> str:
        if history.consumed is None:
            return ""
        if key not in self.known:
            self.known[key] = self._followed(disk.after_crash("all"))
        at, seen = self.known[key]
        if at not in (history.consumed, history.pending_consumed):
            return f"the consumer is at {at}, and had acknowledged {history.consumed}"
        missed = set(range(at + 1, history.durable + 1)) - seen
        return f"the consumer at {at} does not see {sorted(missed)}" if missed else ""

    @staticmethod
    def _followed(disk: SimDisk) -> tuple[int, set[int]]:
        with one_thread("consumer"):
            store = opened(disk, "/store", clock_ms=clock_ms, sync="always")
            try:
                at = store.consumers().get("mail", -1)
                if at < store._inker.manifest.horizon:  # what it is to see was compacted away
                    return at, set()
                return at, {change.sqn for change in store.consumer("mail").changes()}
            finally:
                forget(store)


def mend(disk: SimDisk) -> None:
    """Whatever a cut left of a repair, repairing goes on."""
    repair_on(disk, "/store")


def _judge_backups() -> tuple[Any, ...]:
    return (Beside("/backup", "backup", "pending_backup"),)


def _judge_consumers() -> tuple[Any, ...]:
    return (Following(),)


def _judge_restores() -> tuple[Any, ...]:
    return (Beside("/restored", "restored", "pending_restore"),)


Made = Callable[[int], PowerCuts]


def _made(name: str, workload: Callable[[Machine], None], **how: Any) -> Made:
    judges = how.pop("judges", tuple)

    def made(seed: int) -> PowerCuts:
        return PowerCuts(name, workload, seed, judges=judges(), **how)

    return made


WORKLOADS: dict[str, Made] = {
    "puts": _made("puts", puts),
    "not synced": _made("not synced", not_synced),
    "batches": _made("batches", batches),
    "merges": _made("merges", merges),
    "compactions": _made("compactions", compactions),
    "snapshots": _made("snapshots", snapshots),
    "backups": _made("backups", backups, judges=_judge_backups),
    "consumers": _made("consumers", consumers, judges=_judge_consumers),
    "ingests": _made("ingests", ingests),
    "openings": _made("openings", openings, setup=_killed_store),
    "repairs": _made("repairs", repairs, setup=_damaged_store, mends=mend),
    "head-only": _made("head-only", head_only, mode="head_only"),
    "restores": _made("restores", restores, setup=_to_be_restored, judges=_judge_restores),
    "restores to a sqn": _made(
        "restores to a sqn", restores_to_a_sqn, setup=_to_be_restored_in_part,
        judges=_judge_restores,
    ),
}  # fmt: skip

__all__ = ["WORKLOADS", "Counts", "clock_ms", "opened", "read_all"]
