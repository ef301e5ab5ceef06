"""Type parameters of buckets, for type checkers: the type of keys and values, and that of heads.

``Bucket`` alone returns keys and values as bytes, and heads as Heads; ``Bucket[str]`` is one with
``text=True``; ``Bucket[bytes, Any]`` is of a type that builds heads.
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
    """``cls[parameters]`` as evaluated at run time: Python 3.11 knows no defaults."""
    return GenericAlias(cls, parameters)
