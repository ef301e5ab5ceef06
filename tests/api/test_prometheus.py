"""The Prometheus text, read by Prometheus' own parser."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import octavo as run
from cli_runs import output
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from whole_store import flush

import octavo

HOSTILE = 'sto"re\\ {le="1"}\nTYPE x'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    with octavo.open(tmp_path / HOSTILE, worker=False) as opened:
        yield opened


def families(text: str) -> dict[str, Metric]:
    found = list(text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


def worked(store: octavo.Store) -> None:
    store.put_many((b"%04d" % number, b"x" * 100) for number in range(1000))
    flush(store)
    for _ in range(10):
        store.put(b"a", b"b", sync=True)
        store.get(b"0001")


def test_every_family_has_help_a_type_and_a_unit_that_fit(store: octavo.Store) -> None:
    worked(store)
    for name, family in families(store.stats_prometheus()).items():
        assert name.startswith("octavo_")
        assert family.documentation.endswith(".")
        assert family.type in ("gauge", "counter", "histogram")
        assert family.samples
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name == f"{name}_total"
                assert sample.value >= 0
            elif family.type == "gauge":
                assert not sample.name.endswith("_total")


def test_a_hostile_path_is_escaped_in_every_sample(store: octavo.Store) -> None:
    for family in families(store.stats_prometheus()).values():
        for sample in family.samples:
            assert sample.labels["store"] == store.path


def test_histograms_are_cumulative_and_sum_up(store: octavo.Store) -> None:
    worked(store)
    samples = families(store.stats_prometheus())["octavo_operation_seconds"].samples
    operations = {sample.labels["operation"] for sample in samples}
    assert operations == {"put", "put_many", "batch", "get", "get_many", "head", "fsync"}
    for operation in operations:
        of = [sample for sample in samples if sample.labels["operation"] == operation]
        buckets = [(float(s.labels["le"]), s.value) for s in of if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets)
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1][0] == math.inf
        [count] = [s.value for s in of if s.name.endswith("_count")]
        [total] = [s.value for s in of if s.name.endswith("_sum")]
        assert buckets[-1][1] == count
        assert (total > 0) == (count > 0)
    [synced] = [s.value for s in samples
                if s.labels["operation"] == "fsync" and s.name.endswith("_count")]  # fmt: skip
    assert synced >= 10


def test_figures_are_those_of_stats(store: octavo.Store) -> None:
    worked(store)
    found, figures = families(store.stats_prometheus()), store.stats()
    assert found["octavo_last_sqn"].samples[0].value == figures["last_sqn"]
    assert found["octavo_put_bytes"].samples[0].value == figures["writes"]["bytes_put"]
    assert found["octavo_ledger_rows"].samples[0].labels["level"] == "0"
    jobs = {s.labels["kind"]: s.value for s in found["octavo_jobs"].samples
            if s.labels["result"] == "done"}  # fmt: skip
    assert jobs["level_zero"] == 1


def test_an_empty_store_can_be_asked(store: octavo.Store) -> None:
    assert families(store.stats_prometheus())["octavo_records"].samples[0].value == 0


def test_the_command_prints_it(tmp_path: Path) -> None:
    run("put", tmp_path / "store", "a", "b")
    found = families(output("stats", tmp_path / "store", "--prometheus").decode())
    assert found["octavo_last_sqn"].samples[0].value > 0


def test_the_command_prints_one_format(tmp_path: Path) -> None:
    run("put", tmp_path / "store", "a", "b")
    run("stats", tmp_path / "store", "--prometheus", "--json", code=2)


def test_a_path_that_is_no_text_is_still_exposed(tmp_path: Path) -> None:
    path = bytes(tmp_path) + b"/st\xffore"
    with octavo.open(path.decode("utf-8", "surrogateescape"), worker=False) as store:
        store.stats_prometheus().encode()
