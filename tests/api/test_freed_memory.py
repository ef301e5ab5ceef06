"""Who makes much at once, and drops it, has malloc keep what was freed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from whole_store import SEED, opened

from octavo.files.kernels import freed_memory
from octavo.files.kernels.freed_memory import MUCH_BYTES, keep_freed
from octavo.store import Store

COUNT = 20
LARGE = random.Random(SEED).randbytes(MUCH_BYTES // COUNT + 1)
PAIRS = [(b"%06d" % at, LARGE) for at in range(COUNT)]


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    keep_freed.cache_clear()
    yield
    keep_freed.cache_clear()


def kept() -> bool:
    return keep_freed.cache_info().currsize == 1


def by_batch(store: Store, pairs: list[tuple[bytes, bytes]]) -> None:
    with store.batch() as batch:
        for key, value in pairs:
            batch.put(b"", key, value)


def by_put_many(store: Store, pairs: list[tuple[bytes, bytes]]) -> None:
    store.put_many(pairs)


@pytest.mark.parametrize("write", [by_put_many, by_batch])
def test_writing_much_at_once_has_freed_memory_kept_and_writing_little_does_not(
    tmp_path: Path, write: Callable[[Store, list[tuple[bytes, bytes]]], None]
) -> None:
    with opened(tmp_path / "s") as store:
        write(store, PAIRS[: COUNT // 2])
        assert not kept()
        write(store, PAIRS)
        assert kept()


def test_a_put_of_much_metadata_has_freed_memory_kept_and_one_of_little_does_not(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"k", b"v", metadata=b"m" * (8 << 10))
        assert not kept()
        store.put(b"k", b"v", metadata=b"m" * (64 << 10))
        assert kept()


def test_reading_much_at_once_has_freed_memory_kept_and_reading_little_does_not(
    tmp_path: Path,
) -> None:
    keys = [key for key, _ in PAIRS]
    with opened(tmp_path / "s") as store:
        for key, value in PAIRS:
            store.put(key, value)
        store.get_many(keys[: COUNT // 2])
        store.get_many([b"absent"])
        assert not kept()
        assert store.get_many(keys) == [LARGE] * COUNT
        assert kept()


def test_no_room_for_the_block_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "_BLOCK_BYTES", 1 << 62)
    keep_freed()
    assert kept()
