"""Draws the pictures of an inspection, each a section of the page."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from octavo.figures import count, duration, moment, plural, size
from octavo.pictures.inspection import Block, Inspection, shown
from octavo.pictures.page_parts import (
    WIDTH,
    axis,
    ends,
    legend,
    nothing,
    picture,
    rect,
    row,
    section,
    table,
    upright,
)
from octavo.stats_types import JobStats, JournalFileStats, LatencyStats

MOST_BLOCKS = 400
"""Up to so many files of a level, or of the journal, are drawn one by one; more in groups."""
MOST_LANES = 24
MOST_SNAPSHOTS = 60

_COLOURS = {"level_zero": "blue", "merge": "green", "seal": "gold", "compact": "orange"}
_JOBS = {
    "level_zero": "saves of memory",
    "merge": "merges",
    "seal": "seals",
    "compact": "compactions",
    "score": "samplings",
    "check_ledger": "checks before a trim",
}


def share(part: float, whole: float) -> str:
    """``12 %``"""
    return f"{100 * part / whole:.0f} %" if whole else "-"


# ---------------------------------------------------------------- the ledger's levels


def levels(found: Inspection) -> str:
    """Files of the ledger as blocks: where they are in the key range, and how large."""
    blocks = [block for level in found.levels for block in level]
    told = (
        "Each block is a file: as wide as the keys it spans, as high as it is large. The orange "
        "part is deletes. Files of level 0 overlap; a get asks each of them, and one file of "
        "every other level."
    )
    if not blocks:
        return section("Levels of the ledger", told, nothing("The ledger has no file yet."))
    bounds = sorted({key for block in blocks for key in (block.first_key, block.last_key)})
    largest = max(block.bytes for block in blocks)
    rows = []
    for number, level in enumerate(found.levels):
        groups = _grouped(level, MOST_BLOCKS if number else MOST_LANES)
        drawn = list(_blocks(groups, bounds, largest, lanes=len(groups) if number == 0 else 1))
        whole = sum(block.bytes for block in level)
        amount = f"{plural(len(level), 'file')} · {size(whole)}"
        about = f"{amount}, {plural(sum(block.rows for block in level), 'row')}"
        pixels = min(max(16 * len(groups), 34), 192) if number == 0 else 34
        rows.append(
            row(f"Level {number}", picture(drawn, f"Level {number}", about, pixels=pixels), amount)
        )
    listed = [
        [str(number), block.name, shown(block.first_key), shown(block.last_key),
         count(block.rows), count(block.tombstones), size(block.bytes)]
        for number, level in enumerate(found.levels)
        for block in level
    ]  # fmt: skip
    return section(
        "Levels of the ledger",
        told,
        legend((("blue", "rows of keys"), ("orange", "deletes"))),
        *rows,
        ends(f"first key: {shown(bounds[0])}", f"last key: {shown(bounds[-1])}"),
        table(
            "Files of the ledger.",
            ("level", "file", "first key", "last key", "rows", "deletes", "size"),
            listed,
            of_text=4,
        ),
    )


def _grouped(level: Sequence[Block], most: int) -> list[list[Block]]:
    """Group neighbouring files into at most ``most`` groups."""
    each = max(-(-len(level) // most), 1)
    return [list(level[at : at + each]) for at in range(0, len(level), each)]


def _blocks(
    groups: Sequence[Sequence[Block]], bounds: Sequence[bytes], largest: int, *, lanes: int
) -> Iterator[str]:
    unit = WIDTH / max(len(bounds) - 1, 1)
    lane = 100 / max(lanes, 1)
    for number, group in enumerate(groups):
        first, last = min(b.first_key for b in group), max(b.last_key for b in group)
        x = bisect_left(bounds, first) * unit
        width = max(bisect_left(bounds, last) * unit - x, 2.0)
        rows, dead = sum(b.rows for b in group), sum(b.tombstones for b in group)
        bytes_each = sum(b.bytes for b in group) / len(group)
        high = lane * 0.92 * max(math.sqrt(bytes_each / largest), 0.35)
        floor = lane * ((number if lanes > 1 else 0) + 1)
        title = (
            f"{group[0].name if len(group) == 1 else plural(len(group), 'file')}: {count(rows)} "
            f"rows, {size(sum(b.bytes for b in group))}, {count(dead)} deletes; "
            f"{shown(first)} to {shown(last)}"
        )
        yield rect(x, floor - high, width, high, "blue edged", title)
        if dead:
            part = high * dead / rows
            yield rect(x, floor - part, width, part, "orange edged")


# ---------------------------------------------------------------- the journal


def journal(found: Inspection) -> str:
    """Journal files from old to new: how much of each is needed, and how much is garbage."""
    files = found.stats["journal"]["file_list"]
    told = (
        "Each column is a file, oldest at the left, as high as it is large. The orange part is "
        "garbage: versions that were replaced or deleted, by a sample. Compaction rewrites runs of "
        "files with much of it."
    )
    each = max(-(-len(files) // MOST_BLOCKS), 1)
    groups = [files[at : at + each] for at in range(0, len(files), each)]
    tallest = max((sum(f["bytes"] for f in group) for group in groups), default=1) or 1
    shapes = [
        shape
        for at, group in enumerate(groups)
        for shape in _column(group, at * WIDTH / len(groups), WIDTH / len(groups), tallest)
    ]
    known = [f for f in files if f["garbage_share"] is not None]
    garbage = sum(f["bytes"] * (f["garbage_share"] or 0) for f in known)
    whole = sum(f["bytes"] for f in known)
    amount = f"{plural(len(files), 'file')} · {size(sum(f['bytes'] for f in files))}"
    said = (
        f"{amount}; of {plural(len(known), 'sampled file')} {size(garbage)} are garbage, "
        f"{share(garbage, whole)}"
    )
    worst = sorted(files, key=lambda f: (-(f["garbage_share"] or 0.0), f["base_sqn"]))
    return section(
        "Journal files by garbage",
        told,
        legend((("green", "needed"), ("orange", "garbage"), ("grey", "not looked at"))),
        row(
            f"highest: {size(tallest)}",
            picture(shapes, "Journal files", said, pixels=130),
            f"{size(garbage)} garbage of {size(whole)} sampled" if known else "not sampled",
        ),
        ends("oldest", "newest"),
        table(
            "Files of the journal, those with most garbage first.",
            ("file", "state", "garbage", "score", "size", "records", "first sqn", "last sqn"),
            [
                [f["name"], f["state"],
                 "-" if f["garbage_share"] is None else share(f["garbage_share"], 1),
                 "-" if f["score"] is None else f"{f['score']:.0f}", size(f["bytes"]),
                 count(f["records"]), count(f["base_sqn"]), count(f["last_sqn"])]
                for f in worst
            ],
            of_text=2,
        ),
    )  # fmt: skip


def _column(
    group: Sequence[JournalFileStats], x: float, width: float, tallest: float
) -> Iterator[str]:
    whole = sum(f["bytes"] for f in group)
    known = [f for f in group if f["garbage_share"] is not None]
    garbage = sum(f["bytes"] * (f["garbage_share"] or 0.0) for f in known)
    needed = sum(f["bytes"] for f in known) - garbage
    what = group[0]["name"] if len(group) == 1 else f"{len(group)} files"
    title = f"{what}: {size(whole)}, {f'{size(garbage)} garbage' if known else 'not looked at'}"
    floor = 100.0
    # The frame has the title, so that it is shown for the whole column.
    for kind, part in (("green", needed), ("orange", garbage), ("grey", whole - garbage - needed)):
        if part > 0:
            high = 96 * part / tallest
            floor -= high
            yield rect(x, floor, width, high, f"{kind} edged", title)


# ---------------------------------------------------------------- background jobs


def timeline(found: Inspection) -> str:
    """What the background did, and when."""
    jobs = found.stats["jobs"]["recent"]
    told = (
        "Each stroke is a job, as wide as it took long: memory saved to level 0, levels merged, "
        "journal files sealed, compacted, or sampled for garbage. A frame is one that failed. The "
        "newest 512 since the store was opened."
    )
    if not jobs:
        return section(
            "Background work", told, nothing("There was none since the store was opened.")
        )
    began = min(job["began_ms"] for job in jobs)
    until = max(found.stats["now_ms"], max(_end_ms(job) for job in jobs))
    span = max(until - began, 1)
    rows = []
    kinds = sorted({job["kind"] for job in jobs})
    for kind in sorted(kinds, key=[*_JOBS, *kinds].index):
        of_kind = [job for job in jobs if job["kind"] == kind]
        busy = sum(job["seconds"] for job in of_kind)
        written = sum(job["bytes_written"] for job in of_kind)
        amount = f"{count(len(of_kind))} · {duration(busy)} · {size(written)}"
        shapes = [shape for job in of_kind for shape in _stroke(job, began, span)]
        name = _JOBS.get(kind, kind)
        rows.append(row(name.capitalize(), picture(shapes, name, amount, pixels=26), amount))
    marks = [(WIDTH * at / 4, duration(span / 1000 * at / 4)) for at in range(5)]
    return section(
        "Background work",
        told,
        *rows,
        axis([(x, "0" if not x else label) for x, label in marks]),
        table(
            f"Background jobs, newest first; the picture begins at {moment(began)}.",
            ("job", "began", "took", "files in", "files out", "written", "result"),
            [
                [job["kind"], moment(job["began_ms"]), duration(job["seconds"]),
                 count(job["inputs"]), count(job["outputs"]), size(job["bytes_written"]),
                 "done" if job["ok"] else f"failed: {job['why']}"]
                for job in reversed(jobs)
            ],
            of_text=2,
        ),
    )  # fmt: skip


def _end_ms(job: JobStats) -> int:
    return job["began_ms"] + math.ceil(job["seconds"] * 1000)


def _stroke(job: JobStats, began: int, span: int) -> Iterator[str]:
    colour = _COLOURS.get(job["kind"], "violet")
    x = WIDTH * (job["began_ms"] - began) / span
    width = WIDTH * job["seconds"] * 1000 / span
    title = (
        f"{job['kind']}: {duration(job['seconds'])}, {plural(job['inputs'], 'file')} to "
        f"{plural(job['outputs'], 'file')}, {size(job['bytes_written'])}, "
        f"{moment(job['began_ms'])}{'' if job['ok'] else ', failed: ' + job['why']}"
    )
    # A line, which can be seen however short the job was.
    yield upright(x, f"job {colour}", title)
    yield rect(x, 0, width, 100, colour if job["ok"] else "failed", title)


# ---------------------------------------------------------------- snapshots


def snapshots(found: Inspection) -> str:
    """Live snapshots: their age, their lease, and what waits for them."""
    live = found.stats["live_snapshots"]
    told = (
        "Each bar is a live snapshot or iterator: how long ago it was taken (blue), and how long "
        "its lease still runs (grey). It holds files that were replaced since, which go once no "
        "snapshot needs them."
    )
    merging, compaction = found.stats["merging"], found.stats["compaction"]
    waiting = merging["delete_pending"] + compaction["delete_pending"]
    held = merging["delete_pending_bytes"] + compaction["delete_pending_bytes"]
    if not live:
        also = f" {plural(waiting, 'file')} wait to be deleted, {size(held)}." if waiting else ""
        return section("Snapshots", told, nothing(f"There is none.{also}"))
    oldest = max(snapshot["age_seconds"] for snapshot in live)
    longest = max(snapshot["lease_left_seconds"] for snapshot in live)
    # Past and future get half of the width each, or a short past could not be seen.
    rows = []
    for snapshot in live[:MOST_SNAPSHOTS]:
        age = 500 * snapshot["age_seconds"] / (oldest or 1)
        left = 500 * snapshot["lease_left_seconds"] / (longest or 1)
        holds = f"holds {plural(snapshot['holds_files'], 'file')}, {size(snapshot['holds_bytes'])}"
        about = (
            f"{duration(snapshot['age_seconds'])} old, lease runs "
            f"{duration(snapshot['lease_left_seconds'])}; {holds}"
        )
        shapes = [
            rect(500 - age, 15, age, 70, "blue", about),
            rect(500, 15, left, 70, "grey", about),
            upright(500, "mark"),
        ]
        name = f"Snapshot {snapshot['number']}"
        rows.append(row(name, picture(shapes, name, about, pixels=22), holds))
    if len(live) > MOST_SNAPSHOTS:
        rows.append(nothing(f"and {count(len(live) - MOST_SNAPSHOTS)} more, see the table"))
    return section(
        "Snapshots",
        f"{told} Together {plural(waiting, 'file')} wait, {size(held)}.",
        *rows,
        axis([(0, f"{duration(oldest)} ago"), (500, "now"), (WIDTH, f"in {duration(longest)}")]),
        table(
            "Live snapshots, oldest first.",
            ("snapshot", "age", "lease left", "files held", "bytes held"),
            [
                [str(s["number"]), duration(s["age_seconds"]), duration(s["lease_left_seconds"]),
                 count(s["holds_files"]), size(s["holds_bytes"])]
                for s in live
            ],
        ),
    )  # fmt: skip


# ---------------------------------------------------------------- latencies


def latencies(found: Inspection) -> str:
    """How long calls take."""
    told = (
        "How many calls took how long; every picture is scaled to its own highest column. The "
        "strong line is the median, the thin ones are decades of time. Most calls are not timed; "
        "each that is stands for several."
    )
    asked = {name: buckets for name, buckets in found.histograms.items() if buckets}
    if not asked:
        return section("Latencies", told, nothing("Nothing was called since the store was opened."))
    low = math.floor(math.log10(max(min(b[0][0] for b in asked.values()), 100)))
    high = math.ceil(math.log10(max(b[-1][1] for b in asked.values()) + 1))
    high = max(high, low + 2)

    def place(ns: float) -> float:
        return WIDTH * min(max((math.log10(max(ns, 1)) - low) / (high - low), 0), 1)

    figures = cast(dict[str, LatencyStats], found.stats["latencies"])
    rows = []
    for name, buckets in asked.items():
        of = figures[name]
        amount = f"p50 {_seconds(of['p50_seconds'])} · p99 {_seconds(of['p99_seconds'])}"
        shapes = [upright(place(10**decade), "decade") for decade in range(low + 1, high)]
        shapes += _histogram(buckets, low, high)
        shapes.append(upright(place((of["p50_seconds"] or 0) * 1e9), "mark", "median"))
        about = f"{count(of['count'])} calls, {amount}, longest {_seconds(of['max_seconds'])}"
        rows.append(row(name, picture(shapes, f"Latency of {name}", about, pixels=40), amount))
    marks = [(place(10**decade), duration(10**decade / 1e9)) for decade in range(low, high + 1)]
    return section(
        "Latencies",
        told,
        *rows,
        axis(marks),
        table(
            "Latencies since the store was opened.",
            ("operation", "calls", "mean", "p50", "p90", "p99", "p99.9", "longest timed"),
            [
                [name, count(of["count"]), _seconds(of["mean_seconds"]),
                 _seconds(of["p50_seconds"]), _seconds(of["p90_seconds"]),
                 _seconds(of["p99_seconds"]), _seconds(of["p999_seconds"]),
                 _seconds(of["max_seconds"])]
                for name, of in figures.items()
            ],
        ),
    )  # fmt: skip


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _histogram(buckets: Sequence[tuple[int, int, int]], low: int, high: int) -> Iterator[str]:
    """Columns of a histogram, each a tenth of a decade wide."""
    bins: dict[int, int] = {}
    for first, last, calls in buckets:
        at = math.floor(10 * (math.log10(max((first + last) / 2, 1)) - low))
        at = min(max(at, 0), 10 * (high - low) - 1)
        bins[at] = bins.get(at, 0) + calls
    tallest = max(bins.values())
    wide = WIDTH / (10 * (high - low))
    for at, calls in bins.items():
        tall = max(96 * calls / tallest, 3)
        title = f"{duration(10 ** (low + at / 10) / 1e9)} and up: {count(calls)} calls"
        yield rect(at * wide, 100 - tall, wide, tall, "blue edged", title)


# ---------------------------------------------------------------- reads and writes


def work(found: Inspection) -> str:
    """Where gets were answered, and what was written for what was put."""
    cache, writes = found.stats["read_cache"], found.stats["writes"]
    gets = cache["hits"] + cache["misses"] + cache["not_asked"]
    answered = [
        ("violet", "memory", cache["not_asked"]),
        ("green", "read cache", cache["hits"]),
        ("grey", "journal, or absent", cache["misses"]),
    ]
    written = [
        ("blue", "journal", writes["journal_bytes"]),
        ("orange", "compaction", writes["compaction_bytes"]),
        ("green", "ledger", writes["ledger_bytes"]),
        ("gold", "manifests", writes["manifest_bytes"]),
    ]
    whole = sum(part for _, _, part in written)
    scale = max(whole, writes["bytes_put"])
    times = writes["amplification"]
    return section(
        "Reads and writes",
        "Where gets found their answer, judged by those that were timed; how full the read cache "
        "is; and how many bytes were written for the bytes put, since the store was opened.",
        legend((kind, name) for kind, name, _ in answered),
        row("Gets", _stacked("Gets", answered, gets, count),
            f"{share(cache['hits'], cache['hits'] + cache['misses'])} of those that ask the cache "
            "hit" if gets else "none"),
        row("Read cache", _stacked("Read cache", [("green", "used", cache["bytes"])],
                                   cache["limit_bytes"], size),
            f"{size(cache['bytes'])} of {size(cache['limit_bytes'])}"),
        legend((kind, name) for kind, name, _ in written),
        row("Put", _stacked("Put", [("violet", "put", writes["bytes_put"])], scale, size),
            size(writes["bytes_put"])),
        row("Written", _stacked("Written", written, scale, size),
            size(whole) + ("" if times is None else f" · {times:.2f} times")),
        table("Bytes written since the store was opened.", ("part", "bytes", "by bytes put"),
              [[name, count(part), f"{part / writes['bytes_put']:.3f}" if writes["bytes_put"]
                else "-"] for _, name, part in [*written, ("", "put", writes["bytes_put"])]]),
    )  # fmt: skip


def _stacked(
    title: str, parts: Sequence[tuple[str, str, int]], whole: float, told: Callable[[float], str]
) -> str:
    shapes, x = [], 0.0
    for kind, name, part in parts:
        width = WIDTH * part / whole if whole else 0.0
        if part:
            shapes.append(rect(x, 0, width, 100, kind, f"{name}: {told(part)}"))
        x += width
    about = ", ".join(f"{name}: {told(part)}" for _, name, part in parts)
    return picture(shapes, title, about, pixels=22)
