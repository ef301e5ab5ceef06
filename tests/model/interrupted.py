"""A store under Ctrl-C: every call of it is interrupted, and after each the call was done or not,
the store goes on, and holds what it must.

By the clock, at moments that a seed says: the system delivers those, so the same seed need not hit
the same step twice. Or at steps that a seed says, of all those after which CPython looks for one.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from cutting_short import cut_short

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms

OPTIONS: dict[str, object] = {
    "push_rows": 64,
    "push_bytes": 64 << 10,
    "roll_count": 256,
    "max_open_files": 16,
    "compact_every_seconds": None,  # or one may be under way already, which is another matter
}
KEYS = 300
LOOK_EVERY = 20
FEW_STEPS = 20
Change = tuple[bytes, bytes | None]


class Interrupted:
    """One store in ``home``; ``round`` does one call, most often interrupted."""

    kind: ClassVar[dict[str, object]] = {}
    """More options."""

    def __init__(self, home: Path, seed: object, *, by_steps: bool = False) -> None:
        self.home = home
        self.by_steps = by_steps
        self.rng = random.Random(f"interrupts {seed}")
        self.options = {**OPTIONS, **self.kind, "worker": self.rng.random() < 0.3}
        self.options["sync"] = self.rng.choice(("none", "always", 0.005))
        self.options["read_cache_bytes"] = self.rng.choice((0, 4096, 1 << 20))
        self.options["max_open_files"] = self.rng.choice((8, 16))
        self.known: dict[bytes, bytes] = {}
        self.number = 0
        self.hits: dict[str, int] = {}
        """Which calls were cut off, and how often."""
        self.rounds = 0
        self._armed = False
        self._steps: dict[str, int] = {}
        """How many steps a call may take, as far as was seen."""
        self.store = octavo.open(home / "s", **self.options)

    # ------------------------------------------------------------ interrupting

    def _rings(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt

    def cut(self, what: str, call: Callable[[], object]) -> bool:
        """Whether the call was cut off."""
        cut = self._cut_at_a_step(what, call) if self.by_steps else self._cut_in_time(call)
        if cut:
            self.hits[what] = self.hits.get(what, 0) + 1
        return cut

    def _cut_at_a_step(self, what: str, call: Callable[[], object]) -> bool:
        most = self._steps.get(what, FEW_STEPS)
        cut, steps = cut_short(call, self.rng.randrange(1, most + 2))
        if steps > most or not cut:  # where it was cut, there may have been more to come
            self._steps[what] = 2 * steps if cut else max(steps, FEW_STEPS)
        return cut

    def _cut_in_time(self, call: Callable[[], object]) -> bool:
        seconds = 10 ** self.rng.uniform(-4.7, -1.7)
        earlier = signal.signal(signal.SIGALRM, self._rings)
        self._armed = True
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, seconds)
                call()
            finally:
                self._armed = False
        except KeyboardInterrupt:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, earlier)
        return False

    # ------------------------------------------------------------ the calls

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round()
        self.compare()
        while self.cut("close", self.store.close):
            pass
        self.store = octavo.open(self.home / "s", **self.options)
        self.compare()
        self.store.close()

    def round(self) -> None:
        self.rounds += 1
        self.some_call()
        self.number += 1
        self.put_one(b"alive", b"%d" % self.number)
        self.known[b"alive"] = b"%d" % self.number
        assert self.value_of(b"alive") == b"%d" % self.number
        if self.rounds % LOOK_EVERY == 0:
            self.compare()

    def drawn(self) -> Callable[[Any], None]:
        return self.rng.choices(CALLS, WEIGHTS)[0]

    def some_call(self) -> None:
        self.drawn()(self)

    def put_one(self, key: bytes, value: bytes) -> None:
        self.store.put(key, value)

    def value_of(self, key: bytes) -> bytes | None:
        return self.store.get(key)

    def counted(self) -> int:
        """How many keys there are."""
        return len(self.known)

    def contents(self, source: Any) -> dict[bytes, bytes]:
        """All that a store or a snapshot has."""
        return dict(source.items())

    def fresh(self) -> Change:
        self.number += 1
        size = self.rng.choice((1, 40, 3000))
        return b"%d" % self.rng.randrange(KEYS), (b"%d " % self.number).ljust(size, b".")

    def wrote(self, what: str, call: Callable[[], object], changes: dict[bytes, bytes | None],
              *, whole: bool) -> None:  # fmt: skip
        """Do what makes these changes; all of them are there, or (cut off) none; of those that
        are not ``whole`` any."""
        cut = self.cut(what, call)
        done = set()
        for key, value in changes.items():
            found = self.value_of(key)
            if found == value != self.known.get(key):
                done.add(True)
            elif found == self.known.get(key) != value:
                done.add(False)
            else:
                assert found == value, f"{what}: {key!r} is {found!r}"
            if found is None:
                self.known.pop(key, None)
            else:
                self.known[key] = found
        assert cut or False not in done, f"{what} returned, but was not done"
        assert not whole or len(done) < 2, f"{what} was cut in two"

    def put(self) -> None:
        key, value = self.fresh()
        index = {"f": self.number % 5} if self.rng.random() < 0.3 else None
        if index is None:
            self.wrote("put", lambda: self.store.put(key, value), {key: value}, whole=True)
        else:
            self.wrote(
                "put", lambda: self.store.put(key, value, index=index), {key: value}, whole=True
            )

    def delete(self) -> None:
        key, _ = self.fresh()
        self.wrote("delete", lambda: self.store.delete(key), {key: None}, whole=True)

    def batch(self) -> None:
        changes: dict[bytes, bytes | None] = {}
        for _ in range(self.rng.randrange(1, 8)):
            key, value = self.fresh()
            changes[key] = value if self.rng.random() < 0.8 else None

        def call() -> None:
            with self.store.batch() as made:
                for key, value in changes.items():
                    if value is None:
                        made.delete(b"", key)
                    else:
                        made.put(b"", key, value)

        self.wrote("batch", call, changes, whole=True)

    def put_many(self) -> None:
        changes = dict(self.fresh() for _ in range(self.rng.randrange(1, 90)))
        self.wrote("put_many", lambda: self.store.put_many(changes.items()), changes, whole=False)

    def delete_many(self) -> None:
        changes: dict[bytes, bytes | None] = {self.fresh()[0]: None for _ in range(12)}
        self.wrote(
            "delete_many", lambda: self.store.delete_many(list(changes)), changes, whole=False
        )

    def pop(self) -> None:
        key, _ = self.fresh()
        before, found = self.known.get(key), []
        self.wrote("pop", lambda: found.append(self.store.pop(key, None)), {key: None}, whole=True)
        assert not found or found == [before]

    def popitem(self) -> None:
        first = min(self.known, default=b"k")
        self.known.setdefault(first, self.store.setdefault(first, b"v"))
        self.wrote("popitem", self.store.popitem, {first: None}, whole=True)

    def setdefault(self) -> None:
        key, value = self.fresh()
        changes: dict[bytes, bytes | None] = {key: self.known.get(key, value)}
        put = partial(self.store.setdefault, key, value or b"")
        self.wrote("setdefault", put, changes, whole=True)

    def edit(self) -> None:
        """The entries of the version before, and one more; it would expire."""
        key, value = self.fresh()
        before = self.terms(key)
        gone = self.rng.randrange(5)
        edit = octavo.IndexEdit(add={"f": self.number % 5}, remove={"f": [gone]})
        after = (before - {gone}) | {self.number % 5}
        put = partial(self.store.put, key, value, index=edit, metadata=b"m", ttl=1e9)
        self.wrote("edit", put, {key: value}, whole=True)
        assert self.terms(key) == (after if self.known.get(key) == value else before)

    def terms(self, key: bytes) -> set[Any]:
        """Those of a key, which the index has, too."""
        found = set((self.store.index_of(key) or {}).get(b"f", ()))
        index = self.store.index("f")
        assert found == {term for term in range(5) if key in index.having(term)}
        return found

    def few(self) -> None:
        """Few rows, which are found by one look."""
        index, few = self.store.index("f"), self.rng.randrange(1, 40)
        pairs, reverse = list(index.range()), self.rng.random() < 0.5
        items = sorted(self.known.items(), reverse=reverse)

        def call() -> None:
            store, how = self.store, {"reverse": reverse, "limit": few}
            assert list(store.items(**how)) == items[:few]
            assert list(store.keys(**how)) == [key for key, _ in items][:few]
            some = [key for key, _ in items if key.startswith(b"12")]
            assert list(store.keys(prefix=b"12", reverse=reverse)) == some
            assert list(index.range(limit=few)) == pairs[:few]
            for term in range(5):
                assert list(index.having(term)) == [key for of, key in pairs if of == term]

        self.cut("few", call)

    def columns(self) -> None:
        def call() -> None:
            with self.store.snapshot() as snapshot:
                found = snapshot.bucket(b"").to_arrow(["key", "value"]).read_all()
                keys, values = (column.to_pylist() for column in found.columns)
                assert dict(zip(keys, values, strict=True)) == self.known
                assert sum(1 for _ in snapshot.heads()) == len(self.known)
                snapshot.merkle(256, by="value")

        self.cut("columns", call)

    def tell(self) -> None:
        def call() -> None:
            self.store.stats(score=True)
            self.store.stats_prometheus()
            self.store.inspect_html(score=False)

        self.cut("tell", call)

    def lease(self) -> None:
        """A published snapshot is there until it is released, and what it was."""
        with self.store.snapshot() as snapshot:
            made = snapshot.publish("kept", lease_seconds=60, count=True)
        assert made.keys == self.counted()
        ends = made.expires_at
        cut = self.cut("renew", lambda: made.renew(600))
        (found,) = self.store.published()
        assert found.expires_at > ends or (cut and found.expires_at == ends)
        self.cut("release", made.release)
        for left in self.store.published():
            left.release()
        assert self.store.published() == []

    def drop(self) -> None:
        mail = self.store.consumer("gone", since=None)
        cut = self.cut("drop", mail.drop)
        assert cut or "gone" not in self.store.consumers()
        mail.drop()
        cut = self.cut("consumer", lambda: self.store.consumer("gone"))
        assert cut or self.store.consumers()["gone"] == self.store.last_sqn

    def mend(self) -> None:
        """A store that is whole stays as it is."""
        self.store.close()
        for _ in range(2):
            self.cut("repair", lambda: octavo.repair(self.home / "s"))
        self.store = octavo.open(self.home / "s", **self.options)

    def destroy(self) -> None:
        """What was begun is ended by the next one, and what is beside it stays."""
        self.store.backup(self.home / "d")
        if self.cut("destroy", lambda: octavo.destroy(self.home / "d")):
            try:
                octavo.destroy(self.home / "d")
            except octavo.Misuse:  # there is no store any more
                if os.path.exists(self.home / "d"):
                    os.rmdir(self.home / "d")
        assert not os.path.exists(self.home / "d")

    def read_many(self) -> None:
        def call() -> None:
            keys = [self.fresh()[0] for _ in range(60)]
            assert self.store.get_many(keys) == [self.known.get(key) for key in keys]
            for term, key in self.store.index("f").range():
                assert term in range(5)
                assert key in self.known

        self.cut("get_many", call)

    def follow(self) -> None:
        """A consumer is where it was, or where it is said to be."""
        mail = self.store.consumer("mail")
        before, upto = mail.position, self.store.last_sqn

        def call() -> None:
            sqns = [change.sqn for change in mail.changes()]
            assert sqns == list(range(before + 1, upto + 1))
            mail.acknowledge(upto)

        cut = self.cut("follow", call)
        assert mail.position in ((before, upto) if cut else (upto,))

    def fold(self) -> None:
        def call() -> None:
            with self.store.snapshot() as snapshot:
                bucket = snapshot.bucket(b"")
                assert {item.key: item.value for item in bucket.items_by_sqn()} == self.known
                assert not list(octavo.compare(snapshot, self.store))

        self.cut("fold", call)

    def beside(self) -> None:
        """As another process reads it."""

        def call() -> None:
            with octavo.open(self.store.path, read_only=True) as reader:
                assert self.contents(reader) == self.known

        self.cut("reader", call)

    def restore(self) -> None:
        self.store.backup(self.home / "r")
        new = self.home / "new"
        if not self.cut("restore", lambda: octavo.restore(self.home / "r", new)):
            with octavo.open(new, read_only=True) as copy:
                assert self.contents(copy) == self.known
        shutil.rmtree(new, ignore_errors=True)

    def read(self) -> None:
        key, _ = self.fresh()

        def call() -> None:
            for _ in range(50):
                assert self.store.get(key) == self.known.get(key)
                head = self.store.head(key)
                assert (head is None) == (key not in self.known)

        self.cut("get", call)

    def scan(self) -> None:
        def call() -> None:
            assert self.contents(self.store) == self.known

        self.cut("scan", call)

    def snapshot(self) -> None:
        def call() -> None:
            with self.store.snapshot() as snapshot:
                assert len(list(snapshot.keys())) == len(self.known)
                list(snapshot.index("f").range(0, 3))

        self.cut("snapshot", call)

    def publish(self) -> None:
        if self.cut("publish", lambda: self.store.snapshot().publish(lease_seconds=60).release()):
            for each in self.store.published():
                each.release()

    def compact(self) -> None:
        self.cut("compact", self.store.compact)

    def staged(self) -> tuple[str, dict[bytes, bytes | None]]:
        """A job that waits to be taken in, and what it brings."""
        changes = dict(self.fresh() for _ in range(self.rng.randrange(1, 90)))
        job = f"job{self.number}"
        writer = StagedWriter(RealDisk(), self.store.path, job, "0", now_ms=wall_clock_ms())
        writer.put_many(b"", list(changes), [value or b"" for value in changes.values()])
        writer.finish()
        return job, changes

    def ingest(self) -> None:
        job, changes = self.staged()
        key, value = next(iter(changes.items()))
        self.wrote("ingest", lambda: self.store.ingest(job, ["0"]), changes, whole=True)
        done = self.store.get(key) == value
        assert self.store.ingest(job, ["0"]).repeated == done
        self.known.update((key, value) for key, value in changes.items() if value is not None)
        assert not os.path.exists(f"{self.store.path}/staging/{job}")

    def ask(self) -> None:
        """As another process does: the owner may do it all the same, and asking again tells."""
        job, changes = self.staged()
        self.cut("ask", lambda: octavo.commit(self.store.path, job, ["0"]))
        octavo.commit(self.store.path, job, ["0"])
        self.known.update((key, value) for key, value in changes.items() if value is not None)
        assert os.listdir(f"{self.store.path}/inbox") == []

    def backup(self) -> None:
        self.cut("backup", lambda: self.store.backup(self.home / "b"))
        self.store.backup(self.home / "b")
        with octavo.open(self.home / "b", worker=False) as copy:
            assert self.contents(copy) == self.known, "the backup is another state"

    def verify(self) -> None:
        self.cut("verify", self.store.verify)

    def reopen(self) -> None:
        while self.cut("close", self.store.close):
            pass

        def call() -> None:
            self.store = octavo.open(self.home / "s", **self.options)

        for _ in range(5):
            if self.store.closed:
                self.cut("open", call)
        if self.store.closed:
            call()

    def compare(self) -> None:
        assert self.contents(self.store) == self.known
        for key, value in self.known.items():
            assert self.value_of(key) == value
        report = self.store.verify()
        assert report.ok, report.problems[:3]


CALLS: tuple[Callable[[Interrupted], None], ...] = (
    Interrupted.put, Interrupted.delete, Interrupted.batch, Interrupted.put_many,
    Interrupted.read, Interrupted.scan, Interrupted.snapshot, Interrupted.publish,
    Interrupted.compact, Interrupted.backup, Interrupted.verify, Interrupted.reopen,
    Interrupted.ingest, Interrupted.ask, Interrupted.delete_many, Interrupted.pop,
    Interrupted.read_many, Interrupted.follow, Interrupted.fold, Interrupted.beside,
    Interrupted.restore, Interrupted.popitem, Interrupted.setdefault, Interrupted.edit,
    Interrupted.few, Interrupted.columns, Interrupted.tell, Interrupted.lease, Interrupted.drop,
    Interrupted.mend, Interrupted.destroy,
)  # fmt: skip
WEIGHTS = (
    20, 6, 14, 14, 8, 6, 8, 3, 6, 3, 3, 5, 5, 2, 4, 4, 4, 4, 3, 3, 2, 5, 4, 8, 8, 3, 2, 3, 2, 2, 2,
)  # fmt: skip
