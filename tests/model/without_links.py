"""A system that lets this process read a store, and make nothing beside it."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

import pytest

from octavo.files.door.disk import RealDisk


def refuse_links(monkeypatch: pytest.MonkeyPatch, number: int = errno.EROFS) -> None:
    """From now on, whoever pins a store by links is told so; its owner's other work goes on."""
    plain = RealDisk.mkdir

    def refused(disk: RealDisk, path: str, within: str = "") -> None:
        if "/snapshots/" in path:
            refuse(path)
        plain(disk, path, within)

    def refuse(path: str) -> NoReturn:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(RealDisk, "mkdir", refused)
