"""The stores that this process has open: closed at its end, and let go of in a forked child."""

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
"""Strong references, until they are closed: a bucket may be all that a program keeps of a store."""

_at_end: list[Callable[[], None]] = []
_finalized = 0
"""Id of the multiprocessing process in which ``end_with_process`` has done its work."""


def open_stores() -> list[stores.Store]:
    """The stores that this process has open for writing, in the order of their paths: each until
    its close(), even if nothing refers to it any more. A forked child has only those it opened.
    O(stores)."""
    return sorted(OPEN.copy(), key=attrgetter("path"))


def close_all() -> None:
    """At interpreter exit: close all stores, so that acknowledged writes, which are in the journal,
    become durable, too."""
    with ExitStack() as closing:  # closes all of them, whatever one raises
        for store in OPEN.copy():
            closing.callback(store.close)


def forked() -> None:
    """In a forked child: let go of its copies of open stores, which must never write."""
    for store in OPEN.copy():
        store._forked()
    OPEN.clear()


def at_end(close: Callable[[], None]) -> None:
    """Have ``close`` called as the interpreter ends."""
    _at_end.append(close)
    atexit.register(close)


def end_with_process() -> None:
    """Have stores closed at the end of a forked multiprocessing process, too; called at each
    opening. Such a process ends without running atexit's list, only multiprocessing's own."""
    global _finalized
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _finalized == os.getpid():
        return
    with unbroken, loading:
        from multiprocessing.util import Finalize
    Finalize(None, _process_ends, exitpriority=0)
    _finalized = os.getpid()


def _process_ends() -> None:
    """Close all, unless other threads are running, which may still write: before Python 3.13 this
    is called before they are waited for."""
    me = threading.current_thread()
    if not any(each is not me and not each.daemon for each in threading.enumerate()):
        with ExitStack() as closing:
            for close in _at_end:
                closing.callback(close)
