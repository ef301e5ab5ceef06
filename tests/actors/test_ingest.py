"""Files made elsewhere are taken in whole: reads, order, repeats, restarts."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pykka import ActorRegistry
from staged_rows import StagedRow, operations
from whole_store import flush, killed, opened

import octavo
from octavo.actors.compacting import compaction
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.journal_file import JournalFile
from octavo.actors.keeping.ingest import ingest
from octavo.actors.reading.read_cache import ReadCache
from octavo.files.checked_json import encoded
from octavo.files.door.disk import Disk, RealDisk
from octavo.files.handover import staged_files, staging
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.journal import cdb, journal_rows
from octavo.files.ledger import merge
from octavo.manifest.journal_manifest import JournalManifest

SEED = int(os.environ.get("OCTAVO_SEED", "20261121"))


def staged(
    path: str,
    job: str,
    attempt: str,
    rows: list[tuple[bytes, bytes | None]],
    disk: Disk | None = None,
    **options: int,
) -> str:
    writer = StagedWriter(disk or RealDisk(), path, job, attempt, now_ms=1000, **options)
    writer.add(operations([StagedRow(b"", key, value) for key, value in rows]))
    writer.finish()
    return attempt


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "s") as made:
        yield made


def test_no_actor_is_left_of_the_empty_files_between_commits(store: octavo.Store) -> None:
    for number in range(5):
        job = f"j{number}"
        ingest(store._running, job, [staged(store.path, job, "a", [(b"k", b"v")])])
    files = store._inker.view.files
    ours = [
        each.actor
        for each in ActorRegistry.get_by_class(JournalFile)
        if each.actor.directory == files[0].directory  # type: ignore[attr-defined]
    ]
    assert sorted(file.name for file in ours) == [file.name for file in files]


def test_ingested_keys_are_newer_than_what_was_there(store: octavo.Store) -> None:
    store.put(b"a", b"old")
    store.put(b"b", b"stays")
    staged(store.path, "j", "0-0", [(b"a", b"new"), (b"c", b"came")])
    found = ingest(store._running, "j", ["0-0"])
    assert (found.first_sqn, found.last_sqn, found.repeated) == (3, 4, False)
    assert list(store.items()) == [(b"a", b"new"), (b"b", b"stays"), (b"c", b"came")]
    head = store.head(b"a")
    assert head is not None
    assert (head.sqn, head.size, head.written_at) == (3, 3, 1000)


@pytest.mark.parametrize("buckets", [(b"",), (b"b", b"", b"a\0b", b"longer")], ids=len)
@pytest.mark.parametrize("some", [False, True], ids=["plain", "some"])
def test_ledger_files_are_those_that_the_journal_files_make(
    tmp_path: Path, buckets: tuple[bytes, ...], some: bool
) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED)
    disk = RealDisk()
    writer = StagedWriter(disk, str(tmp_path), "j", "0-0", now_ms=5, file_records=700)
    for count in (1, 300, 2, 900):
        rows = []
        for _ in range(count):
            row = StagedRow(
                rng.choice(buckets), b"%03d" % rng.randrange(900), rng.randbytes(rng.randrange(9))
            )
            if some:
                row = row._replace(expiry_ms=rng.choice((0, 7)), metadata=rng.choice((b"", b"m")))
            if some and rng.random() < 0.2:
                row = StagedRow(row.bucket, row.key, None)
            rows.append(row)
        writer.add(operations(rows))
    folder = staging.folder(str(tmp_path), "j")
    attempt = writer.finish()
    assert len(attempt.journals) == 2
    for journal in attempt.journals:
        image = Path(folder, journal.name).read_bytes()
        table = np.array(cdb.sealed_offsets(image, "")[1], dtype=np.uint32)
        wanted = journal_rows.concatenated(
            list(journal_rows.rows_of(image, table, 0, journal.seed, 0, ""))
        )
        (made,) = merge.write_rows(
            disk, folder, lambda: "again", wanted, max_rows=1 << 20, max_bytes=1 << 30
        )
        (ledger,) = journal.ledgers
        assert disk.map(f"{folder}/{ledger.name}")[:] == disk.map(f"{folder}/again")[:]
        assert made.rows == ledger.rows < journal.count
        disk.unlink(f"{folder}/again")


def test_what_is_put_afterwards_is_newer(store: octavo.Store) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"staged")])
    ingest(store._running, "j", ["0-0"])
    assert store.put(b"a", b"put") == 2
    assert store.get(b"a") == b"put"


def test_the_read_cache_forgets(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=1 << 20) as store:
        store.put(b"a", b"old")
        flush(store)
        assert store.get(b"a") == b"old" == store.get(b"a")
        staged(store.path, "j", "0-0", [(b"a", b"new")])
        ingest(store._running, "j", ["0-0"])
        assert store.get(b"a") == b"new"


def test_who_has_seen_one_of_its_keys_sees_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear = ReadCache.clear
    seen: list[bytes | None] = []
    with opened(tmp_path / "s", read_cache_bytes=1 << 20) as store:
        store.put(b"old", b"before")
        assert store.get(b"old") == b"before"  # from now on from the cache

        def late(*given: object) -> None:
            other = threading.Thread(target=lambda: seen.extend(store.get_many([b"new", b"old"])))
            other.start()
            other.join()
            clear(*given)  # type: ignore[arg-type]

        staged(store.path, "j", "0-0", [(b"new", b"after"), (b"old", b"after")])
        with monkeypatch.context() as patched:  # not as the store is closed
            patched.setattr(ReadCache, "clear", late)
            ingest(store._running, "j", ["0-0"])
        assert seen == [None, b"before"]
        assert store.get_many([b"new", b"old"]) == [b"after", b"after"]


def test_a_snapshot_taken_before_does_not_see_it(store: octavo.Store) -> None:
    store.put(b"a", b"old")
    with store.snapshot() as before:
        staged(store.path, "j", "0-0", [(b"a", b"new"), (b"b", b"x")])
        ingest(store._running, "j", ["0-0"])
        assert list(before.items()) == [(b"a", b"old")]
        assert before.get(b"b") is None
    with store.snapshot() as after:
        assert after.get(b"a") == b"new"


def test_the_change_feed_has_it(store: octavo.Store) -> None:
    store.put(b"a", b"1")
    staged(store.path, "j", "0-0", [(b"b", b"2"), (b"a", None)])
    ingest(store._running, "j", ["0-0"])
    store.put(b"c", b"3")
    assert [(c.sqn, c.kind, c.key) for c in store.changes()] == [
        (1, "put", b"a"), (2, "put", b"b"), (3, "delete", b"a"), (4, "put", b"c"),
    ]  # fmt: skip


def test_a_repeated_job_is_answered_as_the_first_time(store: octavo.Store) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"1")])
    ingest(store._running, "j", ["0-0"])
    store.put(b"a", b"2")
    again = ingest(store._running, "j", ["0-0"])
    assert (again.first_sqn, again.last_sqn, again.repeated) == (1, 1, True)
    assert store.get(b"a") == b"2"


def test_a_job_is_remembered_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        staged(store.path, "j", "0-0", [(b"a", b"1")])
        ingest(store._running, "j", ["0-0"])
    with opened(tmp_path / "s") as store:
        assert ingest(store._running, "j", []).repeated
        assert store.get(b"a") == b"1"


def test_a_stream_ignores_batches_up_to_its_newest(store: octavo.Store) -> None:
    for batch in (0, 1):
        staged(store.path, f"q-{batch}", "0-0", [(b"k", b"%d" % batch)])
        assert not ingest(store._running, f"q-{batch}", ["0-0"], stream="q", batch=batch).repeated
    staged(store.path, "q-0", "0-0", [(b"k", b"again")])
    assert ingest(store._running, "q-0", ["0-0"], stream="q", batch=0).repeated
    assert store.get(b"k") == b"1"
    assert not ingest(store._running, "r-0", [], stream="r", batch=0).repeated


def test_only_named_attempts_come_and_nothing_is_left(store: octavo.Store) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"first")])
    staged(store.path, "j", "0-1", [(b"a", b"second"), (b"b", b"speculative")])
    ingest(store._running, "j", ["0-0"])
    assert list(store.items()) == [(b"a", b"first")]
    assert not os.path.exists(staging.folder(store.path, "j"))


def test_a_job_that_misses_an_attempt_changes_nothing(store: octavo.Store) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"1")])
    with pytest.raises(octavo.Misuse, match="no finished attempt '1-0'"):
        ingest(store._running, "j", ["0-0", "1-0"])
    assert store.get(b"a") is None
    ingest(store._running, "j", ["0-0"])
    assert store.get(b"a") == b"1"


@pytest.mark.parametrize("suffix", [".cdb", ".sst"])
def test_a_damaged_staged_file_is_refused(store: octavo.Store, suffix: str) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"1")])
    folder = Path(staging.folder(store.path, "j"))
    victim = next(path for path in folder.iterdir() if path.suffix == suffix)
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(octavo.Corruption, match=victim.name):
        ingest(store._running, "j", ["0-0"])
    assert store.last_sqn == 0


def test_an_attempt_under_the_name_of_another_is_refused(store: octavo.Store) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"1")])
    folder = Path(staging.folder(store.path, "j"))
    (folder / "0-0.json").rename(folder / "1-0.json")
    with pytest.raises(octavo.Corruption, match="is of attempt '0-0'"):
        ingest(store._running, "j", ["1-0"])
    assert store.last_sqn == 0


def test_an_attempt_of_a_later_release_is_refused_by_its_format(store: octavo.Store) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"1")])
    file = Path(staging.folder(store.path, "j")) / "0-0.json"
    told = json.loads(file.read_text())
    del told["checksum"]
    file.write_bytes(encoded({**told, "format": 2}))
    with pytest.raises(octavo.UnsupportedFormat, match="attempt of format 2"):
        ingest(store._running, "j", ["0-0"])
    assert store.last_sqn == 0


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "a" * 129])
def test_a_job_that_is_no_file_name_is_refused(store: octavo.Store, name: str) -> None:
    with pytest.raises(octavo.Misuse, match="job_id="):
        ingest(store._running, name, [])


def test_many_files_between_many_puts_equal_a_dict(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"OCTAVO_SEED={SEED}")
    expected: dict[bytes, bytes] = {}
    store = opened(tmp_path / "s")
    for job in range(12):
        for _ in range(rng.randrange(200)):
            key, value = b"k%03d" % rng.randrange(300), rng.randbytes(8)
            store.put(key, value)
            expected[key] = value
        attempts = []
        for part in range(rng.randrange(1, 4)):
            rows: list[tuple[bytes, bytes | None]] = []
            for _ in range(rng.randrange(150)):
                key = b"k%03d" % rng.randrange(300)
                rows.append((key, None if rng.random() < 0.1 * (job % 2) else rng.randbytes(9)))
            attempts.append(staged(store.path, f"j{job}", f"{part}-0", rows, file_records=40))
            for key, found in rows:
                if found is None:
                    expected.pop(key, None)
                else:
                    expected[key] = found
        ingest(store._running, f"j{job}", attempts)
        assert dict(store.items()) == expected
        if job % 4 == 1:
            store.close()
            store = opened(tmp_path / "s")
        if job % 4 == 3:
            image = killed(store, tmp_path / f"image{job}")
            store.close()
            store = opened(tmp_path / "s")
            with opened(image) as other:
                assert dict(other.items()) == expected
    store.compact()
    assert dict(store.items()) == expected
    assert {key: store.get(key) for key in expected} == expected
    report = store.verify()
    assert report.ok, report.problems
    store.close()


def test_a_ledger_that_is_deleted_is_rebuilt_with_it(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"a", b"old")
        staged(store.path, "j", "0-0", [(b"a", b"new"), (b"b", b"x")])
        ingest(store._running, "j", ["0-0"])
        store.put(b"c", b"y")
    for found in sorted((tmp_path / "s" / "ledger").rglob("*"), reverse=True):
        found.rmdir() if found.is_dir() else found.unlink()
    with opened(tmp_path / "s") as store:
        assert list(store.items()) == [(b"a", b"new"), (b"b", b"x"), (b"c", b"y")]


def test_metadata_and_expiry_come_along(store: octavo.Store) -> None:
    writer = StagedWriter(RealDisk(), store.path, "j", "0-0", now_ms=5)
    rows = [
        StagedRow(b"books", b"k", b"v", 4_000_000_000_000, b"meta"),
        StagedRow(b"books", b"gone", b"v", 1),
    ]
    writer.add(operations(rows))
    writer.finish()
    ingest(store._running, "j", ["0-0"])
    books = store.bucket("books")
    head = books.head(b"k")
    assert head is not None
    assert (head.metadata, head.expires_at) == (b"meta", 4_000_000_000_000)
    assert books.get(b"gone") is None


def test_an_abandoned_attempt_leaves_nothing(store: octavo.Store) -> None:
    writer = StagedWriter(RealDisk(), store.path, "j", "0-0", now_ms=5, file_records=2)
    writer.put_many(b"", [b"a", b"b", b"c"], [b"1", b"2", b"3"])
    writer.abandon()
    assert os.listdir(f"{store.path}/staging") == []


def test_left_overs_are_swept_by_age(tmp_path: Path) -> None:
    opened(tmp_path / "s").close()
    path = str(tmp_path / "s")
    staged(path, "old", "0-0", [(b"a", b"1")])
    writer = StagedWriter(RealDisk(), path, "young", "0-0", now_ms=staging.KEPT_MS)
    writer.put_many(b"", [b"a"], [b"1"])
    writer.finish()
    opened(path, clock_ms=lambda: staging.KEPT_MS + 2000).close()
    assert os.listdir(tmp_path / "s" / "staging") == ["young"]


def test_what_an_attempt_staged_goes_without_that_of_one_whose_name_begins_so(
    store: octavo.Store,
) -> None:
    for attempt in ("0-1", "0-10"):
        staged(store.path, "j", attempt, [(attempt.encode(), b"1")])
    staging.drop(RealDisk(), store.path, "j", ["0-1"])
    with pytest.raises(octavo.Misuse, match="no finished attempt '0-1'"):
        ingest(store._running, "j", ["0-1"])
    ingest(store._running, "j", ["0-10"])
    assert list(store) == [b"0-10"]


@pytest.mark.parametrize("link", ["staging", "staging/j"])
def test_nothing_is_taken_or_removed_where_a_link_leads_out_of_the_store(
    store: octavo.Store, tmp_path: Path, link: str
) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"1")])
    (Path(store.path) / link).rename(tmp_path / "elsewhere")
    (Path(store.path) / link).symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").rglob("*"))
    disk, path = RealDisk(), store.path
    calls: list[Callable[[], object]] = [
        lambda: staging.read_attempt(disk, path, "j", "0-0"),
        lambda: staging.drop(disk, path, "j", ["0-0"]),
        lambda: staging.empty(disk, path, "j"),
        lambda: ingest(store._running, "j", ["0-0"]),
    ]
    for call in calls:
        with pytest.raises(octavo.Corruption, match="symbolic link"):
            call()
    if link == "staging/j":
        assert staging.sweep(disk, path, 1 << 60) == []
    assert sorted((tmp_path / "elsewhere").rglob("*")) == before


def test_what_an_attempt_without_rows_left_is_swept_too(tmp_path: Path) -> None:
    opened(tmp_path / "s").close()
    StagedWriter(RealDisk(), str(tmp_path / "s"), "j", "0-0", now_ms=1000).finish()
    for now, left in ((staging.KEPT_MS + 1000, ["j"]), (staging.KEPT_MS + 1001, [])):
        opened(tmp_path / "s", clock_ms=lambda now=now: now).close()
        assert os.listdir(tmp_path / "s" / "staging") == left


def test_a_batch_that_is_asked_for_again_leaves_the_next_ones_files(store: octavo.Store) -> None:
    """As whoever was killed as it waited for the answer asks once more, from the inbox."""
    staged(store.path, "q", "0-0", [(b"a", b"1")])
    ingest(store._running, "q", ["0-0"], stream="q", batch=1)
    staged(store.path, "q", "0-1", [(b"a", b"of a repeated attempt")])
    staged(store.path, "q", "0-2", [(b"a", b"2")])
    assert ingest(store._running, "q", ["0-1"], stream="q", batch=1).repeated
    assert not ingest(store._running, "q", ["0-2"], stream="q", batch=2).repeated
    assert store.get(b"a") == b"2"
    assert os.listdir(f"{store.path}/staging") == []


def test_a_backup_has_it_and_knows_the_job(store: octavo.Store, tmp_path: Path) -> None:
    store.put(b"a", b"old")
    staged(store.path, "j", "0-0", [(b"a", b"new"), (b"b", b"x")])
    ingest(store._running, "j", ["0-0"])
    for ledger in (True, False):
        where = tmp_path / f"backup-{ledger}"
        store.backup(where, ledger=ledger)
        with opened(where) as other:
            assert list(other.items()) == [(b"a", b"new"), (b"b", b"x")]
            assert ingest(other._running, "j", []).repeated
            assert other.verify().ok


def test_a_lost_journal_manifest_costs_the_memory_of_jobs_only(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"a", b"old")
        staged(store.path, "j", "0-0", [(b"a", b"new"), (b"b", b"x")])
        ingest(store._running, "j", ["0-0"])
        store.put(b"c", b"y")
    for found in (tmp_path / "s" / "journal" / "manifest").iterdir():
        found.unlink()
    with opened(tmp_path / "s") as store:
        assert list(store.items()) == [(b"a", b"new"), (b"b", b"x"), (b"c", b"y")]


def test_puts_of_other_threads_go_on_beside_ingests(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", push_rows=4096, push_bytes=1 << 20, roll_count=4096)
    stop = threading.Event()
    written: dict[bytes, bytes] = {}

    def write() -> None:
        number = 0
        while not stop.is_set():
            key, value = b"p%d" % (number % 97), b"%d" % number
            store.put(key, value)
            written[key] = value
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for job in range(8):
            staged(store.path, f"j{job}", "0-0", [(b"i%d" % n, b"%d" % job) for n in range(50)])
            ingest(store._running, f"j{job}", ["0-0"])
            assert store.get(b"i7") == b"%d" % job
    finally:
        stop.set()
        writer.join()
    expected = written | {b"i%d" % n: b"7" for n in range(50)}
    assert dict(store.items()) == expected
    store.close()


def test_what_is_left_of_a_job_and_cannot_go_stops_no_opening(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "s") as store:
        staged(store.path, "j", "0-0", [(b"a", b"never taken in")])
    (tmp_path / "s" / staging.STAGING / "j" / "a-directory").mkdir()
    with opened(tmp_path / "s") as store:
        assert len(store) == 0
    assert "cannot be removed" in caplog.text


def test_a_stream_that_begins_behind_its_first_batch_is_told(
    store: octavo.Store, caplog: pytest.LogCaptureFixture
) -> None:
    for batch, stream in enumerate(("first", "first", "late", "late")):
        staged(store.path, f"j{batch}", "0-0", [(b"%d" % batch, b"v")])
        ingest(store._running, f"j{batch}", ["0-0"], stream=stream, batch=batch)
    assert caplog.text.count("begins here with batch") == 1
    assert "stream late begins here with batch 2" in caplog.text


@pytest.mark.parametrize("stream", ["", "q"])
@pytest.mark.parametrize(
    "step", [(staging, "read_attempt"), (staged_files, "check"), (compaction, "settle")]
)
def test_of_two_that_take_in_one_job_at_once_the_second_is_told_that_it_is_repeated(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch, stream: str, step: tuple[object, str]
) -> None:
    """However far it is as the other one takes the files in, and away."""
    staged(store.path, "j", "0-0", [(b"a", b"1")])
    real = getattr(*step)
    first: list[bool] = []

    def late(*given: object) -> object:
        monkeypatch.undo()
        first.append(ingest(store._running, "j", ["0-0"], stream=stream, batch=0).repeated)
        return real(*given)

    monkeypatch.setattr(*step, late)
    assert ingest(store._running, "j", ["0-0"], stream=stream, batch=0).repeated
    assert first == [False]
    assert store.last_sqn == 1


def missing(path: str) -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def apart(path: str) -> OSError:
    return OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)


@pytest.mark.parametrize(
    ("error", "kind"), [(missing, octavo.Corruption), (apart, octavo.Misuse)], ids=["gone", "apart"]
)
def test_files_that_cannot_be_linked_in_are_told_by_name_and_the_store_goes_on(
    store: octavo.Store,
    monkeypatch: pytest.MonkeyPatch,
    error: Callable[[str], OSError],
    kind: type[Exception],
) -> None:
    """Staging on a file system of its own; or taken away by who staged, as a failed job's is."""
    staged(store.path, "j", "0-0", [(b"a", b"1"), (b"b", b"2")], file_records=1)
    link = RealDisk.link

    def second_fails(self: RealDisk, source: str, target: str) -> None:
        if "0-0-0001" in source:
            raise error(source)
        link(self, source, target)

    monkeypatch.setattr(type(store._running.disk), "link", second_fails)
    with pytest.raises(kind, match="staging/j/0-0-0001"):
        ingest(store._running, "j", ["0-0"])
    monkeypatch.undo()
    store.put(b"a", b"goes on")
    assert not ingest(store._running, "j", ["0-0"]).repeated
    assert list(store.items()) == [(b"a", b"1"), (b"b", b"2")]


def test_a_commit_that_finds_no_room_for_its_change_leaves_nothing_linked(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a full disk would stay full when what was staged is given up."""
    staged(store.path, "j", "0-0", [(b"a", b"1"), (b"b", b"2")], file_records=1)

    def full(change: bytes) -> None:
        raise octavo.StorageFull("no room for a change of the manifest")

    monkeypatch.setattr(store._inker.change_log, "append", full)
    with pytest.raises(octavo.StorageFull):
        ingest(store._running, "j", ["0-0"])
    monkeypatch.undo()
    made = [*os.listdir(f"{store.path}/journal"), *os.listdir(f"{store.path}/ledger")]
    assert not [name for name in made if name.endswith((".cdb", ".sst"))]
    assert not ingest(store._running, "j", ["0-0"]).repeated
    assert list(store.items()) == [(b"a", b"1"), (b"b", b"2")]


def test_sqns_of_a_commit_that_found_no_room_are_missed_in_no_copy(
    store: octavo.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record was given them."""
    store.put(b"a", b"1")
    staged(store.path, "j", "0-0", [(b"b", b"2"), (b"c", b"3")])
    plain, inker = store._inker.commit, store._inker

    def full(manifest: JournalManifest) -> None:
        if manifest.commits:
            raise octavo.StorageFull("no room for a change of the manifest")
        plain(manifest)

    with monkeypatch.context() as patch:
        patch.setattr(inker, "commit", full)
        with pytest.raises(octavo.StorageFull):
            ingest(store._running, "j", ["0-0"])
    assert store.last_sqn == 3
    store.backup(tmp_path / "backup")
    store.close()
    octavo.restore(store.path, tmp_path / "restored")
    octavo.restore(tmp_path / "backup", tmp_path / "both")
    for copy in ("backup", "restored", "both"):
        assert octavo.repair(tmp_path / copy).ok
        with octavo.open(tmp_path / copy, read_only=True) as reads:
            assert reads.verify().ok
        with opened(tmp_path / copy) as again:
            assert not again.stats()["notes"]
            assert dict(again.items()) == {b"a": b"1"}
            assert again.put(b"b", b"4") > 3


def test_a_commit_that_breaks_a_roll_off_says_that_no_write_follows(
    store: octavo.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was for want of room, whose return changes nothing."""
    plain = store._inker.disk.unlink

    def full(path: str) -> None:
        if path.endswith(".log"):  # the active one, which is empty
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        plain(path)

    store.put(b"a", b"1")
    staged(store.path, "j", "a", [(b"k", b"v")])
    with monkeypatch.context() as patch:
        patch.setattr(store._inker.disk, "unlink", full)
        with pytest.raises(octavo.StorageFailed, match="was not begun"):
            ingest(store._running, "j", ["a"])
    for write in (lambda: store.put(b"a", b"2"), lambda: ingest(store._running, "j", ["a"])):
        with pytest.raises(octavo.StorageFailed, match="was not begun"):
            write()
    assert dict(store.items()) == {b"a": b"1"}
    store.close()
    with opened(tmp_path / "s") as again:
        assert dict(again.items()) == {b"a": b"1"}
        ingest(again._running, "j", [staged(again.path, "j", "b", [(b"k", b"v")])])
        assert again.put(b"a", b"2") > 2


def test_no_job_comes_before_a_file_that_found_no_room_to_be_entered(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of another process looks for what is not entered behind all that is."""
    staged(store.path, "j", "0-0", [(b"a", b"1")])
    settle, append = compaction.settle, store._inker.change_log.append
    left = [octavo.StorageFull("no room for a change")]

    def then_one_puts(clerk: InkerClerk) -> None:
        settle(clerk)
        if left:
            store.put(b"before", b"1")

    def full_once(change: bytes) -> None:
        while left:
            raise left.pop()
        append(change)

    monkeypatch.setattr(compaction, "settle", then_one_puts)
    monkeypatch.setattr(store._inker.change_log, "append", full_once)
    with pytest.raises(octavo.StorageFull, match="cannot be entered"):
        ingest(store._running, "j", ["0-0"])
    with octavo.open(store.path, read_only=True) as reader:
        assert dict(reader.items()) == {b"before": b"1"}
    assert ingest(store._running, "j", ["0-0"]).first_sqn == 2
    with octavo.open(store.path, read_only=True) as reader:
        assert dict(reader.items()) == {b"before": b"1", b"a": b"1"}


def test_an_attempt_that_is_named_twice_is_not_taken_in_twice(store: octavo.Store) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"1")])
    with pytest.raises(octavo.Misuse, match="one is named twice"):
        ingest(store._running, "j", ["0-0", "0-0"])
    assert ingest(store._running, "j", ["0-0"]) == octavo.Ingested(1, 1, False)


def test_a_stream_of_which_batches_are_missing_is_told(
    store: octavo.Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As where its checkpoint is ahead of the backup that the store came out of."""

    def batch(into: octavo.Store, number: int) -> None:
        staged(into.path, "q", f"0-{number}", [(b"k", b"%d" % number)])
        ingest(into._running, "q", [f"0-{number}"], stream="q", batch=number)

    for number in range(3):
        batch(store, number)
    store.backup(tmp_path / "backup")
    for number in range(3, 5):
        batch(store, number)
    assert caplog.text == ""
    with opened(tmp_path / "backup") as earlier:
        batch(earlier, 5)
        batch(earlier, 6)
    assert caplog.text.count("goes on with batch") == 1
    assert "stream q goes on with batch 5 after 2" in caplog.text


@pytest.mark.parametrize("told", ["first_key", "last_key"])
def test_ledger_files_of_other_keys_than_was_told_are_refused(
    store: octavo.Store, told: str
) -> None:
    staged(store.path, "j", "0-0", [(b"a", b"1"), (b"c", b"2")])
    (journal,) = staging.read_attempt(RealDisk(), store.path, "j", "0-0").journals
    (ledger,) = journal.ledgers
    other = replace(ledger, **{told: getattr(ledger, told)[:-1] + "b"})
    attempt = staging.Attempt("j", "0-0", (replace(journal, ledgers=(other,)),), 1)
    staging.write_attempt(RealDisk(), store.path, attempt)
    with pytest.raises(octavo.Corruption, match="another file"):
        ingest(store._running, "j", ["0-0"])


def test_a_batch_from_an_earlier_checkpoint_is_warned_of(
    store: octavo.Store, caplog: pytest.LogCaptureFixture
) -> None:
    for batch in (0, 1, 2):
        staged(store.path, "q", f"0-{batch}", [(b"k", b"v")])
        ingest(store._running, "q", [f"0-{batch}"], stream="q", batch=batch)
    assert ingest(store._running, "q", [], stream="q", batch=2).repeated  # as behind any restart
    assert caplog.text == ""
    assert ingest(store._running, "q", [], stream="q", batch=1).repeated
    assert "stream q is at batch 2 already, so batch 1 is dropped" in caplog.text


@pytest.mark.parametrize("lost", ["journal/manifest", "journal/manifest and ledger"])
def test_what_was_taken_in_is_there_though_the_manifest_that_said_so_is_lost(
    tmp_path: Path, lost: str
) -> None:
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        store.put("before", b"v")
        loaded = {b"k%02d" % number: b"v" for number in range(50)}
        staged(store.path, "j", "0-0", list(loaded.items()))
        ingest(store._running, "j", ["0-0"])
        store.put("behind", b"v")
        flush(store)
        image = killed(store, tmp_path / "image")
    for folder in lost.split(" and "):
        shutil.rmtree(image / folder)
    with opened(image, compact_every_seconds=None) as store:
        assert dict(store.items()) == {**loaded, b"before": b"v", b"behind": b"v"}
        assert store.verify().ok
