"""What keys and values come out as, and what ``head`` gives: for type checkers.

``Bucket`` alone is one whose keys and values come out as bytes, and whose heads are Heads;
``Bucket[str]`` is one with ``text=True``; ``Bucket[bytes, Any]`` is of a type that builds heads.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from octavo.files.ledger.head import Head

    Out = TypeVar("Out", bound=bytes | str, default=bytes)
    Told = TypeVar("Told", default=Head)
else:
    from typing import TypeVar

    Out = TypeVar("Out")
    Told = TypeVar("Told")


def with_defaults(cls: type, parameters: Any) -> GenericAlias:
    """``cls[parameters]`` as it is met when a program runs: Python 3.11 knows no defaults."""
    return GenericAlias(cls, parameters)
