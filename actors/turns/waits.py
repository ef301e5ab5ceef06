"""Who waits for whose turn, so that a cycle of asks is an error and not a hang.

Used only when a turn is not free at once: an idle actor costs nothing here.
"""

from __future__ import annotations

from typing import Protocol

_MOST_LINKS = 1000


class Held(Protocol):
    """What may be waited for."""

    holder: int
    """Ident of the thread whose turn it is; 0: nobody's, or unknown."""


class Wait:
    """One wait of one thread; a later wait of that thread for the same actor is another Wait."""

    __slots__ = ("actor",)

    def __init__(self, actor: Held) -> None:
        self.actor = actor


waiting: dict[int, Wait] = {}
"""The wait of each blocked thread, by its ident. A thread enters its own before it calls ``cycle``,
so the last thread to close a cycle sees the waits of all the others."""


def is_awaited(actor: Held) -> bool:
    """Whether a thread waits for this actor's turn. O(blocked threads)."""
    return any(wait.actor is actor for wait in list(waiting.values()))


def cycle(first: Held, me: int) -> list[Held] | None:
    """Follow the waits from ``first``: who has its turn, what that thread waits for, and so on.
    Return these actors, if the last is one whose turn the thread ``me`` is in; else None. O(length
    of the way).

    An unknown holder ends the way: the deadline of the asks covers that case.
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
    # The links were read one after the other while other threads went on: a thread may have left
    # the first actor before it began to wait for the second. A link holds if its thread is still
    # the holder and still in the same Wait, during which it cannot let go of anything.
    if all(link.holder == holder for link, holder, _ in links) and all(
        waiting.get(holder) is wait for _, holder, wait in links
    ):
        return [*(link for link, _, _ in links), actor]
    return None
