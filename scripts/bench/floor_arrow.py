"""The floor of Arrow batches: the columns of a closed and reopened FloorStore, with Octavo's types.

What stands as a column is not copied. For values each 64 KiB of the log is compared with its
checksum; then they come into one array a batch, by one copy each, or where there are compressed
ones by one call that decompresses an LZ4 frame of their blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
from floor_adapter import HEAD_BYTES, FloorStore, strings
from xxhash import xxh32_intdigest as xxh32

_BATCH_BYTES = 16 << 20
_MAGIC = b"\x04\x22\x4d\x18"
_LARGEST = (64 << 10, 256 << 10, 1 << 20, 4 << 20)
_AS_IT_IS = 1 << 31


def batches(store: FloorStore, names: list[str]) -> Iterator[pa.RecordBatch]:
    """All rows, in the order of keys, some 16 MiB of values a batch."""
    columns, rows = store.columns, store.rows

    def plain(kind: pa.DataType, *buffers: str) -> Callable[[], pa.Array]:
        found: Any = [None, *(pa.py_buffer(columns[name]) for name in buffers)]
        return lambda: pa.Array.from_buffers(kind, rows, found)

    moment = pa.timestamp("ms", "UTC")
    made: dict[str, Callable[[], Any]] = {
        "key": plain(pa.binary(), "key_ends", "keys"),
        "sqn": plain(pa.uint64(), "sqns"),
        "size": plain(pa.uint32(), "sizes"),
        "metadata": lambda: pa.nulls(rows, pa.binary()),
        "written_at": plain(moment, "times"),
        "expires_at": lambda: pa.nulls(rows, moment),
    }
    table = {name: made[name]() for name in names if name != "value"}
    if "value" in names:
        store.check()
    ends = np.cumsum(np.asarray(columns["sizes"]), dtype=np.int64)
    edges = np.searchsorted(ends, np.arange(_BATCH_BYTES, int(ends[-1]), _BATCH_BYTES))
    for low, high in pairwise([0, *edges.tolist(), rows]):
        arrays = {name: column.slice(low, high - low) for name, column in table.items()}
        if "value" in names:
            arrays["value"] = _values(store, low, high)
        yield pa.RecordBatch.from_arrays([arrays[name] for name in names], names=names)


def _values(store: FloorStore, low: int, high: int) -> pa.Array:
    column = {
        name: np.asarray(store.columns[name][low:high]).astype(np.int64)
        for name in ("places", "key_bytes", "stored", "raw", "sizes")
    }
    lengths = column["stored"]
    starts = column["places"] + column["key_bytes"] + HEAD_BYTES
    ends = np.zeros(high - low + 1, np.int64)
    np.cumsum(column["sizes"], out=ends[1:])
    if column["raw"].any():
        blob = _unpacked(store.log, starts, lengths, column["raw"], int(ends[-1]))
    else:
        blob = pa.py_buffer(_gathered(np.frombuffer(store.log, np.uint8), starts, lengths, ends))
    return pa.Array.from_buffers(pa.large_binary(), high - low, [None, pa.py_buffer(ends), blob])


def _gathered(log: Any, starts: Any, lengths: Any, ends: Any) -> Any:
    """By array kernels, those of one length together."""
    found = np.unique(lengths)
    if len(found) == 1 and found[0]:
        return strings(log, int(found[0]))[starts].view(np.uint8)
    out = np.empty(int(ends[-1]), np.uint8)
    for length in found[found > 0].tolist():
        rows = np.flatnonzero(lengths == length)
        strings(out, length)[ends[rows]] = strings(log, length)[starts[rows]]
    return out


def _unpacked(log: Any, starts: Any, lengths: Any, raw: Any, total: int) -> Any:
    """LZ4's frame: a header, blocks with their sizes (the top bit: not compressed), an end mark."""
    most = int(np.maximum(lengths, raw).max())
    number = 4 + next(n for n, bytes_ in enumerate(_LARGEST) if most <= bytes_)
    told = Struct("<BBQ").pack(0x68, number << 4, total)  # blocks by themselves; their size
    header = _MAGIC + told + bytes([xxh32(told) >> 8 & 0xFF])
    sizes = np.where(raw, lengths, lengths + _AS_IT_IS).astype("<u4").view("V4").tolist()
    view = memoryview(log)
    places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    blocks = [view[start:end] for start, end in places]
    pairs = chain.from_iterable(zip(sizes, blocks, strict=True))
    frame = b"".join([header, *pairs, bytes(4)])
    return pa.Codec("lz4").decompress(frame, total)
