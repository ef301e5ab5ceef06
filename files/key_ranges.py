"""Ranges of keys, one behind the other: so files are merged a part at a time, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from octavo.files.arrays import np
from octavo.files.sst import Sst
from octavo.files.sst_layout import Section

_ROW_BYTES = 150
"""Memory that a row takes while it is merged, beside its key."""
_RANGE_BYTES = 72 << 20
"""What the rows of one range may take, by the mean of their files' keys."""
_STEP, _MOST_EDGES = 1 << 14, 1 << 10
"""The key of every so many-th row may begin a range; of so many in all."""


def key_ranges(
    files: Sequence[tuple[Sst, int]], low: bytes, high: bytes | None
) -> list[tuple[bytes, bytes | None]]:
    """Ranges [low, high) of ledger keys, ascending, that together are the given one, about equally
    large. Verifies all checksums. Some 3 us for each file and each of up to 1,024 keys. Raises
    Corruption, OSError."""
    each, spans = [], []
    for sst, _ in files:
        sst.ensure_whole()
        each.append(_ROW_BYTES + sst.layout.sections[Section.KEYS][1] / sst.rows)
        spans.append(
            range(sst.lower_bound(low), sst.rows if high is None else sst.lower_bound(high))
        )
    weight = sum([len(rows) * one for rows, one in zip(spans, each, strict=True)])
    parts = -int(-weight // _RANGE_BYTES)
    if parts < 2:
        return [(low, high)]
    step = max(_STEP, sum(map(len, spans)) // _MOST_EDGES)
    keys: set[bytes] = set()
    for (sst, _), rows in zip(files, spans, strict=True):
        keys.update(map(sst.ledger_key, rows[step::step]))
    edges = sorted(keys)
    below = np.zeros(len(edges))
    for (sst, _), rows, one in zip(files, spans, each, strict=True):
        below += np.array([(sst.lower_bound(edge) - rows.start) * one for edge in edges])
    wanted = weight / parts * np.arange(1, parts)
    nearest = sorted(
        {edges[at] for at in np.searchsorted(below, wanted).tolist() if at < len(edges)}
    )
    return list(pairwise([low, *nearest, high]))
