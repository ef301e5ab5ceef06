"""What is to become of a journal record, by what the ledger knows of its key."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.files.jobs.key_deltas import is_newest
from octavo.files.jobs.live_records import (
    DROP,
    KEEP,
    SUPERSEDED,
    TO_DELETE,
    UNSURE,
    Newest,
    verdicts,
)
from octavo.files.journal.record import DELETE, KEY_DELTA, PUT

NOW = 1_000
NEVER = 0


@pytest.mark.parametrize(
    ("kind", "expiry", "known", "deleted", "clean_below", "verdict"),
    [
        # sqn 50 of a key whose newest version in the ledger is ``known`` (0: it is not there)
        (PUT, NEVER, 50, False, 0, KEEP),
        (PUT, NEVER, 51, False, 0, SUPERSEDED),
        (PUT, NEVER, 51, True, 0, SUPERSEDED),
        (PUT, NEVER, 51, True, 51, DROP),
        (PUT, NEVER, 0, False, 0, DROP),
        (PUT, NEVER, 49, False, 0, UNSURE),
        (PUT, NOW + 1, 50, False, 0, KEEP),
        (PUT, NOW, 50, False, 0, TO_DELETE),
        (PUT, NOW, 50, False, 50, DROP),
        (PUT, NOW + 1, 50, True, 0, TO_DELETE),  # a merge saw it expired; then the clock went back
        (PUT, NOW + 1, 0, False, 0, TO_DELETE),  # the same, and the ledger let go of it
        (PUT, NOW, 0, False, 49, TO_DELETE),
        (PUT, NOW, 0, False, 50, DROP),
        (PUT, NOW, 51, False, 0, SUPERSEDED),
        (DELETE, NEVER, 50, True, 0, KEEP),
        (DELETE, NEVER, 50, True, 49, KEEP),
        (DELETE, NEVER, 50, True, 50, DROP),
        (DELETE, NEVER, 0, False, 49, KEEP),
        (DELETE, NEVER, 0, False, 50, DROP),
        (DELETE, NEVER, 51, False, 0, DROP),
        (DELETE, NEVER, 49, False, 0, UNSURE),
        (KEY_DELTA, NEVER, 51, False, 0, SUPERSEDED),
        (KEY_DELTA, NEVER, 51, True, 50, SUPERSEDED),
        (KEY_DELTA, NEVER, 51, True, 51, DROP),
        (KEY_DELTA, NEVER, 0, False, 0, DROP),
    ],
)
def test_verdicts(
    kind: int, expiry: int, known: int, deleted: bool, clean_below: int, verdict: int
) -> None:
    found = verdicts(
        np.array([kind], np.uint8),
        np.array([50], np.uint64),
        np.array([expiry], np.uint64),
        Newest(np.array([known], np.uint64), np.array([deleted])),
        clean_below=clean_below,
        now_ms=NOW,
    )
    assert found.tolist() == [verdict]


def test_of_a_key_that_a_survey_knows_nothing_of_every_delta_is_the_newest() -> None:
    """It may have been replaced since."""
    known = np.array([10, 20], np.uint64), np.array([5, 15], np.uint64)
    names, sqns = np.array([10, 10, 17, 30], np.uint64), np.array([4, 5, 3, 3], np.uint64)
    assert is_newest(names, sqns, known).tolist() == [False, True, True, True]
