"""Objects of many megabytes, among small ones."""

from __future__ import annotations

from pathlib import Path

from beside import Beside, seeded, value

import octavo

MiB = 1 << 20
SMALL_FILES = {"roll_size_bytes": 4 * MiB, "push_rows": 64, "push_bytes": MiB}


def test_big_and_small_objects_side_by_side(tmp_path: Path) -> None:
    rng = seeded("big")
    sizes = [3 * MiB, 11 * MiB, 2 * MiB + 1, MiB, MiB - 1, 70_000]
    with Beside(tmp_path / "store", **SMALL_FILES) as beside:
        for turn in range(3):
            for number, size in enumerate(sizes):
                beside.put(b"big", b"%d" % number, value(rng, size))
                beside.put_many(b"", [(b"%d-%d" % (number, at), b"s") for at in range(50)])
            beside.check()
            print("turn", turn)
        beside.reopen()
        beside.check()
        beside.store.compact()
        beside.check()
        beside.sound()
        whole = sum(map(len, beside.content.values()))
        assert beside.store.stats()["journal"]["sealed_bytes"] < 1.3 * whole


def test_an_object_larger_than_a_journal_file_has_room(tmp_path: Path) -> None:
    rng = seeded("huge")
    what = rng.randbytes(20 * MiB)
    with octavo.open(tmp_path / "store", roll_size_bytes=MiB) as store:
        store.put("huge", what)
        store.put("after", b"x")
        assert store.get("huge") == what
    with octavo.open(tmp_path / "store", roll_size_bytes=MiB) as store:
        assert store.get("huge") == what
        assert store.get("after") == b"x"
        head = store.head("huge")
        assert head is not None
        assert head.size == 20 * MiB


def test_big_objects_in_a_batch_are_whole_or_absent(tmp_path: Path) -> None:
    rng = seeded("batch")
    parts = {b"%d" % number: rng.randbytes(MiB) for number in range(8)}
    with octavo.open(tmp_path / "store", **SMALL_FILES) as store:
        with store.batch() as batch:
            for key, what in parts.items():
                batch.put(b"", key, what)
            batch.discard()
        assert not store
        with store.batch() as batch:
            for key, what in parts.items():
                batch.put(b"", key, what)
        assert dict(store.items()) == parts
    with octavo.open(tmp_path / "store", **SMALL_FILES) as store:
        assert dict(store.items()) == parts


def test_big_metadata_and_long_keys(tmp_path: Path) -> None:
    rng = seeded("long")
    with octavo.open(tmp_path / "store", **SMALL_FILES) as store:
        rows = {rng.randbytes(60_000): rng.randbytes(100_000) for _ in range(20)}
        for key, metadata in rows.items():
            store.put(key, b"v", metadata=metadata)
        store.compact()
        for key, metadata in rows.items():
            head = store.head(key)
            assert head is not None
            assert head.metadata == metadata
        assert list(store.keys()) == sorted(rows)
