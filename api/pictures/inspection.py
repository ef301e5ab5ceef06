"""Inspects an open store: its figures, its ledger's files and its histograms at one moment."""

from __future__ import annotations

from typing import NamedTuple

from octavo import stats
from octavo.actors.opening.startup import Running
from octavo.actors.opening.tags import Tags
from octavo.files.ledger import ledger_key
from octavo.notation import to_text
from octavo.stats_types import Stats

_LONGEST = 48
Key = bytes


class Block(NamedTuple):
    """A ledger file."""

    name: str
    rows: int
    bytes: int
    tombstones: int
    first_key: Key
    """Whole ledger key; inclusive."""
    last_key: Key
    """Whole ledger key; inclusive."""


class Inspection(NamedTuple):
    """What the page, or the terminal, shows."""

    stats: Stats
    levels: list[list[Block]]
    """The ledger's files by level, in their order there."""
    histograms: dict[str, list[tuple[int, int, int]]]
    """By operation: (lowest ns, highest ns, calls) of every bucket that is not empty."""
    tags: Tags


def inspect(running: Running, *, score: bool) -> Inspection:
    """Inspect a store; with ``score``, the journal is first sampled for garbage. O(files)."""
    if score:
        stats.score(running)
    measures = running.inker.actor.measures
    return Inspection(
        stats.stats(running),
        [
            [Block(e.name, e.rows, e.bytes, e.tombstones, e.first_key, e.last_key) for e in level]
            for level in running.bookie.actor.view.ledger.levels
        ],
        {name: list(latency.filled()) for name, latency in measures.latencies().items()},
        running.identity.tags,
    )


def shown(key: bytes) -> str:
    """A ledger key for a person: bucket, key, and what it is if it is no standard object; cut if it
    is long."""
    try:
        tag, bucket, rest = ledger_key.split(key)
    except ValueError:
        return _cut(to_text(key[: 2 * _LONGEST]))
    kind = {ledger_key.STANDARD: "", ledger_key.INDEX: "index "}.get(tag, f"type {tag:#x} ")
    text = _cut(to_text(rest[: 2 * _LONGEST]))
    name = _cut(to_text(bucket[: 2 * _LONGEST]))
    return f"{kind}{name}/{text}" if bucket else kind + text


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
