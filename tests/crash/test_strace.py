"""System calls of a real store that fail, or are its last, in a few lives. Long form:
scripts/campaign strace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from said_loudly import or_say_so
from straced import NoStraceError, check, injected

SEED = os.environ.get("OCTAVO_SEED", "20261121")


@pytest.mark.parametrize("number", range(12))
def test_what_was_answered_is_there_whatever_call_failed(tmp_path: Path, number: int) -> None:
    print(f"OCTAVO_SEED={SEED} (a longer run: scripts/campaign strace)")

    def tried() -> dict[str, int]:
        check()
        return injected(tmp_path, f"{SEED} {number}")

    or_say_so("system calls that strace makes fail", tried, NoStraceError)
