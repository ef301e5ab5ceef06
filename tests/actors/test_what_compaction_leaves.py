"""Which files compaction, and what it shares with others, leaves alone."""

from __future__ import annotations

from pathlib import Path

from whole_store import Clock, flush, opened, rolled, settle

from octavo.actors.inker_clerk import InkerClerk


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
