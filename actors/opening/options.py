"""The options of a store: their defaults, their bounds, and the errors that name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict, cast

from octavo.actors.opening.tags import Tag
from octavo.files.argument_checks import number, shown, to_whole, unknown_option
from octavo.files.errors import Misuse

MiB = 1 << 20
Sync = Literal["none", "always"] | float


_WHOLE = {
    "roll_size_bytes": (MiB, 3 << 30),
    "roll_count": (256, 4 << 20),
    "push_rows": (64, 16 << 20),
    "push_bytes": (64 << 10, 3 << 30),
    "read_cache_bytes": (0, 1 << 40),
    "max_open_files": (8, 100_000),
    "compact_run_length": (1, 32),
    "compact_score_one_in": (1, 100),
    "consumer_hold_bytes": (1, 1 << 60),
}
"""Bounds of the options that are whole numbers, both inclusive."""
_NUMBERS: dict[str, tuple[float, float]] = {
    "compact_single_percent": (0, 100),
    "compact_run_percent": (0, 100),
    "waste_retention_seconds": (0, 1e9),
    "consumer_hold_seconds": (0.001, 1e12),
    "compact_every_seconds": (0.001, 1e9),
}
_MODES = ("standard", "head_only")
_MAY_BE_NONE = frozenset(
    {"max_open_files", "consumer_hold_bytes", "consumer_hold_seconds", "compact_every_seconds"}
)


@dataclass(frozen=True, slots=True)
class Options:
    """How a store behaves; none of them changes what its files mean.

    ``create``: Create the store if the directory holds none.
    ``sync``: When a write survives a power cut: "none" (once the operating system has written it
        out; SIGKILL loses nothing), "always" (before the call returns), or within so many seconds.
    ``roll_size_bytes``: A journal file is full at this size (1 MiB .. 3 GiB).
    ``roll_count``: ... or with this many records (256 .. 4 M).
    ``push_rows``: At this many keys, recent changes go from memory to the ledger (64 .. 16 M).
    ``push_bytes``: ... or after this much journal, with the keys of index entries (64 KiB .. 3
        GiB).
    ``read_cache_bytes``: Memory for values read before; 0: no cache.
    ``max_open_files``: Files mapped at once (8 .. 100,000); before Python 3.13 each takes a file
        descriptor. None: in all such stores of the process together 16,384, but before 3.13 at most
        half of its descriptors (``ulimit -n``).
    ``compression``: How values are compressed, if that makes them smaller by an eighth: from 2 KiB
        up when they are put, from 256 bytes up when the journal is compacted. Any setting reads all
        values.
    ``compact_every_seconds``: How often to look for journal files worth compacting, while there are
        writes; None: only ``compact()`` does. A look is a job of a few milliseconds a file in a
        worker process of low priority, so it may come often enough that garbage does not pile up.
        Many small neighbouring files, such as commits, publishings, backups and kills leave, are
        joined as they come, with all that a change feed can still tell of them.
    ``compact_single_percent``: A journal file is worth rewriting if less than this share of it is
        still needed.
    ``compact_run_percent``: ... and so is a run of ``compact_run_length`` files with this mean
        share; the bounds of shorter runs lie in between.
    ``compact_run_length``: At most so many files are rewritten together (1 .. 32), except small
        ones that make one file.
    ``compact_score_one_in``: A look samples one in so many of the files looked at before (1 ..
        100).
    ``waste_retention_seconds``: How long the directory ``waste`` keeps journal files that
        compaction replaced; 0: they are removed at once.
    ``consumer_hold_seconds``: A consumer of the change feed that makes no progress for so long, and
        holds compaction back, is dropped, with a warning; None: never.
    ``consumer_hold_bytes``: ... and so is one, whatever its progress, that holds back more of the
        journal than this; None: no limit. Only sealed files count that compaction could look at but
        for the consumer.
    ``worker``: Merge in a worker process (True) or on a thread of this one.
    ``mode``: The kind of store: "standard" keeps values in the journal; "head_only" keeps small
        ones in the ledger, and in the journal only until they are there. None: as it is, standard
        if new.
    ``lookup``: Whether a head-only store answers for single keys (True), or can only be listed and
        folded over (False). None: as it is, True if new.
    ``tags``: Types of objects by name, each an octavo.Tag.
    ``strategies``: For each type ("standard" is one) "recovr", "retain" or "recalc": what
        compaction keeps of replaced versions, and what a rebuild of the ledger takes metadata and
        index entries from. Kept by the store.
    """

    create: bool = True
    sync: Sync = "none"
    roll_size_bytes: int = 128 * MiB
    roll_count: int = 1 << 19
    push_rows: int = 1 << 17
    push_bytes: int = 64 * MiB
    read_cache_bytes: int = 64 * MiB
    max_open_files: int | None = None
    compression: Literal["lz4", "none"] = "lz4"
    compact_every_seconds: float | None = 600.0
    compact_single_percent: float = 30.0
    compact_run_percent: float = 70.0
    compact_run_length: int = 8
    compact_score_one_in: int = 1
    waste_retention_seconds: float = 0.0
    consumer_hold_seconds: float | None = 7 * 86400.0
    consumer_hold_bytes: int | None = None
    worker: bool = True
    mode: Literal["standard", "head_only"] | None = None
    lookup: bool | None = None
    tags: Mapping[str, Any] = field(default_factory=dict)
    strategies: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plain: dict[str, Any] = {"sync": _as_sync(self.sync)}
        for name, (low, high) in _WHOLE.items():
            if (value := getattr(self, name)) is not None or name not in _MAY_BE_NONE:
                allowed = f"is a whole number from {low} to {high}"
                plain[name] = to_whole(name, value, allowed, low, high)
        for name, (least, most) in _NUMBERS.items():
            if (value := getattr(self, name)) is not None or name not in _MAY_BE_NONE:
                plain[name] = _as_number(name, value, least, most)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if self.compression not in ("lz4", "none"):
            raise Misuse(f'compression={shown(self.compression)}: allowed are "lz4" and "none"')
        if self.mode not in (None, *_MODES):
            raise Misuse(f'mode={shown(self.mode)}: allowed are "standard" and "head_only"')
        for name in ("create", "worker", "lookup"):
            value = getattr(self, name)
            if not isinstance(value, bool) and (name != "lookup" or value is not None):
                raise Misuse(f"{name}={shown(value)}: allowed are True and False")


class OpenOptions(TypedDict, total=False):
    """The options as ``octavo.open`` takes them, for type checkers and editors: see Options."""

    create: bool
    sync: Sync
    roll_size_bytes: int
    roll_count: int
    push_rows: int
    push_bytes: int
    read_cache_bytes: int
    max_open_files: int | None
    compression: Literal["lz4", "none"]
    compact_every_seconds: float | None
    compact_single_percent: float
    compact_run_percent: float
    compact_run_length: int
    compact_score_one_in: int
    waste_retention_seconds: float
    consumer_hold_seconds: float | None
    consumer_hold_bytes: int | None
    worker: bool
    mode: Literal["standard", "head_only"] | None
    lookup: bool | None
    tags: Mapping[str, Tag]
    strategies: Mapping[str, str]


def options(given: Mapping[str, Any]) -> Options:
    """Options from keywords. Raises Misuse that names an unknown or impossible one."""
    known = [field.name for field in fields(Options)]
    for name in given:
        if name in _MODES:
            raise Misuse(f"unknown option {name!r}: what is meant is mode={name!r}")
        if name not in known:
            begun = unknown_option(name, [*known, "read_only"])
            raise Misuse(f"{begun} known are: {', '.join(known)}")
    return Options(**given)


def _as_number(name: str, value: object, low: float, high: float) -> float:
    """The value as a plain Python number, also if it is NumPy's. Raises Misuse."""
    found = number(value)
    if found is None or not low <= found <= high:
        raise Misuse(f"{name}={shown(value)}: allowed is a number from {low:g} to {high:g}")
    return found


def _as_sync(value: object) -> Sync:
    if isinstance(value, str) and value in ("none", "always"):
        return cast("Sync", value)
    seconds = number(value)
    if seconds is None or not 0 < seconds <= 3600:
        raise Misuse(
            f'sync={shown(value)}: allowed are "none", "always", '
            "or seconds above 0 and at most 3600"
        )
    return seconds
