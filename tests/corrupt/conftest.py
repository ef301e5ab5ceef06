"""Stores that are damaged in hundreds of ways stand in memory: each is opened, written to and
closed, and would wait for a disk four times."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_memory import place

_ROOM_BYTES = 256 << 20


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """As pytest's; in memory, where there is room."""
    memory = place(_ROOM_BYTES)
    if memory is None:
        yield tmp_path
    else:
        # A worker whose store a test left open may still write as its files go.
        with tempfile.TemporaryDirectory(
            prefix="octavo-corrupt-", dir=memory, ignore_cleanup_errors=True
        ) as home:
            yield Path(home)
