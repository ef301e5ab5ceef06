"""What actors send each other beside pykka's own messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr


class Call(NamedTuple):
    """Run ``method`` in the receiving actor's turn."""

    method: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def name_of(message: object) -> str:
    """What to call a message in errors and logs: never its content, which may be a user's."""
    if isinstance(message, str):
        return message if len(message) <= 40 else "a long str"
    if isinstance(message, Call):
        return name_of(message.method)
    if isinstance(message, ProxyCall | ProxyGetAttr | ProxySetAttr):
        return ".".join(message.attr_path)
    name = getattr(message, "__qualname__", None)
    return name if isinstance(name, str) else type(message).__qualname__
