"""Base classes of objects that belong to one opening of a store, in one process."""

from __future__ import annotations

from abc import abstractmethod
from typing import NoReturn, Self

from octavo.files.errors import Misuse


class Handle:
    """Cannot be copied or pickled: each of two copies would miss what the other one did."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise Misuse(
            "an open store, and what came from it (buckets, snapshots, scans, batches), cannot be "
            "copied or passed to another process: pass the path, to open with read_only=True, or "
            "publish a snapshot"
        )


class Closing(Handle):
    """A handle that a ``with`` block closes at its end."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
