"""PublishedSnapshot.open: a published state, read by any process as a store is."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from whole_store import SEED, flush, opened, rolled
from without_links import refuse_links

import octavo
from octavo.manifest.snapshot_draft import Draft


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "s") as store:
        print(f"seed {SEED}")
        some_writes(store, random.Random(SEED))
        flush(store)
        some_writes(store, random.Random(SEED + 1))
        yield store


def some_writes(store: octavo.Store, rng: random.Random) -> None:
    towns = store.bucket("towns")
    for _ in range(500):
        key = b"k%03d" % rng.randrange(200)
        if rng.random() < 0.2:
            towns.delete(key)
        else:
            towns.put(key, rng.randbytes(rng.randrange(60)), index={"size": rng.randrange(9)})


def told(source: octavo.Store | octavo.Snapshot) -> tuple[object, ...]:
    towns = source.bucket("towns")
    return dict(towns.items()), list(towns.heads()), list(towns.index("size").range())


def published(store: octavo.Store, name: str | None = None) -> octavo.PublishedSnapshot:
    with store.snapshot() as snap:
        return snap.publish(name)


def changed(store: octavo.Store) -> None:
    """Nothing that was there is there any more."""
    store.bucket("towns").clear()
    rolled(store)
    flush(store)
    store.compact()


def directories(store: octavo.Store) -> set[str]:
    return set(os.listdir(f"{store.path}/snapshots"))


def test_it_is_the_state_that_was_published(store: octavo.Store) -> None:
    want, sqn = told(store), store.last_sqn
    made = published(store, "monday")
    changed(store)
    (found,) = store.published("monday")
    with found.open() as monday:
        assert told(monday) == want
        assert (monday.last_sqn, monday.taken_at) == (sqn, made.taken_at)
        assert [change.sqn for change in monday.changes()] == list(range(1, sqn + 1))
        assert monday.verify().ok
        with pytest.raises(octavo.Misuse, match="put is not for"):
            monday.bucket("towns").put("k", "v")
        with monday.newest() as now:
            assert told(now) == told(store)
            assert told(now) != want
    assert directories(store) == {made.id}  # it is published still
    with found.open() as again:
        assert told(again) == want


READING = """
import sys
import octavo
with octavo.open(sys.argv[1], read_only=True) as reader:
    (found,) = reader.published("monday")
    with found.open() as monday:
        print(monday.last_sqn, len(monday.bucket("towns")), len(reader.bucket("towns")))
"""


@pytest.mark.parametrize("closed", [False, True])
def test_other_processes_read_it(store: octavo.Store, closed: bool) -> None:
    published(store, "monday")
    sqn, count = store.last_sqn, len(store.bucket("towns"))
    changed(store)
    if closed:
        store.close()
    command = [sys.executable, "-c", READING, store.path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(sqn), str(count), "0"]


def test_what_a_reader_pinned_of_a_file_that_is_being_written_is_read(store: octavo.Store) -> None:
    want = told(store)
    with octavo.open(store.path, read_only=True):
        (pin,) = store.published()
        changed(store)
        with pin.open() as reader:
            assert told(reader) == want
    assert directories(store) == set()


def test_a_release_takes_nothing_from_who_reads_it(store: octavo.Store) -> None:
    want = told(store)
    made = published(store)
    with made.open() as reader:
        made.release()
        changed(store)
        assert told(reader) == want
    assert directories(store) == set()
    with pytest.raises(octavo.SnapshotExpired, match="is gone"):
        made.open()


def test_one_that_expired_is_not_read(store: octavo.Store) -> None:
    with store.snapshot() as snap:
        made = snap.publish(lease_seconds=0.001)
    while not made.expired:
        pass
    with pytest.raises(octavo.SnapshotExpired, match="expired at"):
        made.open()
    assert directories(store) == {made.id}


def test_a_release_meanwhile_is_told_and_leaves_nothing(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = published(store)
    plain = Draft.link_side

    def link_side(draft: Draft, path: str, name: str) -> None:
        made.release()
        plain(draft, path, name)

    monkeypatch.setattr(Draft, "link_side", link_side)
    with pytest.raises(octavo.SnapshotExpired, match="is gone"):
        made.open()
    assert directories(store) == set()


def test_a_file_that_is_missing_is_damage(store: octavo.Store) -> None:
    made = published(store)
    gone = next(Path(made.path).glob("*.cdb"))
    gone.unlink()
    with pytest.raises(octavo.Corruption, match="is missing") as told:
        made.open()
    assert told.value.file == str(gone)
    assert directories(store) == {made.id}


def test_what_cannot_be_linked_is_held_open(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = told(store)
    made = published(store)
    changed(store)
    refuse_links(monkeypatch, errno.EROFS)
    with made.open() as reader:
        assert told(reader) == want
    assert directories(store) == {made.id}


def test_one_of_a_head_only_store_is_read(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        with store.head_batch() as batch:
            batch.put("sizes", "a", b"1", sub_key="x")
        with store.snapshot() as snap:
            made = snap.publish()
        with store.head_batch() as batch:
            batch.put("sizes", "a", b"2", sub_key="x")
        with made.open() as reader:
            assert reader.head_bucket("sizes").get("a", "x") == b"1"
