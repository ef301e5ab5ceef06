"""Shows an inspection on a terminal: the page's pictures as bars of characters."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any, cast

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from octavo.figures import OF_CONSUMERS, consumer_row, count, duration, moment, plural, size
from octavo.notation import to_text
from octavo.pictures.inspection import Inspection, shown
from octavo.stats_types import LatencyStats

_BAR = 18
_MOST = 12
Renderable = Any
Part = tuple[float, str]


def overview(found: Inspection, *, columns: int | None) -> str:
    """The text for a terminal of that many columns; without colours if None, for no terminal."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(columns or 100, 40),
        force_terminal=columns is not None,
        color_system="auto" if columns is not None else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(
        Group(
            _head(found),
            _levels(found),
            _journal(found),
            _jobs(found),
            _snapshots(found),
            *_consumers(found),
            _latencies(found),
            _work(found),
            *(Text(to_text(note.encode("utf-8", "replace"))) for note in found.stats["notes"][:20]),
        )
    )
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[Renderable]]) -> Table:
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
    for number, name in enumerate(names):
        table.add_column(name, justify="left" if number == 0 or not name else "right")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def _bar(parts: Sequence[Part], whole: float) -> Text:
    """A bar of the parts of a whole: (amount, colour) each."""
    text, used = Text(), 0.0
    for amount, colour in parts:
        length = _BAR * amount / whole if whole else 0.0
        text.append("█" * (round(used + length) - round(used)), style=colour)
        used += length
    if not text and any(amount for amount, _ in parts):
        text.append("▏", style=next(colour for amount, colour in parts if amount))
    text.append("·" * (_BAR - len(text)), style="dim")
    return text


def _head(found: Inspection) -> Renderable:
    stats = found.stats
    return Text.assemble(
        (to_text(os.fsencode(stats["path"])), "bold"),
        f"\nstore {stats['id']}, sequence number {count(stats['last_sqn'])}, "
        f"{count(stats['last_sqn'] - stats['persisted_sqn'])} not yet in the ledger\n",
    )


def _levels(found: Inspection) -> Renderable:
    sizes = [sum(block.bytes for block in level) for level in found.levels]
    largest = max(sizes, default=0)
    rows = []
    for number, (level, whole) in enumerate(zip(found.levels, sizes, strict=True)):
        alive = sum(block.rows for block in level)
        deletes = sum(block.tombstones for block in level)
        dead = whole * deletes / max(alive, 1)
        first = min((block.first_key for block in level), default=b"")
        last = max((block.last_key for block in level), default=b"")
        rows.append(
            [str(number), _bar([(whole - dead, "blue"), (dead, "yellow")], largest),
             count(len(level)), count(alive), count(deletes), size(whole),
             f"{shown(first)} .. {shown(last)}" if level else ""]
        )  # fmt: skip
    return _table(
        "Levels of the ledger",
        ("level", "", "files", "rows", "deletes", "size", "keys"),
        rows or [["none"]],
    )


def _journal(found: Inspection) -> Renderable:
    files = found.stats["journal"]["file_list"]
    largest = max((file["bytes"] for file in files), default=0)
    worst = sorted(files, key=lambda file: (-(file["garbage_share"] or 0.0), file["base_sqn"]))
    rows = []
    for file in worst[:_MOST]:
        share = file["garbage_share"]
        garbage = file["bytes"] * (share or 0.0)
        colour = "green" if share is not None else "dim"
        rows.append(
            [file["name"], _bar([(file["bytes"] - garbage, colour), (garbage, "yellow")], largest),
             "-" if share is None else f"{100 * share:.0f} %", size(file["bytes"]),
             count(file["records"]), file["state"]]
        )  # fmt: skip
    if len(files) > _MOST:
        rest = worst[_MOST:]
        rows.append(
            [f"and {plural(len(rest), 'other')}", "", "", size(sum(f["bytes"] for f in rest)),
             count(sum(f["records"] for f in rest)), ""]
        )  # fmt: skip
    return _table(
        "Journal files, those with most garbage first",
        ("file", "", "garbage", "size", "records", "state"),
        rows,
    )


def _jobs(found: Inspection) -> Renderable:
    jobs = found.stats["jobs"]
    last = {job["kind"]: job for job in jobs["recent"]}
    rows = [
        [kind, count(total["runs"]), count(total["failures"]), duration(total["seconds"]),
         size(total["bytes_written"]), moment(last[kind]["began_ms"]) if kind in last else "-"]
        for kind, total in jobs["totals"].items()
    ]  # fmt: skip
    merging = found.stats["merging"]
    return Group(
        _table(
            "Background jobs since the store was opened",
            ("job", "runs", "failed", "time", "written", "last one"),
            rows or [["none"]],
        ),
        Text(
            f"  waiting: {plural(merging['waiting_tables'], 'memory table')}, "
            f"{plural(merging['level_zero_files'], 'file')} in level 0, "
            f"{plural(merging['rows_over_target'], 'row')} over target, "
            f"{plural(found.stats['journal']['unsealed_files'], 'journal file')} to seal\n"
        ),
    )


def _snapshots(found: Inspection) -> Renderable:
    live = found.stats["live_snapshots"]
    rows = [
        [str(s["number"]), duration(s["age_seconds"]), duration(s["lease_left_seconds"]),
         count(s["holds_files"]), size(s["holds_bytes"])]
        for s in live[:_MOST]
    ]  # fmt: skip
    if len(live) > _MOST:
        rows.append([f"and {count(len(live) - _MOST)} more", "", "", "", ""])
    return _table(
        "Live snapshots, oldest first",
        ("snapshot", "age", "lease left", "files held", "bytes held"),
        rows or [["none"]],
    )


def _consumers(found: Inspection) -> list[Renderable]:
    known = found.stats["consumers"]
    rows = list(map(consumer_row, known[:_MOST]))
    if len(known) > _MOST:
        rows.append([f"and {count(len(known) - _MOST)} more", "", "", "", ""])
    return [_table("Consumers of the change feed", OF_CONSUMERS, rows)] if rows else []


def _latencies(found: Inspection) -> Renderable:
    figures = cast(dict[str, LatencyStats], found.stats["latencies"])
    rows = []
    for name, of in figures.items():
        if not of["count"]:
            continue
        quantiles = (of["p50_seconds"], of["p90_seconds"], of["p99_seconds"], of["p999_seconds"])
        told = ["-" if s is None else duration(s) for s in (*quantiles, of["max_seconds"])]
        rows.append([name, count(of["count"]), *told])
    return _table(
        "Latencies since the store was opened",
        ("operation", "calls", "p50", "p90", "p99", "p99.9", "longest"),
        rows or [["none"]],
    )


def _work(found: Inspection) -> Renderable:
    cache, writes = found.stats["read_cache"], found.stats["writes"]
    times = writes["amplification"]
    written = sum(
        writes[part]
        for part in ("journal_bytes", "compaction_bytes", "ledger_bytes", "manifest_bytes")
    )
    asked = cache["hits"] + cache["misses"]
    hits = f"{100 * cache['hits'] / asked:.0f} % of {count(asked)} gets hit" if asked else "unused"
    rows = [
        ["read cache", _bar([(cache["bytes"], "green")], cache["limit_bytes"]),
         f"{size(cache['bytes'])} of {size(cache['limit_bytes'])}, {hits}"],
        ["written", _bar([(min(writes["bytes_put"], written), "blue"),
                          (max(written - writes["bytes_put"], 0), "yellow")], written),
         f"{size(written)} for {size(writes['bytes_put'])} put"
         + ("" if times is None else f", {times:.2f} times")],
    ]  # fmt: skip
    return _table("Reads and writes since the store was opened", ("", "", ""), rows)
