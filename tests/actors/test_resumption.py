"""Where an opening goes on giving sequence numbers: no number is given twice."""

from __future__ import annotations

from array import array

import pytest

from octavo.actors.inker import CEILING_STEP
from octavo.actors.opening.resumption import MOST_GONE, Resumption, resumed
from octavo.files.errors import Corruption
from octavo.files.journal.journal_names import MAX_BASE
from octavo.manifest.journal_manifest import JournalEntry, JournalManifest
from octavo.manifest.recovery import Tail

AHEAD = 2 * CEILING_STEP


def manifest(last: int, ceiling: int) -> JournalManifest:
    """Of one sealed file with the numbers 1 to ``last``; of none, where that is 0."""
    entry = JournalEntry(f"{1:016x}-{7:016x}.cdb", 1, last, last, 4096, 7)
    return JournalManifest.empty().edit([entry] if last else [], ceiling=ceiling)


def tail(base: int, count: int) -> Tail:
    offsets = array("I", range(2112, 2112 + 10 * count + 1, 10))
    return Tail(f"{base:016x}-{9:016x}.log", base, 9, False, offsets)


def found(
    last: int, ceiling: int, tails: list[Tail], persisted_sqn: int = 0, *, damaged: bool = False
) -> Resumption:
    return resumed(
        manifest(last, ceiling), tails, persisted_sqn, directory="/s/journal", damaged=damaged
    )


@pytest.mark.parametrize(
    ("last", "ceiling", "tails", "following", "clean"),
    [
        (0, 1, [], 1, True),  # it was just made
        (9, 10, [], 10, True),  # it was closed
        (9, 15, [tail(10, 5)], 15, True),
        (9, 1 << 20, [tail(10, 5)], 1 << 20, False),  # it was killed
        (9, 12, [tail(10, 5)], 15, False),  # its ceiling is from before
        (9, 10, [tail(20, 0)], 20, False),  # those before it are gone
        (9, 10, [tail(20, 3), tail(10, 2)], 23, False),  # in whatever order
        (9, 10, [tail(10, 0)], 10, True),
        (9, 10, [tail(10 + MOST_GONE + 1, 0)], 10 + MOST_GONE + 1, False),  # just to be believed
        (9, 10, [tail(10 + MOST_GONE + 2, 0)], 10, True),  # and just not
    ],
)
def test_the_next_number_is_above_all_that_were_given(
    last: int, ceiling: int, tails: list[Tail], following: int, clean: bool
) -> None:
    got = found(last, ceiling, tails)
    assert (got.following, got.clean) == (following, clean)
    assert got.manifest.ceiling == following + AHEAD
    believed = all(each.last_sqn < following for each in tails)
    assert bool(got.notes) == (not believed)


def test_where_a_ceiling_may_be_lost_numbers_are_left_out() -> None:
    for ceiling, following in ((10, 10), (1000, 1000), (12, 15)):
        got = found(9, ceiling, [tail(10, 5)] if following == 15 else [], damaged=True)
        assert (got.following, got.clean) == (following + AHEAD, False)
        assert got.manifest.ceiling == following + 2 * AHEAD


def test_numbers_that_the_ledger_alone_knows_of_are_not_given_again() -> None:
    for persisted in (10, 50):
        got = found(9, 10, [], persisted)
        assert (got.following, got.clean) == (persisted + 1 + AHEAD, False)
        assert got.manifest.horizon == persisted
        assert len(got.notes) == 1
    got = found(9, 10, [], 9)
    assert (got.following, got.clean, got.manifest.horizon, got.notes) == (10, True, 0, [])


def test_an_empty_file_is_believed_to_be_as_far_on_as_the_ledger_is() -> None:
    far = 1 << 50
    assert found(9, far + 1, [tail(far + 100, 0)], far).following == far + 100
    assert found(9, 10, [tail(far + 100, 0)], far).following == far + 100


def test_the_end_of_all_numbers_is_told() -> None:
    last = MAX_BASE - AHEAD - 1
    assert found(9, 10, [tail(last, 1)]).manifest.ceiling == MAX_BASE
    with pytest.raises(Corruption, match="no store ever reaches") as told:
        found(9, 10, [tail(last + 1, 1)])
    assert told.value.file == f"/s/journal/{last + 1:016x}-{9:016x}.log"
