"""Sizes from which the library takes another way, made small: what takes a million rows then takes
a few hundred. None of them may change what is found."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from octavo.actors.reader import Reader
from octavo.actors.scanning import batches
from octavo.files.ledger.live_batches import FileRows

SIZES: dict[str, tuple[int, ...]] = {
    "manifest.level_sizes LEVEL_ONE_ROWS": (20, 60, 300),
    "manifest.level_sizes GROWTH": (2, 3),
    "manifest.level_sizes MAX_FILE_ROWS": (7, 20, 100),
    "actors.penciller LEVEL_ZERO_FILES": (2, 3, 4),
    "actors.penciller _LITTLE": (1, 2, 64),
    "actors.penciller _MOST_FILES": (4, 16),
    "actors.writing.room_ahead WIDE_FROM_BYTES": (600, 20_000, 1 << 20),
    "actors.writing.room_ahead WIDE_STEP": (4096, 64 << 10),
    "actors.writing.room_ahead _WIDE_SHIFT": (0, 3),
    "actors.writing.room_ahead _OPEN_MS": (1 << 40, 100),
    "actors.scanning.scan_sources FIRST_WINDOW": (1, 3, 96),
    "actors.scanning.scan_sources LARGEST_WINDOW": (4, 16, 4096),
    "actors.reader STEP": (1, 5, 256),
    "actors.reader _SOME": (0, 3, 63),
    "actors.reader _JUDGED": (0, 63 << 32),
    "actors.reader _LONG": (8, 64, 1024),
    "actors.reader _LOOKED_UP": (1, 3, 16),
    "actors.reader MOST_LOOKED_UP": (0, 5, 12),
    "actors.reader _LOOKED_UP_AT_ONCE": (1, 4),
    "actors.reader _BATCH_ROWS": (16, 100, 1 << 13),
    "actors.scanning.short_scans _LONG": (4, 30, 512),
    "actors.scanning.short_scans _LONGEST_KEPT": (4, 30, 256),
    "actors.scanning.short_scans _SHORT": (2, 8, 32),
    "actors.scanning.scan_sources CHUNK_BYTES": (1, 50, 2 << 20),
    "actors.scanning.scan_windows _FEW": (0, 1, 64),
    "actors.scanning.scan_windows _MANY_TIMES": (1, 3, 8),
    "actors.scanning.scan_windows _NEARLY_ALL": (1, 20),
    "actors.scanning.empty_ranges _MOST": (1, 2, 4096),
    "actors.scanning.empty_ranges _MOST_LONG": (1, 2, 256),
    "actors.scanning.empty_ranges _SHORT_BYTES": (0, 512),
    "actors.scanning.short_scans BEHIND_A_RANGE": (1, 2, 16),
    "actors.scanning.kept_scans _LEAST_WINDOWS": (0, 3, 32),
    "actors.scanning.kept_scans _ROWS_A_WINDOW": (20, 200, 2048),
    "actors.scanning.kept_scans _ROWS_OF_ONE_RUN": (100, 16384),
    "actors.scanning.kept_scans _MERGED_A_WINDOW": (10, 300, 3072),
    "actors.scanning.ledger_order _BLOCK": (1, 3, 64),
    "actors.scanning.few_rows _SPARE": (0, 1, 8),
    "actors.scanning.empty_ranges _MOST_ENTRIES": (2, 4096),
    "actors.bookie _FOR_SCANS": (0, 3),
    "actors.reading.bucket_names _FEW": (1, 3, 512),
    "files.ledger.chosen_rows _ROWS_A_BUCKET": (1, 10, 1000),
    "actors.reading.bucket_names _TOGETHER": (1, 3, 1 << 13),
    "actors.reading.bucket_names _FIRST_KEYS": (1, 3, 16),
    "actors.reading.bucket_names _MOST_KEYS": (1, 5, 4096),
    "actors.scanning.index_scan MANY": (1, 3, 512),
    "actors.scanning.index_scan _FEW_MORE": (1, 3, 32),
    "actors.scanning.index_scan MOST_FILES": (1, 3, 64),
    "actors.scanning.journal_order _STRETCH_ROWS": (1, 7, 1024),
    "actors.scanning.row_parts _PART_ROWS": (1, 7, 1 << 13),
    "actors.scanning.batch_values _FEW": (1, 32),
    "actors.scanning.batch_values _MANY": (2, 64),
    "actors.scanning.batch_values _ROWS_A_FILE": (1, 24),
    "actors.scanning.batch_values _ROWS_A_LENGTH": (1, 16),
    "actors.scanning.batches _MANY": (1, 32),
    "actors.reading.guide _LEAST_BITS": (0, 3, 10),
    "actors.reading.guide _MOST_GROUPS": (0, 1, 64),
    "actors.reading.guide _MOST_PARTS": (1, 3, 9, 1 << 10),
    "actors.reading.guide _DIRECT_BITS": (0, 4, 22),
    "actors.reading.guide MOST_ROWS": (30, 1 << 22),
    "actors.reading.guide MOST_DIRECT_ROWS": (30, 1 << 21),
    "actors.reading.kept_rows _MOST_ROWS": (0, 100, 1 << 16),
    "actors.reading.read_cache _SPARE": (3, 64),
    "index BOUNDED": (1, 256),
    "at_once _MOST_KEYS": (1, 3, 96),
    "at_once _MOST_ITEMS": (1, 3, 32),
    "at_once MOST_LOOKED_UP": (1, 3, 12),
    "scans LEAST_FIRST": (1, 16),
    "scans _SHORT": (2, 10, 128),
    "scans _FIRST": (1, 16),
    "actors.scanning.batch_values _FEW_A_FILE": (0, 10, 96),
    "scans _LOCATED_ROWS": (3, 50, 1 << 13),
    "scans _TOGETHER": (1, 30, 2048),
    "scans _LARGE_BYTES": (50, 24 << 10),
    "reading _MOST_FIRST": (1, 10, 200),
    "reading _MOST_KEYS": (1, 30, 4096),
    "bucket _GROUP": (3, 512),
    "files.ledger.few_maps _SHARE": (1 << 30, 4),
    "files.ledger.live_batches WINDOW_ROWS": (3, 20, 1 << 16),
    "files.ledger.live_batches WIDE_WINDOW_ROWS": (4, 40, 1 << 20),
    "files.ledger.live_batches WINDOW_BYTES": (64, 4 << 20),
    "files.ledger.find_many _COMPARED_BYTES": (1, 100, 16 << 20),
    "files.ledger.stale_entries _TOGETHER_BYTES": (1, 300, 16 << 20),
    "files.ledger.merge _MARKED_BYTES": (1, 30, 256 << 10),
    "files.journal.journal_rows PART_BYTES": (5000, 72 << 20),
    "files.journal.journal_values _MANY": (4, 2048),
    "files.kernels.key_order _FEW_RUNS": (1, 64),
    "files.kernels.key_order _STRETCH_BYTES": (1, 16),
    "files.kernels.key_order _OWN_SIZES": (0, 2),
    "files.kernels.key_order _MOST_BYTES": (0, 32 << 20),
    "files.journal.lz4_frame WORTH_IT_BYTES": (0, 256 << 10),
    "files.journal.runs MOST": (3, 1024),
    "files.journal.runs _EVEN_LEAST": (2, 16),
    "files.kernels.xxh3_columns _AT_LEAST": (1, 512),
    "files.kernels.xxh3_columns _SMALL_BYTES": (130, 4096),
    "files.journal.cdb_seal _MANY": (1, 1 << 13),
    "files.jobs.compaction _CHUNK": (50, 1 << 16),
    "files.jobs.compaction _FEW": (1, 20, 512),
    "files.journal.sealed_records STRETCH": (7, 1 << 17),
    "files.journal.sealed_records _PART_BYTES": (1, 2000, 36 << 20),
    "files.ledger.sst_lookup _FEW_GROUPS": (1, 64),
    "files.kernels.byte_strings _FEW": (1, 8),
    "files.kernels.byte_strings _BLOCK_BYTES": (64, 1 << 20),
    "manifest.small_files FEW_SMALL": (2, 4, 32),
    "manifest.small_files MANY_SMALL": (4, 9, 128),
    "manifest.pinning MAX_FILE_ROWS": (5, 1 << 18),
    "agreement STEP": (3, 1024),
    "verify STEP": (5, 1024),
    "verify MOST_KEYS": (300, 2 << 20),
}  # fmt: skip
"""By module and name: some to choose from, of which the last ones are as they are, or near it."""


EARLY_MAPS = {
    "actors.writing.room_ahead WIDE_FROM_BYTES": 2000,
    "actors.writing.room_ahead WIDE_STEP": 4096,
    "actors.writing.room_ahead _WIDE_SHIFT": 0,
    "actors.writing.room_ahead _OPEN_MS": 1 << 40,
}
"""Write maps from the first kilobytes of a journal file on, where they begin at a MiB, and for as
long as they have room: in files as small as those of tests a put would hardly ever meet one."""


@contextmanager
def small_sizes(rng: random.Random) -> Iterator[dict[str, int]]:
    """Within it each of them is one of its choices."""
    chosen = {name: rng.choice(some) for name, some in SIZES.items()}
    with sizes(chosen):
        yield chosen


@contextmanager
def sizes(chosen: Mapping[str, int]) -> Iterator[None]:
    """Within it each of these is so large, wherever it was imported to."""
    undo: list[tuple[Any, str, Any]] = []

    def put(holder: Any, name: str, value: Any) -> None:
        undo.append((holder, name, getattr(holder, name)))
        setattr(holder, name, value)

    try:
        if (rows := chosen.get("files.ledger.live_batches WINDOW_ROWS")) is not None:
            for given in (Reader.batches, batches.batches):
                defaults = {**(given.__kwdefaults__ or {}), "window_rows": rows}
                put(given, "__kwdefaults__", defaults)
            put(FileRows.__init__, "__defaults__", (None, rows))
        for where, size in chosen.items():
            home, name = where.split()
            module = importlib.import_module(f"octavo.{home}")
            old = getattr(module, name)
            holders = [module]
            if not name.startswith("_"):
                holders = [
                    other
                    for known, other in list(sys.modules.items())
                    if known.partition(".")[0] == "octavo" and vars(other).get(name) is old
                ]
            for holder in holders:
                put(holder, name, size)
        yield
    finally:
        for holder, name, old in reversed(undo):
            setattr(holder, name, old)
