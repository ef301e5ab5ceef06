"""Makes merkle trees of a view's rows."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.reader import Reader
from octavo.actors.scanning.batch_values import BatchValues
from octavo.files.argument_checks import shown, to_whole
from octavo.files.errors import Misuse
from octavo.files.kernels.arrays import U64, np
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import Bounds
from octavo.files.ledger.chosen_rows import Segments
from octavo.files.ledger.live_batches import Batch, parts_of, strings_of
from octavo.files.ledger.merkle import HASH_BITS, By, MerkleTree, bits_of, digests, row_words

_ROWS, _BYTES = 1 << 16, 16 << 20
"""Values of up to so many rows, or bytes, are located together."""
_FEW, _FEW_BYTES = 256, 512 << 10
"""Values of up to so many rows, or bytes (by the average), are in memory at a time."""


def tree_of(reader: Reader, bound: Bounds, segments: int, by: By) -> MerkleTree:
    """Make the tree of the live rows of a range of ledger keys: see Snapshot.merkle. Raises
    Misuse."""
    tree = MerkleTree.empty(segments, by)
    values = BatchValues(reader)
    for batch in reader.batches(bound, heads=by != "sqn"):
        hashes = batch.columns.hashes[batch.rows]
        tree.add(hashes, row_words(hashes, _version(values, batch, by)))
    return tree


def _version(values: BatchValues, batch: Batch, by: By) -> list[U64]:
    """The words that stand for each row's version in the tree."""
    columns, rows = batch
    if by == "sqn":
        return [columns.sqns[rows].astype(np.uint64)]
    parts = [columns.sizes[rows].astype(np.uint64)]
    none = np.zeros(len(rows), dtype=np.uint64)
    parts.append(none if columns.expiries is None else columns.expiries[rows].astype(np.uint64))
    if columns.metas is None:
        parts.append(none)
    else:
        metas = strings_of(columns.metas, rows)
        parts.append(digests(metas.blob.tobytes(), metas.offsets))
    if by == "value":
        parts.append(_value_digests(values, batch))
    return parts


def _value_digests(values: BatchValues, batch: Batch) -> U64:
    """xxh3-64 of each row's value; 0 for a head-only entry, whose value is its metadata."""
    if batch.columns.prefixes[0][0] == ledger_key.HEAD_ONLY:
        return np.zeros(len(batch.rows), dtype=np.uint64)
    found = np.zeros(len(batch.rows), dtype=np.uint64)
    low = 0
    for part in parts_of(batch, _ROWS, _BYTES, by_values=True):
        located, end = values.locate(part, of=batch), low + len(part.rows)
        mean = int(located.sizes().sum()) // len(located)
        count = max(min(_FEW, _FEW_BYTES // (mean + 1)), 1)
        at = 0
        while low < end:
            few = located.views(at, min(at + count, len(located)))
            found[low : low + len(few)] = list(map(xxh3, few))
            low, at = low + len(few), at + len(few)
    return found


def to_segments(segments: object, of: object) -> Segments:
    """Check a caller's choice among ``of`` segments. Raises Misuse."""
    if of is None:
        raise Misuse("segments=... needs of=: how many there are in the tree they come from")
    bits = bits_of(of)
    chosen = np.zeros(1 << bits, dtype=np.bool_)
    try:
        numbers = list(segments)  # type: ignore[call-overload]
    except TypeError:
        raise Misuse(f"segments={shown(segments)}: allowed is a list of their numbers") from None
    for number in numbers:
        last = (1 << bits) - 1
        chosen[to_whole("segment", number, f"are numbers from 0 to {last}", 0, last)] = True
    return Segments(HASH_BITS - bits, chosen)
