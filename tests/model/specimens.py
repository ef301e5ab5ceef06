"""Small stores that have every kind of file, and everything that may be read from them.

    closed      a store that was closed: sealed, compacted and active journal files, a ledger of two
                levels, a job that was taken in, consumers, waste, published and pinned snapshots, a
                staged job, messages in the inbox
    killed      what SIGKILL leaves of it, with more in memory and in the active file
    backup      its backup
    head_only   a head-only store that was closed

Each is a directory below the home of a ``Specimens``; ``known`` has every version of every key.
"""

from __future__ import annotations

import json
import random
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from whole_store import flush, killed, opened, rolled, settle

import octavo
from octavo.actors.keeping.ingest import ingest
from octavo.actors.writing import reserve
from octavo.files.door.disk import RealDisk
from octavo.files.handover import inbox
from octavo.files.handover.staged_writer import StagedWriter
from octavo.manifest import pinning, published

NAMES = ("closed", "killed", "backup", "head_only")
BUCKETS = (b"", b"docs")
MADE_MS = 1_790_000_000_000
FAR_MS = 4_000_000_000_000
RESERVE_BYTES = 512
"""Of the low-space reserve: of one of its true size almost every bit that is damaged would be."""
Where = tuple[str, bytes, bytes]
"""(type, bucket, key); in a head-only store the sub-key stands in the place of the type."""


@dataclass
class Versions:
    """Every version that was ever put, None for a delete; the last one is what a store holds."""

    of: dict[Where, list[bytes | None]] = field(default_factory=dict)
    highest: int = 0

    def add(self, where: Where, value: bytes | None, sqn: int) -> None:
        self.of.setdefault(where, []).append(value)
        self.highest = max(self.highest, sqn)

    def live(self) -> dict[Where, bytes]:
        newest = {where: found[-1] for where, found in self.of.items()}
        return {where: value for where, value in newest.items() if value is not None}

    def told(self) -> dict[str, object]:
        """As JSON takes it."""
        rows = [
            [tag, bucket.decode(), key.decode(), [v if v is None else v.decode() for v in values]]
            for (tag, bucket, key), values in self.of.items()
        ]
        return {"rows": rows, "highest": self.highest}

    @classmethod
    def of_told(cls, told: dict[str, object]) -> Versions:
        made = cls()
        rows = told["rows"]
        assert isinstance(rows, list)
        for tag, bucket, key, values in rows:
            made.of[tag, bucket.encode(), key.encode()] = [
                v if v is None else v.encode() for v in values
            ]
        highest = told["highest"]
        assert isinstance(highest, int)
        made.highest = highest
        return made


def options(name: str) -> dict[str, object]:
    """What a specimen is opened with."""
    given: dict[str, object] = {"compact_every_seconds": None, "waste_retention_seconds": 1e9}
    return given if name == "head_only" else given | {"tags": {"user": octavo.Tag()}}


def _put(store: octavo.Store, known: Versions, number: int, round_of: int) -> None:
    """One operation of each kind in turn."""
    bucket, key = BUCKETS[number % 2], b"key-%02d" % number
    where = ("standard", bucket, key)
    target = store.bucket(bucket)
    value = b"value %d of round %d" % (number, round_of)
    kind = (number + round_of) % 9
    if kind == 0:
        known.add(where, None, target.delete(key))
    elif kind == 1:
        value += b" compressible" * 60
        known.add(where, value, target.put(key, value, metadata=b"meta %d" % number))
    elif kind == 2:
        known.add(where, value, target.put(key, value, expires_at=FAR_MS))
    elif kind == 3:
        sqn = target.put(key, value, index={"round": round_of, "name": ["x", f"n{number}"]})
        known.add(where, value, sqn)
    elif kind == 4:
        with store.batch() as batch:
            for part in (b"a", b"b"):
                batch.put(bucket, key + part, value)
        for at, part in enumerate((b"a", b"b")):
            known.add((*where[:2], key + part), value, batch.last_sqn - 1 + at)
    elif kind == 5:
        sqn = store.bucket(bucket, tag="user").put(key, value)
        known.add(("user", bucket, key), value, sqn)
    else:
        known.add(where, value, target.put(key, value))


def _staged(store: octavo.Store, known: Versions | None, job: str) -> None:
    writer = StagedWriter(RealDisk(), store.path, job, "0", now_ms=FAR_MS)
    for number in range(4):
        key, value = b"%s-%d" % (job.encode(), number), b"from elsewhere %d" % number
        writer.put_many(b"docs", [key], [value])
        if known is not None:
            known.add(("standard", b"docs", key), value, 0)
    writer.finish()


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """What is random in a store's files is the same each time."""
    rng, bits, token = random.Random(seed), secrets.randbits, secrets.token_hex
    size, reserve.RESERVE_BYTES = reserve.RESERVE_BYTES, RESERVE_BYTES
    secrets.randbits = rng.getrandbits
    secrets.token_hex = lambda nbytes=32: rng.randbytes(nbytes or 32).hex()
    try:
        yield
    finally:
        secrets.randbits, secrets.token_hex = bits, token
        reserve.RESERVE_BYTES = size


class Specimens:
    """Makes them all, each time the same; some 0.5 s."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.known: dict[str, Versions] = {}
        with repeatable(20261121):
            self._standard()
            self._head_only()

    def _standard(self) -> None:
        known = Versions()
        store = opened(self.home / "closed", clock_ms=lambda: MADE_MS, **options("closed"))
        for round_of in range(3):
            for number in range(24):
                _put(store, known, number, round_of)
            rolled(store)
            flush(store)
        store.compact()
        for round_of in range(3, 7):  # enough of level zero for a merge
            for number in range(round_of, 24, 5):
                _put(store, known, number, round_of)
            flush(store)
        store.consumer("mail", since=store.last_sqn)
        _staged(store, known, "taken")
        ingest(store._running, "taken", ["0"])
        known.highest = max(known.highest, store.last_sqn)
        settle(store)
        with store.snapshot() as snapshot:
            made = snapshot.publish("kept")
        disk = RealDisk()
        published.renewed(disk, made.path, FAR_MS, made.taken_at)
        _staged(store, None, "waiting")
        for number in range(5):
            _put(store, known, number, 7)
        store.backup(self.home / "backup")
        versions = {where: list(values) for where, values in known.of.items()}
        self.known["backup"] = Versions(versions, store.last_sqn)
        for number in range(5, 12):
            _put(store, known, number, 8)
        pinned = pinning.pin(disk, store.path, FAR_MS // 2, FAR_MS // 2)
        assert any(name.endswith(".offsets") for name in disk.listdir(pinned.path))
        killed(store, self.home / "killed")
        store.close()
        for name in ("closed", "killed"):
            self.known[name] = known
            path, message = str(self.home / name), f"{FAR_MS:012x}-{1:016x}"
            told = {"job": "waiting", "attempts": ["0"]}
            inbox.write(disk, path, message + inbox.ANSWER, {"error": "Busy", "message": "later"})
            inbox.write(disk, path, message + inbox.REQUEST, told)
        assert len(store_levels(self.home / "closed")) >= 2
        assert list((self.home / "closed/waste").iterdir())

    def _head_only(self) -> None:
        known = Versions()
        given = options("head_only")
        given |= {"mode": "head_only", "clock_ms": lambda: MADE_MS}
        store = opened(self.home / "head_only", **given)
        for round_of in range(2):
            for number in range(20):
                bucket, key = BUCKETS[number % 2], b"key-%02d" % (number // 2)
                sub_key, value = ("", "s")[number % 2], b"head %d of %d" % (number, round_of)
                target = store.head_bucket(bucket)
                where = (sub_key, bucket, key)
                if (number + round_of) % 7 == 0:
                    known.add(where, None, target.delete(key, sub_key=sub_key))
                else:
                    known.add(where, value, target.put(key, value, sub_key=sub_key))
            if not round_of:
                flush(store)
                store.trim()
        store.close()
        self.known["head_only"] = known

    def copy(self, name: str, target: Path) -> Path:
        shutil.copytree(self.home / name, target, symlinks=True)
        return target

    def save(self) -> None:
        """Write what is known beside them, for another process."""
        told = {name: versions.told() for name, versions in self.known.items()}
        (self.home / "known.json").write_text(json.dumps(told))


def store_levels(path: Path) -> list[int]:
    """Files of each level of a closed store's ledger."""
    from octavo.manifest import change_log
    from octavo.manifest.ledger_manifest import LedgerManifest

    found = change_log.recover(RealDisk(), f"{path}/ledger/manifest")
    return [len(level) for level in LedgerManifest.replayed(found.snapshot, found.changes).levels]


def loaded(home: Path) -> dict[str, Versions]:
    """What ``save`` wrote."""
    told = json.loads((home / "known.json").read_text())
    return {name: Versions.of_told(versions) for name, versions in told.items()}


def files_of(path: Path) -> list[str]:
    """Every file of a specimen, by its way from there, sorted."""
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())
