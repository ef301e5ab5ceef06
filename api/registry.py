"""The stores that this process has open: at its end they are closed, in a forked child let go."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from operator import attrgetter
from typing import TYPE_CHECKING

from octavo.files.later import Later, loading
from octavo.files.unbroken import unbroken

if TYPE_CHECKING:
    from octavo import store as stores
else:
    stores = Later("octavo.store")

OPEN: set[stores.Store] = set()
"""Until they are closed: a bucket may be all that a program keeps of one."""

_at_end: list[Callable[[], None]] = []
_finalized = 0
"""Id of the process of multiprocessing whose end was arranged for."""


def open_stores() -> list[stores.Store]:
    """The stores that this process has open for writing, in the order of their paths: each until
    its close(), even if nothing refers to it any more. A forked child has only those it opened.
    O(stores)."""
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


def at_end(close: Callable[[], None]) -> None:
    """Have ``close`` called as the interpreter ends."""
    _at_end.append(close)
    atexit.register(close)


def end_with_process() -> None:
    """Called at each opening. Processes of multiprocessing that are forked end without what atexit
    knew of: there multiprocessing's own list is what counts."""
    global _finalized
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _finalized == os.getpid():
        return
    with unbroken, loading:
        from multiprocessing.util import Finalize
    Finalize(None, _process_ends, exitpriority=0)
    _finalized = os.getpid()


def _process_ends() -> None:
    """Before Python 3.13 this comes before threads are waited for, which may still write."""
    me = threading.current_thread()
    if not any(each is not me and not each.daemon for each in threading.enumerate()):
        with ExitStack() as closing:
            for close in _at_end:
                closing.callback(close)
