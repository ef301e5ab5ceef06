"""The tour that ``octavo demo`` makes: load, read, snapshot, update, fold, verify, reopen.

A model of what must be there, one digest a value, is kept alongside; each step is checked
against it.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_128, xxh3_128_digest

from octavo.cli.loading import Loading
from octavo.cli.output import progress, steps
from octavo.cli.source import Source
from octavo.cli.teller import Teller
from octavo.figures import count, duration, plural, size
from octavo.files.errors import Conflict, Misuse
from octavo.notation import to_text

if TYPE_CHECKING:
    from octavo.snapshot import Snapshot
    from octavo.store import Store

_UPDATE_EVERY = 10
_MOVE_EVERY = 50
_MOVED_AT_MOST = 1000
_MOVED_BYTES = 64 << 20
_HOT_KEYS = 256
_HOT_BYTES = 64 << 10
_ATTIC = b"attic"
_GROUPS_SHOWN = 8

Model = dict[bytes, bytes]
"""Key to the digest of its value."""


class Tour:
    """A tour over a new store in ``path``. ``figures`` has its numbers afterwards."""

    def __init__(self, path: str, source: Source, teller: Teller) -> None:
        self.figures: dict[str, Any] = {}
        self._path = path
        self._source = source
        self._tell = teller.tell
        self._table = teller.table
        self._check = teller.check
        self._live: Model = {}
        self._attic: Model = {}
        self._sizes: dict[bytes, int] = {}
        self._bytes_put = 0

    def run(self) -> None:
        """Make the tour. Raises Misuse if the source has nothing."""
        import octavo

        with octavo.open(self._path) as store:
            self._load(store)
            self._read_back(store)
            snap = self._take(store)
            with snap:
                then = dict(self._live)
                self._update(store)
                self._list(snap, then)
                self._fold(store, snap, then)
            self._changes(store, snap.sqn)
            self._verify(store)
            last = store.last_sqn
            began = time.perf_counter()
        closed = time.perf_counter() - began
        self._reopen(last, closed)
        self._weigh()

    # ------------------------------------------------------------ the steps

    def _load(self, store: Store) -> None:
        loading = Loading(store, b"", 1000, stop=False, note=self._note)
        with progress("loading", self._source.total_bytes, of_bytes=True) as advance:
            loading.run(self._source, advance)
        store.sync()
        loading.ended()
        if not loading.loaded:
            raise Misuse("the source holds nothing that can be loaded")
        self._bytes_put = loading.bytes
        self._tell(
            "load",
            f"{plural(loading.loaded, 'value')}, {size(loading.bytes)}, the largest "
            f"{size(max(self._sizes.values()))}, in {_rate(loading.seconds, loading.bytes)}, "
            f"{count(loading.loaded / loading.seconds)} values/s; durable; "
            f"last sqn {count(store.last_sqn)}",
        )
        left_out = [f"{count(n)} {what}" for what, n in sorted(loading.skipped.items())]
        if loading.rejected:
            left_out.append(f"{count(len(loading.rejected))} unreadable")
        if left_out:
            self._tell("", f"left out: {', '.join(left_out)}")
        self.figures["load"] = {
            "values": loading.loaded,
            "keys": len(self._live),
            "bytes": loading.bytes,
            "seconds": loading.seconds,
            "skipped": loading.skipped,
            "rejected": len(loading.rejected),
            "last_sqn": store.last_sqn,
        }

    def _note(self, key: bytes, value: bytes) -> None:
        self._live[key] = xxh3_128_digest(value)
        self._sizes[key] = len(value)

    def _read_back(self, store: Store) -> None:
        wrong = 0
        length = 0
        began = time.perf_counter()
        get = store.get
        for key, digest in self._live.items():
            value = get(key)
            if value is None or xxh3_128_digest(value) != digest:
                wrong += 1
            else:
                length += len(value)
        seconds = time.perf_counter() - began
        self._tell(
            "read back",
            f"{plural(len(self._live), 'key')} one by one, each equal to what was loaded, in "
            f"{_rate(seconds, length)}",
        )
        self._check(wrong == 0, f"every value reads back as it was loaded ({wrong} do not)")
        self.figures["read_back"] = {
            "keys": len(self._live), "bytes": length, "seconds": seconds, "wrong": wrong,
        }  # fmt: skip

    def _take(self, store: Store) -> Snapshot:
        began = time.perf_counter()
        snap = store.snapshot()
        seconds = time.perf_counter() - began
        self._tell("snapshot", f"at sqn {count(snap.sqn)}, taken in {duration(seconds)}")
        self._check(snap.sqn == store.last_sqn, "a snapshot is at the store's newest sqn")
        self.figures["snapshot"] = {"sqn": snap.sqn, "seconds": seconds}
        return snap

    def _update(self, store: Store) -> None:
        keys = sorted(self._live)
        began = time.perf_counter()
        updated = keys[::_UPDATE_EVERY]
        store.put_many(self._rewritten(store, updated))
        moved = self._movable(keys[_UPDATE_EVERY // 2 :: _MOVE_EVERY])
        with store.batch() as batch:
            for key in moved:
                batch.put(_ATTIC, key, store[key])
                batch.delete(b"", key)
        for key in moved:
            self._attic[key] = self._live.pop(key)
        seconds = time.perf_counter() - began
        try:
            store.put(updated[0], b"never written", if_sqn=0)
            refused = False
        except Conflict:
            refused = True
        self._check(refused, "a conditional put that does not hold raises Conflict")
        self._tell(
            "update",
            f"{plural(len(updated), 'value')} rewritten, {count(len(moved))} moved to bucket "
            f"{to_text(_ATTIC)!r} in one atomic batch, in {duration(seconds)}; "
            f"last sqn {count(store.last_sqn)}",
        )
        self.figures["update"] = {
            "rewritten": len(updated), "moved": len(moved), "seconds": seconds,
            "last_sqn": store.last_sqn,
        }  # fmt: skip

    def _rewritten(self, store: Store, keys: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for key in keys:
            value = b"rewritten by octavo demo\n" + store[key]
            self._live[key] = xxh3_128_digest(value)
            self._bytes_put += len(key) + len(value)
            yield key, value

    def _movable(self, keys: list[bytes]) -> list[bytes]:
        chosen: list[bytes] = []
        room = _MOVED_BYTES
        for key in keys[:_MOVED_AT_MOST]:
            if self._sizes[key] <= room:
                room -= self._sizes[key]
                self._bytes_put += self._sizes[key] + 2 * len(key)
                chosen.append(key)
        return chosen

    def _list(self, snap: Snapshot, then: Model) -> None:
        began = time.perf_counter()
        keys = list(snap.keys())
        seconds = time.perf_counter() - began
        self._check(keys == sorted(then), "a snapshot lists the keys of its moment, in order")
        self._check(list(snap.keys(reverse=True)) == keys[::-1], "backwards it lists the same keys")
        self._tell(
            "list",
            f"{plural(len(keys), 'key')} of the snapshot in {duration(seconds)}, "
            f"{count(len(keys) / seconds)} keys/s; backwards the same",
        )
        self.figures["list"] = {"keys": len(keys), "seconds": seconds}

    def _fold(self, store: Store, snap: Snapshot, then: Model) -> None:
        """Fold over the snapshot while another thread writes to the live store."""
        groups: dict[str, list[int]] = {}
        began = time.perf_counter()
        with self._writing(store) as written:
            with progress("folding", len(then)) as advance:
                digest = _grouped(snap, groups, advance)
            seconds = time.perf_counter() - began
        length = sum(group[1] for group in groups.values())
        same = digest == _digest(then.items())
        self._check(same, "a snapshot does not change while the store does")
        differ = sum(self._live.get(key) != value for key, value in then.items())
        self._check(differ > 0, "the live store has moved on")
        self._tell("fold", f"{size(length)} of the snapshot's values in {_rate(seconds, length)}:")
        ranked = sorted(groups.items(), key=lambda item: -item[1][1])
        rows = [("kind", "files", "bytes", "lines")] + [
            (name, count(group[0]), size(group[1]), count(group[2]))
            for name, group in ranked[:_GROUPS_SHOWN]
        ]
        if len(ranked) > _GROUPS_SHOWN:
            others = (group for _, group in ranked[_GROUPS_SHOWN:])
            rest = [sum(column) for column in zip(*others, strict=True)]
            rows.append(("others", count(rest[0]), size(rest[1]), count(rest[2])))
        self._table([tuple(row) for row in rows])
        self._tell(
            "meanwhile",
            f"{plural(written[0], 'put')} by another thread; the snapshot is unchanged, while "
            f"{count(differ)} of its keys are different or gone in the live store",
        )
        self.figures["fold"] = {
            "keys": len(then), "bytes": length, "seconds": seconds, "puts_meanwhile": written[0],
            "differ": differ, "unchanged": same,
        }  # fmt: skip

    @contextmanager
    def _writing(self, store: Store) -> Iterator[list[int]]:
        """Write small values from a thread while the block runs; then the list has how many."""
        hot = [key for key in sorted(self._live) if self._sizes[key] <= _HOT_BYTES][:_HOT_KEYS]
        written = [0]
        failed: list[BaseException] = []
        stop = threading.Event()

        def write() -> None:
            try:
                while hot:
                    for key in hot:
                        value = b"written while the snapshot was read, number %d\n" % written[0]
                        store.put(key, value)
                        self._live[key] = xxh3_128_digest(value)
                        self._bytes_put += len(key) + len(value)
                        written[0] += 1
                        if stop.wait(0.0002) and written[0] >= len(hot):
                            return
            except BaseException as wrong:  # noqa: BLE001 - raised again by the thread that waits
                failed.append(wrong)

        thread = threading.Thread(target=write, name="octavo-demo-writer")
        thread.start()
        try:
            yield written
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]

    def _changes(self, store: Store, since: int) -> None:
        began = time.perf_counter()
        kinds = {"put": 0, "delete": 0}
        newest = since
        ordered = True
        for change in store.changes(since):
            kinds[change.kind] += 1
            ordered = ordered and change.sqn > newest
            newest = change.sqn
        seconds = time.perf_counter() - began
        self._check(
            ordered and newest == store.last_sqn,
            "the journal gives every change since a sqn, in order, up to the newest",
        )
        self._tell(
            "changes",
            f"since the snapshot: {plural(kinds['put'], 'put')}, "
            f"{plural(kinds['delete'], 'delete')}, read from the journal in {duration(seconds)}",
        )
        self.figures["changes"] = {**kinds, "seconds": seconds}

    def _verify(self, store: Store) -> None:
        began = time.perf_counter()
        with steps("verifying") as told:
            report = store.verify(told)
        seconds = time.perf_counter() - began
        self._tell(
            "verify",
            f"{plural(report.journal_files, 'journal file')}, "
            f"{plural(report.ledger_files, 'ledger file')}, {plural(report.records, 'record')}, "
            f"{size(report.bytes)} in {duration(seconds)}: "
            + ("no damage" if report.ok else plural(len(report.problems), "problem")),
        )
        self._check(report.ok, f"verify finds no damage ({'; '.join(report.problems[:3])})")
        self.figures["verify"] = {"ok": report.ok, "records": report.records, "seconds": seconds}

    def _reopen(self, last: int, closed: float) -> None:
        import octavo

        began = time.perf_counter()
        with octavo.open(self._path, create=False) as store:
            opened = time.perf_counter() - began
            self._check(store.last_sqn == last, "a store opens at the sqn it was closed at")
            same = _digest(_values(store.items())) == _digest(self._live.items())
            self._check(same, "after opening again the store holds what it held")
            attic = _values(store.bucket(_ATTIC).items())
            moved = _digest(attic) == _digest(self._attic.items())
            self._check(moved, "what was moved in a batch is where it was moved to")
        self._tell(
            "reopen",
            f"closed in {duration(closed)}, opened in {duration(opened)}; last sqn {count(last)}, "
            f"{plural(len(self._live) + len(self._attic), 'key')} as they were",
        )
        self.figures["reopen"] = {
            "close_seconds": closed, "open_seconds": opened, "last_sqn": last,
        }  # fmt: skip

    def _weigh(self) -> None:
        on_disk = sum(
            os.stat(os.path.join(directory, name)).st_blocks * 512
            for directory, _, names in os.walk(self._path)
            for name in names
        )
        unit = 1 if sys.platform == "darwin" else 1024
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        self._tell(
            "on disk",
            f"{size(on_disk)} for {size(self._bytes_put)} put, all versions kept; "
            f"peak memory {size(memory)}",
        )
        self.figures["on_disk"] = {"bytes": on_disk, "bytes_put": self._bytes_put, "peak": memory}


def _digest(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """One digest of (key, digest of its value) pairs, in the order of the keys."""
    whole = xxh3_128()
    for key, value in sorted(pairs):
        whole.update(key + value)
    return whole.digest()


def _values(items: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    return ((key, xxh3_128_digest(value)) for key, value in items)


def _grouped(
    snap: Snapshot, groups: dict[str, list[int]], advance: Callable[[int], object]
) -> bytes:
    """Count files, bytes and lines by the suffixes of names; returns a digest of everything."""
    digest = xxh3_128()
    for done, (key, value) in enumerate(snap.items(), 1):
        digest.update(key + xxh3_128_digest(value))
        group = groups.setdefault(_suffix(key), [0, 0, 0])
        group[0] += 1
        group[1] += len(value)
        group[2] += value.count(b"\n")
        if done % 1000 == 0:
            advance(done)
    return digest.digest()


def _suffix(key: bytes) -> str:
    """The suffix of a key's name; keys without one count as one kind."""
    name = key.rpartition(b"/")[2]
    stem, dot, suffix = name.rpartition(b".")
    return to_text(dot + suffix) if stem and len(suffix) <= 12 else "(no suffix)"


def _rate(seconds: float, length: int) -> str:
    return f"{duration(seconds)}: {size(length / seconds)}/s"
