"""A store that is read beside its owner, again and again."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import Mock

import pytest
from descriptors import descriptors
from whole_store import SEED, active_file, flush, killed, opened, rolled
from without_links import refuse_links

import octavo
from octavo import read_only
from octavo.files.door.disk import RealDisk
from octavo.manifest import pinning, recovery
from octavo.manifest.ledger_manifest import LedgerManifest

Held = dict[tuple[bytes, bytes], tuple[bytes, int]]


def held(source: octavo.Store | octavo.Snapshot) -> Held:
    return {
        (name, key): (value, source.bucket(name).head(key).sqn)  # type: ignore[union-attr]
        for name in source.buckets()
        for key, value in source.bucket(name).items()
    }


@pytest.fixture
def copied_from(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From where on unsealed journal files were read."""
    found: list[int] = []
    plain = RealDisk.map_growing

    def noted(disk: RealDisk, path: str, start: int = 0) -> object:
        found.append(start)
        return plain(disk, path, start)

    monkeypatch.setattr(RealDisk, "map_growing", noted)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with opened(tmp_path / "störe") as store:
        store.put("k", b"0" * 300)
        yield store


def some_writes(store: octavo.Store, rng: random.Random) -> None:
    for _ in range(rng.randrange(40)):
        bucket = store.bucket(rng.choice([b"", b"b"]))
        key, value = b"k%02d" % rng.randrange(60), rng.randbytes(rng.choice([0, 9, 5000]))
        match rng.randrange(5):
            case 0:
                bucket.delete(key)
            case 1:
                with store.batch() as batch:
                    for each in (key, b"x", b"y"):
                        batch.put(b"", each, value)
            case 2:
                bucket.put(key, value, metadata=b"m", ttl=9_000, index={"f": ["t"]})
            case _:
                bucket.put(key, value)
    match rng.randrange(8):
        case 0:
            flush(store)
        case 1:
            store.compact()
        case 2:
            rolled(store)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("rows", [1 << 18, 5])
def test_it_is_what_opening_again_gives(
    tmp_path: Path, number: int, linked: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"OCTAVO_SEED={SEED}")
    rng = random.Random(SEED + number)
    monkeypatch.setattr(pinning, "MAX_FILE_ROWS", rows)
    monkeypatch.setattr(pinning, "_LARGER", 1)
    if not linked:
        refuse_links(monkeypatch)
    with opened(tmp_path / "s") as store:
        reader = octavo.open(store.path, read_only=True)
        for _ in range(25):
            before = held(reader)
            some_writes(store, rng)
            newer = reader.newest()
            assert held(newer) == held(store)
            assert newer.last_sqn == store.last_sqn
            assert list(newer.bucket("b").index("f").keys()) == list(
                store.bucket("b").index("f").keys()
            )
            assert held(reader) == before
            reader.close()
            reader = newer
        reader.close()
    left = Path(f"{store.path}/snapshots")
    assert not left.exists() or not os.listdir(left)


def test_of_the_unsealed_file_only_what_was_added_is_read(
    store: octavo.Store, copied_from: list[int]
) -> None:
    with octavo.open(store.path, read_only=True) as first:
        end = active_file(store).stat().st_size
        store.put("l", b"1" * 300)
        with first.newest() as second:
            assert second["l"] == b"1" * 300
            assert second["k"] == b"0" * 300
    assert copied_from == [0, end]


@pytest.fixture
def made_rows_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many records the rows of side files were made, pin by pin."""
    found: list[int] = []
    plain = pinning.ledger_files.level_zero

    def noted(disk: RealDisk, offsets: bytes, **options: Any) -> dict[str, Any]:
        found.append(sum(part["count"] for part in options["parts"]))
        return plain(disk, offsets, **options)

    monkeypatch.setattr(pinning.ledger_files, "level_zero", noted)
    return found


def test_rows_are_made_of_what_was_added(tmp_path: Path, made_rows_of: list[int]) -> None:
    """And of few more, so that there are few files."""
    with octavo.open(tmp_path / "s") as store:
        store.put_many((b"%d" % number, b"v") for number in range(1000))
        reader = octavo.open(store.path, read_only=True)
        for number in range(60):
            store.put("k", b"%d" % number)
            store.delete(b"%d" % number)
            newer = reader.newest()
            reader.close()
            reader = newer
            assert len([name for name in os.listdir(reader._found.path) if "side" in name]) < 6
            assert held(reader) == held(store)
        reader.close()
    assert made_rows_of[:2] == [1000, 2]
    assert max(made_rows_of[1:]) < 120
    assert sum(made_rows_of[1:]) < 1000


def test_rows_of_what_was_lost_are_not_kept(store: octavo.Store, tmp_path: Path) -> None:
    """As of what was written to a backup that is brought up to date."""
    path = tmp_path / "backup"
    flush(store)
    store.backup(path)
    with opened(path) as there:
        for _ in range(20):
            there.put("k", b"of the backup")
        reader = octavo.open(path, read_only=True)
    assert reader["k"] == b"of the backup"
    for number in range(3):
        store.put("k", b"%d" % number)
    store.backup(path)
    with reader.newest() as newer:
        assert held(newer) == held(store)
    reader.close()


def test_rows_of_a_file_in_whose_place_an_earlier_one_of_it_was_put_are_not_kept(
    store: octavo.Store, tmp_path: Path
) -> None:
    file = active_file(store)
    earlier = file.read_bytes()
    for number in range(20):
        store.put(b"%d" % number, b"later")
    shutil.copytree(store.path, tmp_path / "c")
    with octavo.open(tmp_path / "c", read_only=True) as reader:
        assert reader["0"] == b"later"
        there = tmp_path / "c" / "journal" / file.name
        there.unlink()
        there.write_bytes(earlier)
        with reader.newest() as newer, octavo.open(tmp_path / "c", read_only=True) as again:
            assert held(newer) == held(again)
            assert newer.last_sqn == again.last_sqn
            assert newer.get("0") is None


def test_rows_of_which_the_ledger_has_a_part_since_are_not_kept(store: octavo.Store) -> None:
    """A merge of those may have dropped a delete that hides one."""
    for number in range(20):
        store.put("k", b"%d" % number)
    with octavo.open(store.path, read_only=True) as reader:
        before, same = reader._found, {entry.name for entry in reader._found.journal.entries}
        saved = [
            replace(entry, name="saved", min_sqn=5, max_sqn=5) for entry in before.ledger.entries
        ]
        ledger = LedgerManifest.empty()
        assert pinning._kept(Mock(), ledger, before, same, 22) == (before.ledger.entries, 21)
        ledger = ledger.edit(saved, persisted_sqn=5)
        assert pinning._kept(Mock(), ledger, before, same, 22) == ([], 5)


def test_rows_of_one_that_is_released_are_made_anew(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(store.path, read_only=True) as reader:
        plain = pinning._known

        def gone(*told: Any) -> object:
            found = plain(*told)
            for side in Path(reader._found.path).glob("side*"):
                side.unlink()
            return found

        monkeypatch.setattr(pinning, "_known", gone)
        with reader.newest() as newer:
            assert held(newer) == held(store)


def test_one_that_was_closed_gives_none(store: octavo.Store) -> None:
    reader = octavo.open(store.path, read_only=True)
    reader.close()
    with pytest.raises(octavo.Closed):
        reader.newest()


def test_links_of_those_that_were_dropped_go(store: octavo.Store) -> None:
    reader = octavo.open(store.path, read_only=True)
    for number in range(5):
        store.put("k", b"%d" % number)
        reader = reader.newest()
        assert reader["k"] == b"%d" % number
        assert len(os.listdir(f"{store.path}/snapshots")) <= 2
    reader.close()


@pytest.mark.parametrize("closes", [True, False])
def test_descriptors_of_those_before_are_let_go_of(
    store: octavo.Store, closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pinning, "_LARGER", 1 << 60)  # one side file each
    flush(store)
    gc.disable()  # or how many are left would be up to that
    try:
        reader, counts = octavo.open(store.path, read_only=True), []
        for number in range(8):
            assert reader["k"]
            counts.append(len(descriptors(f"{store.path}/snapshots")))
            store.put("other", b"%d" % number)
            newer = reader.newest()
            if closes:
                reader.close()
            reader = newer
        reader.close()
    finally:
        gc.enable()
    assert max(counts[3:]) == counts[3]


def test_a_want_of_descriptors_is_told_as_an_opening_tells_it(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(store.path, read_only=True) as reader:

        def none_is_left(disk: RealDisk, path: str) -> NoReturn:
            raise OSError(errno.EMFILE, "none is left", path)

        with monkeypatch.context() as patched:
            patched.setattr(RealDisk, "sync_file", none_is_left)
            with pytest.raises(octavo.StorageFull, match="cannot be opened"):
                reader.newest()
        assert reader["k"]


def test_one_whose_lease_ended_gives_one_all_the_same(
    store: octavo.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(store.path, read_only=True) as reader:
        late = read_only.wall_clock_ms() + 7_200_000
        monkeypatch.setattr(reader._pinned, "_clock_ms", lambda: late)
        with pytest.raises(octavo.SnapshotExpired):
            reader.get("k")
        shutil.rmtree(reader._found.path)  # as the owner sweeps it
        with reader.newest() as newer:
            assert newer["k"] == b"0" * 300


def test_offsets_of_another_file_of_the_name_are_not_taken(
    store: octavo.Store, tmp_path: Path
) -> None:
    name = active_file(store).name
    with octavo.open(store.path, read_only=True) as reader:
        end = active_file(store).stat().st_size
        store.close()
        path = Path(reader._found.path, name)
        assert pinning._known(RealDisk(), reader._found.path, reader._found.path, name) is not None
        other = tmp_path / "other"
        other.mkdir()
        body = bytearray(path.read_bytes())
        body[end - 1] ^= 1
        (other / name).write_bytes(body)
        assert pinning._known(RealDisk(), reader._found.path, str(other), name) is None
        (other / name).write_bytes(body[: end - 1])
        assert pinning._known(RealDisk(), reader._found.path, str(other), name) is None


def test_offsets_behind_the_end_of_a_file_that_was_cut_are_not_taken(tmp_path: Path) -> None:
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        for number in range(20):
            store.put(b"%02d" % number, b"value")
        active = store._running.inker.actor.active
        assert active is not None
        ends = list(active.offsets)
        image = killed(store, tmp_path / "image")
    (file,) = (image / "journal").glob("*.log")
    with octavo.open(image, read_only=True) as before:
        assert before.sqn == 20
        os.truncate(file, ends[10])  # of the link, too
        with before.newest() as after:
            assert (after.sqn, len(after), dict(after.items())) == (
                10, 10, {b"%02d" % number: b"value" for number in range(10)},
            )  # fmt: skip


def test_wherever_a_file_ended_before_the_rest_of_it_follows(
    store: octavo.Store, tmp_path: Path
) -> None:
    """Within records and batches, which are not there then, too."""
    disk = RealDisk()
    with store.batch() as batch:
        for key in (b"a", b"b", b"c"):
            batch.put(b"", key, b"v")
    store.delete("a")
    store.put("e", b"e", ttl=9_000, index={"f": ["t"]}, metadata=b"m")
    with store.batch() as batch:
        batch.put(b"", b"c", b"w")
        batch.delete(b"", b"b")
    body, name = active_file(store).read_bytes(), active_file(store).name
    path = tmp_path / name
    path.write_bytes(body)
    want = recovery.growing_tail(disk, str(path), name).offsets
    assert len(want) == 9
    seen: set[int] = set()
    for length in range(want[0], len(body) + 1):
        path.write_bytes(body[:length])
        known: array[int] = recovery.growing_tail(disk, str(path), name).offsets
        seen.add(len(known))
        path.write_bytes(body)
        assert recovery.growing_tail(disk, str(path), name, known).offsets == want
    assert seen == {1, 2, 5, 6, 7, 9}


def test_of_a_file_whose_offsets_are_damaged_all_is_read(
    store: octavo.Store, copied_from: list[int]
) -> None:
    with octavo.open(store.path, read_only=True) as first:
        (offsets,) = Path(store.path).glob("snapshots/*/*.offsets")
        offsets.write_bytes(offsets.read_bytes()[:-1] + b"?")
        store.put("l", b"1" * 300)
        with first.newest() as second:
            assert held(second) == held(store)
            with second.newest() as third:
                assert held(third) == held(store)
    assert copied_from[:2] == [0, 0]
    assert copied_from[2] > 0
