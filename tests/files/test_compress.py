"""Values that are too large for an LZ4 block stay as they are."""

from __future__ import annotations

import mmap

import pytest

from octavo.files.journal.compress import Compressor


@pytest.mark.parametrize("length", [0x7E000001, 0x80000001])
def test_a_value_that_no_block_can_hold_is_not_packed(length: int) -> None:
    with mmap.mmap(-1, length) as nothing, memoryview(nothing) as value:  # no page is touched
        assert Compressor().packed(value) is None


def test_one_that_shrinks_is() -> None:
    compressor = Compressor()
    assert len(compressor.packed(bytes(10_000)) or bytes(10_000)) < 1000
    assert compressor.saved_bytes > 9000
