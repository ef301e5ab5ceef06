"""Checks callers' arguments: takes numbers of all kinds, refuses the rest, words the messages."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from datetime import timedelta

from octavo.files.errors import Misuse
from octavo.files.later import loading
from octavo.files.unbroken import unbroken

_MOST = 80
_LONGEST_INT = 1 << 12
"""The most bits of an int whose digits are shown: Python refuses to make very many."""
_NO_DIRECTORIES = {
    re.compile(":memory:$"): (
        "a store is a directory, and none is in memory; for one that goes with its program take a "
        "tempfile.TemporaryDirectory, on /dev/shm, say"
    ),
    re.compile("~(/|$)"): (
        "~ is the home directory to a shell alone; os.path.expanduser(path) is it here, and ./~ a "
        "directory of that name"
    ),
    re.compile("[A-Za-z][A-Za-z0-9+.-]*://"): (
        "a store is in a directory of a local file system: name that by its path"
    ),
}
"""Paths that mean something else elsewhere, and would make a directory of that name here."""


def shown(value: object) -> str:
    """``repr`` of a value, for a message: short whatever it is, and never an error of its own."""
    if isinstance(value, str | bytes | bytearray):
        value = value[: _MOST + 1]
    elif isinstance(value, int) and value.bit_length() > _LONGEST_INT:
        return f"an int of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - of whoever wrote that class; the message is about a value
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


def refuse_no_directory(name: str, path: str) -> None:
    """Raise Misuse for a path that means something else elsewhere."""
    for what, why in _NO_DIRECTORIES.items():
        if what.match(path):
            raise Misuse(f"{name}={path!r}: {why}")


def whole_number(value: object) -> int | None:
    """A plain int for an int, or for what says that it is one (NumPy's); None for anything else,
    True and False included."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    if getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return None  # NumPy's True, which was an index up to 1.26
    try:
        return int.__index__(operator.index(value))
    except TypeError:  # an array of several
        return None


def number(value: object) -> float | None:
    """As ``whole_number``; for a float, too: a plain one."""
    return float.__float__(value) if isinstance(value, float) else whole_number(value)


def seconds(value: object) -> float | None:
    """As ``number``; for a timedelta its seconds."""
    found = number(value)
    if found is None and isinstance(value, timedelta):
        return timedelta.total_seconds(value)
    return found


def to_whole(name: str, value: object, allowed: str, low: int = 0, high: int | None = None) -> int:
    """A plain int from ``low`` to ``high``, both inclusive. Raises Misuse that names the argument
    and says what is allowed."""
    found = whole_number(value)
    if found is None or found < low or (high is not None and found > high):
        raise Misuse(f"{name}={shown(value)}: allowed {allowed}")
    return found


def to_sqn(since: object) -> int:
    """The argument ``since``: a sequence number behind which something begins. Raises Misuse."""
    return to_whole("since", since, "are sequence numbers, and 0 for all")


def unknown_option(name: str, known: Iterable[str]) -> str:
    """The beginning of a message: that there is no such option, and which one may be meant,
    whatever its case."""
    with unbroken, loading:
        from difflib import get_close_matches  # 10 ms, of which no opening is to take any
    names = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), names, 1)
    meant = f" did you mean {names[near[0]]!r}?" if near else ""
    return f"unknown option {name!r};{meant}"
