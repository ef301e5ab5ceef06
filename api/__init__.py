"""Octavo: an embedded, event-sourced key-value store with snapshots that fold.

``octavo.open(path)`` gives a Store. Everything else is reached from it.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

# At once, since the first use of an ``except octavo.Closed`` may be at the end of the interpreter.
from octavo.files.errors import (
    AskCycle,
    AskTimeout,
    Busy,
    Closed,
    Conflict,
    Corruption,
    Fenced,
    HistoryCompacted,
    Misuse,
    OctavoError,
    SnapshotExpired,
    StorageFailed,
    StorageFull,
    StoreLocked,
    UnsupportedFormat,
)
from octavo.files.later import loading
from octavo.files.unbroken import unbroken

if TYPE_CHECKING:
    from octavo.actors.compacting.compaction import Compacted
    from octavo.actors.keeping.backup import BackedUp
    from octavo.actors.keeping.ingest import Ingested
    from octavo.actors.opening.options import OpenOptions
    from octavo.actors.opening.tags import Tag
    from octavo.batch import Batch
    from octavo.bucket import Bucket
    from octavo.changes import Change
    from octavo.committing import acknowledge, backup, commit
    from octavo.comparing import Difference, compare
    from octavo.consumer import Consumer
    from octavo.destroying import destroy
    from octavo.files.ledger.head import Head
    from octavo.files.ledger.merkle import MerkleTree
    from octavo.head_only import HeadBatch, HeadBucket, HeadRow, SnapshotHeadBucket
    from octavo.index import Index, Query
    from octavo.index_edit import IndexEdit
    from octavo.published import PublishedSnapshot
    from octavo.read_only import ReadOnlyStore
    from octavo.registry import open_stores
    from octavo.repairing import Repair, repair
    from octavo.restoring import Restored, restore
    from octavo.scans import Scan
    from octavo.snapshot import Item, Snapshot, SnapshotBucket
    from octavo.store import Store, open
    from octavo.verify import Report

if sys.platform == "win32":
    raise ImportError(
        "Octavo runs on Linux and macOS: it needs flock, and to remove files that are being read; "
        "on Windows use it in WSL"
    )
if sys.maxsize < 1 << 32 or sys.byteorder != "little":
    raise ImportError(
        "Octavo needs a 64-bit Python on a little-endian machine: it maps whole files into memory, "
        "and uses their columns in place"
    )

__version__ = "0.1.0"

# A library is quiet until the program that uses it says what is to become of its messages.
logging.getLogger("octavo").addHandler(logging.NullHandler())

_HOMES = {
    "octavo.store": ("Store", "open"),
    "octavo.registry": ("open_stores",),
    "octavo.bucket": ("Bucket",),
    "octavo.snapshot": ("Item", "Snapshot", "SnapshotBucket"),
    "octavo.batch": ("Batch",),
    "octavo.changes": ("Change",),
    "octavo.consumer": ("Consumer",),
    "octavo.comparing": ("Difference", "compare"),
    "octavo.files.ledger.head": ("Head",),
    "octavo.files.ledger.merkle": ("MerkleTree",),
    "octavo.published": ("PublishedSnapshot",),
    "octavo.read_only": ("ReadOnlyStore",),
    "octavo.scans": ("Scan",),
    "octavo.committing": ("acknowledge", "backup", "commit"),
    "octavo.destroying": ("destroy",),
    "octavo.actors.keeping.backup": ("BackedUp",),
    "octavo.repairing": ("Repair", "repair"),
    "octavo.restoring": ("Restored", "restore"),
    "octavo.verify": ("Report",),
    "octavo.head_only": ("HeadBatch", "HeadBucket", "HeadRow", "SnapshotHeadBucket"),
    "octavo.index": ("Index", "Query"),
    "octavo.index_edit": ("IndexEdit",),
    "octavo.actors.compacting.compaction": ("Compacted",),
    "octavo.actors.keeping.ingest": ("Ingested",),
    "octavo.actors.opening.options": ("OpenOptions",),
    "octavo.actors.opening.tags": ("Tag",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AskCycle",
    "AskTimeout",
    "BackedUp",
    "Batch",
    "Bucket",
    "Busy",
    "Change",
    "Closed",
    "Compacted",
    "Conflict",
    "Consumer",
    "Corruption",
    "Difference",
    "Fenced",
    "Head",
    "HeadBatch",
    "HeadBucket",
    "HeadRow",
    "HistoryCompacted",
    "Index",
    "IndexEdit",
    "Ingested",
    "Item",
    "MerkleTree",
    "Misuse",
    "OctavoError",
    "OpenOptions",
    "PublishedSnapshot",
    "Query",
    "ReadOnlyStore",
    "Repair",
    "Report",
    "Restored",
    "Scan",
    "Snapshot",
    "SnapshotBucket",
    "SnapshotExpired",
    "SnapshotHeadBucket",
    "StorageFailed",
    "StorageFull",
    "Store",
    "StoreLocked",
    "Tag",
    "UnsupportedFormat",
    "__version__",
    "acknowledge",
    "backup",
    "commit",
    "compare",
    "destroy",
    "open",
    "open_stores",
    "repair",
    "restore",
]


def __getattr__(name: str) -> Any:
    # Lazy, so that what reads only a snapshot's files loads no actor.
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    with unbroken, loading:
        value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
