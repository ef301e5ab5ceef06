"""Lists of keys that end at a limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from whole_store import flush

import octavo
from octavo.actors.reader import Reader


@pytest.mark.parametrize("limit", [150, 201, 250, 1000, 1025, 4000])
@pytest.mark.parametrize("reverse", [False, True])
def test_keys_up_to_a_limit_are_found_in_one_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, *, reverse: bool
) -> None:
    found: list[int] = []
    whole = Reader.windows

    def counted(self: Reader, *args: Any, **options: Any) -> Iterator[Any]:
        for window in whole(self, *args, **options):
            found.append(len(window.keys))
            yield window

    with octavo.open(tmp_path / "s") as store:
        store.put_many((b"%05d" % number, b"v") for number in range(9000))
        flush(store)
        store.put_many((b"%05d" % number, b"w") for number in range(0, 9000, 40))
        monkeypatch.setattr(Reader, "windows", counted)
        here = sorted((b"%05d" % number for number in range(9000)), reverse=reverse)
        assert list(store.keys(limit=limit, reverse=reverse)) == here[:limit]
        assert len(found) == 1
        found.clear()
        assert list(store.keys(limit=8500, reverse=reverse)) == here[:8500]
        assert found[0] < 5000
