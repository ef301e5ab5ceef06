"""Operations of a bulk load as plain tuples: what its tests are written in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from ledger_rows import column

from octavo.files.journal.record_batch import Operations
from octavo.files.kernels.columns import ByteColumn


class StagedRow(NamedTuple):
    """One operation; ``value`` None deletes the key."""

    bucket: bytes
    key: bytes
    value: bytes | None
    expiry_ms: int = 0
    metadata: bytes = b""


def operations(rows: Sequence[StagedRow]) -> Operations:
    """Rows as a writer takes them in, with no column that says nothing."""
    buckets = sorted({row.bucket for row in rows})
    deletes = np.array([row.value is None for row in rows], dtype=np.bool_)
    expiries = np.array([row.expiry_ms for row in rows], dtype=np.uint64)
    metas = column(row.metadata for row in rows)
    return Operations(
        keys=column(row.key for row in rows),
        values=column(row.value or b"" for row in rows),
        buckets=buckets,
        which=(
            None
            if len(buckets) == 1
            else np.array([buckets.index(row.bucket) for row in rows], dtype=np.int64)
        ),
        deletes=deletes if deletes.any() else None,
        expiries=expiries if expiries.any() else None,
        metas=metas if len(metas.blob) else None,
    )


def rows_of(found: Operations) -> list[StagedRow]:
    """The same back."""
    count = len(found)
    metas = [b""] * count if found.metas is None else strings(found.metas)
    which = [0] * count if found.which is None else found.which.tolist()
    deletes = [False] * count if found.deletes is None else found.deletes.tolist()
    expiries = [0] * count if found.expiries is None else found.expiries.tolist()
    keys, values = strings(found.keys), strings(found.values)
    return [
        StagedRow(
            found.buckets[which[at]],
            keys[at],
            None if deletes[at] else values[at],
            expiries[at],
            metas[at],
        )
        for at in range(count)
    ]


def strings(found: ByteColumn) -> list[bytes]:
    """The strings of a column."""
    whole = found.blob.tobytes()
    return [whole[low:high] for low, high in pairwise(found.offsets.tolist())]
