"""The run that ``octavo pipeline`` makes: a corpus through Spark into a store, and all that
follows.

Each step is checked against what it must give; ``figures`` has the numbers afterwards.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from octavo.figures import count, size
from octavo.files.errors import Misuse, StorageFailed, StorageFull
from octavo.notation import to_text

if TYPE_CHECKING:
    from octavo.cli.teller import Teller

ROUNDS = 4
_CHANGED_EVERY = 10
_DELETED_EVERY = 50
_GROUPS_SHOWN = 8
_SHARES_SHOWN = 3
_TOTALS = b"totals"
_SHARES = b"shares"

Groups = dict[bytes, tuple[int, int]]
"""Group: (keys, bytes)."""


def _rate(seconds: float, rows: int, length: int) -> str:
    rate = max(seconds, 1e-9)
    return f"{seconds:.1f} s, {count(rows / rate)} rows/s, {size(length / rate)}/s"


@contextmanager
def _of_tasks() -> Iterator[None]:
    """A context in which an error of Octavo's within a Spark task is raised as that error again."""
    try:
        yield
    except Exception as error:  # of Spark, or of the library by which it talks to Java
        for kind in (StorageFull, StorageFailed, Misuse):
            said = re.search(rf"^octavo\.{kind.__name__}: (.+)$", str(error), re.MULTILINE)
            if said is not None:
                raise kind(said[1]) from error
        raise


class PipelineTour:
    """One run over a corpus. Makes ``store``, ``copy``, ``backup`` and ``checkpoint`` in
    ``directory``."""

    def __init__(self, spark: Any, corpus: Any, directory: str, teller: Teller) -> None:
        self.figures: dict[str, Any] = {}
        self._spark = spark
        self._corpus = corpus
        self._path = os.path.join(os.path.abspath(directory), "store")
        self._copy = os.path.join(os.path.abspath(directory), "copy")
        self._backup = os.path.join(os.path.abspath(directory), "backup")
        self._checkpoint = os.path.join(os.path.abspath(directory), "checkpoint")
        self._tell = teller.tell
        self._table = teller.table
        self._check = teller.check

    def run(self) -> None:
        """Make the run. Raises Misuse, and whatever octavo and Spark raise."""
        import octavo
        from octavo.pipeline.source import DefaultSource

        self._spark.dataSource.register(DefaultSource)
        with _of_tasks():
            self._load()
            with octavo.open(self._path) as store:
                self._follow(store)
                groups = self._fold(store)
                self._join_back(store, groups)
                self._back_up(store)

    def _read(self, columns: str, bucket: str | None = "") -> Any:
        """The store as a DataFrame. The store may be open: Spark pins it without its owner."""
        reader = self._spark.read.format("octavo").option("columns", columns)
        if bucket is not None:
            reader = reader.option("bucket", bucket)
        return reader.load(self._path)

    # ------------------------------------------------------------ the steps

    def _load(self) -> None:
        from octavo.pipeline.corpus import frame, readable

        rows = frame(self._spark, self._corpus)
        began = time.perf_counter()
        with readable(self._corpus):
            rows.write.format("octavo").mode("append").option("jobId", "corpus").save(self._path)
        seconds = time.perf_counter() - began
        given = self._digest(rows)
        if not given["rows"]:
            raise Misuse(f"{self._corpus.path} holds no row with a key")
        there = self._digest(self._read("key,value"))
        self._tell(
            "load",
            f"{count(given['rows'])} rows, {size(given['bytes'])}, through Spark into a store in "
            f"{_rate(seconds, given['rows'], given['bytes'])}",
        )
        if given["rows"] == given["keys"]:
            self._check(there == given, "the store holds what the corpus holds, value for value")
        else:
            twice = given["rows"] - given["keys"]
            self._tell("", f"{count(twice)} rows had a key that came again; the last one counts")
        self._check(there["rows"] == given["keys"], "the store holds each key of the corpus once")
        self._tell(
            "read back",
            f"{count(there['rows'])} keys, {size(there['bytes'])}, digest "
            f"{there['digest'] & (1 << 64) - 1:016x}"
            + (", as the corpus has them" if there == given else ""),
        )
        self.figures["load"] = {"rows": given["rows"], "keys": there["rows"], "seconds": seconds,
                                "bytes": given["bytes"]}  # fmt: skip

    @staticmethod
    def _digest(rows: Any) -> dict[str, int]:
        found = rows.selectExpr(
            "count(*) as rows",
            "count(distinct key) as keys",
            "coalesce(sum(length(value)), 0) as bytes",
            "coalesce(bit_xor(xxhash64(key, value)), 0) as digest",
        ).first()
        return {name: int(value) for name, value in found.asDict().items()}

    def _follow(self, store: Any) -> None:
        """A second store follows this one through a streaming query, while this one is written."""
        import octavo

        feed = self._spark.readStream.format("octavo").option("readChangeFeed", True)
        query = (
            feed.load(self._path)
            .writeStream.format("octavo")
            .option("checkpointLocation", self._checkpoint)
            .start(self._copy)
        )
        puts = deletes = 0
        lags = []
        began = time.perf_counter()
        try:
            query.processAllAvailable()  # first what is there already
            first = time.perf_counter() - began
            keys = list(store.keys())
            for number in range(ROUNDS):
                some = keys[number::_CHANGED_EVERY]
                note = b"changed in round %d of octavo pipeline\n" % (number + 1)
                heads = ((key, store.head(key)) for key in some)
                for key, head in heads:
                    store.put(key, note + store[key], metadata=head.metadata)
                gone = keys[_CHANGED_EVERY - 1 - number :: _DELETED_EVERY]
                for key in gone:
                    store.delete(key)
                puts += len(some)
                deletes += len(gone)
                wrote = time.perf_counter()
                query.processAllAvailable()
                lags.append(time.perf_counter() - wrote)
        finally:
            query.stop()
        with octavo.open(self._copy) as copy:
            differ = sum(1 for _ in octavo.compare(store, copy, by="value"))
            held = sum(1 for _ in copy)
        self._tell(
            "follow",
            f"a second store takes in all so far in {first:.1f} s, then {count(puts)} puts and "
            f"{count(deletes)} deletes as they",
        )
        self._tell(
            "",
            f"are made, {max(lags):.1f} s behind at most; it holds {count(held)} keys, of which "
            f"{count(differ)} differ",
        )
        self._check(differ == 0, "the store that follows is equal to the one it follows")
        self.figures["follow"] = {
            "puts": puts, "deletes": deletes, "differ": differ, "most_lag_seconds": max(lags),
        }  # fmt: skip

    def _fold(self, store: Any) -> Groups:
        from octavo.pipeline.folding import fold

        began = time.perf_counter()
        beside = b"put while the fold runs"
        while beside in store:
            beside += b"."
        with store.snapshot() as snap:
            store.put(beside, b"")
            zero: Groups = {}
            groups = fold(snap, _count_head, _added, zero, "heads", bucket=b"", spark=self._spark)
        seconds = time.perf_counter() - began
        store.delete(beside)
        self._read("size,metadata").createOrReplaceTempView("octavo_corpus")
        told = self._spark.sql(
            "SELECT metadata, count(*) AS keys, sum(size) AS bytes FROM octavo_corpus GROUP BY 1"
        ).collect()
        self._spark.catalog.dropTempView("octavo_corpus")
        same = {bytes(row.metadata): (row["keys"], row.bytes) for row in told} == groups
        self._check(same, "the fold over a snapshot and SQL's GROUP BY give the same")
        whole = sum(length for _, length in groups.values())
        self._tell(
            "fold",
            f"{count(sum(keys for keys, _ in groups.values()))} keys in {count(len(groups))} "
            f"groups, from the ledger alone, in {seconds:.1f} s; SQL's GROUP BY gives "
            + ("the same" if same else "something else"),
        )
        ranked = sorted(groups.items(), key=lambda item: (-item[1][1], item[0]))
        shown = [("group", "keys", "bytes", "share")] + [
            (to_text(name), count(keys), size(length), f"{100 * length / max(whole, 1):.1f} %")
            for name, (keys, length) in ranked[:_GROUPS_SHOWN]
        ]
        if len(ranked) > _GROUPS_SHOWN:
            keys = sum(keys for _, (keys, _) in ranked[_GROUPS_SHOWN:])
            length = sum(length for _, (_, length) in ranked[_GROUPS_SHOWN:])
            rest = (count(keys), size(length), f"{100 * length / max(whole, 1):.1f} %")
            shown.append(("others", *rest))
        self._table(shown)
        self.figures["fold"] = {"groups": len(groups), "seconds": seconds, "same": same}
        return groups

    def _join_back(self, store: Any, groups: Groups) -> None:
        """Write the totals to the store; then join each key with its group's, and write that,
        too."""
        began = time.perf_counter()
        rows = [
            (name, json.dumps({"keys": keys, "bytes": length}).encode())
            for name, (keys, length) in groups.items()
        ]
        totals = self._spark.createDataFrame(rows, "key binary, value binary")
        self._write(totals.coalesce(1), _TOTALS)
        keys = self._read("key,size,metadata")
        of_group = self._read("key,value", _TOTALS.decode()).selectExpr(
            "key as metadata", "cast(get_json_object(cast(value as string), '$.bytes') as bigint) t"
        )
        joined = keys.join(of_group, "metadata")
        shares = joined.selectExpr(
            "key", "cast(cast(size / greatest(t, 1) as decimal(20, 12)) as string) as value",
            "metadata",
        )  # fmt: skip
        self._write(shares, _SHARES)
        seconds = time.perf_counter() - began
        written = set(store.bucket(_SHARES).keys())
        self._check(written == set(store.keys()), "each key has its share of its group's bytes")
        largest = max(groups, key=lambda name: (groups[name][0], name))
        self._tell(
            "join back",
            f"{count(len(rows))} totals into bucket {to_text(_TOTALS)!r} of the open store, and "
            f"into {to_text(_SHARES)!r} the share that each",
        )
        self._tell(
            "",
            f"of {count(len(written))} keys has of its group, in {seconds:.1f} s; "
            f"the largest of {to_text(largest)}:",
        )
        mine = shares.where(shares.metadata == bytearray(largest))
        self._table(
            [("key", "share")]
            + [
                (to_text(bytes(row.key))[:60], f"{100 * float(row.value):.2f} %")
                for row in mine.orderBy("value", "key", ascending=[False, True])
                .limit(_SHARES_SHOWN)
                .collect()
            ]
        )
        self.figures["join"] = {"keys": len(written), "seconds": seconds}

    def _write(self, rows: Any, bucket: bytes) -> None:
        writer = rows.write.format("octavo").mode("append")
        writer.option("bucket", bucket.decode()).save(self._path)

    def _back_up(self, store: Any) -> None:
        import octavo

        began = time.perf_counter()
        store.backup(self._backup)
        seconds = time.perf_counter() - began
        with octavo.open(self._backup) as backup:
            differ = sum(1 for _ in octavo.compare(store, backup))
            buckets = [to_text(name) or "the default one" for name in backup.buckets()]
        self._check(differ == 0, "the backup is equal to the store")
        self._tell(
            "back up",
            f"by hard links in {seconds:.2f} s; opened, it has the buckets {', '.join(buckets)}; "
            f"keys that differ: {differ}",
        )
        self.figures["backup"] = {"seconds": seconds, "differ": differ}


def _count_head(groups: Groups, bucket: bytes, key: bytes, head: Any) -> Groups:
    keys, length = groups.get(head.metadata, (0, 0))
    groups[head.metadata] = (keys + 1, length + head.size)
    return groups


def _added(left: Groups, right: Groups) -> Groups:
    for name, (keys, length) in right.items():
        with_left = left.get(name, (0, 0))
        left[name] = (with_left[0] + keys, with_left[1] + length)
    return left
