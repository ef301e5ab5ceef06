"""The stores that this process has open: at its end they are closed, in a forked child let go."""

from __future__ import annotations

from contextlib import ExitStack
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.store import Store

OPEN: set[Store] = set()
"""Until they are closed: a bucket may be all that a program keeps of one."""


def open_stores() -> list[Store]:
    """The stores that this process has open to write, in the order of their paths: each until its
    close(), also where nothing else refers to it any more. In a forked child those of its own.
    O(stores).
    """
    return sorted(OPEN.copy(), key=attrgetter("path"))


def close_all() -> None:
    """At interpreter exit: what was acknowledged is in the journal; make it durable, too."""
    with ExitStack() as closing:  # all, whatever one of them raises
        for store in OPEN.copy():
            closing.callback(store.close)


def forked() -> None:
    """In a forked child: its copies of open stores must never write."""
    for store in OPEN.copy():
        store._forked()
    OPEN.clear()
