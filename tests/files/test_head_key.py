"""Keys and sub-keys as one: in the order of the pairs, and apart again."""

from __future__ import annotations

import pytest
from beside import seeded

from octavo.files.errors import Corruption
from octavo.files.ledger import head_key


def test_pairs_come_apart_again_and_keep_their_order() -> None:
    rng = seeded("head keys")
    pairs = sorted(
        {
            (
                bytes(rng.choices([0, 1, 255, 97], k=rng.randrange(1, 5))),
                bytes(rng.choices([0, 1, 255, 97], k=rng.randrange(5))),
            )
            for _ in range(5000)
        }
    )
    wholes = [head_key.whole(*pair) for pair in pairs]
    assert wholes == sorted(wholes)
    assert [head_key.apart(whole) for whole in wholes] == pairs


def test_what_is_no_such_key_is_damage() -> None:
    with pytest.raises(Corruption, match="no key of a head-only store"):
        head_key.apart(b"k\x00\xffs")
