"""What actors send each other beside pykka's own messages; names and marks of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

Method = TypeVar("Method", bound=Callable[..., object])


class Call(NamedTuple):
    """Run ``method`` in the receiving actor's turn."""

    method: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def name_of(message: object) -> str:
    """The name of a message for errors and logs: never its content, which may be a user's."""
    if isinstance(message, str):
        return message if len(message) <= 40 else "a long str"
    if isinstance(message, Call):
        return name_of(message.method)
    if isinstance(message, ProxyCall | ProxyGetAttr | ProxySetAttr):
        return ".".join(message.attr_path)
    name = getattr(message, "__qualname__", None)
    return name if isinstance(name, str) else type(message).__qualname__


_interruptible: set[Callable[..., object]] = set()


def interruptible(method: Method) -> Method:
    """Mark a method that may take long, and that can be run again if it was cut short anywhere."""
    _interruptible.add(method)
    return method


def may_be_cut_short(method: Callable[..., object]) -> bool:
    """Whether the method was marked as interruptible."""
    return method in _interruptible
