"""A store whose allocations fail: after each call it was done or not, the store goes on, and holds
what it must.

In a process of its own, on one thread, with ``_testcapi``'s allocator that fails from the N-th
allocation on, once or for a while. CPython and NumPy themselves end with a segmentation fault at
some of them: that is a kill like any other, and what was answered before must be found.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import octavo
from octavo.actors.bookie import Bookie
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter

OPTIONS: dict[str, Any] = {
    "push_rows": 64,
    "push_bytes": 64 << 10,
    "roll_count": 256,
    "max_open_files": 16,
    "read_cache_bytes": 64 << 10,
}
KEYS = 60
LOOK_EVERY = 20
QUIET = 3
"""Calls without a failure after which there are no more allocations to fail."""
FREE_TUPLES = 100
SAVING = 20_000
"""Allocations of a saving, or more."""
DEADLINE_SECONDS = 900.0
STORE_LOCKED = 3
"""Exit code where the failures lasted so long that letting go of the lock failed, too."""
Changes = dict[str, str | None]


class Starved:
    """One store in ``home``; ``calls`` does one kind of call again and again."""

    def __init__(self, home: str, seed: str, pool: Any, told: Any) -> None:
        self.home, self.pool, self.told = home, pool, told
        self.rng = random.Random(f"no memory {seed}")
        self.known: Changes = {}
        self.number = self.cases = self.failures = self.backups = 0
        self.now_ms = 1_700_000_000_000
        self.at = self.window = 1
        self.store = self.opened()
        for _ in range(200):
            self.write(self.put_one, *self.fresh())
        pool.go_on()

    def clock(self) -> int:
        self.now_ms += 1
        return self.now_ms

    kind: ClassVar[dict[str, Any]] = {}
    """More options."""

    def opened(self) -> octavo.Store:
        from one_thread import opened

        options = {**OPTIONS, **self.kind}
        return opened(RealDisk(), f"{self.home}/s", clock_ms=self.clock, **options)

    def put_one(self, key: str, value: str) -> None:
        self.store.put(key, value, index={"f": len(value)})

    def value_of(self, key: str | bytes) -> bytes | None:
        return self.store.get(key)

    def contents(self, source: Any) -> dict[bytes, bytes]:
        """All that a store, or a reader of it, has."""
        return dict(source.items())

    def fresh(self) -> tuple[str, str]:
        self.number += 1
        size = self.rng.choice((1, 40, 3000))
        return f"{self.rng.randrange(KEYS)}", f"{self.number} ".ljust(size, ".")

    # ------------------------------------------------------------ failing

    def starve(self, call: Callable[[], object]) -> tuple[object, bool]:
        """(what the call gives, whether it raised)."""
        from _testcapi import remove_mem_hooks, set_nomemory

        if self.window > 1:
            fill_free_tuples()
        set_nomemory(self.at, self.at + self.window)
        try:
            answer = call()
            remove_mem_hooks()
        except BaseException:  # noqa: BLE001 (whatever it is: the call was not done)
            remove_mem_hooks()
            self.failures += 1
            return None, True
        return answer, False

    def calls(self, name: str, window: int, first: int, step: int, most: int) -> None:
        """One call after the other; allocation ``first`` fails, then ``first + step``, ..."""
        call, self.window = KINDS[name], window
        if window > 1:  # else CPython waits for ever for a thread that is begun as NumPy comes
            importlib.import_module("numpy")
        self.at, quiet = first, 0
        for _ in range(most):
            self.cases += 1
            quiet = 0 if call(self) else quiet + 1
            self.go_on()
            self.at += step
            if quiet == QUIET:
                break
        self.compare()
        self.all_is_sealed()
        self.store.close()
        self.reopen()
        self.compare(verify=True)

    def go_on(self) -> None:
        """What the store must do after each call."""
        try:
            self.store.snapshot().close()  # the next look: what is owed enters
            self.alive()
            self.pool.go_on()
        except octavo.StorageFailed:  # it says to close and reopen it
            self.begin_anew()
            self.compare(verify=True)
            self.alive()
        if self.cases % LOOK_EVERY == 0:
            self.compare()

    def all_is_sealed(self) -> None:
        """What seals the full files of the journal goes on: without it no backup is done."""
        for _ in range(2):
            self.alive()
            self.store._running.bookie.call(lambda bookie: bookie.inker.roll())
            self.pool.go_on()
        assert not self.store._inker.unsealed

    def alive(self) -> None:
        self.number += 1
        self.say({"alive": f"{self.number}"})
        self.put_one("alive", f"{self.number}")
        self.took({"alive": f"{self.number}"})
        assert self.value_of("alive") == b"%d" % self.number

    def begin_anew(self) -> None:
        with contextlib.suppress(octavo.OctavoError):
            self.store.close()
        self.reopen()

    def reopen(self) -> None:
        try:
            self.store = self.opened()
        except octavo.StoreLocked:
            if self.window == 1:
                raise
            os._exit(STORE_LOCKED)

    # ------------------------------------------------------------ what must be

    def say(self, changes: Changes) -> None:
        """To whoever finds the store if this process ends: these may come."""
        self.told.write(json.dumps(["may", changes]) + "\n")

    def took(self, changes: Changes) -> None:
        self.told.write(json.dumps(["is", changes]) + "\n")
        self.known.update(changes)

    def live(self) -> dict[bytes, bytes]:
        return {k.encode(): v.encode() for k, v in self.known.items() if v is not None}

    def compare(self, *, verify: bool = False) -> None:
        live = self.live()
        assert self.contents(self.store) == live
        assert [self.value_of(key) for key in live] == list(live.values())
        if verify:
            assert self.store.verify().problems == []

    def write(self, call: Callable[..., object], key: str, value: str) -> None:
        self.say({key: value})
        call(key, value)
        self.took({key: value})

    def wrote(self, call: Callable[[], object], changes: Changes, *, whole: bool) -> bool:
        """Do what makes these changes: all of them are there, or (it failed) none; of those that
        need not be whole each by itself."""
        self.say(changes)
        _, failed = self.starve(call)
        self.store.snapshot().close()
        found: Changes = {}
        for key in changes:
            value = self.value_of(key)
            found[key] = None if value is None else value.decode()
        done = set()
        for key, value in changes.items():
            before = self.known.get(key)
            assert found[key] in (before, value), (key, found[key], before, value)
            if before != value:
                done.add(found[key] == value)
        self.took(found)
        assert failed or False not in done, "it returned, and is not there"
        assert not (whole and len(done) > 1), "a part of it is there"
        return failed

    def gave(self, call: Callable[[], object], right: object) -> bool:
        answer, failed = self.starve(call)
        assert failed or answer == right, (answer, right)
        return failed

    # ------------------------------------------------------------ the calls

    def put(self, **more: Any) -> bool:
        key, value = self.fresh()
        return self.wrote(lambda: self.store.put(key, value, **more), {key: value}, whole=True)

    def put_sync(self) -> bool:
        return self.put(sync=True)

    def put_index(self) -> bool:
        return self.put(index={"f": self.number % 5}, metadata=b"m", ttl=1e9)

    def put_entering(self) -> bool:
        """A put whose record is written when memory begins to be short."""
        table = self.store._running.bookie.actor.view.recent
        table.rows = _ShortOnce(table.rows, self.window)
        begin, self.at = self.at, 1 << 30
        failed = self.put()
        self.at = begin
        return failed

    def delete(self) -> bool:
        key, _ = self.fresh()
        return self.wrote(lambda: self.store.delete(key), {key: None}, whole=True)

    def batch(self) -> bool:
        pairs = [self.fresh() for _ in range(5)]
        changes: Changes = {key: value if len(value) > 5 else None for key, value in pairs}

        def call() -> None:
            with self.store.batch() as batch:
                for key, value in changes.items():
                    if value is None:
                        batch.delete("", key)
                    else:
                        batch.put("", key, value)

        return self.wrote(call, changes, whole=True)

    def put_many(self) -> bool:
        changes: Changes = dict(self.fresh() for _ in range(12))
        return self.wrote(lambda: self.store.put_many(changes.items()), changes, whole=False)

    def delete_many(self) -> bool:
        changes: Changes = dict.fromkeys((self.fresh()[0] for _ in range(6)), None)
        return self.wrote(lambda: self.store.delete_many(list(changes)), changes, whole=False)

    def get(self) -> bool:
        key = self.fresh()[0].encode()
        return self.gave(lambda: self.value_of(key), self.live().get(key))

    def head(self) -> bool:
        key = self.fresh()[0].encode()
        return self.gave(lambda: self.store.head(key) is None, key not in self.live())

    def items(self) -> bool:
        return self.gave(lambda: self.contents(self.store), self.live())

    def keys(self) -> bool:
        some = sorted(self.live(), reverse=True)[:5]
        return self.gave(lambda: list(self.store.keys(reverse=True, limit=5)), some)

    def index(self) -> bool:
        entries = self.store.bucket("").index("f")
        return self.gave(lambda: list(entries.range(0, 4)), list(entries.range(0, 4)))

    def few(self) -> bool:
        """Few rows, which are found by one look."""
        items = sorted(self.live().items())
        few, index = self.rng.randrange(1, 30), self.store.index("f")
        term = self.rng.choice([term for term, _ in index.terms()])
        having = list(index.having(term))
        some = [key for key, _ in items if key.startswith(b"1")]

        def call() -> object:
            store = self.store
            found = list(store.items(limit=few)), list(store.keys(prefix=b"1"))
            return *found, list(index.having(term)), list(index.range(limit=few, reverse=True))

        return self.gave(call, (items[:few], some, having, list(index.range(reverse=True))[:few]))

    def popitem(self) -> bool:
        first = min(self.live()).decode()
        return self.wrote(lambda: self.store.popitem(), {first: None}, whole=True)

    def edit(self) -> bool:
        return self.put(index=octavo.IndexEdit(add={"f": -1}, remove={"f": None}), ttl=1e9)

    def arrow(self) -> bool:
        def call() -> list[object]:
            with self.store.snapshot() as snapshot:
                table = snapshot.to_arrow(["key", "value"]).read_all()
            return [column.to_pylist() for column in table.columns]

        live = self.live()
        return self.gave(call, [sorted(live), [live[key] for key in sorted(live)]])

    def tell(self) -> bool:
        def call() -> None:
            self.store.stats(score=True)
            self.store.stats_prometheus()

        return self.gave(call, None)

    def renew(self) -> bool:
        with self.store.snapshot() as snapshot:
            made = snapshot.publish(lease_seconds=60)
        ends = made.expires_at
        _, failed = self.starve(lambda: made.renew(600))
        (found,) = self.store.published()
        assert found.expires_at > ends or (failed and found.expires_at == ends)
        made.release()
        return failed

    def get_many(self) -> bool:
        live = self.live()
        keys = [self.fresh()[0].encode() for _ in range(9)]
        return self.gave(lambda: self.store.get_many(keys), [live.get(key) for key in keys])

    def by_sqn(self) -> bool:
        def call() -> dict[bytes, bytes]:
            with self.store.snapshot() as snapshot:
                return {item.key: item.value for item in snapshot.items_by_sqn()}

        return self.gave(call, self.live())

    def changes(self) -> bool:
        def call() -> list[tuple[int, str, bytes]]:
            told = self.store.changes(0, compacted=True)
            return [(change.sqn, change.kind, change.key) for change in told]

        return self.gave(call, call())

    def reader(self) -> bool:
        """Another process's, as far as the store knows."""

        def call() -> dict[bytes, bytes]:
            with octavo.open(f"{self.home}/s", read_only=True) as reader:
                return self.contents(reader)

        return self.gave(call, self.live())

    def verify(self) -> bool:
        return self.gave(lambda: self.store.verify().problems, [])

    def merkle(self) -> bool:
        def call() -> bytes:
            with self.store.snapshot() as snapshot:
                return snapshot.merkle(256).to_bytes()

        return self.gave(call, call())

    def snapshot(self) -> bool:
        """Of the state before a put that fails."""
        before = self.live()
        with self.store.snapshot() as snapshot:
            failed = self.put()
            assert self.contents(snapshot) == before
        return failed

    def publish(self) -> bool:
        _, failed = self.starve(lambda: self.store.snapshot().publish(lease_seconds=60))
        for each in self.store.published():
            each.release()
        return failed

    def backup(self) -> bool:
        self.backups += 1
        path = f"{self.home}/b{self.backups // 20}"
        before = self.live()
        _, failed = self.starve(lambda: self.store.backup(path))
        if not failed:
            with octavo.open(path, read_only=True) as copy:
                assert self.contents(copy) == before
        return failed

    def restore(self) -> bool:
        before, path, new = self.live(), f"{self.home}/of", f"{self.home}/new"
        self.store.backup(path)
        _, failed = self.starve(lambda: octavo.restore(path, new))
        if not failed:
            with octavo.open(new, read_only=True) as copy:
                assert self.contents(copy) == before
        shutil.rmtree(new, ignore_errors=True)
        return failed

    def acknowledge(self) -> bool:
        mail = self.store.consumer("mail", since=None)
        before, upto = mail.position, self.store.last_sqn
        _, failed = self.starve(lambda: mail.acknowledge(upto))
        assert mail.position in (before, upto)
        assert failed or mail.position == upto
        return failed

    def ingest(self) -> bool:
        changes: Changes = dict(self.fresh() for _ in range(12))
        job = f"job{self.number}"
        writer = StagedWriter(RealDisk(), f"{self.home}/s", job, "0", now_ms=self.now_ms)
        writer.put_many(
            b"", [key.encode() for key in changes], [(v or "").encode() for v in changes.values()]
        )
        writer.finish()
        failed = self.wrote(lambda: self.store.ingest(job, ["0"]), changes, whole=True)
        self.say(changes)
        try:
            self.store.ingest(job, ["0"])
        except octavo.StorageFailed:
            self.begin_anew()
            self.store.ingest(job, ["0"])
        self.took(changes)
        return failed

    def compact(self) -> bool:
        return self.starve(self.store.compact)[1]

    def save(self) -> bool:
        """What the pool does behind a full memory."""
        for _ in range(70):
            self.write(self.put_one, *self.fresh())
        self.starve(self.pool.go_on)
        return self.at < SAVING  # what fails there is logged, and tried again

    def close(self) -> bool:
        _, failed = self.starve(self.store.close)
        self.store.close()
        self.reopen()
        return failed

    def open(self) -> bool:
        self.store.close()
        store, failed = self.starve(self.opened)
        if isinstance(store, octavo.Store):
            self.store = store
        else:
            self.reopen()
        return failed


class StarvedHeads(Starved):
    """A head-only store."""

    kind: ClassVar[dict[str, Any]] = {"mode": "head_only"}

    def put_one(self, key: str, value: str) -> None:
        self.store.head_bucket("").put(key, value, sub_key=key)

    def value_of(self, key: str | bytes) -> bytes | None:
        return self.store.head_bucket("").get(key, key)

    def contents(self, source: Any) -> dict[bytes, bytes]:
        return {row.key: row.value for row in source.head_bucket("").rows()}

    def put(self, **more: Any) -> bool:
        key, value = self.fresh()
        bucket = self.store.head_bucket("")
        put = partial(bucket.put, key, value, sub_key=key, ttl=1e9, **more)
        return self.wrote(put, {key: value}, whole=True)

    def delete(self) -> bool:
        key, _ = self.fresh()
        bucket = self.store.head_bucket("")
        return self.wrote(lambda: bucket.delete(key, sub_key=key), {key: None}, whole=True)

    def batch(self) -> bool:
        pairs = [self.fresh() for _ in range(9)]
        changes: Changes = {key: value if len(value) > 5 else None for key, value in pairs}

        def call() -> None:
            with self.store.head_batch() as batch:
                for key, value in changes.items():
                    if value is None:
                        batch.delete("", key, sub_key=key)
                    else:
                        batch.put("", key, value, sub_key=key)

        return self.wrote(call, changes, whole=True)

    def few(self) -> bool:
        few, items = self.rng.randrange(1, 30), sorted(self.live().items(), reverse=True)

        def call() -> list[tuple[bytes, bytes]]:
            rows = self.store.head_bucket("").rows(reverse=True, limit=few)
            return [(row.key, row.value) for row in rows]

        return self.gave(call, items[:few])

    def save(self) -> bool:
        for _ in range(15):  # more would be slowed down, for values count as memory here
            self.write(self.put_one, *self.fresh())
        self.store._running.bookie.call(Bookie.push)
        self.starve(self.pool.go_on)
        return self.at < SAVING

    def trim(self) -> bool:
        return self.starve(self.store.trim)[1]


HEADS: dict[str, Callable[[StarvedHeads], bool]] = {
    "heads put": StarvedHeads.put,
    "heads delete": StarvedHeads.delete,
    "heads batch": StarvedHeads.batch,
    "heads get": StarvedHeads.get,
    "heads rows": StarvedHeads.items,
    "heads few": StarvedHeads.few,
    "heads trim": StarvedHeads.trim,
    "heads save": StarvedHeads.save,
    "heads snapshot": StarvedHeads.snapshot,
    "heads reader": StarvedHeads.reader,
    "heads publish": StarvedHeads.publish,
    "heads backup": StarvedHeads.backup,
    "heads restore": StarvedHeads.restore,
    "heads verify": StarvedHeads.verify,
    "heads close": StarvedHeads.close,
    "heads open": StarvedHeads.open,
}


class _ShortOnce(dict[bytes, int]):
    """Rows of memory of which the first to enter finds none."""

    def __init__(self, rows: dict[bytes, int], window: int) -> None:
        super().__init__(rows)
        self.window, self.error = window, MemoryError()

    def __setitem__(self, key: bytes, entry: int) -> None:
        from _testcapi import set_nomemory

        if window := self.window:
            self.window = 0
            set_nomemory(0, window)
            raise self.error
        super().__setitem__(key, entry)


KINDS: dict[str, Callable[[Any], bool]] = {
    "put": Starved.put,
    "put_sync": Starved.put_sync,
    "put_index": Starved.put_index,
    "put_entering": Starved.put_entering,
    "delete": Starved.delete,
    "batch": Starved.batch,
    "put_many": Starved.put_many,
    "delete_many": Starved.delete_many,
    "get": Starved.get,
    "head": Starved.head,
    "items": Starved.items,
    "keys": Starved.keys,
    "index": Starved.index,
    "merkle": Starved.merkle,
    "few": Starved.few,
    "popitem": Starved.popitem,
    "edit": Starved.edit,
    "arrow": Starved.arrow,
    "tell": Starved.tell,
    "renew": Starved.renew,
    "get_many": Starved.get_many,
    "by_sqn": Starved.by_sqn,
    "changes": Starved.changes,
    "reader": Starved.reader,
    "verify": Starved.verify,
    "snapshot": Starved.snapshot,
    "publish": Starved.publish,
    "backup": Starved.backup,
    "restore": Starved.restore,
    "acknowledge": Starved.acknowledge,
    "ingest": Starved.ingest,
    "compact": Starved.compact,
    "save": Starved.save,
    "close": Starved.close,
    "open": Starved.open,
    **HEADS,
}


def fill_free_tuples() -> None:
    """The end of a ``with`` on a lock makes a tuple of three. CPython keeps what it needs for that;
    where a collection has just given it back, and there is no memory, the lock stays taken."""
    gc.collect()
    _ = [(number, number, number) for number in range(FREE_TUPLES)]


def starved(home: Path, seed: str, works: list[tuple[str, int, int, int, int]]) -> dict[str, int]:
    """Do all that; how much it was. ``works``: what ``Starved.calls`` takes. Raises AssertionError
    with what the process said. All of a head-only store, or none."""
    words = [sys.executable, __file__, str(home), seed, json.dumps(works)]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"},
    )  # fmt: skip
    ended = done.returncode < 0 or done.returncode == STORE_LOCKED
    assert ended or done.returncode == 0, done.stdout + done.stderr[-4000:]
    found_again(home)
    if ended:
        return {"failures": 0, "calls": 0, "ends of the interpreter": 1}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def found_again(home: Path) -> None:
    """The store that was left holds what was answered."""
    known: Changes = {}
    may: Changes = {}
    for line in (home / "told").read_text().splitlines():
        kind, changes = json.loads(line)
        if kind == "is":
            known.update(changes)
        may = changes if kind == "may" else {}
    with octavo.open(home / "s", worker=False, compact_every_seconds=None) as store:
        heads = store._running.identity.head_only
        for key in known.keys() | may.keys():
            value = store.head_bucket("").get(key, key) if heads else store.get(key)
            found = None if value is None else value.decode()
            allowed = {known.get(key), may[key]} if key in may else {known.get(key)}
            assert found in allowed, (key, found, allowed)
        assert store.verify().problems == []


def be_quiet() -> None:
    """No thread but this one, which failures would be for, too; and no log. Where a thread finds no
    memory to begin with, CPython has the one that begins it wait for ever."""
    from octavo.actors.turns.pool import POOL
    from octavo.store import WATCH

    class Nobody:
        def stop(self) -> None: ...

    logging.disable(logging.CRITICAL)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # loading NumPy looks for threads otherwise
    POOL._max_threads = 0
    WATCH.add = lambda _: Nobody()  # type: ignore[assignment, return-value]


def main(home: str, seed: str, works: str) -> None:
    from one_thread import one_thread

    os.makedirs(home, exist_ok=True)
    be_quiet()
    with one_thread(seed) as pool, open(f"{home}/told", "w", buffering=1) as told:
        given = json.loads(works)
        run = (StarvedHeads if given[0][0] in HEADS else Starved)(home, seed, pool, told)
        for work in given:
            run.calls(*work)
        run.store.close()
    print(json.dumps({"failures": run.failures, "calls": run.cases}))


if __name__ == "__main__":
    main(*sys.argv[1:])
