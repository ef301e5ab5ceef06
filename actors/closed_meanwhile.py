"""Has a long call raise Closed if the store is closed while it is under way."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from pykka import ActorDeadError

from octavo.files.errors import Closed

P = ParamSpec("P")
T = TypeVar("T")


def or_closed(call: Callable[P, T]) -> Callable[P, T]:
    """Wrap ``call`` to raise Closed when one of the store's actors has stopped."""

    @wraps(call)
    def called(*args: P.args, **given: P.kwargs) -> T:
        try:
            return call(*args, **given)
        except ActorDeadError:
            raise Closed("the store was closed meanwhile") from None

    return called
