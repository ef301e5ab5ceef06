"""What file system a path is on, by the system's table of mounts."""

from __future__ import annotations

import os


def file_system_of(path: str, mounts: str = "/proc/self/mountinfo") -> str:
    """What to call the file system of ``path``; where the system does not tell, "a file system"."""
    at = os.path.realpath(path)
    best, found = "", "a file system"
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
        for line in lines:
            front, _, back = line.partition(" - ")
            point = _unescaped(front.split(" ")[4])
            inside = at == point or at.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):  # of two on one point the later is on top
                best, found = point, f"{back.split(' ')[0]} (mounted on {point})"
    except (OSError, IndexError):
        return found  # only a name in a message
    return found


def _unescaped(point: str) -> str:
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(octal, char)
    return point
