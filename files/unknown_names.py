"""What is said of a name that nobody knows."""

from __future__ import annotations

from collections.abc import Iterable


def unknown_option(name: str, known: Iterable[str]) -> str:
    """The beginning of a message: that there is no such option, and which one may be meant,
    whatever its case."""
    from difflib import get_close_matches  # 10 ms, of which no opening is to take any

    names = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), names, 1)
    meant = f" did you mean {names[near[0]]!r}?" if near else ""
    return f"unknown option {name!r};{meant}"
