"""The life of a file, as one table: which event is legal in which state.

    starting -> writing -> rolled -> sealed -> delete_pending -> closed
    starting --------------------> sealed

A journal file passes through all of them; a ledger file is born sealed. Only a file that is
``writing`` changes its records; from ``sealed`` on its bytes never change again.
"""

from __future__ import annotations

from enum import Enum

from octavo.files.errors import OctavoError


class State(Enum):
    """Where a file is in its life."""

    STARTING = "starting"
    WRITING = "writing"
    ROLLED = "rolled"
    SEALED = "sealed"
    DELETE_PENDING = "delete_pending"
    CLOSED = "closed"


TRANSITIONS: dict[tuple[State, str], State] = {
    (State.STARTING, "create"): State.WRITING,
    (State.STARTING, "recover"): State.ROLLED,
    (State.STARTING, "open"): State.SEALED,
    (State.WRITING, "roll"): State.ROLLED,
    (State.ROLLED, "seal"): State.SEALED,
    (State.SEALED, "replace"): State.DELETE_PENDING,
    (State.WRITING, "close"): State.CLOSED,
    (State.ROLLED, "close"): State.CLOSED,
    (State.SEALED, "close"): State.CLOSED,
    (State.DELETE_PENDING, "delete"): State.CLOSED,
    (State.DELETE_PENDING, "close"): State.CLOSED,
    (State.CLOSED, "close"): State.CLOSED,
}


class IllegalEvent(OctavoError):  # noqa: N818
    """A file was told to do what its state does not allow: a fault in Octavo, not in the call."""


def after(state: State, event: str, file: str) -> State:
    """The state after ``event``. Raises IllegalEvent, naming the file."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalEvent(f"{file}: {event!r} is not possible while {state.value}") from None
