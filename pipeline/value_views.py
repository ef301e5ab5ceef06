"""Values that stand in the maps of journal files, on their way into one Arrow array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from mmap import mmap

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from octavo.files.journal import record
from octavo.files.journal.lz4_frame import Frame, may_hold
from octavo.files.kernels.arrow import refuse_too_many
from octavo.files.kernels.byte_strings import Ints, gather, windows
from octavo.files.kernels.columns import ByteColumn, Bytes

_VIEW = np.dtype([("length", "<i4"), ("bytes", "V12")])
_VIEW_REST = np.dtype([("first", "V4"), ("buffer", "<i4"), ("offset", "<i4")])
_INLINE = 12
_SLICE_BITS = 30


class Views:
    """An array of views into buffers, in the making."""

    def __init__(self, rows: int) -> None:
        self.views = np.zeros(rows, dtype=_VIEW)
        self.buffers: list[pa.Buffer] = []

    def add(self, buffer: mmap | bytes | Bytes, rows: Ints, at: Ints, lengths: Ints) -> None:
        """Rows numbered ``rows`` are ``buffer[at:][:lengths]``. Raises Misuse for one that has no
        place in an array of this kind."""
        raw = np.frombuffer(buffer, dtype=np.uint8)
        views = np.zeros(len(rows), dtype=_VIEW)
        refuse_too_many(int(lengths.max(initial=0)))
        views["length"] = lengths
        short = np.flatnonzero(lengths <= _INLINE)
        if len(short):
            views["bytes"][short] = _inline(raw, at[short], lengths[short])
        long = np.flatnonzero(lengths > _INLINE)
        if len(long):
            rest = np.zeros(len(long), dtype=_VIEW_REST)
            rest["first"] = windows(raw, 4)[at[long]]
            slices = at[long] >> _SLICE_BITS
            rest["buffer"] = slices + len(self.buffers)
            rest["offset"] = at[long] & ((1 << _SLICE_BITS) - 1)
            views["bytes"][long] = rest.view("V12")
            whole = pa.py_buffer(buffer)
            self.buffers += [
                whole.slice(number << _SLICE_BITS) for number in range(int(slices.max()) + 1)
            ]
        self.views[rows] = views

    def add_copied(self, buffer: mmap | bytes, rows: Ints, at: Ints, lengths: Ints) -> None:
        """As ``add``, but copies the bytes, and keeps no view of the buffer."""
        found = gather(np.frombuffer(buffer, dtype=np.uint8), at, lengths)
        blob = found.blob if len(found.blob) else b"\0"
        self.add(blob, rows, found.offsets[:-1], lengths)

    def array(self) -> pa.Array:
        """The array, with bytes of its own. One copy."""
        buffers = [None, pa.py_buffer(self.views), *self.buffers]
        return pa.Array.from_buffers(pa.binary_view(), len(self.views), buffers).cast(pa.binary())

    def add_bytes(self, rows: Ints | Sequence[int], parts: list[bytes]) -> None:
        """Rows numbered ``rows`` are ``parts``."""
        sizes = np.array([len(part) for part in parts], dtype=np.int64)
        chosen = np.asarray(rows, dtype=np.int64)
        self.add(b"".join(parts) or b"\0", chosen, np.cumsum(sizes) - sizes, sizes)

    def add_packed(
        self,
        buffer: mmap | bytes,
        rows: Ints,
        at: Ints,
        lengths: Ints,
        raw_bytes: Ints,
        otherwise: Callable[[int], bytes],
    ) -> None:
        """Add compressed values; ``otherwise`` reads that of a row, and raises what is wrong with
        it."""
        found = together(buffer, at, lengths, raw_bytes)
        if found is not None:
            self.add(found.blob, rows, found.offsets[:-1], raw_bytes)
            return
        parts: list[bytes] = []
        view = memoryview(buffer)
        places = zip(rows.tolist(), at.tolist(), lengths.tolist(), raw_bytes.tolist(), strict=True)
        for row, begin, length, size in places:
            try:
                parts.append(record.decompress(view[begin : begin + length], size))
            except ValueError:
                parts.append(otherwise(row))
        self.add_bytes(rows, parts)


def together(buffer: mmap | bytes, at: Ints, lengths: Ints, raw_bytes: Ints) -> ByteColumn | None:
    """Unpack values, some of them compressed, end to end. None if they must be looked at one by
    one: there are few, or one is wrong."""
    if not may_hold(lengths, raw_bytes):
        return None
    frame = Frame([buffer], np.zeros(len(at), np.int64), at, lengths, raw_bytes)
    blob = frame.values(frame.unpack())
    return None if blob is None else ByteColumn(blob, frame.offsets)


def _inline(raw: npt.NDArray[np.uint8], at: Ints, lengths: Ints) -> npt.NDArray[np.void]:
    """Up to 12 bytes each, zeros behind them."""
    place = at[:, None] + np.arange(_INLINE, dtype=np.int64)
    inside = np.arange(_INLINE) < lengths[:, None]
    found = np.where(inside, raw[np.minimum(place, len(raw) - 1)], 0).astype(np.uint8)
    return np.ascontiguousarray(found).view("V12").ravel()
