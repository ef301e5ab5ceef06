"""SIGKILL at any moment: nothing acknowledged is lost, batches and backups are whole."""

from __future__ import annotations

import killing_cases


def case(seed: int, number: int) -> dict[str, int]:
    return killing_cases.kill(seed, number)
