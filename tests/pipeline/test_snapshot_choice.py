"""What Spark's tasks read is pinned by links."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from whole_store import opened
from without_links import refuse_links

import octavo
from octavo.files.door.disk import RealDisk
from octavo.pipeline import folding
from octavo.pipeline.metadata import TABLES
from octavo.pipeline.read_options import ReadOptions
from octavo.pipeline.snapshot_choice import chosen

READS: dict[str, tuple[Callable[[str], object], str]] = {
    "load": (lambda path: chosen(ReadOptions(path)), "; name a snapshot .*, or copy the store"),
    "fold": (folding._published, "; name a snapshot .*, or copy the store"),
    "journal": (lambda path: list(TABLES["journal"][1](path)), "by links; copy the store"),
}
"""What pins a store, and what each can do instead."""


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("name", READS)
def test_where_no_link_can_be_made_what_can_be_read_is_told(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s") as store:
        store.put(b"a", b"v")
        made = store.snapshot().publish("nightly")
    refuse_links(monkeypatch, number)
    read, instead = READS[name]
    with pytest.raises(octavo.Misuse, match=f"no links can be made.*{instead}"):
        read(store.path)
    assert chosen(ReadOptions(store.path, snapshot="nightly")).id == made.id


def test_what_cannot_be_read_is_not_said_to_lack_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: RealDisk, path: str, limit_bytes: int) -> bytes:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)

    with opened(tmp_path / "s") as store:
        store.put(b"a", b"v")
    monkeypatch.setattr(RealDisk, "read", refused)
    with pytest.raises(octavo.Misuse, match=r"OCTAVO.*must be allowed to read"):
        chosen(ReadOptions(store.path))
