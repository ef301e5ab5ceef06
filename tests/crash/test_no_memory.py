"""Allocations that fail, in calls of every kind: a short form of the campaign ``no-memory``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("_testcapi")  # some distributions leave it out
from no_memory import KINDS, starved

SEED = "20261122"
ONCE, A_WHILE = 1, 25
GROUPS = {
    "writes": ("put", "put_sync", "put_index", "delete", "batch", "put_many", "delete_many"),
    "reads": ("get", "head", "items", "keys", "index", "merkle", "snapshot"),
    "other reads": ("get_many", "by_sqn", "changes", "reader", "verify"),
    "few": ("few", "popitem", "edit"),
    "entering": ("put_entering",),
    "figures": ("arrow", "tell", "renew"),
    "upkeep": ("publish", "backup", "compact", "save", "close", "open"),
    "heads": ("heads put", "heads delete", "heads batch", "heads get", "heads rows", "heads few"),
    "upkeep of heads": (
        "heads snapshot",
        "heads reader",
        "heads publish",
        "heads backup",
        "heads restore",
        "heads verify",
        "heads trim",
        "heads save",
        "heads close",
        "heads open",
    ),
    "other upkeep": ("restore", "acknowledge", "ingest"),
}
STEPS = {"publish": 53, "backup": 53, "compact": 53, "close": 101, "open": 53, "save": 997}
STEPS |= {"reader": 53, "verify": 53, "restore": 53, "ingest": 53, "trim": 53}
STEPS |= {"few": 53, "tell": 53}
MOST = 30


@pytest.mark.parametrize("fails", [ONCE, A_WHILE])
@pytest.mark.parametrize("group", GROUPS)
def test_without_memory_a_call_is_done_or_not_and_the_store_goes_on(
    tmp_path: Path, group: str, fails: int
) -> None:
    print("seed", SEED)
    steps = {kind: STEPS.get(kind.removeprefix("heads "), 13) for kind in GROUPS[group]}
    works = [(kind, fails, 5, step, MOST) for kind, step in steps.items()]
    done = starved(tmp_path, SEED, works)
    print(done)
    assert done["failures"] > 20 or "ends of the interpreter" in done


def test_no_kind_of_call_is_left_out() -> None:
    assert {kind for kinds in GROUPS.values() for kind in kinds} == set(KINDS)
