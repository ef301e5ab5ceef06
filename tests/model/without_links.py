"""A system that lets this process read a store, and make nothing beside it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from octavo.files.door.disk import RealDisk
from octavo.files.door.passing_disk import PassingDisk


def refuse_links(monkeypatch: pytest.MonkeyPatch, number: int = errno.EROFS) -> None:
    """From now on, whoever pins a store by links is told so; its owner's other work goes on."""

    def refusing(plain: Callable[[RealDisk, str, str], None]) -> Callable[..., None]:
        def refused(disk: RealDisk, path: str, within: str = "") -> None:
            if "/snapshots/" in path:
                raise OSError(number, os.strerror(number), path)
            plain(disk, path, within)

        return refused

    for kind in (RealDisk, PassingDisk):
        monkeypatch.setattr(kind, "mkdir", refusing(kind.mkdir))
