"""Puts of a journal as columns: the short way, for such as are alike, and the long one."""

from __future__ import annotations

import random
from array import array
from dataclasses import fields

import numpy as np
import pytest
from whole_store import SEED as CHANCE

from octavo.files.journal import cdb, record, record_columns
from octavo.files.journal.record_columns import RecordColumns, columns_of

SEED = 0x0BAD_5EED_0102_0304
TAG = 0x6F
COUNT = 40


@pytest.fixture
def rng() -> random.Random:
    print(f"OCTAVO_SEED={CHANCE}")
    return random.Random(CHANCE)


def journal(rng: random.Random, odd: dict[int, dict[str, object]]) -> tuple[bytes, array[int]]:
    """(an unsealed file, its offsets) of puts that are alike, but for those that ``odd`` names."""
    parts = [cdb.beginning(cdb.FileHeader(1, 1, SEED, 5))]
    offsets = array("I", (cdb.RECORDS_AT,))
    for number in range(COUNT):
        given: dict[str, object] = {
            "number": number, "kind": record.PUT, "tag": TAG, "bucket": rng.randbytes(2),
            "key": b"%04d" % number, "value": rng.randbytes(30), "time_ms": 1000 + number,
            "expiry_ms": 0, "metadata": b"",
        }  # fmt: skip
        given |= odd.get(number, {})
        parts.append(
            record.encode(
                given["number"], SEED ^ offsets[-1], given["kind"], given["tag"], given["bucket"],
                given["key"], given["value"], given["time_ms"], expiry_ms=given["expiry_ms"],
                metadata=given["metadata"],
            )  # type: ignore[arg-type]
        )  # fmt: skip
        offsets.append(offsets[-1] + len(parts[-1]))
    return b"".join(parts), offsets


def told(
    body: bytes, offsets: array[int], relative: list[int], check: int | None = SEED
) -> tuple[dict[str, list[int]], list[int], int]:
    """(the columns, the numbers to be looked at with care, whether they came the short way)."""
    table = np.frombuffer(offsets, dtype=np.uint32)
    found, careful = columns_of(body, table, np.array(relative, dtype=np.int64), check, TAG)
    columns = {each.name: getattr(found, each.name).tolist() for each in fields(found)[:-1]}
    return columns, careful.tolist(), found.apart


def long_way(
    monkeypatch: pytest.MonkeyPatch, body: bytes, offsets: array[int], relative: list[int]
) -> tuple[dict[str, list[int]], list[int], int]:
    with monkeypatch.context() as patch:
        patch.setattr(record_columns, "_alike", lambda *_: None)
        return told(body, offsets, relative)


ODD: dict[str, dict[str, object]] = {
    "nothing": {},
    "a delete": {"kind": record.DELETE, "value": b""},
    "a delete of the same length": {"kind": record.DELETE, "value": bytes(30)},
    "another type": {"tag": 0x70},
    "another number": {"number": 7777},
    "a longer key and a shorter value": {"key": b"longer", "value": bytes(28)},
    "a longer bucket and a shorter key": {"bucket": b"123", "key": b"012"},
    "a shorter value": {"value": b"short"},
    "no value": {"value": b""},
    "an expiry": {"expiry_ms": 99, "value": bytes(22)},
    "metadata": {"metadata": b"abcd", "value": bytes(22)},
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("at", [0, 17, COUNT - 1])
def test_both_ways_tell_the_same(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, what: str, at: int
) -> None:
    body, offsets = journal(rng, {at: ODD[what]})
    for relative in (list(range(COUNT)), list(range(5, 30)), [at], [1, 2, 4], [COUNT + 3], []):
        short, careful, _ = told(body, offsets, relative)
        assert (short, careful) == long_way(monkeypatch, body, offsets, relative)[:2]


def test_records_that_are_alike_are_evenly_apart(rng: random.Random) -> None:
    body, offsets = journal(rng, {20: ODD["a shorter value"]})
    apart = offsets[1] - offsets[0]
    assert told(body, offsets, list(range(20)))[2] == apart
    assert told(body, offsets, list(range(21)))[2] == 0


def test_a_changed_byte_is_told_of_records_that_are_alike(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, offsets = journal(rng, {})
    for _ in range(200):
        at = rng.randrange(offsets[0], offsets[-1])
        wrong = bytearray(body)
        wrong[at] ^= 1 << rng.randrange(8)
        row = int(np.searchsorted(np.array(offsets), at, side="right")) - 1
        found, careful, apart = told(bytes(wrong), offsets, list(range(COUNT)))
        assert apart == 0
        assert careful == [row]
        assert row not in found["rows"]


def test_cut_short_files_are_not_read_beyond_their_end(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, offsets = journal(rng, {})
    for missing in (1, 10, 60, 200):
        short = told(body[:-missing], offsets, list(range(COUNT)))
        assert short[2] == 0
        assert short == long_way(monkeypatch, body[:-missing], offsets, list(range(COUNT)))


def test_parts_of_a_slice_are_those_of_the_records(rng: random.Random) -> None:
    body, offsets = journal(rng, {})
    raw = np.frombuffer(body, dtype=np.uint8)
    table = np.frombuffer(offsets, dtype=np.uint32)
    numbers = np.arange(COUNT, dtype=np.int64)
    found, _ = columns_of(body, table, numbers, SEED, TAG)
    for columns in (found, found.between(3, 9), found.between(5, 5)):
        assert columns.apart
        assert parts(columns, raw) == parts(_unevenly(columns), raw)


def _unevenly(columns: RecordColumns) -> RecordColumns:
    arrays = {each.name: getattr(columns, each.name) for each in fields(columns)}
    return RecordColumns(**arrays | {"apart": 0})


def parts(columns: RecordColumns, raw: record_columns.Bytes) -> list[bytes]:
    pairs = (
        (columns.buckets_at, columns.bucket_bytes), (columns.keys_at, columns.key_bytes),
        (columns.metas_at, columns.meta_bytes), (columns.values_at, columns.value_bytes),
    )  # fmt: skip
    out = []
    for at, lengths in pairs:
        made = columns.strings(raw, at, lengths, lambda count: np.empty(count, np.uint8))
        out += [made.blob.tobytes(), made.offsets.tobytes()]
    return out
