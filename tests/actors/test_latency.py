"""Histograms against exact quantiles, and meters against a count of calls."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.actors import latency
from octavo.actors.latency import BOUNDS_NS, LONGEST_NS, Latency, Meter
from octavo.actors.measures import JobHistory, JobRun

NS = st.integers(0, LONGEST_NS)


@settings(deadline=None, derandomize=True)
@given(st.lists(NS, min_size=1, max_size=300), st.floats(0, 1))
def test_a_quantile_is_within_a_32nd_of_the_exact_one(values: list[int], share: float) -> None:
    found = Latency()
    for ns in values:
        found.record(ns)
    exact = sorted(values)[max(math.ceil(share * len(values) - 1e-6), 1) - 1]
    got = found.quantile_ns(share)
    assert got is not None
    assert abs(got - exact) <= exact / 32


@settings(deadline=None, derandomize=True)
@given(st.lists(NS, max_size=100))
def test_cumulative_counts_are_exact(values: list[int]) -> None:
    found = Latency()
    for ns in values:
        found.record(ns)
    assert found.cumulative() == [sum(ns <= bound for ns in values) for bound in BOUNDS_NS]


@settings(deadline=None, derandomize=True)
@given(st.integers(0, LONGEST_NS))
def test_a_value_lies_in_its_bucket_and_the_bucket_is_narrow(ns: int) -> None:
    found = Latency()
    found.record(ns)
    [(low, high, count)] = found.filled()
    assert low <= ns <= high
    assert (high - low) <= low / 16
    assert count == 1


def test_buckets_follow_each_other_without_a_gap() -> None:
    edges = [latency._edges(bucket) for bucket in range(latency._BUCKETS)]
    assert edges[0][0] == 0
    assert edges[-1][1] == LONGEST_NS
    assert all(high + 1 == low for (_, high), (low, _) in itertools.pairwise(edges))


@pytest.mark.parametrize("ns", [-1, -(10**9), LONGEST_NS + 1, 1 << 80])
def test_what_a_broken_clock_says_is_bounded(ns: int) -> None:
    found = Latency()
    found.record(ns)
    assert 0 <= found.longest_ns <= LONGEST_NS
    assert found.count == 1


def test_nothing_recorded_has_no_quantile() -> None:
    assert Latency().quantile_ns(0.5) is None
    assert Latency().cumulative() == [0] * len(BOUNDS_NS)


def test_a_weight_stands_for_that_many() -> None:
    found = Latency()
    found.record(1000, 99)
    found.record(1_000_000, 1)
    assert found.count == 100
    assert found.total_ns == 99_000 + 1_000_000
    assert found.quantile_ns(0.98) == pytest.approx(1000, rel=1 / 32)
    assert found.quantile_ns(1.0) == pytest.approx(1_000_000, rel=1 / 32)


# ---------------------------------------------------------------- meters


class Counted:
    """Something that is called through a meter as the store's calls are."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.calls = 0

    def call(self, *, fails: bool = False) -> int:
        left = self.meter.left
        if left <= 0 and not (left := self.meter.skip()):
            return self.meter.timed(self.call, fails=fails)
        self.meter.left = left - 1
        self.calls += 1
        if fails:
            raise ValueError("as asked")
        return self.calls


@pytest.mark.parametrize("often", [False, True])
def test_a_meter_knows_how_often_it_was_called(often: bool) -> None:
    meter = Meter(often=often)
    counted = Counted(meter)
    assert meter.calls == 0
    for number in range(1, 20_000):
        assert counted.call() == number
        assert meter.calls == number
    assert meter.latency.count <= 20_000


def test_a_meter_times_the_first_call_and_later_ones_seldom() -> None:
    meter = Meter()
    counted = Counted(meter)
    counted.call()
    assert meter.latency.count == 1
    timed = []
    for number in range(2, 60_000):
        before = meter.latency.count
        counted.call()
        if meter.latency.count != before:
            timed.append((number, meter.latency.count - before))
    gaps = [right - left for (left, _), (right, _) in itertools.pairwise(timed)]
    assert gaps[-3:] == [1231] * 3
    # Each stands for itself and those since the one before.
    assert [weight for _, weight in timed[1:]] == gaps


def test_a_call_that_raises_is_timed_too_and_its_error_comes_through() -> None:
    meter = Meter()
    with pytest.raises(ValueError, match="as asked"):
        Counted(meter).call(fails=True)
    assert meter.latency.count == 1


@pytest.mark.parametrize("rhythm", [2, 3, 5, 7, 100, 128, 251, 256])
def test_a_meter_does_not_fall_into_step_with_a_rhythm_of_calls(rhythm: int) -> None:
    meter = Meter()
    met = [0, 0]
    counted = Counted(meter)
    for number in range(400_000):
        before = meter.latency.count
        counted.call()
        if meter.latency.count != before:
            met[number % rhythm == 0] += meter.latency.count - before
    assert met[1] / sum(met) == pytest.approx(1 / rhythm, rel=0.6)


# ---------------------------------------------------------------- jobs


def test_the_history_of_jobs_is_bounded_and_totals_are_not() -> None:
    history = JobHistory()
    for number in range(2000):
        history.add(JobRun("merge", number, 0.5, 2, 1, 10, number % 2 == 0))
    assert len(history.recent) == 512
    assert history.recent[-1].began_ms == 1999
    totals = history.totals["merge"]
    assert (totals.runs, totals.failures, totals.bytes_written) == (2000, 1000, 20_000)
    assert totals.seconds == 1000.0


def test_a_job_that_raises_is_remembered_as_failed() -> None:
    history = JobHistory()
    with pytest.raises(OSError, match="no"), history.timed("merge", {"inputs": [1, 2]}):
        raise OSError("no")
    [run] = history.recent
    assert (run.kind, run.inputs, run.outputs, run.ok) == ("merge", 2, 0, False)


def test_a_job_is_remembered_by_what_it_was_given_and_gave() -> None:
    history = JobHistory()
    with history.timed("merge", {"inputs": ["a", "b", "c"]}) as job:
        job.result = {"files": [{"bytes": 5}, {"bytes": 6}]}
    with history.timed("seal", {"name": "x"}) as job:
        job.result = {"bytes": 9}
    merge, seal = history.recent
    assert (merge.inputs, merge.outputs, merge.bytes_written, merge.ok) == (3, 2, 11, True)
    assert (seal.inputs, seal.outputs, seal.bytes_written) == (1, 1, 9)
