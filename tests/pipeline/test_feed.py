"""``readChangeFeed``: batch and stream, a store that follows another, batches that come once."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType
from whole_store import killed, settle

import octavo
from octavo.files.kernels import arrow
from octavo.pipeline import change_arrays, commit
from octavo.pipeline.feed import FeedReader, FeedStream, feed_options, refuse_ahead, refuse_gap
from octavo.pipeline.source import DefaultSource

KEYS = StructType([StructField("key", BinaryType())])
NEVER_MS = 4_000_000_000_000


@pytest.fixture
def session(spark: Any) -> Any:
    spark.dataSource.register(DefaultSource)
    return spark


def feed(session: Any, path: Path, **options: Any) -> Any:
    return (
        session.read.format("octavo")
        .option("readChangeFeed", True)
        .options(**options)
        .load(str(path))
    )


def follow(session: Any, source: Path, target: Path, state: Path, **options: Any) -> None:
    """Bring the target up to date."""
    frame = (
        session.readStream.format("octavo")
        .option("readChangeFeed", True)
        .options(**options)
        .load(str(source))
    )
    query = (
        frame.writeStream.format("octavo")
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start(str(target))
    )
    query.awaitTermination()


def whole(path: Path) -> dict[Any, Any]:
    """Everything that may be known of the live objects of a store, but its sqns."""
    found = {}
    with octavo.open(path) as store:
        for name in store.buckets():
            bucket = store.bucket(name)
            for key, value in bucket.items():
                head = bucket.head(key)
                assert head is not None
                found[name, key] = (value, head.metadata, head.expires_at)
    return found


def lived(path: Path, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    with octavo.open(path) as store:
        for step in range(steps):
            key, bucket = b"k%d" % rng.randrange(40), store.bucket(f"b{rng.randrange(3)}")
            kind = rng.randrange(6)
            if kind == 0:
                bucket.delete(key)
            elif kind == 1:
                bucket.put(key, b"t%d" % step, expires_at=NEVER_MS + step)
            elif kind == 2:
                with store.batch() as batch:
                    for n in range(3):
                        batch.put(b"b0", b"k%d" % n, b"batch%d" % step)
            elif kind == 3:
                bucket.put(key, b"m%d" % step, metadata=b"meta%d" % step)
            else:
                bucket.put(key, rng.randbytes(rng.randrange(30)))


def test_a_batch_read_gives_the_changes_of_a_range(session: Any, tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("a", "1")
        store.put("b", "2", metadata=b"m")
        store.delete("a")
        store.put("c", "3")
        rows = feed(session, tmp_path / "s", startingSqn=2, endingSqn=3).collect()
    assert [
        (r._change_type, r._commit_sqn, bytes(r.key), r.value and bytes(r.value)) for r in rows
    ] == [("put", 2, b"b", b"2"), ("delete", 3, b"a", None)]
    assert bytes(rows[0].metadata) == b"m"


def test_a_store_that_follows_another_stays_equal(session: Any, tmp_path: Path) -> None:
    source, target, state = tmp_path / "a", tmp_path / "b", tmp_path / "state"
    lived(source, 1, 200)
    follow(session, source, target, state, maxRecordsPerTrigger=90)
    assert whole(target) == whole(source) != {}
    lived(source, 2, 80)
    with octavo.open(source) as store:
        store.put("while", "open")
        follow(session, source, target, state)
    assert whole(target) == whole(source)


@pytest.mark.parametrize("name", ["maxRecordsPerTrigger", "maxBytesPerTrigger"])
def test_a_trigger_that_takes_all_has_no_limit(session: Any, tmp_path: Path, name: str) -> None:
    lived(tmp_path / "a", 1, 50)
    reader = stream(tmp_path / "a", **{name: "10"})
    begin, newest = reader.initialOffset(), reader.reportLatestOffset()["sqn"]
    assert reader.latestOffset(begin, reader.getDefaultReadLimit())["sqn"] < newest
    assert reader.latestOffset(begin, ReadAllAvailable())["sqn"] == newest
    options = {"checkpointLocation": str(tmp_path / "state"), "path": str(tmp_path / "b")}
    changes = session.readStream.format("octavo").options(readChangeFeed=True, **{name: "10"})
    query = changes.load(str(tmp_path / "a")).writeStream.format("octavo").options(**options)
    query.trigger(once=True).start().awaitTermination()
    assert whole(tmp_path / "b") == whole(tmp_path / "a") != {}


def test_a_batch_that_is_replayed_is_ignored(session: Any, tmp_path: Path) -> None:
    source, target, state = tmp_path / "a", tmp_path / "b", tmp_path / "state"
    lived(source, 3, 50)
    follow(session, source, target, state)
    with octavo.open(target) as store:
        newest = store.last_sqn
    # As after a kill behind the store's commit and before Spark's own.
    commits = sorted(p for p in (state / "commits").iterdir() if p.name.isdigit())
    for mark in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        mark.unlink(missing_ok=True)
    follow(session, source, target, state)
    with octavo.open(target) as store:
        assert store.last_sqn == newest
    assert whole(target) == whole(source)


def test_a_gap_is_an_error_unless_it_is_allowed(session: Any, tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        for n in range(300):
            store.put(f"k{n % 5}", f"{n}")
        store.compact()
        with pytest.raises(Exception, match="compaction dropped changes above sqn 1"):
            feed(session, tmp_path / "s", startingSqn=2).count()
        assert feed(session, tmp_path / "s", startingSqn=2, failOnDataLoss=False).count() < 300
        assert feed(session, tmp_path / "s").count() < 300


def test_a_consumer_holds_compaction_back(session: Any, tmp_path: Path) -> None:
    source, target, state = tmp_path / "a", tmp_path / "b", tmp_path / "state"
    with octavo.open(source) as store:
        store.put("k", "0")
        follow(session, source, target, state, consumerId="c")
        position = store.consumer("c").position
        for n in range(300):
            store.put(f"k{n % 5}", f"{n}")
        store.compact()
        assert position <= 1
        assert sum(1 for _ in store.changes(since=position)) == store.last_sqn - position
        follow(session, source, target, state, consumerId="c")
    assert whole(target) == whole(source)


def test_offsets_are_numbers_that_people_can_read(session: Any, tmp_path: Path) -> None:
    source, target, state = tmp_path / "a", tmp_path / "b", tmp_path / "state"
    lived(source, 4, 10)
    follow(session, source, target, state)
    with octavo.open(source) as store:
        newest = store.last_sqn
    last = max(
        (p for p in (state / "offsets").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
    )
    assert json.loads(last.read_text().splitlines()[-1])["sqn"] == newest
    shutil.rmtree(state)


def test_a_checkpoint_goes_on_with_no_other_store(tmp_path: Path) -> None:
    stores = [tmp_path / "a", tmp_path / "b"]
    for path in stores:
        lived(path, 5, 20)
    one, other = (
        FeedStream(feed_options({"path": str(path), "readChangeFeed": "true"}), KEYS)
        for path in stores
    )
    begun = one.initialOffset()
    reached = one.latestOffset(json.dumps(begun), ReadAllAvailable())
    assert reached["sqn"] > begun["sqn"] == 0
    assert one.latestOffset(reached, ReadAllAvailable()) == reached
    with pytest.raises(octavo.Misuse, match="the checkpoint is of the store"):
        other.latestOffset(reached, ReadAllAvailable())
    with pytest.raises(octavo.Misuse, match="the checkpoint is of the store"):
        other.partitions(begun, reached)
    del begun["store"], reached["store"], reached["at"]  # as earlier releases had them
    assert len(other.partitions(begun, reached)) > 0


def test_a_task_reads_no_other_store_than_the_one_that_was_planned(tmp_path: Path) -> None:
    path = tmp_path / "s"
    lived(path, 5, 20)
    given = {"path": str(path), "readChangeFeed": "true", "failOnDataLoss": "false"}
    reader = FeedReader(feed_options(given), KEYS)
    planned = reader.partitions()
    octavo.destroy(path)
    lived(path, 6, 20)
    for part in planned:
        with pytest.raises(octavo.Misuse, match="when this read was planned"):
            list(reader.read(part))


def stream(path: Path, **options: Any) -> FeedStream:
    given = {"path": str(path), "readChangeFeed": "true", **options}
    return FeedStream(feed_options(given), KEYS)


def test_a_first_batch_that_is_replayed_lacks_nothing_that_it_had(tmp_path: Path) -> None:
    """Spark asks for the beginning anew, which is of a journal that was compacted since."""
    path = tmp_path / "s"
    with octavo.open(path) as store:
        for n in range(300):
            store.put(f"k{n % 5}", f"{n}")
        first = stream(path)
        reached = first.latestOffset(first.initialOffset(), ReadAllAvailable())
        store.compact()
        again = stream(path)
        with pytest.raises(octavo.HistoryCompacted, match="changes above sqn 0"):
            again.partitions(again.initialOffset(), reached)
        careless = stream(path, failOnDataLoss="false")
        assert careless.partitions(careless.initialOffset(), reached)


def test_a_consumer_that_has_come_farther_is_none_of_a_stream_that_begins(tmp_path: Path) -> None:
    lived(tmp_path, 1, 20)
    given = {"consumerId": "c", "startingSqn": "3"}
    with octavo.open(tmp_path) as store:
        for _ in range(2):  # as where Spark asks for the beginning anew
            assert stream(tmp_path, **given).initialOffset()["sqn"] == 2
        assert store.consumers() == {"c": 2}
        octavo.acknowledge(tmp_path, "c", 9)
        with pytest.raises(octavo.Misuse, match="has come to sqn 9 already"):
            stream(tmp_path, **given).initialOffset()
        store.consumer("c").drop()
        assert stream(tmp_path, **given).initialOffset()["sqn"] == 2
        octavo.acknowledge(tmp_path, "c", 4)
        assert stream(tmp_path, consumerId="c", startingSqn="8").initialOffset()["sqn"] == 7
        assert store.consumers() == {"c": 7}


def test_a_consumer_begins_behind_what_is_compacted_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    real, asked = commit.consumer_at, []

    def late(*given: Any) -> int:
        if not asked:
            store.compact()
        asked.append(given[2])
        return real(*given)

    with octavo.open(path) as store:
        for n in range(300):
            store.put(f"k{n % 5}", f"{n}")
        monkeypatch.setattr(commit, "consumer_at", late)
        begun = stream(path, consumerId="c").initialOffset()
        assert asked == [0, begun["horizon"]]
        assert store.consumer("c").position == begun["horizon"] > 0


def test_a_consumer_cannot_begin_where_it_was_told_to_if_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = commit.consumer_at, []

    def counted(*given: Any) -> int:
        asked.append(given)
        assert len(asked) < 9, "it is asked for again and again"
        return real(*given)

    monkeypatch.setattr(commit, "consumer_at", counted)
    with octavo.open(tmp_path / "s") as store:
        for n in range(300):
            store.put(f"k{n % 5}", f"{n}")
        store.compact()
        with pytest.raises(octavo.HistoryCompacted, match="cannot begin at sqn 1:"):
            stream(tmp_path / "s", consumerId="c", startingSqn="2").initialOffset()


def read_before_a_backup_took_its_place(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Offsets of a store that was read to its end, and then was put back to an earlier state."""
    lived(path, 5, 20)
    with octavo.open(path) as store:
        store.backup(path.parent / "b")
    lived(path, 6, 20)
    begun = stream(path).initialOffset()
    reached = stream(path).latestOffset(begun, ReadAllAvailable())
    shutil.rmtree(path)
    shutil.copytree(path.parent / "b", path)
    return begun, reached


def test_a_checkpoint_ahead_of_a_backup_in_its_stores_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    begun, reached = read_before_a_backup_took_its_place(path)
    told = f"has read up to sqn {reached['sqn']}, but the newest change at .* is"
    with pytest.raises(octavo.Misuse, match=told):
        stream(path).latestOffset(reached, ReadAllAvailable())
    with pytest.raises(octavo.Misuse, match=told):
        stream(path).partitions(begun, reached)
    careless = stream(path, failOnDataLoss="false")
    assert careless.latestOffset(reached, ReadAllAvailable()) == reached
    assert careless.partitions(begun, reached)


@pytest.mark.parametrize("ends", ["whole", "killed"])
def test_a_backup_in_its_stores_place_that_grew_past_the_checkpoint_is_refused(
    tmp_path: Path, ends: str
) -> None:
    """Where it was killed meanwhile, the number that was read last is one that it skipped."""
    path = tmp_path / "s"
    begun, reached = read_before_a_backup_took_its_place(path)
    if ends == "killed":
        with octavo.open(path) as store:
            store.put("a", "1")
            killed(store, tmp_path / "image")
        shutil.rmtree(path)
        (tmp_path / "image").rename(path)
    lived(path, 7, 100)
    now = "no" if ends == "killed" else "another"
    with pytest.raises(octavo.Misuse, match=f"sqn {reached['sqn']}, and at .* is now {now} record"):
        stream(path).latestOffset(reached, ReadAllAvailable())
    with pytest.raises(octavo.Misuse, match="an earlier state has taken the store's place"):
        stream(path).partitions(begun, reached)
    careless = stream(path, failOnDataLoss="false")
    assert careless.latestOffset(reached, ReadAllAvailable())["sqn"] > reached["sqn"]
    del reached["at"]  # as earlier releases had them
    assert stream(path).latestOffset(reached, ReadAllAvailable())["sqn"] > reached["sqn"]


def test_a_checkpoint_whose_record_was_lost_to_damage_is_told_so_and_can_go_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s"
    with octavo.open(path) as store:
        store.put("first", b"v")
        store.put("second", b"the value that is lost")
        begun = stream(path).initialOffset()
        reached = stream(path).latestOffset(begun, ReadAllAvailable())
        store.put("third", b"v")
    (log,) = (path / "journal").glob("*.log")
    log.write_bytes(log.read_bytes().replace(b"is lost", b"is l0st"))
    with octavo.open(path) as store:
        assert any("damaged" in note for note in store.stats()["notes"])
        with pytest.raises(octavo.Misuse, match="no record: either damage took it"):
            stream(path).latestOffset(reached, ReadAllAvailable())
        careless = stream(path, failOnDataLoss="false")
        behind = careless.latestOffset(reached, ReadAllAvailable())
        assert [part.last for part in careless.partitions(reached, behind)[0].parts] == [3]
        store.put("fourth", b"v")
        assert stream(path).latestOffset(behind, ReadAllAvailable())["sqn"] == 4


def test_a_checkpoint_knows_its_record_after_compaction_and_sealing(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with octavo.open(path, roll_count=256) as store:
        for n in range(300):
            store.put(b"%d" % (n % 10), b"v", expires_at=1000 if n == 299 else None)
        reached = stream(path).latestOffset(stream(path).initialOffset(), ReadAllAvailable())
        assert reached["at"]
        store.put("more", "v")
        store.compact()
        reached["horizon"] = 300
        assert stream(path).latestOffset(reached, ReadAllAvailable())["sqn"] == 301


def test_a_checkpoint_at_the_end_of_a_compacted_store_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with octavo.open(path, roll_count=256) as store:
        for n in range(600):
            store.put(b"%d" % (n % 10), b"v")
        for n in range(10):
            store.delete(b"%d" % n)
        begun = stream(path).initialOffset()
        reached = stream(path).latestOffset(begun, ReadAllAvailable())
        assert reached["sqn"] == 610
        store.compact()
        assert stream(path).latestOffset(reached, ReadAllAvailable()) == reached
    assert stream(path).latestOffset(reached, ReadAllAvailable()) == reached


def test_a_gap_is_told_as_a_stream_looks_for_what_came(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with octavo.open(path) as store:
        store.put("first", b"v")
        begun = stream(path).initialOffset()
        reached = stream(path).latestOffset(begun, ReadAllAvailable())
        for n in range(300):
            store.put(f"k{n % 5}", f"{n}")
        store.compact()
        with pytest.raises(octavo.HistoryCompacted, match="changes above sqn 1"):
            stream(path).latestOffset(reached, ReadAllAvailable())
        careless = stream(path, failOnDataLoss="false")
        assert careless.latestOffset(reached, ReadAllAvailable())["sqn"] == 301


def test_what_had_gone_as_a_feed_began_is_no_gap_and_no_earlier_state() -> None:
    options = feed_options({"path": "/s"})
    refuse_gap(options, 0, 5, 5)
    with pytest.raises(octavo.HistoryCompacted, match="above sqn 0"):
        refuse_gap(options, 0, 5, 6)
    refuse_ahead(options, 5, 3, 5)  # the newest ones were dropped, and are known to be
    with pytest.raises(octavo.Misuse, match="an earlier state"):
        refuse_ahead(options, 6, 3, 5)


def test_a_feed_is_of_one_type_of_objects(session: Any, tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", tags={"note": octavo.Tag()}) as store:
        store.put("k", "standard")
        notes = store.bucket("", tag="note")
        notes.put("k", "note")
        notes.delete("k")
        notes.put("last", "note")
    for tag, want in {"standard": [b"standard"], "note": [b"note", None, b"note"]}.items():
        found = feed(session, tmp_path / "s", tag=tag).orderBy("_commit_sqn").collect()
        assert [row.value for row in found] == want
    follow(session, tmp_path / "s", tmp_path / "t", tmp_path / "c")
    with octavo.open(tmp_path / "t") as copy:
        assert dict(copy.items()) == {b"k": b"standard"}
    with pytest.raises(octavo.Misuse, match="'other': the store has standard, note"):
        stream(tmp_path / "s", tag="other").initialOffset()


def test_a_feed_of_a_head_only_store_is_refused(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        store.head_bucket("b").put("k", "v", sub_key="s")
    with pytest.raises(octavo.Misuse, match="not for a head-only store"):
        stream(tmp_path / "s").initialOffset()


def test_a_feed_may_begin_above_the_newest_change(tmp_path: Path) -> None:
    lived(tmp_path / "s", 5, 20)
    late = stream(tmp_path / "s", startingSqn="1000")
    begun = late.initialOffset()
    assert late.latestOffset(begun, ReadAllAvailable()) == begun
    assert late.partitions(begun, begun)


def test_a_query_that_ends_at_the_newest_change_never_goes_back(tmp_path: Path) -> None:
    lived(tmp_path / "s", 5, 20)
    begun = {**stream(tmp_path / "s").initialOffset(), "sqn": 15}
    last = stream(tmp_path / "s", failOnDataLoss="false")
    last._target = 10  # of an earlier state, in whose place a newer one was put since
    assert last.latestOffset(begun, ReadAllAvailable())["sqn"] == 15


def test_a_stream_that_is_to_end_is_refused(tmp_path: Path) -> None:
    source = DefaultSource({"path": str(tmp_path), "readChangeFeed": "true", "endingSqn": "5"})
    with pytest.raises(octavo.Misuse, match="endingSqn is for a batch read"):
        source.streamReader(StructType([])).initialOffset()


def test_spark_tells_what_is_wrong_with_a_stream(session: Any, tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("k", "v")
    follow(session, tmp_path / "s", tmp_path / "t", tmp_path / "c")
    for state in ("new", "c"):
        rows = session.readStream.format("octavo").load(str(tmp_path / "s"))
        sink = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / state))
        query = sink.start()
        with pytest.raises(StreamingQueryException, match="a stream reads changes") as told:
            query.processAllAvailable()
        assert "UnboundLocalError" not in str(told.value)


def test_an_option_that_no_feed_has_is_refused_as_it_is_loaded(tmp_path: Path) -> None:
    source = DefaultSource({"path": str(tmp_path), "readChangeFeed": "true", "startSqn": "5"})
    with pytest.raises(octavo.Misuse, match="'startSqn'; did you mean 'startingSqn'"):
        source.schema()


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    for first, last in ((3, 3), (3, 2)):  # of the second nothing came yet: a job of each day's
        feed_options({"path": "s", "startingSqn": str(first), "endingSqn": str(last)})
    with pytest.raises(octavo.Misuse, match="startingSqn=4 is above endingSqn=2"):
        feed_options({"path": "s", "startingSqn": "4", "endingSqn": "2"})


@pytest.mark.parametrize("name", ["startingSqn", "endingSqn", "maxRecordsPerTrigger"])
def test_what_is_counted_has_no_unit(name: str) -> None:
    with pytest.raises(octavo.Misuse, match=f"{name}='5k': allowed are whole numbers from 1 up"):
        feed_options({"path": "s", name: "5k"})


def test_a_consumer_of_no_name_is_not_taken_for_none() -> None:
    with pytest.raises(octavo.Misuse, match="consumerId='' is empty"):
        feed_options({"path": "s", "consumerid": ""})


@pytest.mark.parametrize("name", ["consumerId", "maxRecordsPerTrigger", "MAXBYTESPERTRIGGER"])
def test_what_only_a_stream_does_is_refused_of_a_batch(tmp_path: Path, name: str) -> None:
    source = DefaultSource({"path": str(tmp_path), "readChangeFeed": "true", name: "7"})
    with pytest.raises(octavo.Misuse, match="is for a stream; a batch read goes from startingSqn"):
        source.reader(StructType([]))


def test_a_schema_that_does_not_fit_is_told(session: Any, tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("a", "1")
    frame = session.read.format("octavo").option("readChangeFeed", True)
    load = frame.schema("key string, _commit_sqn int").load(str(tmp_path / "s"))
    assert load.collect() == [("a", 1)]
    with pytest.raises(Exception, match="column 'key' is binary, the schema wants int"):
        frame.schema("key int").load(str(tmp_path / "s")).collect()
    with pytest.raises(Exception, match="the schema names no column"):
        frame.schema(StructType([])).load(str(tmp_path / "s")).collect()


def test_spark_that_is_killed_behind_the_stores_commit_replays_in_vain(
    session: Any, tmp_path: Path
) -> None:
    source, target, state = tmp_path / "a", tmp_path / "b", tmp_path / "state"
    lived(source, 5, 60)
    program = Path(__file__).with_name("killed_sink.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, str(program), str(source), str(target), str(state)],
        env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    with octavo.open(target) as store:
        newest = store.last_sqn
    assert newest > 0, done.stderr.decode()
    assert not [p for p in state.glob("commits/*") if p.name.isdigit()]
    follow(session, source, target, state)
    assert [p for p in state.glob("commits/*") if p.name.isdigit()]
    with octavo.open(target) as store:
        assert store.last_sqn == newest
    assert whole(target) == whole(source)


def rows_of_batches(path: Path, *names: str) -> list[int]:
    """How many rows each record batch of a feed has, as a task makes them."""
    reader = DefaultSource({"path": str(path), "readChangeFeed": "true"}).reader(
        StructType([StructField(name, BinaryType()) for name in names])
    )
    (part,) = reader.partitions()
    return [batch.num_rows for batch in reader.read(part)]


def test_a_value_too_large_for_arrow_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And values that only together are too many come in batches of their own."""
    with octavo.open(tmp_path / "s") as store:
        for key in ("a", "b", "c"):
            store.put(key, b"x" * 9)
        store.put("large", b"x" * 80)
        store.put("d", b"x" * 9)
    monkeypatch.setattr(change_arrays, "BATCH_BYTES", 160)
    assert rows_of_batches(tmp_path / "s", "key", "value") == [3, 1, 1]
    monkeypatch.setattr(arrow, "MAX_BINARY_BYTES", 79)
    with pytest.raises(octavo.Misuse, match="the value of b'large' in bucket b'' has 80 bytes"):
        rows_of_batches(tmp_path / "s", "key", "value")
    assert sum(rows_of_batches(tmp_path / "s", "key")) == 5


def test_neighbouring_small_files_are_read_by_one_task(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", roll_count=256, compact_every_seconds=None) as store:
        for key in range(2000):
            store.put(b"%04d" % key, b"x" * 50)
        settle(store)
        files = list((tmp_path / "s/journal").glob("*.cdb"))
        length = sum(file.stat().st_size for file in files)
        options = {"path": store.path, "readChangeFeed": "true", "splitBytes": str(length // 3)}
        reader = DefaultSource(options).reader(KEYS)
        tasks = reader.partitions()
        keys = [
            key for task in tasks for batch in reader.read(task) for key in batch[0].to_pylist()
        ]
    assert len(files) == 7
    assert len(tasks) == 3
    assert keys == [b"%04d" % key for key in range(2000)]
