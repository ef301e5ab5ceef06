"""A signal's handler that raises as something is put into a batch: that is in it whole, or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import octavo


class Interrupted(list[Any]):
    """Raises as something is appended, once."""

    def __init__(self, items: list[Any], *, behind: bool) -> None:
        super().__init__(items)
        self.behind = behind

    def append(self, item: Any) -> None:
        if self.behind:
            super().append(item)
        raise KeyboardInterrupt


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("where", ["_operations", "_ledger_keys", "_said"])
@pytest.mark.parametrize("more", [{}, {"index": octavo.IndexEdit(add={"f": 1})}])
def test_what_is_put_is_in_it_with_all_that_is_said_of_it_or_not(
    tmp_path: Path, where: str, behind: bool, more: dict[str, Any]
) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put("b", "old")
        assert store["b"] == b"old"  # and is in the read cache
        batch = store.batch()
        setattr(batch, where, Interrupted(getattr(batch, where), behind=behind))
        with pytest.raises(KeyboardInterrupt):
            batch.put("", "a", "1", if_sqn=0, **more)
        setattr(batch, where, list(getattr(batch, where)))
        there = len(batch) == 1
        batch.put("", "b", "2")
        batch.put("", "c", "3", if_sqn=0)
        batch.commit()
        wanted = {b"b": b"2", b"c": b"3"} | ({b"a": b"1"} if there else {})
        assert dict(store.items()) == wanted == {key: store.get(key) for key in wanted}
        assert list(store.index("f").keys()) == ([b"a"] if there and more else [])
        assert store.verify().ok


@pytest.mark.parametrize("where", ["_operations", "_ledger_keys", "_said"])
def test_a_condition_is_of_its_own_put(tmp_path: Path, where: str) -> None:
    with octavo.open(tmp_path / "s", mode="head_only") as store:
        bucket = store.head_bucket("")
        bucket.put("a", "old")
        batch = store.head_batch()
        setattr(batch, where, Interrupted(getattr(batch, where), behind=True))
        with pytest.raises(KeyboardInterrupt):
            batch.put("", "a", "1", if_sqn=7)
        setattr(batch, where, list(getattr(batch, where)))
        if len(batch):
            with pytest.raises(octavo.Conflict):
                batch.commit()
            assert bucket.get("a") == b"old"
        else:
            batch.put("", "b", "2")
            batch.commit()
            assert (bucket.get("a"), bucket.get("b")) == (b"old", b"2")
