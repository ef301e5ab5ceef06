"""Runs of records: where one ends, and that one by one they are what a scan says."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from octavo.files.journal import cdb, record, runs

SEED = 99
Said = tuple[int, int, bytes, bytes]
"""Kind, tag, bucket and key of a record."""


def body_of(said: list[Said], first: int = 0) -> bytes:
    """Records of these."""
    body = bytes(cdb.RECORDS_AT)
    for number, (kind, tag, bucket, key) in enumerate(said, first):
        value = b"value of " + key if kind == record.PUT else b""
        body += record.encode(number, SEED ^ len(body), kind, tag, bucket, key, value, 7)
    return body


def lengths(body: bytes) -> list[int]:
    """Of each run; 0 stands for a record that is in none."""
    found = cdb.scan_runs(body, cdb.RECORDS_AT, len(body), SEED, [])
    return [len(each.keys) if isinstance(each, runs.Run) else 0 for each in found]


def test_a_run_is_of_whatever_follows() -> None:
    said = [
        (record.PUT, 1, b"one", b"a"), (record.PUT, 1, b"one", b"bcd"),
        (record.PUT, 1, b"two", b"a"), (record.DELETE, 1, b"two", b"a"),
        (record.DELETE, 2, b"two", b"a"), (record.DELETE, 2, b"other", b"a"),
    ]  # fmt: skip
    body = body_of(said)
    assert lengths(body) == [6]
    rows = list(cdb.scan(body, cdb.RECORDS_AT, len(body), SEED, []))
    assert [(row.kind, row.tag, row.bucket, row.key) for row in rows] == said
    assert [row.relative_sqn for row in rows] == list(range(6))
    assert [row.end for row in rows] == [*(row.at for row in rows[1:]), len(body)]


FIELDS: list[dict[str, object]] = [
    {},
    {"expiry_ms": 1 << 40},
    {"metadata": b"of it"},
    {"index": b"\x00changes"},
    {"batch": (3, 9)},
    {"raw_bytes": 7},
    {"expiry_ms": 5, "metadata": b"m" * 300, "index": b"i", "batch": (0, 1), "raw_bytes": 9},
    {"sub_key": b"below"},
]


def any_records(rng: random.Random, count: int) -> bytes:
    """Records of which some are like the one before and some are not, and some numbers left out."""
    body, number = bytes(cdb.RECORDS_AT), 0
    fields, kind, tag, bucket = FIELDS[0], record.PUT, 1, b""
    for _ in range(count):
        if not rng.randrange(4):
            fields, bucket = rng.choice(FIELDS), rng.choice([b"", b"a", b"b", b"other"])
            kind = rng.choice([record.PUT, record.PUT, record.DELETE, record.KEY_DELTA])
            tag = rng.choice([1, 1, 2])
        body += record.encode(
            number, SEED ^ len(body), kind, tag, bucket, rng.choice([b"key", b"%d" % number]),
            rng.choice([b"", b"value", bytes(rng.randrange(99))]), 7, **fields,  # type: ignore[arg-type]
        )  # fmt: skip
        number += rng.choice([1, 1, 1, 1, 1, 1, 2, 40])
    return body


def nowhere(*_: object) -> Iterator[runs.Run]:
    return iter(())


@pytest.mark.parametrize("most", [3, runs.MOST])
@pytest.mark.parametrize("seed", range(30))
def test_what_is_in_runs_is_what_each_record_says(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    body = bytearray(any_records(rng, 120))
    for _ in range(rng.choice([0, 0, 3])):
        body[rng.randrange(cdb.RECORDS_AT, len(body))] ^= 1 << rng.randrange(8)
    end = rng.choice([len(body), rng.randrange(cdb.RECORDS_AT, len(body))])
    monkeypatch.setattr(runs, "MOST", most)
    damages: list[cdb.Damage] = []
    found = list(cdb.scan(bytes(body), cdb.RECORDS_AT, end, SEED, damages))
    monkeypatch.setattr(cdb, "runs", nowhere)
    wrong: list[cdb.Damage] = []
    assert found == list(cdb.scan(bytes(body), cdb.RECORDS_AT, end, SEED, wrong))
    assert damages == wrong


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many numbers were made at a time, to compare records with."""
    made: list[int] = []
    numbers = record.numbers

    def counted(first: int, count: int) -> tuple[bytes, ...]:
        made.append(count)
        return numbers(first, count)

    monkeypatch.setattr(record, "numbers", counted)
    return made


def test_records_that_are_not_alike_are_looked_at_once(made: list[int]) -> None:
    said = [(record.PUT, 1, b"%02d" % (number % 50), b"key") for number in range(5000)]
    assert sum(lengths(body_of(said))) == 5000
    assert sum(made) < 2 * 5000


def test_numbers_that_are_left_out_cost_no_more_than_others(made: list[int]) -> None:
    body = bytes(cdb.RECORDS_AT)
    for number in range(1 << 20, (1 << 20) + 5000, 2):
        body += record.encode(number, SEED ^ len(body), record.PUT, 1, b"", b"k", b"v", 7)
    assert lengths(body) == [1] * 2500
    assert sum(made) < 2 * 5000


def test_a_record_that_is_in_no_run_is_scanned_by_itself() -> None:
    body = bytes(cdb.RECORDS_AT)
    for number in range(9):
        more: dict[str, bytes] = {"sub_key": b"below"} if number == 4 else {}
        body += record.encode(number, SEED ^ len(body), record.PUT, 1, b"", b"k", b"v", 7, **more)  # type: ignore[arg-type]
    assert lengths(body) == [4, 0, 4]


def test_a_run_is_bounded() -> None:
    said = [(record.PUT, 1, b"", b"%d" % number) for number in range(runs.MOST + 3)]
    assert lengths(body_of(said)) == [runs.MOST, 3]


def test_a_number_left_out_ends_a_run() -> None:
    said = [(record.PUT, 1, b"", b"%d" % number) for number in range(6)]
    body = bytearray(body_of(said))
    rows = list(cdb.scan(bytes(body), cdb.RECORDS_AT, len(body), SEED, []))
    at, end = rows[3].at, rows[3].end
    body[at:end] = record.encode(4, SEED ^ at, record.PUT, 1, b"", b"3", b"value of 3", 7)
    assert lengths(bytes(body)) == [3, 1, 2]


def test_nothing_is_believed_of_the_highest_numbers() -> None:
    said = [(record.PUT, 1, b"", b"key")]
    assert lengths(body_of(said, first=(1 << 64) - 1)) == [0]


def test_a_run_can_be_cut_at_a_number() -> None:
    said = [(record.PUT, 1, b"", b"%d" % number) for number in range(5)]
    body = body_of(said, first=10)
    run = next(runs.runs(body, cdb.RECORDS_AT, len(body), SEED))
    rest = run.behind(12)
    assert (rest.relative_sqn, rest.keys, len(rest.starts)) == (13, [b"3", b"4"], 2)
    assert run.behind(-1) == run == run.behind(9)


def evenly(count: int) -> list[Said]:
    """Puts whose records are of one length."""
    return [(record.PUT, 1, b"one", b"%03d" % number) for number in range(count)]


def test_records_of_one_length_are_in_longer_and_longer_runs_until_something_else_follows() -> None:
    body = body_of(evenly(40))
    torn = body + body_of(evenly(41))[len(body) : -1]
    for each in (body, torn):
        found = list(runs.runs(each, cdb.RECORDS_AT, len(each), SEED))
        assert [key for run in found for key in run.keys] == [key for *_, key in evenly(40)]
        assert [len(run.keys) for run in found] == [16, 24]
        assert found[-1].end == len(body)
        whole = list(cdb.scan(each, cdb.RECORDS_AT, len(each), SEED, []))
        assert [row.at for row in whole] == [at for run in found for at in run.starts]
        assert [row.bucket for row in whole] == [b"one"] * 40


@pytest.mark.parametrize(
    "other",
    [
        (record.DELETE, 1, b"one", b"key and its value"),
        (record.PUT, 2, b"one", b"020"),
        (record.PUT, 1, b"two", b"020"),
        (record.PUT, 1, b"on", b"0201"),
        (record.PUT, 1, b"one", b"02"),
    ],
)
def test_one_that_is_not_alike_among_records_of_one_length_is_itself(other: Said) -> None:
    said = evenly(40)
    said[20] = other
    body = body_of(said)
    rows = list(cdb.scan(body, cdb.RECORDS_AT, len(body), SEED, []))
    assert [(row.kind, row.tag, row.bucket, row.key) for row in rows] == said
    assert [row.end for row in rows] == [*(row.at for row in rows[1:]), len(body)]


@pytest.mark.parametrize("place", [7, 20])
def test_another_number_among_records_of_one_length_is_seen(place: int) -> None:
    body = bytearray(body_of(evenly(40)))
    rows = list(cdb.scan(bytes(body), cdb.RECORDS_AT, len(body), SEED, []))
    row = rows[place]
    body[row.at : row.end] = record.encode(
        77, SEED ^ row.at, record.PUT, 1, b"one", row.key, b"value of " + row.key, 7
    )
    found = list(cdb.scan(bytes(body), cdb.RECORDS_AT, len(body), SEED, []))
    assert found == [*rows[:place], row._replace(relative_sqn=77), *rows[place + 1 :]]


def test_a_flipped_byte_among_records_of_one_length_costs_one_of_them() -> None:
    body = body_of(evenly(20))
    whole = list(cdb.scan(body, cdb.RECORDS_AT, len(body), SEED, []))
    for place in range(cdb.RECORDS_AT, len(body)):
        wrong = bytearray(body)
        wrong[place] ^= 0x10
        found = list(cdb.scan(bytes(wrong), cdb.RECORDS_AT, len(body), SEED, []))
        hit = (place - cdb.RECORDS_AT) // (whole[0].end - whole[0].at)
        assert found == whole[:hit] + whole[hit + 1 :], place
