"""Makes the page of an inspection: one HTML file that needs nothing else."""

from __future__ import annotations

from octavo import __version__
from octavo.figures import OF_CONSUMERS, consumer_row, count, duration, moment, plural, size
from octavo.pictures.inspection import Inspection
from octavo.pictures.page_parts import section, table, text, tiles
from octavo.pictures.page_pictures import (
    journal,
    latencies,
    levels,
    share,
    snapshots,
    timeline,
    work,
)
from octavo.pictures.page_style import CSS
from octavo.stats_types import ConsumerStats


def page(found: Inspection) -> str:
    """Make the page: pictures with their tables beneath. It has no script and fetches nothing.
    Under 2 MB for 10,000 files, neighbours of which are then drawn together."""
    stats = found.stats
    title = f"Octavo: {stats['path']}"
    head = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{text(title)}</title><style>{CSS}</style></head><body>"
        f"<header><h1>{text(stats['path'])}</h1><p>"
        + text(
            f"Octavo {__version__}, store {stats['id']}, looked at {moment(stats['now_ms'])}, "
            f"open for {duration(max(stats['now_ms'] - stats['opened_ms'], 0) / 1000)}"
        )
        + "</p></header><main>"
    )
    parts = [
        _tiles(found),
        levels(found),
        journal(found),
        timeline(found),
        snapshots(found),
        _consumers(found.stats["consumers"]),
        latencies(found),
        work(found),
        _notes(stats["notes"]),
    ]
    return head + "".join(parts) + "</main></body></html>\n"


def _tiles(found: Inspection) -> str:
    stats = found.stats
    files = stats["journal"]["file_list"]
    known = [f for f in files if f["garbage_share"] is not None]
    garbage = sum(f["bytes"] * (f["garbage_share"] or 0.0) for f in known)
    sampled = sum(f["bytes"] for f in known)
    merging, times = stats["merging"], stats["writes"]["amplification"]
    waiting = merging["delete_pending_bytes"] + stats["compaction"]["delete_pending_bytes"]
    cache = stats["read_cache"]
    asked = cache["hits"] + cache["misses"]
    return tiles(
        [
            ("Sequence number", count(stats["last_sqn"]),
             f"{count(stats['last_sqn'] - stats['persisted_sqn'])} not yet in the ledger"),
            ("Journal", size(sum(f["bytes"] for f in files)),
             f"{plural(len(files), 'file')}, {count(stats['journal']['records'])} records"),
            ("Garbage", share(garbage, sampled), f"{size(garbage)} of {size(sampled)} sampled"),
            ("Ledger", size(stats["ledger"]["bytes"]),
             (f"{plural(stats['ledger']['files'], 'file')} in "
             f"{plural(len(stats['ledger']['levels']), 'level')}")),
            ("Merge backlog", plural(merging["waiting_tables"], "table"),
             (f"{plural(merging['level_zero_files'], 'file')} in level 0, "
             f"{count(merging['rows_over_target'])} rows over")),
            ("Snapshots", count(stats["snapshots"]),
             f"{size(waiting)} wait to be deleted"),
            ("Write amplification", "-" if times is None else f"{times:.2f}",
             f"for {size(stats['writes']['bytes_put'])} put"),
            ("Cache hits", share(cache["hits"], asked), f"of {count(asked)} gets that ask it"),
        ]
    )  # fmt: skip


def _consumers(known: list[ConsumerStats]) -> str:
    if not known:
        return ""
    rows = list(map(consumer_row, known))
    return section(
        "Consumers of the change feed",
        "Compaction leaves in the journal what a consumer has not acknowledged. "
        f"{plural(len(known), 'consumer')}, {plural(known[0]['behind'], 'change')} behind at most.",
        table("Consumers, those that are furthest behind first.", OF_CONSUMERS, rows),
    )


def _notes(notes: list[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{text(note)}</li>" for note in notes[:200])
    return section(
        "What opening found", "Damage that was mended or stepped over.",
        f'<ul class="notes">{items}</ul>',
    )  # fmt: skip
