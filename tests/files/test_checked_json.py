"""Small files of JSON with a checksum."""

from __future__ import annotations

import sys
from contextlib import suppress

from octavo.files.checked_json import decoded, encoded


def test_who_has_recursed_too_far_to_read_one_is_told_of_no_damage() -> None:
    text, read = encoded({"format": 1, "tags": {"t": 1}}), 0

    def at(depth: int) -> object:
        return at(depth - 1) if depth else decoded(text, "OCTAVO", "a store", 1)

    limit = sys.getrecursionlimit()
    for depth in range(limit, limit - 300, -1):
        with suppress(RecursionError):
            assert at(depth) == {"format": 1, "tags": {"t": 1}}
            read += 1
    assert 0 < read < 299
