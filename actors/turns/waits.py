"""Who waits for whose turn, so that a cycle of asks is an error and not a hang.

Touched only where a turn is not free at once: an idle actor costs nothing here.
"""

from __future__ import annotations

from typing import Protocol

_MOST_LINKS = 1000


class Held(Protocol):
    """What may be waited for."""

    holder: int
    """Ident of the thread whose turn it is; 0: nobody's, or not known."""


class Wait:
    """One wait of one thread; a later wait of that thread for the same actor is another one."""

    __slots__ = ("actor",)

    def __init__(self, actor: Held) -> None:
        self.actor = actor


waiting: dict[int, Wait] = {}
"""The wait of each thread that is blocked, by its ident. A thread enters its own before it calls
``cycle``, so of the threads that close a cycle the last one sees all the others."""


def is_awaited(actor: Held) -> bool:
    """Whether a thread waits for this actor's turn. O(blocked threads)."""
    return any(wait.actor is actor for wait in list(waiting.values()))


def cycle(first: Held, me: int) -> list[Held] | None:
    """The actors on the way from ``first`` to one whose turn the thread ``me`` is in, waiting for
    each other; None if the way ends elsewhere. O(length of the way).

    A holder that is not known ends the way: the deadline of the asks covers that.
    """
    links: list[tuple[Held, int, Wait]] = []
    actor = first
    while True:
        holder = actor.holder
        if holder == me:
            break
        wait = waiting.get(holder)
        if wait is None or len(links) == _MOST_LINKS:
            return None
        links.append((actor, holder, wait))
        actor = wait.actor
    # The links were read one after the other, and others go on meanwhile: a thread may have left
    # the first actor before it came to wait for the second. Each link holds now if the thread is
    # the holder still, and was in the same wait all the time, in which it can let go of nothing.
    if all(link.holder == holder for link, holder, _ in links) and all(
        waiting.get(holder) is wait for _, holder, wait in links
    ):
        return [*(link for link, _, _ in links), actor]
    return None
