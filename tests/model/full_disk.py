"""A store on a disk that is too small: what it answers, and what is there when there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from killing import OPTIONS
from loop_disk import NotHere
from small_sizes import EARLY_MAPS, sizes
from steps import Told, contents, digest_of, step, take

import octavo

STEPS = 1500
ROOMY_KIB = 64 << 10


class SmallDisk:
    """A file system in memory with a size of its own, mounted at ``path`` until ``close``."""

    def __init__(self, kib: int) -> None:
        if os.geteuid():
            raise NotHere("mounting a file system needs root")
        self._home = Path(tempfile.mkdtemp(prefix="octavo-small-"))
        self.path = self._home / "disk"
        self.path.mkdir()
        try:
            _mount("-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(self.path))
        except NotHere:
            self._home_gone()
            raise

    def resize(self, kib: int) -> None:
        _mount("-o", f"remount,size={kib}k", str(self.path))

    def fill(self) -> None:
        """Leave no room. Raises nothing."""
        with open(self.path / "filling", "wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 12)):
                    pass
            except OSError:
                pass

    def only_read(self) -> None:
        """Nothing can be made there any more. Nobody may have a file open to write."""
        _mount("-o", "remount,ro", str(self.path))

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=False, capture_output=True)
        self._home_gone()

    def _home_gone(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


def _mount(*words: str) -> None:
    try:
        subprocess.run(["mount", *words], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotHere(f"mount {' '.join(words)}: {error}") from None


class Filling:
    """A life on a disk of ``kib``: what it did is in ``counts``. Raises AssertionError."""

    def __init__(
        self, disk: SmallDisk, seed: str, *, worker: bool = False, maps: bool = False
    ) -> None:
        """``maps``: write maps begin early."""
        self.disk = disk
        self.maps = maps
        self.path = disk.path / "s"
        self.told = Told(seed)
        self.options = {**OPTIONS, "worker": worker}
        self.counts = {"disks": 1}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def run(self) -> dict[str, int]:
        with sizes(EARLY_MAPS if self.maps else {}):
            return self._run()

    def _run(self) -> dict[str, int]:
        try:
            store = octavo.open(self.path, **self.options)
        except octavo.StorageFull:
            self.count("too full to begin")
        else:
            self._fill(store)
            self._work_on_it_closed()
            self._reopen_while_full()
        self.disk.resize(ROOMY_KIB)
        with octavo.open(self.path, **self.options) as store:
            self._right(store)
            for _ in range(40):
                self._take(store)
            self._right(store)
            store.compact()
            self._right(store)
            report = store.verify()
            assert report.ok, report.problems
        with octavo.open(self.path, **self.options) as store:
            self._right(store)
        return self.counts

    def _take(self, store: octavo.Store) -> None:
        told = self.told
        take(store, step(told.seed, told.done + 1))
        told.acknowledge(told.done + 1, store.last_sqn)

    def _right(self, store: octavo.Store) -> None:
        self.told.settle(contents(store), store.last_sqn)
        if self.told.digests[-1] != self.told.digest:
            raise AssertionError("the model lost count")

    def _fill(self, store: octavo.Store) -> None:
        """Steps until there is no room, then reads, deletes, a backup, a compaction, a close."""
        for _ in range(STEPS):
            try:
                self._take(store)
            except octavo.StorageFull:
                self.count("full")
                self._right(store)  # what failed is passed over: nothing of it may be there
                break
        for _ in range(20):
            try:
                self._take(store)
            except octavo.StorageFull:
                self._right(store)
        self._right(store)
        for what, call in (
            ("backup", lambda: store.backup(self.path.with_name("b"))),
            ("publishing", lambda: store.snapshot().publish(lease_seconds=60).release()),
            ("acknowledging", lambda: store.consumer("mail").acknowledge(store.last_sqn)),
            ("reading beside", lambda: self._read_beside(store)),
            ("verifying", lambda: self._verified(store)),
            ("dropping", lambda: store.consumer("mail").drop()),
            ("compaction", store.compact),
        ):
            try:
                call()
                self.count(f"{what} though full")
            except octavo.StorageFull:
                self.count(f"{what} refused")
            self._right(store)
        shutil.rmtree(self.path.with_name("b"), ignore_errors=True)
        assert not self.path.with_name("b.partial").exists()
        store.close()

    def _read_beside(self, store: octavo.Store) -> None:
        with octavo.open(self.path, read_only=True) as reader:
            if digest_of(contents(reader)) != self.told.digest:
                raise AssertionError("a reader finds another state")

    def _verified(self, store: octavo.Store) -> None:
        report = store.verify()
        assert report.ok, report.problems

    def _work_on_it_closed(self) -> None:
        """What needs no open store: done, or refused for want of room."""
        elsewhere = self.path.with_name("r")
        for what, call in (
            ("restore", lambda: octavo.restore(self.path, elsewhere)),
            ("repair", lambda: octavo.repair(self.path)),
        ):
            try:
                done = call()
                self.count(f"{what} though full")
                assert getattr(done, "ok", True), done
            except octavo.StorageFull:
                self.count(f"{what} refused")
            assert not elsewhere.with_name("r.partial").exists()
            shutil.rmtree(elsewhere, ignore_errors=True)

    def _reopen_while_full(self) -> None:
        try:
            store = octavo.open(self.path, **self.options)
        except octavo.StorageFull:
            self.count("too full to open")
            return
        try:
            self.count("opened though full")
            self._right(store)
            freed = False
            for number in range(120):  # deletes and compaction are the way out
                try:
                    store.bucket(b"").delete(b"k%03d" % number)
                    self.told.state.pop((b"", b"k%03d" % number), None)
                    freed = True
                except octavo.StorageFull:
                    break
            if freed:
                self.count("deleted though full")
            self.told.digest = self.told.digests[-1] = digest_of(self.told.state)
            self.told.sqns[-1] = store.last_sqn
            try:
                store.compact()
                self.count("compacted though full")
            except octavo.StorageFull:
                self.count("compaction refused")
            self._right(store)
        finally:
            store.close()
