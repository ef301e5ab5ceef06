"""Which files compaction, and what it shares with others, leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from whole_store import Clock, flush, opened, rolled, settle

from octavo.actors.compacting.compaction import next_run
from octavo.actors.compacting.delete_pending import due
from octavo.actors.inker_clerk import InkerClerk, Score


def test_files_of_which_the_ledger_lacks_something_or_that_are_damaged_are_not_whole(
    tmp_path: Path,
) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, roll_count=1 << 16) as store:
        clerk = store._running.inker_clerk.actor
        for value in (b"1", b"2"):
            store.put_many((b"%d" % n, value) for n in range(100))
            rolled(store)
            settle(store)
        assert len(clerk.sealed()) == 2
        assert clerk.whole() == ()
        flush(store)
        first, second = clerk.whole()
        clerk.damaged[first.name] = "damaged"
        assert clerk.whole() == (second,)


def test_what_it_replaced_goes_once_the_lease_of_a_snapshot_that_was_left_open_is_over(
    tmp_path: Path,
) -> None:
    clock = Clock()
    with opened(tmp_path / "s", monotonic=clock, compact_every_seconds=None) as store:
        for value in (b"1", b"2"):
            store.put_many((b"%d" % n, value) for n in range(100))
        snapshot = store.snapshot(lease_seconds=60)
        store.compact()
        clerk = store._running.inker_clerk
        assert clerk.call(InkerClerk.sweep) > 0
        clock.now += 61
        assert clerk.call(InkerClerk.sweep) == 0
        snapshot.close()


def test_what_merges_replaced_beside_a_compaction_goes_with_its_end(tmp_path: Path) -> None:
    with opened(tmp_path / "s", push_rows=1 << 16, compact_every_seconds=None) as store:
        penciller = store._running.penciller.actor
        with store._running.inker_clerk.actor.held():
            for value in range(4):
                store.put_many((b"%d" % n, b"%d" % value) for n in range(100))
                flush(store)
            assert penciller.delete_pending
        settle(store)
        named = {entry.name for entry in penciller.manifest.entries}
        assert {file.name for file in (tmp_path / "s/ledger").glob("*.sst")} == named


def test_a_sweep_that_comes_behind_the_close_leaves_what_waits_to_the_next_opening(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        for value in (b"1", b"2"):
            store.put_many((b"%d" % n, value) for n in range(100))
        with store.snapshot():
            store.compact()
            clerk = store._running.inker_clerk
            assert clerk.actor.delete_pending
            clerk.call(InkerClerk.let_go)
        assert clerk.call(InkerClerk.sweep) == 0
        assert not caplog.records


def test_a_run_ends_before_a_file_that_was_found_damaged_behind_its_score(tmp_path: Path) -> None:
    # It would be tried again and again.
    with opened(tmp_path / "s", roll_count=1 << 16, compact_every_seconds=None) as store:
        clerk = store._running.inker_clerk.actor
        for value in (b"1", b"2"):
            store.put_many((b"%d" % n, value) for n in range(100))
            rolled(store)
        flush(store)
        first, second = clerk.sealed()
        scores = {entry.name: Score(100.0, 0.0, 0.0) for entry in (first, second)}
        assert next_run(clerk, [first, second], scores, 0.0) == [first, second]
        clerk.damaged[second.name] = "damaged"
        assert next_run(clerk, [first, second], scores, 0.0) == [first]
        clerk.damaged[first.name] = "damaged"
        assert next_run(clerk, [first, second], scores, 0.0) == []


def test_a_file_whose_deletion_was_broken_off_stands_in_the_way_of_no_other() -> None:
    waiting = [(1, "a"), (2, "b"), (3, "c")]
    for _ in due(waiting, lambda generation: generation > 2):
        break  # it was half let go of, and would fail again
    assert list(due(waiting, lambda generation: generation > 2)) == ["b"]
    assert list(due(waiting, lambda generation: False)) == ["c"]
    assert waiting == []
