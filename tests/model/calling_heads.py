"""Threads that call one head-only store on few rows, all of one key: see calling_threads.py."""

from __future__ import annotations

import random
from collections.abc import Iterable

from calling_threads import ALL, KEYS, NONE, Threads, padded
from histories import Call

import octavo

KEY = b"key"


class HeadThreads(Threads):
    """What counts as a key is a sub-key."""

    def read(self, rng: random.Random) -> list[Call]:
        bucket, key = self.store.head_bucket(b""), b"k%d" % rng.randrange(KEYS)
        what = rng.choices(("get", "head", "all", "few", "snapshot", "reader"), (50, 8, 8, 8, 4, 1))
        began, reverse = next(self.clock), rng.random() < 0.5
        if what == ["get"]:
            return self.told(began, {key: bucket.get(KEY, key)})
        if what == ["head"]:
            row = bucket.head(KEY, key)
            return [Call(key, "head", began, next(self.clock), None, row.sqn if row else 0)]
        if what == ["all"]:
            rows = bucket.sub_keys(KEY, reverse=reverse)
            return self.told(began, {**NONE, **values(rows)}, moment=began)
        if what == ["few"]:
            limit = rng.randrange(1, KEYS + 2)
            found, keys = values(bucket.rows(limit=limit, reverse=reverse)), ALL
            if len(found) == limit:
                last = list(found)[-1]
                keys = [each for each in ALL if (each >= last if reverse else each <= last)]
            return self.told(began, {each: found.get(each) for each in keys}, moment=began)
        if what == ["snapshot"]:
            with self.store.snapshot() as snap:
                ended = next(self.clock)
                then = snap.head_bucket(b"")
                return self.told(began, {each: then.get(KEY, each) for each in ALL}, ended, began)
        with octavo.open(self.store.path, read_only=True) as reader:
            ended = next(self.clock)
            rows = reader.head_bucket(b"").rows()
            return self.told(began, {**NONE, **values(rows)}, ended, began)

    def write(self, number: int, rng: random.Random) -> list[Call]:
        bucket, clock = self.store.head_bucket(b""), self.clock
        key, name = b"k%d" % rng.randrange(KEYS), b"%d-%d" % (number, next(clock))
        self.unanswered[number] = {key: name}
        if rng.random() < 0.2:
            return self.batch(number, rng)
        condition = None
        if rng.random() < 0.4:
            row = bucket.head(KEY, key)
            condition = row.sqn if row is not None else 0
        began = next(clock)
        if rng.random() < 0.3:
            sqn = bucket.delete(KEY, sub_key=key, if_sqn=condition)
            return [Call(key, "delete", began, next(clock), None, sqn, condition)]
        sync, ttl = rng.random() < 0.02 or None, rng.choice((None, 1000.0))
        sqn = bucket.put(KEY, padded(name), sub_key=key, if_sqn=condition, sync=sync, ttl=ttl)
        return [Call(key, "put", began, next(clock), name, sqn, condition)]

    def batch(self, number: int, rng: random.Random) -> list[Call]:
        keys = rng.sample(ALL, rng.choice((1, 2, 4)))
        names = {key: b"%d-%d" % (number, next(self.clock)) for key in keys}
        self.unanswered[number] = names
        began = next(self.clock)
        with self.store.head_batch() as batch:
            for key, name in names.items():
                batch.put(b"", KEY, padded(name), sub_key=key)
        ended = next(self.clock)
        first = batch.last_sqn - len(names) + 1
        return [
            Call(key, "put", began, ended, name, sqn)
            for sqn, (key, name) in enumerate(names.items(), first)
        ]


def values(rows: Iterable[octavo.HeadRow]) -> dict[bytes, bytes | None]:
    return {row.sub_key: row.value for row in rows}
