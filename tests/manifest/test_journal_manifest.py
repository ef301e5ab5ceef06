"""The journal manifest against a plain model, and what it refuses."""

from __future__ import annotations

import time
from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simdisk import SimDisk

from octavo.files.errors import Corruption, Misuse, OctavoError, UnsupportedFormat
from octavo.manifest.change_log import ChangeLog, recover
from octavo.manifest.commits import KEPT, Commit, found, merged
from octavo.manifest.journal_manifest import MAX_SQN, JournalEntry, JournalManifest
from octavo.manifest.packing import MAX_VERSION


def sealed(base: int, last: int, **more: Any) -> JournalEntry:
    known: dict[str, Any] = {"name": f"{base:016x}.cdb", "count": last - base + 1, "seed": base * 7}
    return JournalEntry(base_sqn=base, last_sqn=last, bytes=1000, **known | more)


def changed(manifest: JournalManifest, change: bytes) -> JournalManifest:
    return JournalManifest.replayed(manifest.encode(), [change])


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[list[JournalEntry], list[str], int]]:
    """A journal that grows and is compacted."""
    out: list[tuple[list[JournalEntry], list[str], int]] = []
    there: dict[int, JournalEntry] = {}
    following = 1
    for _ in range(draw(st.integers(1, 15))):
        added: list[JournalEntry] = []
        removed: list[str] = []
        old = list(there.values())
        if draw(st.booleans()):
            base, following = following, following + draw(st.integers(1, 50))
            added.append(sealed(base, following - 1))
        if draw(st.booleans()) and old:
            gone = draw(st.sampled_from(old))
            if draw(st.booleans()):
                removed.append(gone.name)
                del there[gone.base_sqn]
            else:
                added.append(replace(gone, name=f"c-{gone.name}", count=draw(st.integers(0, 1))))
        there |= {each.base_sqn: each for each in added}
        out.append((added, removed, following + draw(st.integers(50, 1000))))
    return out


@settings(max_examples=300, deadline=None, derandomize=True)
@given(edits())
def test_edits_agree_with_a_dict_of_files(
    steps: list[tuple[list[JournalEntry], list[str], int]],
) -> None:
    manifest = followed = JournalManifest.empty()
    there: dict[int, JournalEntry] = {}
    changes = []
    for added, removed, ceiling in steps:
        before = manifest
        packed = before.encode()
        manifest = manifest.edit(added, removed, ceiling)
        changes.append(before.change_to(manifest))
        followed = changed(followed, changes[-1])
        there = {base: each for base, each in there.items() if each.name not in removed}
        there |= {each.base_sqn: each for each in added}
        manifest.check()
        assert list(manifest.entries) == [there[base] for base in sorted(there)]
        assert manifest.ceiling == ceiling
        assert followed == manifest
        assert followed.bases == manifest.bases
        assert before.encode() == packed, "an edit changed the manifest it began from"
        for sqn in range(0, ceiling + 5, 7):
            holding = [each for each in there.values() if each.base_sqn <= sqn <= each.last_sqn]
            assert manifest.find(sqn) == (holding[0] if holding else None)
    assert JournalManifest.decode(manifest.encode()) == manifest
    assert JournalManifest.replayed(None, changes) == manifest


def test_it_survives_a_change_log() -> None:
    disk = SimDisk()
    manifest = JournalManifest.empty()
    log = ChangeLog.begin(disk, "/log", 1, manifest.encode())
    for number in range(20):
        base = 1 + number * 10
        newer = manifest.edit([sealed(base, base + 9)], ceiling=base + 100)
        log.append(manifest.change_to(newer))
        manifest = newer
        if number == 7:
            log.snapshot(manifest.encode())
    found = recover(disk.after_crash("nothing"), "/log")
    assert JournalManifest.replayed(found.snapshot, found.changes) == manifest


def test_an_empty_one_gives_sqn_1_first() -> None:
    empty = JournalManifest.empty()
    empty.check()
    assert (empty.ceiling, empty.entries, empty.find(1)) == (1, (), None)


def test_the_ceiling_is_kept_unless_it_is_given_and_may_go_down() -> None:
    manifest = JournalManifest.empty().edit(ceiling=1000)
    assert manifest.edit([sealed(1, 9)]).ceiling == 1000
    assert manifest.edit(ceiling=10).ceiling == 10


def test_a_change_that_is_applied_twice_does_no_harm() -> None:
    manifest = JournalManifest.empty().edit([sealed(1, 9)], ceiling=100)
    newer = manifest.edit([sealed(10, 19)], [sealed(1, 9).name])
    change = manifest.change_to(newer)
    once = changed(manifest, change)
    grown = once.edit([sealed(1, 9)])
    assert changed(grown, change).entries == once.entries


def test_changes_bring_the_horizon_and_each_commit_once() -> None:
    manifests = [JournalManifest.empty().edit([sealed(1, 9)], ceiling=100)]
    for number, horizon in ((1, 7), (2, 0)):
        commit = Commit(f"job {number}", 0, number, number, 5)
        manifests.append(manifests[-1].edit(horizon=horizon, commits=[commit]))
    before, between, after = manifests
    changes = [before.change_to(between), between.change_to(after)]
    assert JournalManifest.replayed(before.encode(), changes) == after
    assert len(changes[0]) == len(changes[1])


def test_a_change_of_the_ceiling_is_a_small_record() -> None:
    manifest = JournalManifest.empty().edit(
        [sealed(n * 10 + 1, n * 10 + 10) for n in range(10_000)], ceiling=1 << 40
    )
    change = manifest.change_to(manifest.edit(ceiling=1 << 41))
    assert len(change) < 64
    assert changed(manifest, change) == manifest.edit(ceiling=1 << 41)


def test_the_actor_of_a_file_stays_with_its_entry_and_is_not_packed() -> None:
    actor = object()
    manifest = JournalManifest.empty().edit([replace(sealed(1, 9), file=actor)], ceiling=10)
    assert manifest.edit(ceiling=20).entries[0].file is actor
    assert JournalManifest.decode(manifest.encode()).entries[0].file is None
    other = manifest.edit([replace(sealed(1, 9), file=object())])
    assert len(manifest.change_to(other)) == len(manifest.change_to(manifest))


@given(st.lists(st.integers(0, 50), max_size=9), st.integers(0, 100))
def test_below_a_file_it_is_as_clean_as_all_that_is_older(clean: list[int], unsealed: int) -> None:
    files = [sealed(10 * n + 1, 10 * n + 10, clean_sqn=sqn) for n, sqn in enumerate(clean)]
    manifest = JournalManifest.empty().edit(files, ceiling=1000)
    for at, file in enumerate(files):
        known = 0 if unsealed < file.base_sqn else min(clean[:at], default=MAX_SQN)
        assert manifest.clean_below(unsealed)[file.name] == known


def test_nothing_can_be_assigned() -> None:
    with pytest.raises(FrozenInstanceError):
        JournalManifest.empty().ceiling = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../a"},
        {"name": ""},
        {"base_sqn": 0},
        {"base_sqn": "1"},
        {"last_sqn": -1},
        {"last_sqn": 1 << 64},
        {"count": 10},
        {"bytes": -1},
        {"seed": 1 << 64},
    ],
    ids=repr,
)
def test_an_impossible_entry_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        JournalManifest.empty().edit([replace(sealed(1, 9), **wrong)], ceiling=100)


@pytest.mark.parametrize("others", [[sealed(5, 20)], [sealed(9, 9)]], ids=str)
def test_files_that_share_sqns_are_refused(others: list[JournalEntry]) -> None:
    with pytest.raises(Misuse, match="reaches into"):
        JournalManifest.empty().edit([sealed(1, 9), *others], ceiling=100)


def test_a_file_that_is_not_there_cannot_go() -> None:
    with pytest.raises(Misuse, match="a is not in it"):
        JournalManifest.empty().edit((), ["a"])


@pytest.mark.parametrize("ceiling", [0, -1, 1 << 64])
def test_an_impossible_ceiling_is_refused(ceiling: int) -> None:
    with pytest.raises(Misuse):
        JournalManifest.empty().edit(ceiling=ceiling)


def test_an_impossible_version_is_refused() -> None:
    far = replace(JournalManifest.empty(), version=MAX_VERSION + 1)
    with pytest.raises(Corruption, match="version"):
        JournalManifest.decode(far.encode())
    near = replace(far, version=MAX_VERSION)
    with pytest.raises(Corruption, match="version"):
        changed(near, near.change_to(near.edit(ceiling=9)))


GOOD = JournalManifest.empty().edit([sealed(1, 9), sealed(10, 19)], ceiling=100)


@pytest.mark.parametrize(
    ("what", "manifest"),
    [
        ("reaches into", replace(GOOD, entries=GOOD.entries[::-1])),
        (
            "names are not unique",
            replace(GOOD, entries=(sealed(1, 9), sealed(10, 19, name=sealed(1, 9).name))),
        ),
        ("above the ceiling", replace(GOOD, ceiling=19)),
        ("base sqns", replace(GOOD, bases=(1,))),
        ("file name", replace(GOOD, entries=(sealed(1, 9, name="a/b"),))),
    ],
)
def test_check_states_what_does_not_hold(what: str, manifest: JournalManifest) -> None:
    with pytest.raises(Corruption, match=what):
        manifest.check()


# ---------------------------------------------------------------- bytes

CHANGE = GOOD.change_to(GOOD.edit([sealed(20, 29)], [sealed(1, 9).name], 200))


def test_every_cut_is_refused() -> None:
    packed = GOOD.encode()
    for length in range(len(packed)):
        with pytest.raises(Corruption):
            JournalManifest.decode(packed[:length])
    for length in range(len(CHANGE)):
        with pytest.raises(Corruption):
            changed(GOOD, CHANGE[:length])


def test_what_stands_behind_it_is_refused() -> None:
    with pytest.raises(Corruption, match="more than a manifest"):
        JournalManifest.decode(GOOD.encode() + b"\0")
    with pytest.raises(Corruption, match="more than a manifest"):
        changed(GOOD, CHANGE + b"\0")


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_gives_a_manifest_that_holds_or_an_error_of_ours(mask: int) -> None:
    packed = GOOD.encode()
    for original, read in ((packed, JournalManifest.decode), (CHANGE, partial(changed, GOOD))):
        for at in range(len(original)):
            content = bytearray(original)
            content[at] ^= mask
            try:
                read(bytes(content)).check()
            except OctavoError:
                pass


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_anything_at_all_gives_an_error_of_ours(content: bytes) -> None:
    for call, magic in ((JournalManifest.decode, b"OJM1"), (partial(changed, GOOD), b"OJC1")):
        try:
            call(magic + b"\x01\x00" + content).check()
        except OctavoError:
            pass


def test_a_newer_version_is_refused_by_name() -> None:
    packed = bytearray(GOOD.encode())
    packed[4] = 4
    with pytest.raises(UnsupportedFormat, match="journal manifest: of version 4"):
        JournalManifest.decode(bytes(packed))


def test_another_kind_of_payload_is_refused() -> None:
    with pytest.raises(Corruption, match="not of this kind"):
        JournalManifest.decode(CHANGE)


def test_a_count_of_billions_takes_no_memory() -> None:
    for count in (1 << 20, 1 << 32, (1 << 64) - 1):
        tail = count.to_bytes(8, "little") + bytes(1000)
        with pytest.raises(Corruption):
            JournalManifest.decode(b"OJM1\x01\x00" + bytes(16) + tail)
        with pytest.raises(Corruption):
            changed(GOOD, b"OJC1\x01\x00" + bytes(8) + b"\x01" + bytes(7) + tail)


def test_a_roll_looks_at_none_of_the_commits_that_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [Commit(f"j{n}", 0, n, n, 5) for n in range(1, 9)]
    before = JournalManifest.empty().edit([sealed(1, 9)], ceiling=100, commits=jobs)
    asked: list[str] = []
    with monkeypatch.context() as patched:
        for name in ("name", "last_sqn"):
            patched.setattr(Commit, name, property(lambda _, name=name: asked.append(name)))
        after = before.edit([sealed(10, 20)])
        change = before.change_to(after)
    assert not asked
    assert after.commits == before.commits == tuple(jobs)
    assert changed(before, change) == after


def test_a_commit_is_remembered_though_the_clock_was_set_back() -> None:
    before = [Commit(f"job {n}", 0, n + 1, n + 1, 9_000_000) for n in range(KEPT)]
    late = Commit("job late", 0, KEPT + 1, KEPT + 1, 5)
    empty = Commit("stream s", 7, KEPT + 2, KEPT + 1, 4)
    there = merged(merged(before, [late]), [empty])
    assert len(there) == KEPT
    assert found(there, "job late", 0) == late
    assert found(there, "stream s", 7) == empty
    assert found(there, "job 1", 0) is None


def test_a_log_of_many_changes_costs_what_changed() -> None:
    """Whoever follows an owner that seals a file every few milliseconds reads it each time."""
    empty = JournalManifest.empty()
    changes = [
        empty.change_to(empty.edit([sealed(base, base)], ceiling=base + 100))
        for base in range(1, 8001)
    ]
    began = time.thread_time()
    found = JournalManifest.replayed(None, changes)
    assert time.thread_time() - began < 2
    assert len(found.entries) == 8000


def test_changes_that_make_files_share_sqns_are_refused() -> None:
    before = JournalManifest.empty().edit([sealed(1, 10)], ceiling=100)
    other = JournalManifest.empty().edit([sealed(5, 20)], ceiling=100)
    change = JournalManifest.empty().change_to(other)
    with pytest.raises(Corruption, match="reaches into"):
        JournalManifest.replayed(before.encode(), [change])


def test_a_change_that_brings_an_entry_that_cannot_be_is_refused() -> None:
    before = JournalManifest.empty().edit([sealed(1, 10)], ceiling=100)
    wrong = replace(sealed(11, 20), count=11)
    after = JournalManifest(before.version + 1, (*before.entries, wrong), (1, 11), 100)
    with pytest.raises(Corruption, match="11 records from 11 to 20"):
        JournalManifest.replayed(before.encode(), [before.change_to(after)])
