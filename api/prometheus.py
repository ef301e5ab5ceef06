"""Figures of an open store in Prometheus' text exposition format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from octavo.actors.latency import BOUNDS_NS, Latency
from octavo.actors.measures import Measures
from octavo.actors.opening.startup import Running
from octavo.stats import stats
from octavo.stats_types import Stats

Labels = Mapping[str, object]
Samples = Iterable[tuple[Labels, float | None]]


@dataclass(frozen=True, slots=True)
class _Family:
    """Samples of one name; those whose value is None are left out."""

    name: str
    kind: str
    text: str
    samples: Samples


def exposition(running: Running) -> str:
    """The whole exposition, each sample labelled with the store's path. O(files)."""
    found = stats(running)
    store = found["path"].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    measures = running.inker.actor.measures
    lines: list[str] = []
    for family in (*_files(found), *_state(found), *_work(found, measures)):
        rows = [
            f"{family.name}{_labels({'store': store, **labels})} {_number(value)}"
            for labels, value in family.samples
            if value is not None
        ]
        if rows:
            lines += _head(family.name, family.kind, family.text)
            lines += rows
    lines += _histogram(
        "octavo_operation_seconds",
        "How long calls take; one timed call stands for several that are not.",
        measures.latencies(),
        store,
    )
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- families


def _files(found: Stats) -> Iterator[_Family]:
    journal, levels = found["journal"], found["ledger"]["levels"]
    by_state: dict[str, list[int]] = {"writing": [0, 0], "rolled": [0, 0], "sealed": [0, 0]}
    for file in journal["file_list"]:
        row = by_state.setdefault(file["state"], [0, 0])
        row[0] += 1
        row[1] += file["bytes"]
    scored = [f for f in journal["file_list"] if f["garbage_share"] is not None]
    yield _Family(
        "octavo_journal_files", "gauge", "Files of the journal.",
        [({"state": state}, row[0]) for state, row in by_state.items()],
    )  # fmt: skip
    yield _Family(
        "octavo_journal_bytes", "gauge", "Size of the journal's files.",
        [({"state": state}, row[1]) for state, row in by_state.items()],
    )  # fmt: skip
    yield _Family(
        "octavo_journal_garbage_bytes", "gauge",
        "Bytes that no get needs any more, in the journal files that were sampled.",
        [({}, sum(f["bytes"] * (f["garbage_share"] or 0.0) for f in scored) if scored else None)],
    )  # fmt: skip
    yield _Family(
        "octavo_journal_records", "gauge", "Records in the journal.", [({}, journal["records"])]
    )
    for name, text in (
        ("files", "Files of a level of the ledger."),
        ("rows", "Rows of a level of the ledger."),
        ("bytes", "Size of a level of the ledger."),
        ("tombstones", "Rows of a level of the ledger that are deletes."),
    ):
        yield _Family(
            f"octavo_ledger_{name}", "gauge", text,
            [({"level": level["level"]}, level[name]) for level in levels],  # type: ignore[literal-required]
        )  # fmt: skip
    merging, compaction = found["merging"], found["compaction"]
    yield _Family(
        "octavo_delete_pending_files", "gauge", "Replaced files that wait for snapshots.",
        [({"part": "ledger"}, merging["delete_pending"]),
         ({"part": "journal"}, compaction["delete_pending"])],
    )  # fmt: skip
    yield _Family(
        "octavo_delete_pending_bytes", "gauge", "Size of replaced files that wait for snapshots.",
        [({"part": "ledger"}, merging["delete_pending_bytes"]),
         ({"part": "journal"}, compaction["delete_pending_bytes"])],
    )  # fmt: skip


def _state(found: Stats) -> Iterator[_Family]:
    memory, cache, merging = found["memory"], found["read_cache"], found["merging"]
    ages = [snapshot["age_seconds"] for snapshot in found["live_snapshots"]]
    for name, text, value in (
        ("opened_timestamp_seconds", "When the store was opened.", found["opened_ms"] / 1000),
        ("last_sqn", "The newest sequence number.", found["last_sqn"]),
        ("persisted_sqn", "The ledger on disk has all up to here.", found["persisted_sqn"]),
        ("recent_keys", "Keys in the memory table that is being written.", memory["recent_keys"]),
        ("waiting_tables", "Memory tables that wait to be saved.", merging["waiting_tables"]),
        ("waiting_keys", "Keys in memory tables that wait to be saved.", memory["waiting_keys"]),
        ("kept_versions", "Replaced versions in memory, kept for snapshots.",
         memory["kept_versions"]),
        ("level_zero_files", "Files in the ledger's level zero.", merging["level_zero_files"]),
        ("merge_backlog_rows", "Rows that are to go to a deeper level.",
         merging["rows_over_target"]),
        ("unsealed_files", "Rolled journal files that wait to be sealed.",
         found["journal"]["unsealed_files"]),
        ("read_cache_entries", "Values in the read cache.", cache["entries"]),
        ("read_cache_bytes", "Size of the read cache.", cache["bytes"]),
        ("read_cache_limit_bytes", "Largest size of the read cache.", cache["limit_bytes"]),
        ("snapshots", "Live snapshots and iterators.", found["snapshots"]),
        ("oldest_snapshot_age_seconds", "Age of the oldest live snapshot; 0 for none.",
         max(ages, default=0.0)),
        ("open_files", "Files that are mapped.", found["open_files"]),
    ):  # fmt: skip
        yield _Family(f"octavo_{name}", "gauge", text, [({}, value)])
    consumers = found["consumers"]
    for name, text, values in (
        ("behind", "Changes that a consumer of the change feed has yet to acknowledge.",
         [each["behind"] for each in consumers]),
        ("holds_bytes", "Size of journal files that compaction leaves alone for a consumer.",
         [each["holds_bytes"] for each in consumers]),
        ("moved_timestamp_seconds", "When a consumer acknowledged last.",
         [each["moved_ms"] / 1000 for each in consumers]),
    ):  # fmt: skip
        yield _Family(
            f"octavo_consumer_{name}", "gauge", text,
            [({"consumer": each["name"]}, value)
             for each, value in zip(consumers, values, strict=True)],
        )  # fmt: skip


def _work(found: Stats, measures: Measures) -> Iterator[_Family]:
    writes, merging, totals = found["writes"], found["merging"], found["jobs"]["totals"]
    yield _Family(
        "octavo_info", "gauge", "The store.", [({"id": found["id"], "format": found["format"]}, 1)]
    )
    for name, text, value in (
        ("records", "Operations written.", writes["records"]),
        ("put_bytes", "Keys and values put.", writes["bytes_put"]),
        ("pauses", "Pauses of writers while merging lagged.", merging["pauses"]),
        ("pause_seconds", "Length of those pauses.", merging["pause_seconds"]),
        ("dropped_records", "Records that compaction dropped.",
         found["compaction"]["dropped_records"]),
    ):  # fmt: skip
        yield _Family(f"octavo_{name}_total", "counter", text, [({}, value)])
    yield _Family(
        "octavo_written_bytes_total", "counter", "Bytes written to files.",
        [
            ({"part": "journal"}, writes["journal_bytes"]),
            ({"part": "compaction"}, writes["compaction_bytes"]),
            ({"part": "ledger"}, writes["ledger_bytes"]),
            ({"part": "manifest"}, writes["manifest_bytes"]),
        ],
    )  # fmt: skip
    yield _Family(
        "octavo_gets_total", "counter", "Gets by what answered them, estimated from samples.",
        [({"answered_by": where}, count) for where, count in measures.sources.items()],
    )  # fmt: skip
    yield _Family(
        "octavo_jobs_total", "counter", "Background jobs that ended.",
        [
            ({"kind": kind, "result": result}, count)
            for kind, total in totals.items()
            for result, count in (
                ("done", total["runs"] - total["failures"]), ("failed", total["failures"])
            )
        ],
    )  # fmt: skip
    for name, kind, text, values in (
        ("jobs_failed_in_a_row", "gauge",
         "Background jobs that failed since one of their kind last succeeded.",
         [total["failed_in_a_row"] for total in totals.values()]),
        ("job_failed_timestamp_seconds", "gauge", "When a background job failed last.",
         [ms and ms / 1000 for ms in (total["last_failed_ms"] for total in totals.values())]),
        ("job_seconds_total", "counter", "Time that background jobs took.",
         [total["seconds"] for total in totals.values()]),
        ("job_written_bytes_total", "counter", "Size of the files that background jobs made.",
         [total["bytes_written"] for total in totals.values()]),
    ):  # fmt: skip
        samples = [({"kind": job}, value) for job, value in zip(totals, values, strict=True)]
        yield _Family(f"octavo_{name}", kind, text, samples)


def _histogram(name: str, text: str, by: Mapping[str, Latency], store: str) -> Iterator[str]:
    yield from _head(name, "histogram", text)
    for operation, latency in by.items():
        labels = {"store": store, "operation": operation}
        cumulative, count = latency.cumulative(), latency.count
        for bound, reached in zip(BOUNDS_NS, cumulative, strict=True):
            yield f"{name}_bucket{_labels({**labels, 'le': _number(bound / 1e9)})} {reached}"
        count = max(count, cumulative[-1])  # another thread may have recorded meanwhile
        yield f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {count}"
        yield f"{name}_sum{_labels(labels)} {_number(latency.total_ns / 1e9)}"
        yield f"{name}_count{_labels(labels)} {count}"


# ---------------------------------------------------------------- the format


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {escaped}", f"# TYPE {name} {kind}"


def _labels(labels: Labels) -> str:
    def quoted(value: object) -> str:
        text = str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        return f'"{text}"'

    return "{" + ",".join(f"{name}={quoted(value)}" for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(value)
