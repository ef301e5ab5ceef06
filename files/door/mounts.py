"""Tells what file system a path, or an open file, is on, by the system's table of mounts."""

from __future__ import annotations

import os
from collections.abc import Iterator

_MOUNTS = "/proc/self/mountinfo"


def type_of(fd: int, mounts: str = _MOUNTS) -> str:
    """The type of the file system that an open file is on. It is found by the file's device, since
    something else may be mounted at its path by now; "" where the table does not have that: btrfs
    gives its files other devices."""
    try:
        device = os.fstat(fd).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        return next((back[0] for front, back in _lines(mounts) if front[2] == number), "")
    except (OSError, IndexError):
        return ""


def file_system_of(path: str, mounts: str = _MOUNTS) -> str:
    """What to call the file system of ``path``; where the system does not tell, "a file system"."""
    at = os.path.realpath(path)
    best, found = "", "a file system"
    try:
        for front, back in _lines(mounts):
            point = _unescaped(front[4])
            inside = at == point or at.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):  # of two on one point the later is on top
                best, found = point, f"{back[0]} (mounted on {point})"
    except (OSError, IndexError):
        return found  # only a name in a message
    return found


def _lines(mounts: str) -> Iterator[tuple[list[str], list[str]]]:
    """What each line says of a mount, and of its file system."""
    with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
        lines = file.readlines()
    for line in lines:
        front, _, back = line.partition(" - ")
        yield front.split(" "), back.split(" ")


def _unescaped(point: str) -> str:
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(octal, char)
    return point
