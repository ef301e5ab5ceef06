"""In the place of the pool."""

from __future__ import annotations

from collections.abc import Callable


class AtOnce:
    """Work is done as it is given."""

    def submit(self, work: Callable[[], None]) -> None:
        work()
