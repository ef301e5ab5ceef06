"""Columns as Arrow arrays: what there is no room for, and no module."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from octavo.files.errors import Misuse
from octavo.files.kernels.arrow import binary_array, pyarrow
from octavo.files.kernels.columns import ByteColumn
from octavo.pipeline.value_views import Views


def test_without_pyarrow_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Misuse, match=r"octavo\[arrow\]"):
        pyarrow()


def test_more_bytes_than_a_binary_array_can_hold_are_refused() -> None:
    """Their offsets have 31 bits, and a value may have 3 GiB."""
    blob, most = np.zeros(0, dtype=np.uint8), (1 << 31) - 1
    with pytest.raises(Misuse, match="2147483648 bytes"):
        binary_array(ByteColumn(blob, np.array([0, most + 1])))
    with pytest.raises(Misuse, match="2147483648 bytes"):
        Views(1).add(b"abc", np.array([0]), np.array([0]), np.array([most + 1]))
