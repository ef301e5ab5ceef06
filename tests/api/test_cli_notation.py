"""The notations of the command line: text and JSON fields."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import filters
from octavo.arguments import to_expiry
from octavo.cli.options import to_moment
from octavo.figures import duration, moment, size
from octavo.files.errors import Misuse
from octavo.notation import from_hex, from_text, put_field, take_field, to_text
from octavo.pipeline.read_options import parsed

ANY = st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "ignore"))


@settings(derandomize=True, max_examples=500)
@given(ANY)
def test_the_text_notation_gives_back_any_bytes(raw: bytes) -> None:
    text = to_text(raw)
    assert text.isprintable()
    assert from_text(text.encode()) == raw


@settings(derandomize=True, max_examples=300)
@given(ANY)
def test_a_json_field_gives_back_any_bytes(raw: bytes) -> None:
    made: dict[str, Any] = {}
    put_field(made, "value", raw)
    assert take_field(json.loads(json.dumps(made)), "value") == raw


@settings(derandomize=True, max_examples=500)
@given(st.integers(0, 253_402_300_799_999))
def test_a_moment_is_told_and_understood_to_the_millisecond(ms: int) -> None:
    told = moment(ms)
    assert to_moment("--since", told) == ms
    when = datetime.fromisoformat(told)
    assert filters.to_moment("modified_since", when) == ms
    if ms >= 10**10:
        assert to_expiry(None, when, 0) == ms
    assert parsed({"path": "/s", "timestampAsOf": told}).timestamp_as_of == ms


def test_a_field_that_is_not_there_is_none() -> None:
    assert take_field({}, "value") is None


@pytest.mark.parametrize("line", [b"\\", b"a\\q", b"\\x1", b"\\xzz", b"\\\\\\"])
def test_a_bad_escape_is_refused(line: bytes) -> None:
    with pytest.raises(Misuse, match="backslash"):
        from_text(line)


@pytest.mark.parametrize("digits", ["0", "0g", "é", "0x00"])
def test_bad_hexadecimal_is_refused_by_name(digits: str) -> None:
    with pytest.raises(Misuse, match=r"^KEY="):
        from_hex("KEY", digits)


def test_figures_read_well() -> None:
    assert [size(n) for n in (0, 999, 1000, 123_456, 5 * 10**9, 7 * 10**12)] == [
        "0 B", "999 B", "1 kB", "123 kB", "5 GB", "7 TB",
    ]  # fmt: skip
    assert [duration(s) for s in (0.00005, 0.25, 3.14159, 250)] == [
        "50 us", "250 ms", "3.1 s", "250 s",
    ]  # fmt: skip
    assert moment(0) == "1970-01-01T00:00:00.000Z"
    assert moment(None) == ""
    assert moment(1 << 48) == f"{1 << 48} ms"
