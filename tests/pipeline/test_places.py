"""Where records stand: in order, whatever a damaged or forged file says."""

from __future__ import annotations

import pytest

from octavo.files.errors import Corruption
from octavo.files.journal import cdb, record
from octavo.pipeline.places import Places, whole_records

SEED = 7


def body_of(*numbers: int, batches: dict[int, tuple[int, int]] | None = None) -> bytes:
    """Records of these numbers; ``batches``: of some of them."""
    body = bytes(cdb.RECORDS_AT)
    for number in numbers:
        batch = (batches or {}).get(number)
        body += record.encode(
            number, SEED ^ len(body), record.PUT, 1, b"", b"key", b"value", 5, batch=batch
        )
    return body


def found(body: bytes, above: int = -1) -> list[int]:
    places, _ = whole_records(body, cdb.RECORDS_AT, len(body), SEED, "f", above=above)
    return places.numbers.tolist()


@pytest.mark.parametrize("batches", [{}, {2: (0, 2), 3: (1, 2)}])
def test_numbers_that_do_not_ascend_are_left_out(batches: dict[int, tuple[int, int]]) -> None:
    assert found(body_of(5, 6, 7, 2, 3, 8, batches=batches)) == [5, 6, 7, 8]
    assert found(body_of(2, 3, 4, batches=batches), above=3) == [4]
    assert found(body_of(2, 3, batches=batches), above=9) == []


def test_a_batch_that_is_not_whole_is_left_out_and_read_again() -> None:
    body = body_of(1, 2, 3, batches={2: (0, 3), 3: (1, 3)})
    places, reached = whole_records(body, cdb.RECORDS_AT, len(body), SEED, "f")
    assert places.numbers.tolist() == [1]
    assert reached == places.ends[0]
    body += record.encode(
        4, SEED ^ len(body), record.PUT, 1, b"", b"key", b"value", 5, batch=(2, 3)
    )
    more, reached = whole_records(body, reached, len(body), SEED, "f", above=1)
    places.add(more)
    assert (places.numbers.tolist(), reached) == ([1, 2, 3, 4], len(body))
    assert places.follows == {1: 2, 2: 1}


@pytest.mark.parametrize(
    ("batches", "whole"),
    [
        ({0: (0, 2), 1: (0, 2), 2: (1, 2)}, [1, 2]),
        ({0: (0, 2), 2: (1, 2)}, []),
        ({1: (1, 2), 2: (0, 2), 3: (1, 2)}, [2, 3]),
        ({1: (1, 2), 2: (1, 2)}, []),
    ],
    ids=["its beginning", "with a gap", "its end", "two ends"],
)
def test_what_is_there_of_a_batch_goes_into_no_other_one(
    batches: dict[int, tuple[int, int]], whole: list[int]
) -> None:
    assert found(body_of(*batches, batches=batches)) == whole


def test_places_are_found_by_number_and_by_bytes() -> None:
    body = body_of(*range(10, 20))
    places, _ = whole_records(body, cdb.RECORDS_AT, len(body), SEED, "f")
    size = places.ends[0] - places.starts[0]
    here = places.within(12, 16)
    assert here == range(3, 7)
    assert [places.reaching(here, wanted) for wanted in (1, size, size + 1, 99 * size)] == [
        3, 3, 4, 7,
    ]  # fmt: skip
    assert (places.of(15), places.of(9), places.of(99)) == (5, None, None)
    assert Places().reaching(range(0), 5) == 0


def test_a_record_lost_in_the_middle_is_told_and_one_at_the_end_may_still_come() -> None:
    whole = body_of(*range(5))
    places, _ = whole_records(whole, cdb.RECORDS_AT, len(whole), SEED, "f")
    for lost in range(5):
        body = bytearray(whole)
        body[places.ends[lost] - 1] ^= 1
        if lost == 4:
            assert found(bytes(body)) == [0, 1, 2, 3]
            continue
        with pytest.raises(Corruption, match="open the store for writing") as told:
            found(bytes(body))
        assert (told.value.file, told.value.offset) == ("f", places.starts[lost])


def test_of_a_stretch_that_was_planned_all_records_are_there_or_damage_is_told() -> None:
    body = body_of(*range(5))
    places, _ = whole_records(body, cdb.RECORDS_AT, len(body), SEED, "f")
    start, end = places.starts[1], places.ends[3]
    here, _ = whole_records(body, start, end, SEED, "f", first=1, last=3)
    assert here.numbers.tolist() == [1, 2, 3]
    for cut in (end - 1, places.starts[3], start):
        with pytest.raises(Corruption, match="f at offset"):
            whole_records(body[:cut], start, end, SEED, "f", first=1, last=3)
