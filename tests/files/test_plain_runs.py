"""Runs of plain records: where one ends, and that one by one they are what a scan says."""

from __future__ import annotations

import pytest

from octavo.files import cdb, plain_runs, record

SEED = 99
Said = tuple[int, int, bytes, bytes]
"""Kind, tag, bucket and key of a record."""


def body_of(said: list[Said], first: int = 0, *, ttl: int = -1) -> bytes:
    """Records of these; the one numbered ``ttl`` has an expiry."""
    body = bytes(cdb.RECORDS_AT)
    for number, (kind, tag, bucket, key) in enumerate(said, first):
        value = b"value of " + key if kind == record.PUT else b""
        body += record.encode(
            number, SEED ^ len(body), kind, tag, bucket, key, value, 7,
            expiry_ms=5 if number == ttl else 0,
        )  # fmt: skip
    return body


def lengths(body: bytes) -> list[int]:
    """Of each run; 0 stands for a record that is in none."""
    found = cdb.scan_runs(body, cdb.RECORDS_AT, len(body), SEED, [])
    return [len(each.keys) if isinstance(each, plain_runs.PlainRun) else 0 for each in found]


def test_what_is_not_alike_ends_a_run() -> None:
    said = [
        (record.PUT, 1, b"one", b"a"), (record.PUT, 1, b"one", b"bcd"),
        (record.PUT, 1, b"two", b"a"), (record.DELETE, 1, b"two", b"a"),
        (record.DELETE, 2, b"two", b"a"), (record.DELETE, 2, b"other", b"a"),
    ]  # fmt: skip
    body = body_of(said)
    assert lengths(body) == [2, 1, 1, 1, 1]
    rows = list(cdb.scan(body, cdb.RECORDS_AT, len(body), SEED, []))
    assert [(row.kind, row.tag, row.bucket, row.key) for row in rows] == said
    assert [row.relative_sqn for row in rows] == list(range(6))
    assert [row.end for row in rows] == [*(row.at for row in rows[1:]), len(body)]


def test_a_record_with_a_field_is_in_no_run() -> None:
    said = [(record.PUT, 1, b"", b"%d" % number) for number in range(9)]
    assert lengths(body_of(said, ttl=4)) == [4, 0, 4]


def test_a_run_is_bounded() -> None:
    said = [(record.PUT, 1, b"", b"%d" % number) for number in range(plain_runs.MOST + 3)]
    assert lengths(body_of(said)) == [plain_runs.MOST, 3]


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
    run = plain_runs.plain_run(body, cdb.RECORDS_AT, len(body), SEED)
    assert run is not None
    rest = run.behind(12)
    assert (rest.relative_sqn, rest.keys, len(rest.starts)) == (13, [b"3", b"4"], 2)
    assert run.behind(-1) == run == run.behind(9)


def evenly(count: int) -> list[Said]:
    """Puts whose records are of one length."""
    return [(record.PUT, 1, b"one", b"%03d" % number) for number in range(count)]


def test_records_of_one_length_are_one_run_until_something_else_follows() -> None:
    body = body_of(evenly(40))
    torn = body + body_of(evenly(41))[len(body) : -1]
    for each in (body, torn):
        run = plain_runs.plain_run(each, cdb.RECORDS_AT, len(each), SEED)
        assert run is not None
        assert (run.keys, run.end) == ([key for *_, key in evenly(40)], len(body))
        whole = list(cdb.scan(each, cdb.RECORDS_AT, len(each), SEED, []))
        assert [row.at for row in whole] == list(run.starts)
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


def test_a_number_left_out_among_records_of_one_length_is_seen() -> None:
    body = bytearray(body_of(evenly(40)))
    rows = list(cdb.scan(bytes(body), cdb.RECORDS_AT, len(body), SEED, []))
    at = rows[20].at
    for number, row in enumerate(rows[20:], 21):
        body[row.at : row.end] = record.encode(
            number, SEED ^ row.at, record.PUT, 1, b"one", row.key, b"value of " + row.key, 7
        )
    assert lengths(bytes(body)) == [20, 20]
    assert [row.relative_sqn for row in cdb.scan(body, at, len(body), SEED, [])] == list(
        range(21, 41)
    )


def test_a_flipped_byte_among_records_of_one_length_costs_one_of_them() -> None:
    body = body_of(evenly(20))
    whole = list(cdb.scan(body, cdb.RECORDS_AT, len(body), SEED, []))
    for place in range(cdb.RECORDS_AT, len(body)):
        wrong = bytearray(body)
        wrong[place] ^= 0x10
        found = list(cdb.scan(bytes(wrong), cdb.RECORDS_AT, len(body), SEED, []))
        hit = (place - cdb.RECORDS_AT) // (whole[0].end - whole[0].at)
        assert found == whole[:hit] + whole[hit + 1 :], place
