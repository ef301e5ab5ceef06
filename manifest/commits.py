"""Commits: what was taken in whole from elsewhere, by name, so that a repeated one does nothing.

A commit is a bulk load's job, or one stream's newest batch. It is part of the journal's manifest,
and so written in the same change as the files that it brought. Only the newest ``KEPT`` are
remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from octavo.manifest.packing import Packer, Unpacker

KEPT = 4096
"""Commits remembered: a repeat of an older one would be taken for a new one."""

MAX_NAME_BYTES = 512
_COLUMNS = ("number", "first_sqn", "last_sqn", "time_ms")
_age = attrgetter("last_sqn", "time_ms", "name")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit, or the newest of a stream of them."""

    name: str
    number: int
    """Of the newest batch of a stream; 0 of a job."""
    first_sqn: int
    last_sqn: int
    """Both inclusive; the last one is ``first_sqn - 1`` if the commit brought nothing."""
    time_ms: int


def found(commits: Iterable[Commit], name: str, number: int) -> Commit | None:
    """The commit that did this, or a later one of its stream; None: it is still to be done."""
    for commit in commits:
        if commit.name == name and commit.number >= number:
            return commit
    return None


def merged(commits: tuple[Commit, ...], newer: Iterable[Commit]) -> tuple[Commit, ...]:
    """Put the newer commits in the place of those of their names; the newest ``KEPT``, oldest first
    by sqn, since the clock may go back. The same tuple if none is newer, as at each roll and
    sealing."""
    instead = {commit.name: commit for commit in newer}
    if not instead:
        return commits
    there = {commit.name: commit for commit in commits} | instead
    return tuple(sorted(there.values(), key=_age)[-KEPT:])


def added(commits: tuple[Commit, ...], newer: tuple[Commit, ...]) -> list[Commit]:
    """The commits in ``newer`` that are not in ``commits``. O(1) if both are the same tuple."""
    if newer is commits:
        return []
    known = {commit.name: commit for commit in commits}
    return [
        commit
        for commit in newer
        if (old := known.get(commit.name)) is not commit and old != commit
    ]


def pack(out: Packer, commits: Sequence[Commit]) -> None:
    """Pack commits: their number, then columns."""
    out.number(len(commits))
    if not commits:
        return
    out.strings([commit.name.encode() for commit in commits])
    for name in _COLUMNS:
        out.integers(list(map(attrgetter(name), commits)))


def unpack(source: Unpacker) -> tuple[Commit, ...]:
    """What ``pack`` wrote. Raises Corruption."""
    count = source.number()
    if count > KEPT:
        raise source.wrong("more commits than are kept", expected=KEPT, found=count)
    if not count:
        return ()
    try:
        names = [name.decode() for name in source.strings(count)]
    except UnicodeDecodeError:
        raise source.wrong("name of a commit") from None
    columns = [source.integers(count) for _ in _COLUMNS]
    return tuple(map(Commit, names, *columns))
