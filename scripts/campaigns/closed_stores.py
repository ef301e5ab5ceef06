"""Compaction, rebuilding and merging of closed stores by many tasks: errors, kills, power cuts.

Each case is a store of its own, of two types under random strategies, with batches, index entries,
expiries, compressible and large values, and sometimes a durable consumer. What the tasks make is
compared with the contents and the feed from before, by the ledger that is there and by a rebuilt
one; then again with an I/O error, a SIGKILL or a power cut somewhere, and once more after that.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from typing import Any

from pykka import ActorRegistry
from simdisk import MODES, SimCrash, SimDisk
from simfaults import CRASH_POINTS
from whole_store import NEVER_MS, flush, opened, rolled

import octavo
from octavo import Tag
from octavo.files.errors import OctavoError
from octavo.manifest import level_sizes
from octavo.manifest.unsynced import UNSYNCED
from octavo.pipeline import offline, offline_journal
from octavo.pipeline.offline import Run

DISTURBED_A_CASE = 12
OPERATIONS = 1200
PATH = "/s"
WORKS: dict[str, Callable[[SimDisk], object]] = {
    "compact": lambda disk: offline_journal.compacted(lambda: disk, PATH, Run()),
    "rebuild": lambda disk: offline._rebuild(lambda: disk, PATH, Run(), merge=True),
    "merge": lambda disk: offline._merge(lambda: disk, PATH, Run()),
}
READS = ("exists", "listdir", "map", "read")
TYPES = ("standard", "note")
NAMES = (b"", b"b", b"b\0c", b"\xff", b"a" * 60)
FIELDS = (b"f", b"g")


def case(seed: int, number: int) -> dict[str, int]:
    logging.disable(logging.CRITICAL)
    offline.STRETCH_SQNS, offline.RANGE_ROWS, level_sizes.MAX_FILE_ROWS = 300, 200, 150
    offline_journal.RUN_BYTES = 96 << 10
    rng = random.Random(f"{seed} {number}")
    store = Specimen(rng)
    counts = {"disturbed": 0, "errors": 0, "cuts and kills": 0, "records dropped": 0}
    for what in WORKS:
        disk = copy_of(store.disk)
        for again in range(3):
            made = WORKS[what](disk)
            counts["records dropped"] += getattr(made, "records_dropped", 0)
            store.check(copy_of(disk), f"{what} {again}")
        without = copy_of(disk)
        for folder in ("ledger/manifest", "ledger"):
            for name in without.listdir(f"{PATH}/{folder}"):
                if name != "manifest":
                    without.unlink(f"{PATH}/{folder}/{name}")
        store.check(without, f"{what}, with a new ledger")
    for _ in range(DISTURBED_A_CASE):
        counts["disturbed"] += 1
        counts[store.disturbed(rng, rng.choice(list(WORKS)))] += 1
    return counts


class Specimen:
    """A store, its contents, and its feed."""

    def __init__(self, rng: random.Random) -> None:
        self.options: dict[str, Any] = {
            "compact_every_seconds": None,
            "roll_size_bytes": 1 << 20,
            "tags": {"note": Tag()},
            "strategies": {name: rng.choice(("recovr", "retain")) for name in TYPES},
        }
        made = SimDisk()
        compression = rng.choice(("lz4", "none"))
        with opened(PATH, made, compression=compression, **self.options) as store:
            for _ in range(OPERATIONS):
                change(store, rng)
                if rng.random() < 0.01:
                    flush(store)
                if rng.random() < 0.005:
                    rolled(store)
            if rng.random() < 0.3:
                store.consumer("c", since=store.last_sqn * 2 // 3)
            if rng.random() < 0.7:
                rolled(store)
                flush(store)
        self.disk = copy_of(made)
        with opened(PATH, made, **self.options) as store:
            self.state, self.feed = state_of(store), feed_of(store, None)
            assert replayed(self.feed) == living(self.state)

    def check(self, disk: SimDisk, label: str) -> None:
        """See that the store has the same contents, and the same in what is left of its feed."""
        with opened(PATH, disk, **self.options) as store:
            assert state_of(store) == self.state, label
            report = store.verify()
            assert report.ok, (label, report.problems[:3])
            horizon = store._running.inker.actor.manifest.horizon
            above = {sqn: row for sqn, row in self.feed.items() if sqn > horizon}
            found = feed_of(store, horizon)
            for sqn, row in above.items():
                if row[7] is not None and sqn - row[7][0] <= horizon:  # its batch may be cut there
                    above[sqn] = (*row[:7], found[sqn][7] and row[7], *row[8:])
            assert found == above, label
            left = feed_of(store, None)
            for sqn, row in left.items():
                was = self.feed[sqn]
                whole = row == (*was[:7], row[7], *was[8:])  # a batch may have lost some
                assert whole or (was[0], row[0]) in (("put", "delta"), ("put", "delete")), label
            assert replayed(left) == living(self.state), label

    def disturbed(self, rng: random.Random, what: str) -> str:
        """Do the work with an error, a cut or a kill within it. Then the store must be as it was,
        and the work is done again, with an opening between and without. Returns which it was."""
        whole = copy_of(self.disk)
        begun = whole.ops
        WORKS[what](whole)
        disk = copy_of(self.disk)
        told, kind = what, "errors"
        if rng.random() < 0.5:
            kind, point = "cuts and kills", rng.randint(1, whole.ops - begun)
            disk.crash_at(disk.ops + point)
            told = f"{what}, the power goes at {point}"
        else:
            operation = rng.choice([*sorted(CRASH_POINTS - {"lock"}), *READS])
            nth, lasting = int(2 ** rng.uniform(0, 7)), rng.random() < 0.3
            code = rng.choice((errno.EIO, errno.ENOSPC, errno.EMFILE))
            disk.fail(operation, nth, code, lasting=lasting)
            told = f"{what}, {operation} {nth} fails with {code}, lasting {lasting}"
        try:
            WORKS[what](disk)
        except (OctavoError, OSError):
            pass
        except SimCrash:
            for ref in ActorRegistry.get_all():
                ActorRegistry.unregister(ref)
        disk.heal()
        images = [(mode, disk.after_crash(mode, rng.randrange(1 << 30))) for mode in MODES]
        images.append(("SIGKILL", disk.after_kill()))
        for mode, image in images:
            before = copy_of(image)
            self.check(image, f"{told}, then {mode}")
            for again in (image, before):
                if again.exists(f"{PATH}/journal/{UNSYNCED}"):  # it is refused until an opening
                    opened(PATH, again, **self.options).close()
                WORKS[what](again)
                self.check(again, f"{told}, then {mode}, and once more")
        return kind


def copy_of(disk: SimDisk) -> SimDisk:
    """One with the same files, all of them durable."""
    return disk.after_crash("all")


# ---------------------------------------------------------------- what is in a store


def change(store: octavo.Store, rng: random.Random) -> None:
    bucket = store.bucket(rng.choice(NAMES), tag=rng.choice(("standard",) * 4 + ("note",)))
    key = rng.choice([b"k%03d", b"\0%d\0", b"%d\xff"]) % rng.randrange(60)
    size = rng.choice([0, 1, 10, 100, 100, 700, 3000])
    value = rng.randbytes(size // 2) + rng.choice((bytes, rng.randbytes))(size - size // 2)
    if rng.random() < 0.001:
        value = rng.randbytes(300_000)
    kind = rng.random()
    if kind < 0.15:
        bucket.delete(key)
    elif kind < 0.25:
        bucket.put(key, value, expires_at=rng.choice((1000, NEVER_MS)))
    elif kind < 0.35:
        bucket.put(key, value, metadata=rng.randbytes(rng.randrange(1, 40)))
    elif kind < 0.5:
        bucket.put(key, value, index={"f": rng.randrange(20), "g": [b"t%d" % rng.randrange(9)]})
    elif kind < 0.6:
        with store.batch() as batch:
            for number in range(rng.randrange(1, 6)):
                if rng.random() < 0.3:
                    batch.delete(rng.choice(NAMES), b"%s%d" % (key, number))
                else:
                    batch.put(rng.choice(NAMES), b"%s%d" % (key, number), value)
    else:
        bucket.put(key, value)


def state_of(store: octavo.Store) -> dict[Any, Any]:
    out: dict[Any, Any] = {}
    for tag in TYPES:
        for name in store.buckets(tag=tag):
            bucket = store.bucket(name, tag=tag)
            values = dict(bucket.items())
            for key, head in bucket.heads():
                known = head
                if tag == "standard":
                    known = (head.sqn, head.size, head.metadata, head.written_at, head.expires_at)
                out[tag, name, key] = (values.pop(key), known, repr(bucket.index_of(key)))
                assert bucket.get(key) == out[tag, name, key][0]
            assert not values
            for field in FIELDS:
                entries = sorted(map(repr, bucket.index(field).range()))
                out[tag, name, "index", field] = entries
    return out


def living(state: dict[Any, Any]) -> dict[Any, bytes]:
    return {place: found[0] for place, found in state.items() if len(place) == 3}


def feed_of(store: octavo.Store, since: int | None) -> dict[int, tuple[Any, ...]]:
    """The feed above ``since``, by sqn; None: all there is."""
    found = store.changes(compacted=True) if since is None else store.changes(since)
    return {
        each.sqn: (
            each.kind, each.tag, each.bucket, each.key, each.value, each.metadata,
            each.written_at, each.batch, each.expires_at, repr(each.index),
        )
        for each in found
    }  # fmt: skip


def replayed(feed: dict[int, tuple[Any, ...]]) -> dict[Any, bytes]:
    """What a follower of the feed ends with."""
    out: dict[Any, bytes] = {}
    for sqn in sorted(feed):
        kind, tag, bucket, key, value, _, _, _, expires_at, _ = feed[sqn]
        if kind == "put" and expires_at != 1000:
            out[tag, bucket, key] = value
        elif kind != "delta":
            out.pop((tag, bucket, key), None)
    return out
