"""A store whose directory goes, or gives way to an empty one, before each call of the operating
system on it in turn: what comes out of the call that the store was in. Run by itself, since Python
keeps an audit hook as long as it runs."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import octavo
from octavo.files.door.disk import RealDisk
from octavo.pipeline.feed_files import JournalLook

EVENTS = ("open", "os.listdir", "os.rename", "os.remove", "os.mkdir", "os.link", "os.rmdir")
SMALL: Any = {"roll_count": 256, "push_rows": 64, "worker": False, "compact_every_seconds": None}


def worked(path: Path) -> None:
    """Open, put until the journal rolls and memory is saved, close."""
    with octavo.open(path, **SMALL) as store:
        for number in range(600):
            store.put(b"%03d" % (number % 90), b"%d" % number)


def read_only(path: Path) -> None:
    with octavo.open(path, read_only=True) as reader:
        list(reader.items())


def followed(path: Path) -> None:
    look = JournalLook(RealDisk(), str(path))
    look.look()
    look.parts(0, look.newest(), 1 << 20)


CALLS: dict[str, Callable[[Path], object]] = {
    "open": worked,
    "read_only": read_only,
    "backup": lambda path: octavo.open(path, **SMALL).backup(path.parent / "backup"),
    "compact": lambda path: octavo.open(path, **SMALL).compact(),
    "repair": octavo.repair,
    "restore": lambda path: octavo.restore(path, path.parent / "restored"),
    "destroy": octavo.destroy,
    "acknowledge": lambda path: octavo.acknowledge(path, "mail", 1),
    "feed": followed,
}


class Goes:
    """The directory ``path`` goes before the call of this number."""

    def __init__(self) -> None:
        self.path, self.left, self.empty = "", 0, False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if event not in EVENTS or not self.left:
            return
        if any(str(each).startswith(self.path) for each in arguments if isinstance(each, str)):
            self.left -= 1
            if not self.left:
                os.rename(self.path, f"{self.path}-moved")
                if self.empty:
                    os.mkdir(self.path)


def main(name: str, empty: str) -> None:
    logging.disable()
    goes, number, found = Goes(), 0, []
    sys.addaudithook(goes)
    with tempfile.TemporaryDirectory() as home:
        image, path = Path(home) / "image", Path(home) / "s"
        worked(image)
        while not goes.left:  # it came so far
            number += 1
            shutil.copytree(image, path)
            goes.path, goes.empty, goes.left = str(path), empty == "empty", number
            try:
                CALLS[name](path)
            except Exception as error:  # noqa: BLE001 - what comes is what is wanted
                ours = isinstance(error, octavo.OctavoError)
                found.append((number, type(error).__name__, ours and str(path) in str(error)))
            going, goes.left = goes.left, 0
            for store in octavo.open_stores():
                try:
                    store.close()
                except octavo.OctavoError:
                    pass
            for each in (path, *path.parent.glob("s-*"), *path.parent.glob("[br]*")):
                shutil.rmtree(each, ignore_errors=True)
            goes.left = going
    print(json.dumps({"calls": number - 1, "found": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
