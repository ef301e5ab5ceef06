"""An attempt names the first and last keys of its files: there is room for few of the longest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import octavo
from octavo.files.door.disk import RealDisk
from octavo.files.handover import staging
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.wall_clock import wall_clock_ms


def test_what_an_attempt_could_not_name_is_refused_as_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_MAX_ATTEMPT_BYTES", 8 << 20)
    keys = [b"\xff" * 65_000 + b"%03d" % number for number in range(20)]

    def writer(attempt: str) -> StagedWriter:
        now = wall_clock_ms()
        return StagedWriter(RealDisk(), str(tmp_path), "j", attempt, now_ms=now, file_records=1)

    with octavo.open(tmp_path) as store:
        taken, refused = writer("a"), writer("b")
        taken.put_many(b"", keys[:9], [b"v"] * 9)
        taken.finish()
        with pytest.raises(octavo.Misuse, match=r"keys are so long.* load in more tasks"):
            refused.put_many(b"", keys, [b"v"] * 20)
        refused.abandon()
        assert not [name for name in os.listdir(tmp_path / "staging/j") if name.startswith("b")]
        store.ingest("j", ["a"])
        assert list(store) == keys[:9]
