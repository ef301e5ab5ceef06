"""Every way in which a store or a snapshot can be read, held against what it must hold."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from event_log import Event, State, in_bucket, live, rank

import octavo

Rows = list[tuple[bytes, Event]]
COLUMNS = ("bucket", "key", "sqn", "size", "metadata", "written_at", "expires_at", "value")


class EveryRead:
    """Reads of ``source``, a store or a snapshot, that must hold ``state`` as of ``now``."""

    def __init__(
        self, source: Any, state: State, now: int, rng: random.Random, tags: tuple[str, ...]
    ) -> None:
        self.source, self.rng, self.tags = source, rng, tags
        self.all = state
        self.live = live(state, now)

    def some(self, ways: int) -> None:
        """A few of them, at random."""
        for way in self.rng.choices(WAYS, k=ways):
            try:
                way(self)
            except BaseException as error:
                error.add_note(f"{way.__name__} of {self.source}")
                raise

    def everything(self) -> None:
        """All that there is, in the plainest ways."""
        for tag in self.tags:
            names = sorted({name for kind, name, _ in self.live if kind == tag})
            assert list(self.source.buckets(tag=tag)) == names
            for name in names:
                rows = in_bucket(self.live, tag, name)
                bucket = self.bucket(name, tag)
                assert list(bucket.items()) == [(key, event.value) for key, event in rows]
                assert list(bucket.heads()) == [(key, event.head()) for key, event in rows]
                assert bucket.get_many(k for k, _ in rows) == [event.value for _, event in rows]

    # ------------------------------------------------------------ choosing

    def bucket(self, name: bytes, tag: str) -> Any:
        return self.source.bucket(name, tag=tag)

    def chosen(self) -> tuple[str, bytes, Any, Rows]:
        """A type, a bucket's name, the bucket and its rows."""
        places = sorted({where[:2] for where in self.all}) or [(self.tags[0], b"")]
        tag, name = self.rng.choice(places)
        return tag, name, self.bucket(name, tag), in_bucket(self.live, tag, name)

    def keys_about(self, tag: str, name: bytes) -> list[bytes]:
        """Keys that are or were there, and some beside them."""
        known = sorted({key for kind, of, key in self.all if (kind, of) == (tag, name)}) or [b"k"]
        found = []
        for key in self.rng.choices(known, k=self.rng.randrange(1, 12)):
            near = (key, key, key, key + b"\0", key[:-1] or b"\0", key + b"\xff")
            found.append(self.rng.choice(near)[:2000] if len(key) < 60_000 else key)
        return found

    def bounds(self, tag: str, name: bytes, rows: Rows) -> tuple[dict[str, Any], Rows]:
        """Arguments of a range, and what of the rows is in it."""
        rng = self.rng
        given: dict[str, Any] = {}
        if rng.random() < 0.5:
            given["start"] = rng.choice(self.keys_about(tag, name))
        if rng.random() < 0.5:
            given["end"] = rng.choice(self.keys_about(tag, name))
        if rng.random() < 0.3:
            given["prefix"] = rng.choice(self.keys_about(tag, name))[: rng.randrange(4)]
        start, end, prefix = (given.get(which) for which in ("start", "end", "prefix"))
        return given, [
            (key, event)
            for key, event in rows
            if (start is None or key >= start)
            and (end is None or key < end)
            and (prefix is None or key.startswith(prefix))
        ]

    # ------------------------------------------------------------ single keys

    def get(self) -> None:
        tag, name, bucket, rows = self.chosen()
        there = dict(rows)
        for key in self.keys_about(tag, name):
            event = there.get(key)
            assert bucket.get(key) == (event and event.value), key
            assert bucket.head(key) == (event and event.head()), key
            assert (key in bucket) == (event is not None)
            assert (bucket.index_of(key) is None) == (event is None)

    def get_many(self) -> None:
        tag, name, bucket, rows = self.chosen()
        there = {key: event.value for key, event in rows}
        keys = self.keys_about(tag, name) + [key for key, _ in rows]
        self.rng.shuffle(keys)
        assert bucket.get_many(keys) == [there.get(key) for key in keys]

    def counts(self) -> None:
        _, _, bucket, rows = self.chosen()
        assert (len(bucket), bool(bucket)) == (len(rows), bool(rows))

    def buckets(self) -> None:
        for tag in self.tags:
            names = sorted({name for kind, name, _ in self.live if kind == tag})
            assert list(self.source.buckets(tag=tag)) == names

    # ------------------------------------------------------------ ranges

    def scan(self) -> None:
        tag, name, bucket, rows = self.chosen()
        given, wanted = self.bounds(tag, name, rows)
        rng = self.rng
        if rng.random() < 0.2 and rows:
            moment = rng.choice(rows)[1].time + rng.randrange(-1, 2)
            which = rng.choice(("modified_since", "modified_before"))
            given[which] = moment
            wanted = [
                row for row in wanted if (row[1].time >= moment) == (which == "modified_since")
            ]
        if rng.random() < 0.2:
            given["match"] = pattern = rng.choice((b"1", b"[02468]$", b"\\x00|\xff", b"^k"))
            wanted = [row for row in wanted if re.search(pattern, row[0])]
        if rng.random() < 0.5:
            given["reverse"] = True
            wanted = wanted[::-1]
        kind = rng.choice(KINDS)
        if rng.random() < 0.5:
            given["limit"] = limit = rng.choice((0, 1, 2, 5, 17, 100, 1000))
            wanted = wanted[:limit]
        found = list(getattr(bucket, kind)(**given))
        assert found == shape(kind, wanted), f"{kind}({given}) of {tag} {name!r}"

    def ends(self) -> None:
        """What a queue does: the first and the last key."""
        tag, name, bucket, rows = self.chosen()
        given, wanted = self.bounds(tag, name, rows)
        for reverse in (False, True, False):
            end = wanted[-1:] if reverse else wanted[:1]
            assert list(bucket.items(**given, reverse=reverse, limit=1)) == shape("items", end)
            assert next(bucket.keys(**given, reverse=reverse), None) == (end[0][0] if end else None)

    def pages(self) -> None:
        tag, name, bucket, rows = self.chosen()
        given, wanted = self.bounds(tag, name, rows)
        if given.setdefault("reverse", self.rng.random() < 0.5):
            wanted = wanted[::-1]
        position, done = None, 0
        for _ in range(len(wanted) + 2):
            kind, limit = self.rng.choice(KINDS), self.rng.choice((1, 2, 3, 10, 60))
            page = getattr(bucket, kind)(**given, resume=position, limit=limit)
            found = list(page)
            assert found == shape(kind, wanted[done : done + limit])
            position, done = page.position, done + len(found)
            if position is None:
                break
        assert done == len(wanted)

    def broken_off(self) -> None:
        """A scan of which a part is taken, and another one that goes on where it stood."""
        rng = self.rng
        tag, name, bucket, rows = self.chosen()
        given, wanted = self.bounds(tag, name, rows)
        if given.setdefault("reverse", rng.random() < 0.5):
            wanted = wanted[::-1]
        kind, limit = rng.choice(KINDS), rng.choice((1, 2, 5, 20, 100, None))
        with getattr(bucket, kind)(**given, limit=limit) as scan:
            if rng.random() < 0.3:
                given["resume"] = scan.position  # before the first one
                assert list(getattr(bucket, kind)(**given)) == shape(kind, wanted)
            taken = rng.randrange(8)
            found = [each for _, each in zip(range(taken), scan, strict=False)]
            assert found == shape(kind, wanted[:limit][:taken])
            given["resume"] = scan.position
        assert list(scan) == []
        rest = wanted[len(found) :]
        if given["resume"] is None:
            assert rest == []
        else:
            assert list(getattr(bucket, kind)(**given)) == shape(kind, rest)

    def text(self) -> None:
        """Keys and values come out as str, up to the first that is none."""
        tag, name, _, rows = self.chosen()
        bucket, kind = self.source.bucket(name, tag=tag, text=True), self.rng.choice(KINDS[:3])
        limit = self.rng.choice((1, 3, 30, None))
        wanted = shape(kind, rows[:limit])
        scan, found = getattr(bucket, kind)(limit=limit), []
        try:
            found.extend(scan)
        except octavo.Misuse:
            with pytest.raises(UnicodeDecodeError):
                decoded(wanted[len(found)])
        else:
            assert len(found) == len(wanted)
        assert found == [decoded(each) for each in wanted[: len(found)]]

    # ------------------------------------------------------------ indexes

    def entries(self) -> tuple[Any, list[tuple[Any, bytes]]]:
        """An index, and its (term, key) pairs in order."""
        rng = self.rng
        indexed = [where[:2] for where, event in self.live.items() if event.entries]
        tag, name = rng.choice(indexed) if indexed else self.chosen()[:2]
        rows = in_bucket(self.live, tag, name)
        fields = sorted({field for _, event in rows for field, _ in event.entries} | {b"f"})
        field = rng.choice(fields)
        pairs = sorted(
            ((term, key) for key, event in rows for of, term in event.entries if of == field),
            key=lambda pair: (rank(pair[0]), pair[1]),
        )
        bucket = self.bucket(name, tag)
        assert bucket.has_index() or not pairs
        return bucket.index(field), pairs

    def terms(self, pairs: list[tuple[Any, bytes]]) -> tuple[dict[str, Any], list[Any]]:
        """Arguments of a range of terms, and what of the pairs is in it."""
        rng, given, wanted = self.rng, {}, pairs
        if pairs and rng.random() < 0.6:
            term = rng.choice(pairs)[0]
            given["start"] = term
            wanted = [p for p in wanted if type(p[0]) is type(term) and p[0] >= term]
        if pairs and rng.random() < 0.4:
            end = rng.choice(pairs)[0]
            if type(given.get("start", end)) is type(end):
                given["end"] = end
                wanted = [p for p in wanted if type(p[0]) is type(end) and p[0] < end]
        return given, wanted

    def parts_of_an_index(self) -> None:
        """Its keys alone, terms that match, counts of a range, and queries that are broken off."""
        rng = self.rng
        index, pairs = self.entries()
        given, wanted = self.terms(pairs)
        counted: dict[Any, int] = {}
        for term, _ in wanted:
            counted[type(term), term] = counted.get((type(term), term), 0) + 1
        terms = [(term, count) for (_, term), count in counted.items()]
        assert list(index.terms(**given)) == terms
        assert list(index.terms(**given, reverse=True)) == terms[::-1]
        if rng.random() < 0.5:
            given["match"] = pattern = rng.choice(("a", b"\x00", "^$", b"."))
            wanted = [p for p in wanted if type(p[0]) is type(pattern) and re.search(pattern, p[0])]
        if rng.random() < 0.5:
            given["reverse"], wanted = True, wanted[::-1]
        limit = rng.choice((0, 1, 3, 40, None))
        assert list(index.keys(**given, limit=limit)) == [key for _, key in wanted[:limit]]
        with index.range(**given, limit=limit) as query:
            taken = rng.randrange(6)
            found = [each for _, each in zip(range(taken), query, strict=False)]
        assert found == wanted[:limit][:taken]
        assert list(query) == []

    def index(self) -> None:
        rng = self.rng
        index, pairs = self.entries()
        given, wanted = self.terms(pairs)
        if rng.random() < 0.5:
            given["reverse"] = True
            wanted = wanted[::-1]
        if rng.random() < 0.3 and wanted:
            after = rng.randrange(len(wanted))
            given["after"] = wanted[after]
            wanted = wanted[after + 1 :]
        if rng.random() < 0.5:
            given["limit"] = rng.choice((1, 2, 7, 100))
            wanted = wanted[: given["limit"]]
        assert list(index.range(**given)) == wanted, (index, given)
        for term in {rank(term): term for term, _ in pairs[:3]}.values():
            same = [key for other, key in pairs if rank(other) == rank(term)]
            assert list(index.having(term)) == same
        assert sum(count for _, count in index.terms()) == len(pairs)

    # ------------------------------------------------------------ of snapshots

    def snapshot(self, read: Callable[[Any], None]) -> None:
        """Call with the source, or a snapshot of it where it is a store."""
        if isinstance(self.source, octavo.Store):
            with self.source.snapshot() as made:
                read(made)
        else:
            read(self.source)

    def by_sqn(self) -> None:
        def read(snap: Any) -> None:
            tag = self.rng.choice(self.tags)
            rows = sorted(
                (event.sqn, name, key, event)
                for (kind, name, key), event in self.live.items()
                if kind == tag
            )
            how: dict[str, Any] = {}
            if self.rng.random() < 0.5 and rows:
                how["since"] = self.rng.choice(rows)[0] - self.rng.randrange(2)
                rows = [row for row in rows if row[0] > how["since"]]
            if self.rng.random() < 0.3:
                how["limit"] = self.rng.randrange(20)
            where = snap
            if self.rng.random() < 0.5:
                name = self.rng.choice(rows)[1] if rows else b""
                rows, where = [row for row in rows if row[1] == name], snap.bucket(name, tag=tag)
            else:
                how["tag"] = tag
            rows = rows[: how.get("limit")]
            assert [tuple(item) for item in where.items_by_sqn(**how)] == [
                (sqn, name, key, event.value) for sqn, name, key, event in rows
            ]
            assert list(where.heads_by_sqn(**how)) == [
                (name, key, event.head()) for _, name, key, event in rows
            ]

        self.snapshot(read)

    def arrow(self) -> None:
        def read(snap: Any) -> None:
            columns = self.rng.sample(COLUMNS, self.rng.randrange(1, len(COLUMNS) + 1))
            how: dict[str, Any] = {"batch_rows": self.rng.choice((1, 7, 1 << 16))}
            if self.rng.random() < 0.5:
                tag, name, _, rows = self.chosen()
                given, rows = self.bounds(tag, name, rows)
                stream = snap.bucket(name, tag=tag).to_arrow(columns, **given, **how)
                wanted = [(name, key, event) for key, event in rows]
            else:
                tag = self.rng.choice(self.tags)
                stream = snap.to_arrow(columns, tag=tag, **how)
                wanted = sorted(
                    (name, key, event)
                    for (kind, name, key), event in self.live.items()
                    if kind == tag
                )
            table = stream.read_all()
            for column in columns:
                found = table.column(column)
                if column.endswith("_at"):
                    found = found.cast("int64")
                assert found.to_pylist() == [cell(column, *row) for row in wanted], column

        self.snapshot(read)

    def trees(self) -> None:
        def read(snap: Any) -> None:
            segments = self.rng.choice((256, 1024))
            chosen = sorted(self.rng.sample(range(segments), segments // 2))
            tag, name, _, rows = self.chosen()
            bucket = snap.bucket(name, tag=tag)
            halves = [
                list(bucket.heads(segments=part, of=segments))
                for part in (chosen, sorted(set(range(segments)) - set(chosen)))
            ]
            assert sorted(halves[0] + halves[1]) == [(key, event.head()) for key, event in rows]

        self.snapshot(read)


def shape(kind: str, rows: Rows) -> list[Any]:
    """What a scan of this kind gives of rows."""
    if kind == "keys":
        return [key for key, _ in rows]
    if kind == "values":
        return [event.value for _, event in rows]
    if kind == "heads":
        return [(key, event.head()) for key, event in rows]
    return [(key, event.value) for key, event in rows]


def cell(column: str, name: bytes, key: bytes, event: Event) -> Any:
    """What an Arrow column says of a row."""
    head = event.head()
    return {
        "bucket": name, "key": key, "sqn": head.sqn, "size": head.size,
        "metadata": head.metadata or None, "written_at": head.written_at,
        "expires_at": head.expires_at, "value": event.value,
    }[column]  # fmt: skip


def decoded(found: bytes | tuple[bytes, bytes]) -> str | tuple[str, str]:
    return found.decode() if isinstance(found, bytes) else (found[0].decode(), found[1].decode())


KINDS = ("keys", "items", "values", "heads")
WAYS = (
    EveryRead.get, EveryRead.get_many, EveryRead.counts, EveryRead.buckets, EveryRead.scan,
    EveryRead.scan, EveryRead.scan, EveryRead.ends, EveryRead.ends, EveryRead.pages,
    EveryRead.broken_off, EveryRead.text, EveryRead.parts_of_an_index,
    EveryRead.index, EveryRead.index, EveryRead.by_sqn, EveryRead.arrow, EveryRead.trees,
)  # fmt: skip


def slowly(scan: Iterator[Any], wanted: list[Any]) -> Iterator[None]:
    """Take what a scan gives one by one, whatever happens meanwhile."""
    for number, each in enumerate(wanted):
        found = next(scan, "nothing")
        assert found == each, f"item {number}: {found!r}, and {each!r} was there as it began"
        yield
    assert next(scan, None) is None
