"""Which names a manifest may give to a file: plain ones, of its own directory."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def is_plain(name: object) -> bool:
    """Whether this is the name of a file here and cannot be the way to one elsewhere.

    Letters, digits, dot, underscore and hyphen in ASCII, at most 200; it does not begin with a
    dot and has no two dots in a row.
    """
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None and ".." not in name
