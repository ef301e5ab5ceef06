"""What macOS, other kernels and newer versions of Python do otherwise, as far as it can be feigned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Corruption

DISK = RealDisk()


def test_a_link_of_a_symbolic_link_does_not_lead_out_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS os.link follows them, and from Python 3.15 on everywhere, unless told not to."""
    real = os.link

    def follows(source: str, target: str, *, follow_symlinks: bool = True) -> None:
        real(os.path.realpath(source) if follow_symlinks else source, target)

    monkeypatch.setattr(os, "link", follows)
    (tmp_path / "outside").write_bytes(b"somebody's")
    (tmp_path / "a").symlink_to(tmp_path / "outside")
    DISK.link(str(tmp_path / "a"), str(tmp_path / "b"))
    assert os.stat(tmp_path / "outside").st_nlink == 1
    with pytest.raises(Corruption, match="symbolic link"):
        DISK.map(str(tmp_path / "b"))
