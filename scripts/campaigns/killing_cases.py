"""What the campaigns of kills and of power cuts share: the nursery, the disk, a case."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from in_memory import place
from killing import Rounds
from lives import Nursery
from loop_disk import LoopDisk

ROOM_BYTES = 256 << 20
ROUNDS = 20
_disks: dict[str, LoopDisk] = {}
_nurseries: list[Nursery] = []


def _nursery() -> Nursery:
    if not _nurseries:
        _nurseries.append(Nursery())
        atexit.register(_nurseries[0].close)
    return _nurseries[0]


def _disk(kind: str) -> LoopDisk:
    if kind not in _disks:
        _disks[kind] = LoopDisk(kind)
        atexit.register(_disks[kind].close)
    return _disks[kind]


def power(kind: str, seed: int, number: int) -> dict[str, int]:
    disk, sync = _disk(kind), "always" if number % 3 else "none"
    rounds = Rounds(_nursery(), disk.path / "s", f"{seed} {number}", sync=sync, disk=disk)
    try:
        _live(rounds)
    except BaseException:
        atexit.unregister(disk.close)
        _disks.pop(kind).close()
        raise
    rounds.forget()
    return rounds.counts


def kill(seed: int, number: int) -> dict[str, int]:
    home = Path(tempfile.mkdtemp(prefix="octavo-kill-", dir=place(ROOM_BYTES)))
    sync = "none" if number % 3 else "always"
    try:
        rounds = Rounds(_nursery(), home / "s", f"{seed} {number}", sync=sync)
        _live(rounds)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return rounds.counts


def _live(rounds: Rounds) -> None:
    """Run the rounds. After a failure nobody knows the state of the nursery and its disk: they are
    made anew."""
    try:
        for _ in range(ROUNDS):
            rounds.live_and_die()
    except BaseException:
        atexit.unregister(_nurseries[0].close)
        _nurseries.pop().close()
        raise
