"""Ledger keys: where a bucket's name ends in one, whatever it is made of."""

from __future__ import annotations

import pytest
from beside import seeded

from octavo.files.ledger import ledger_key


def test_a_ledger_key_comes_apart_as_it_was_put_together() -> None:
    rng = seeded("ledger keys")
    for _ in range(20_000):
        tag, name, key = (
            rng.choice([0x01, 0x6F, 0x00, 0xFF]),
            bytes(rng.choices([0, 0, 255, 97], k=rng.randrange(9))),
            bytes(rng.choices([0, 0, 255, 97], k=rng.randrange(1, 9))),
        )
        whole = ledger_key.prefix(tag, name) + key
        assert ledger_key.split(whole) == (tag, name, key)


@pytest.mark.parametrize(
    "whole",
    [
        b"",
        b"o",
        b"oname",
        b"oname\x00",
        b"oa\x00\xff",
        b"oa\x00bb\x00\x00k",
        b"oa\x00\xff\x00b\x00\x00",
    ],
)
def test_what_is_no_ledger_key_is_refused(whole: bytes) -> None:
    with pytest.raises(ValueError, match=r"malformed|not found"):
        ledger_key.end_of_prefix(whole)
