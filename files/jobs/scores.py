"""The job that estimates how much of each journal file is garbage, from a sample of its bytes."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.files.door.disk import Disk
from octavo.files.errors import Corruption
from octavo.files.jobs import key_deltas, live_records
from octavo.files.jobs.live_records import KEEP, SUPERSEDED, TO_DELETE, UNSURE
from octavo.files.journal import cdb, record
from octavo.files.journal.journal_writer import squeezed
from octavo.files.journal.sealed_records import table_of
from octavo.files.kernels.arrays import np, npt
from octavo.files.ledger import few_maps, ledger_key
from octavo.files.ledger.find_many import Level
from octavo.files.ledger.hashing import hash_of
from octavo.files.ledger.rows import TOMBSTONE


def score(
    disk: Disk,
    *,
    journal: str,
    ledger: str,
    levels: Sequence[Sequence[few_maps.Told]],
    files: Sequence[dict[str, Any]],
    samples: int,
    now_ms: int,
    salt: int,
    strategies: Mapping[str, str],
    compresses: bool,
) -> dict[str, Any]:
    """Estimate how many bytes of each journal file compaction would keep, from a sample of them.

    A file is ``name``, ``seed``, ``base_sqn`` and ``clean_below`` (see live_records.verdicts). The
    result's ``scores`` has for each, in bytes, ``kept``, ``hiding`` (deletes that hide something
    older), ``squeezed`` (what compression would save of what is kept) and ``total``: all but the
    last are estimates. Or it has ``wrong``: why there are none.
    """
    known = few_maps.opened(disk, ledger, levels)
    retained = key_deltas.retained(strategies)
    sampler = _Sampler(disk, journal, known, samples, now_ms, salt, retained, compresses)
    scores = []
    for file in files:
        try:
            scores.append(sampler.score(file))
        except (Corruption, FileNotFoundError) as wrong:
            if isinstance(wrong, Corruption) and wrong.file.startswith(f"{ledger}/"):
                raise
            scores.append({"name": file["name"], "wrong": str(wrong)})
    return {"scores": scores}


@dataclass(frozen=True, slots=True)
class _Sampler:
    """Scores files by samples: what all of them have in common."""

    disk: Disk
    journal: str
    levels: Sequence[Level]
    samples: int
    now_ms: int
    salt: int
    retained: Sequence[int]
    compresses: bool

    def score(self, file: dict[str, Any]) -> dict[str, Any]:
        """The score of one file. Raises Corruption, FileNotFoundError."""
        path = f"{self.journal}/{file['name']}"
        view = memoryview(self.disk.map(path))
        numbers, starts, _ = table_of(view, path)
        if not len(numbers):
            return {"name": file["name"], "kept": 0, "hiding": 0, "squeezed": 0, "total": 0}
        sizes = np.diff(starts) + cdb.TABLE_BYTES_PER_RECORD
        at, stand_for = self._picked(sizes, file["seed"])
        found = [self._newest(view, starts, row, file["seed"], path) for row in at.tolist()]
        kinds, expiries, known, deleted, tags, values = (
            np.array(each) for each in zip(*found, strict=True)
        )
        verdict = live_records.verdicts(
            kinds.astype(np.uint8),
            numbers[at].astype(np.uint64) + np.uint64(file["base_sqn"]),
            expiries.astype(np.uint64),
            live_records.Newest(known.astype(np.uint64), deleted.astype(np.bool_)),
            clean_below=file["clean_below"],
            now_ms=self.now_ms,
        )
        put = kinds == record.PUT
        hides = ((verdict == KEEP) & ~put) | (verdict == TO_DELETE)
        kept = (verdict == KEEP) | (verdict == UNSURE) | hides
        delta = (verdict == SUPERSEDED) & (kinds != record.DELETE) & np.isin(tags, self.retained)
        stays = np.flatnonzero(put & (verdict == KEEP) & self.compresses)
        sampled = [(int(starts[at[i]]), int(starts[at[i] + 1]), int(values[i])) for i in stays]
        share = stand_for / sizes[at]
        parts = {
            "squeezed": share[stays] * squeezed(view, sampled),
            "kept": np.where(kept, stand_for, share * (sizes[at] - values))[kept | delta],
            "hiding": stand_for[hides],
            "total": stand_for,
        }
        return {"name": file["name"], **{part: round(of.sum()) for part, of in parts.items()}}

    def _picked(
        self, sizes: npt.NDArray[np.int64], seed: int
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """(which of the records of these sizes to look at, the bytes that each stands for). All, if
        they are few; else the file is cut into equal stretches, and a random byte of each picks the
        record that it is in, so that one that is most of the file counts as that. The file's seed
        makes it reproducible."""
        if len(sizes) <= self.samples:
            return np.arange(len(sizes)), sizes.astype(np.float64)
        ends = np.cumsum(sizes)
        rng = random.Random(self.salt ^ seed)
        stretch = int(ends[-1]) / self.samples
        places = [min((i + rng.random()) * stretch, ends[-1] - 1) for i in range(self.samples)]
        at, hits = np.unique(np.searchsorted(ends, places, side="right"), return_counts=True)
        return at, hits * stretch

    def _newest(
        self, view: memoryview, starts: npt.NDArray[np.int64], at: int, seed: int, path: str
    ) -> tuple[int, int, int, bool, int, int]:
        """(kind, expiry, sqn of the newest version of its key, whether that is a delete, tag,
        bytes of the value) of one record."""
        start, end = int(starts[at]), int(starts[at + 1])
        try:
            head = record.parse_header(view[start:end], seed ^ start, end - start)
        except record.NotARecord as wrong:
            raise Corruption(path, start, f"journal record: {wrong}") from None
        key = ledger_key.prefix(head.tag, head.bucket) + head.key
        h32 = hash_of(key)
        for depth, level in enumerate(self.levels):
            files = level
            if depth:
                after = bisect_right(level, key, key=lambda file: file[0].first_key)
                files = level[max(after - 1, 0) : after]
            for sst, base in files:
                row = sst.find(key, h32)
                if row >= 0:
                    deleted = bool(sst.flags[row] & TOMBSTONE)
                    sqn = sst.sqns[row] + base
                    return head.kind, head.expiry_ms, sqn, deleted, head.tag, head.value_bytes
        return head.kind, head.expiry_ms, 0, False, head.tag, head.value_bytes
