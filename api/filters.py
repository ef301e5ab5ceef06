"""Filters of scans: drop keys that do not match, and versions of other times."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any

from octavo.actors.scanning.scan_windows import Window
from octavo.arguments import to_moment
from octavo.files.argument_checks import shown, to_whole
from octavo.files.errors import Misuse

Pattern = str | bytes | re.Pattern[bytes]
Moment = int | datetime


def to_pattern(pattern: object) -> re.Pattern[bytes]:
    """``match`` as a compiled regular expression on bytes. Raises Misuse."""
    if isinstance(pattern, re.Pattern):
        if isinstance(pattern.pattern, bytes):
            return pattern
        raise Misuse("match is compiled from a str: compile it from bytes, or give the str")
    if isinstance(pattern, str):
        try:
            pattern = pattern.encode()
        except UnicodeEncodeError as wrong:
            raise Misuse(f"match: {wrong}; a str stands for its UTF-8 bytes") from None
    if not isinstance(pattern, bytes):
        raise Misuse(
            f"match is of type {type(pattern).__name__}: allowed are a regular expression as "
            "bytes or str, and one compiled from bytes"
        )
    return compiled(pattern)


def compiled(pattern: str | bytes | re.Pattern[Any]) -> re.Pattern[Any]:
    """``match`` as a compiled regular expression. Raises Misuse."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as wrong:
        raise Misuse(f"match={shown(pattern)} is no regular expression: {wrong}") from None


def to_limit(limit: object) -> int | None:
    """Check a ``limit``; None means any number. Raises Misuse."""
    if limit is None:
        return None
    most = to_whole("limit", limit, "are numbers from 0 up, and None")
    return min(most, sys.maxsize)  # there cannot be more rows, and counters in C take no more


def to_filter(
    match: object, modified_since: object, modified_before: object
) -> Callable[[Window], None] | None:
    """A function that drops unwanted rows from a window; None if all are wanted. Raises Misuse."""
    search = None if match is None else to_pattern(match).search
    since = None if modified_since is None else to_moment("modified_since", modified_since)
    before = None if modified_before is None else to_moment("modified_before", modified_before)
    if search is None and since is before is None:
        return None

    def keep(window: Window) -> None:
        if search is not None:
            window.keep(map(search, window.keys))
        if since is not None:
            window.keep(map(since.__le__, window.times()))
        if before is not None:
            window.keep(map(before.__gt__, window.times()))

    return keep
