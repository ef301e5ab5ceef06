"""What a fold held is given back when it ends, however it ends."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beside import LITTLE, Beside, seeded, until, value
from file_stats import stats_of


def on_disk(beside: Beside) -> int:
    """Bytes of the files of both halves."""
    halves = (Path(beside.path) / name for name in ("journal", "ledger"))
    return sum(each.st_size for half in halves for each in stats_of(half, "**/*"))


def waiting(beside: Beside) -> int:
    stats = beside.store.stats()
    return stats["merging"]["delete_pending"] + stats["compaction"]["delete_pending"]


def exhaust(fold: Iterator[Any]) -> None:
    for _ in fold:
        pass


def close(fold: Any) -> None:
    fold.close()


@pytest.mark.parametrize("end", [exhaust, close], ids=["read to its end", "closed"])
def test_the_space_of_replaced_files_comes_back_with_the_end_of_a_fold(
    tmp_path: Path, end: Callable[[Any], None]
) -> None:
    rng = seeded("fold")
    keys = [b"%04d" % number for number in range(1500)]
    with Beside(tmp_path / "store", **LITTLE) as beside:
        beside.put_many(b"", [(key, value(rng, 400)) for key in keys])
        beside.store.compact()  # which saves what is in memory first
        once = on_disk(beside)
        fold = beside.store.items()
        first = next(fold)
        for _ in range(3):
            beside.put_many(b"", [(key, value(rng, 400)) for key in keys])
        beside.store.compact()
        assert waiting(beside) > 0
        assert on_disk(beside) > 1.8 * once
        [held] = beside.store.stats()["live_snapshots"]
        assert held["holds_files"] == waiting(beside)
        assert first[0] == keys[0]
        end(fold)
        until(lambda: waiting(beside) == 0, "the files go")
        assert beside.store.stats()["live_snapshots"] == []
        # A file that nothing waits for any more may still be about to be removed.
        until(lambda: on_disk(beside) < 1.5 * once, "the space comes back")
        beside.check()


def test_a_fold_that_is_forgotten_holds_nothing_for_long(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        beside.put_many(b"", [(b"%04d" % number, bytes(300)) for number in range(1000)])
        beside.store.compact()
        fold = beside.store.keys()
        next(fold)
        beside.put_many(b"", [(b"%04d" % number, bytes(300)) for number in range(1000)])
        beside.store.compact()
        assert waiting(beside) > 0
        del fold
        gc.collect()
        beside.store.snapshot().close()  # whoever comes next clears away
        until(lambda: waiting(beside) == 0, "the files go")


def test_of_two_folds_the_older_one_holds(tmp_path: Path) -> None:
    with Beside(tmp_path / "store", **LITTLE) as beside:
        pairs = [(b"%04d" % number, bytes(300)) for number in range(1000)]
        beside.put_many(b"", pairs)
        beside.store.compact()
        older = beside.store.snapshot()
        beside.put_many(b"", pairs)
        beside.store.compact()
        younger = beside.store.snapshot()
        held = waiting(beside)
        assert held > 0
        younger.close()
        beside.store.compact()
        assert waiting(beside) >= held
        assert len(older) == 1000
        older.close()
        until(lambda: waiting(beside) == 0, "the files go")
