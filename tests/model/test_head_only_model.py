"""A head-only store against a dict; ``scripts/campaign head-only`` goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from head_only_machine import Machine
from whole_store import SEED

from octavo.actors import reader

STEPS = 250


@pytest.mark.parametrize("number", range(6))
def test_it_holds_what_a_dict_does(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"OCTAVO_SEED={SEED}")
    monkeypatch.setattr(
        reader, "_LONG", (8, 24, 1024)[number % 3]
    )  # from where on rows are columns
    Machine(tmp_path, SEED + number).run(STEPS)
