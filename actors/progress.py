"""How a long job tells its caller how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called before each step with what it is about, how much is done, and of how much."""


def untold(what: str, done: int, total: int) -> None:
    """A Progress that tells nobody."""
