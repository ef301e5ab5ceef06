"""The ledger manifest against a plain model; what it refuses; what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from counted_lines import lines_of
from hypothesis import given, settings
from hypothesis import strategies as st
from simdisk import SimDisk

from octavo.files.errors import Corruption, Misuse, OctavoError, UnsupportedFormat
from octavo.manifest.change_log import ChangeLog, recover
from octavo.manifest.ledger_manifest import MAX_LEVELS, LedgerEntry, LedgerManifest
from octavo.manifest.packing import MAX_VERSION


def entry(name: str, level: int, first: int, last: int, sqn: int = 1, **more: Any) -> LedgerEntry:
    """A file with keys [first, last] and sqns from ``sqn`` on."""
    known: dict[str, Any] = {
        "rows": 10,
        "bytes": 560,
        "tombstones": 0,
        "expiring": 0,
        "min_sqn": sqn,
        "max_sqn": sqn + 9,
        "sqn_base": 0,
    }
    return LedgerEntry(
        name=name, level=level, first_key=b"%06d" % first, last_key=b"%06d" % last, **known | more
    )


def manifest_of(*entries: LedgerEntry, persisted_sqn: int = 10_000) -> LedgerManifest:
    return LedgerManifest.empty().edit(entries, (), persisted_sqn)


def changed(manifest: LedgerManifest, *changes: bytes) -> LedgerManifest:
    return LedgerManifest.replayed(manifest.encode(), changes)


def names(entries: Iterable[LedgerEntry]) -> list[str]:
    return [each.name for each in entries]


# ---------------------------------------------------------------- against a model


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[list[LedgerEntry], list[str], int]]:
    """Edits that are possible one after the other."""
    there: dict[str, LedgerEntry] = {}
    out = []
    number = sqn = 0
    for _ in range(draw(st.integers(1, 12))):
        removed = draw(st.lists(st.sampled_from(sorted(there)), unique=True)) if there else []
        for name in removed:
            del there[name]
        added = []
        for _ in range(draw(st.integers(0, 4))):
            number += 1
            level = draw(st.integers(0, 3))
            first = draw(st.integers(0, 60))
            last = first + draw(st.integers(0, 8))
            new = entry(
                f"{number}.sst",
                level,
                first,
                last,
                1 + number * 10,
                tombstones=draw(st.integers(0, 10)),
                expiring=draw(st.integers(0, 10)),
                sqn_base=draw(st.sampled_from([0, number])),
                bytes=draw(st.sampled_from([1, 255, 256, 65536, 1 << 40, (1 << 64) - 1])),
            )
            overlaps = any(
                other.level == level
                and other.first_key <= new.last_key
                and new.first_key <= other.last_key
                for other in there.values()
            )
            if level == 0 or not overlaps:
                there[new.name] = new
                added.append(new)
        sqn = max(sqn, number * 10 + 10)
        out.append((added, removed, sqn))
    return out


def expect(manifest: LedgerManifest, there: dict[str, LedgerEntry]) -> None:
    manifest.check()
    levels = [list(level) for level in manifest.levels]
    assert sorted(each.name for level in levels for each in level) == sorted(there)
    for level, found in enumerate(levels):
        wanted = [each for each in there.values() if each.level == level]
        if level == 0:
            assert found == sorted(wanted, key=lambda each: -each.max_sqn)
        else:
            assert found == sorted(wanted, key=lambda each: each.first_key)
    for at in range(-1, 72, 3):
        key = b"%06d" % max(at, 0)
        for level in range(1, 5):
            holding = [
                each
                for each in there.values()
                if each.level == level and each.first_key <= key <= each.last_key
            ]
            assert list(manifest.overlapping(level, key, key)) == holding
    for first, last in ((0, 99), (10, 20), (33, 33), (20, 10)):
        low, high = b"%06d" % first, b"%06d" % last
        for level in range(5):
            assert list(manifest.overlapping(level, low, high)) == [
                each
                for each in (levels[level] if level < len(levels) else [])
                if low <= high and each.first_key <= high and each.last_key >= low
            ]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(edits())
def test_edits_agree_with_a_dict_of_files(
    steps: list[tuple[list[LedgerEntry], list[str], int]],
) -> None:
    manifest = followed = LedgerManifest.empty()
    there: dict[str, LedgerEntry] = {}
    changes: list[bytes] = []
    for added, removed, sqn in steps:
        before = manifest
        packed = before.encode()
        gone = [there[name] for name in removed]
        change = manifest.encode_change(added, gone, sqn)
        manifest = manifest.edit(added, gone, sqn)
        for name in removed:
            del there[name]
        there |= {each.name: each for each in added}
        changes.append(change)
        followed = changed(followed, change)
        expect(manifest, there)
        assert followed == manifest
        assert manifest.version == before.version + 1
        assert before.encode() == packed, "an edit changed the manifest it began from"
    assert LedgerManifest.decode(manifest.encode()) == manifest
    assert LedgerManifest.decode(manifest.encode()).firsts == manifest.firsts
    assert LedgerManifest.replayed(None, changes) == manifest
    middle = len(changes) // 2
    snapshot = LedgerManifest.replayed(None, changes[:middle]).encode()
    assert LedgerManifest.replayed(snapshot, changes[middle:]) == manifest


def test_it_survives_a_change_log() -> None:
    disk = SimDisk()
    manifest = LedgerManifest.empty()
    log = ChangeLog.begin(disk, "/log", 1, manifest.encode())
    files = [entry(f"{n}.sst", 1, n * 10, n * 10 + 9, n * 10 + 1) for n in range(50)]
    for number, each in enumerate(files):
        added = [each]
        removed = files[number - 7 : number - 6] if number >= 7 else []
        log.append(manifest.encode_change(added, removed, 1000 + number))
        manifest = manifest.edit(added, removed, 1000 + number)
        if number == 30:
            log.snapshot(manifest.encode())
    found = recover(disk.after_crash("nothing"), "/log")
    assert LedgerManifest.replayed(found.snapshot, found.changes) == manifest


# ---------------------------------------------------------------- editing


def test_a_file_can_change_its_level_in_one_edit() -> None:
    old = entry("a.sst", 1, 0, 9)
    manifest = manifest_of(old).edit([replace(old, level=2)], [old])
    manifest.check()
    assert [names(level) for level in manifest.levels] == [[], [], ["a.sst"]]


def test_a_replacement_takes_the_place_of_what_it_replaces() -> None:
    old = entry("b", 1, 10, 19)
    manifest = manifest_of(entry("a", 1, 0, 9), old, entry("c", 1, 20, 29))
    manifest = manifest.edit([entry("d", 1, 10, 14), entry("e", 1, 15, 19)], [old])
    assert names(manifest.levels[1]) == ["a", "d", "e", "c"]


def test_level_zero_is_newest_first() -> None:
    manifest = manifest_of(*(entry(f"{n}", 0, 0, 99, n * 10 + 1) for n in (2, 0, 3, 1)))
    assert names(manifest.levels[0]) == ["3", "2", "1", "0"]


def test_no_file_left_is_no_level_left() -> None:
    last = entry("a", 3, 0, 9)
    manifest = manifest_of(last).edit((), [last])
    assert (manifest.levels, manifest.firsts) == ((), ())


def test_many_changes_at_once_give_the_same_as_few() -> None:
    files = [entry(f"{n}", 1, n * 10, n * 10 + 9, n * 10 + 1) for n in range(1000)]
    many = manifest_of(*files, persisted_sqn=100_000)
    one_by_one = LedgerManifest.empty().edit((), (), 100_000)
    for each in reversed(files):
        one_by_one = one_by_one.edit([each])
    assert many.levels == one_by_one.levels
    assert many.firsts == one_by_one.firsts
    fewer = many.edit((), [each for each in files if each.min_sqn % 20 == 1])
    fewer.check()
    assert len(fewer.levels[1]) == 500


def test_an_impossible_version_is_refused() -> None:
    with pytest.raises(Corruption, match="version"):
        LedgerManifest.decode(replace(LedgerManifest.empty(), version=MAX_VERSION + 1).encode())


def test_the_actor_of_a_file_stays_with_its_entry_and_is_not_packed() -> None:
    actor = object()
    manifest = manifest_of(replace(entry("a", 1, 0, 9), file=actor))
    again = manifest.edit([entry("b", 1, 20, 29)])
    assert again.levels[1][0].file is actor
    decoded = LedgerManifest.decode(manifest.encode())
    assert decoded.levels[1][0].file is None
    assert decoded == manifest


def test_the_persisted_sqn_is_kept_unless_it_is_given() -> None:
    manifest = LedgerManifest.empty().edit((), (), 5)
    assert manifest.edit().persisted_sqn == 5
    assert manifest.edit((), (), 9).persisted_sqn == 9


def test_nothing_can_be_assigned() -> None:
    with pytest.raises(FrozenInstanceError):
        LedgerManifest.empty().version = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        entry("a", 1, 0, 9).level = 3  # type: ignore[misc]


# ---------------------------------------------------------------- what is refused

BAD_NAMES = ["", ".", "..", "../a", "a/b", "/a", "a..b", ".a", "a\0", "a\n", "é", "a" * 201]

BAD_ENTRIES: list[dict[str, Any]] = [
    *({"name": name} for name in BAD_NAMES),
    {"level": -1},
    {"level": MAX_LEVELS},
    {"level": True},
    {"rows": 0},
    {"rows": -1},
    {"rows": 1.0},
    {"rows": 1 << 64},
    {"tombstones": 11},
    {"expiring": 11},
    {"bytes": None},
    {"first_key": b""},
    {"first_key": "000000"},
    {"last_key": b"00000"},
    {"last_key": b"9" * 300_000},
    {"min_sqn": 20},
    {"sqn_base": 2},
]


@pytest.mark.parametrize("wrong", BAD_ENTRIES, ids=repr)
def test_an_impossible_entry_is_refused(wrong: dict[str, Any]) -> None:
    bad = replace(entry("a.sst", 1, 0, 9), **wrong)
    with pytest.raises(Misuse):
        LedgerManifest.empty().edit([bad], (), 100)


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if 0 < len(name) <= 200])
def test_a_name_that_leads_elsewhere_is_refused_in_a_packed_manifest(name: str) -> None:
    stand_in = "x" * len(name.encode())
    packed = manifest_of(entry(stand_in, 1, 0, 9)).encode()
    with pytest.raises(Corruption, match="file name"):
        LedgerManifest.decode(packed.replace(stand_in.encode(), name.encode(), 1))


@pytest.mark.parametrize("few", [True, False])
def test_files_of_one_level_that_overlap_are_refused(few: bool) -> None:
    others = [entry(f"{n}", 1, n * 10, n * 10 + 9) for n in range(3 if few else 500)]
    manifest = manifest_of(*others)
    for first, last in ((0, 5), (9, 9), (5, 12), (0, 99)):
        with pytest.raises(Misuse, match="overlap"):
            manifest.edit([entry("z", 1, first, last)])


def test_a_file_that_is_not_there_cannot_go() -> None:
    manifest = manifest_of(entry("a", 1, 0, 9), entry("c", 0, 0, 9))
    for level in range(3):
        with pytest.raises(Misuse, match="b is not in it"):
            manifest.edit((), [entry("b", level, 0, 9)])


def test_the_persisted_sqn_never_goes_back() -> None:
    with pytest.raises(Misuse, match="persisted sqn 9998 after 9999"):
        manifest_of(persisted_sqn=9999).edit((), (), 9998)


def broken() -> list[tuple[str, LedgerManifest]]:
    """Manifests that no edit makes, each with what check says of it."""
    a, b = entry("a", 1, 0, 9), entry("b", 1, 10, 19)
    good = manifest_of(a, b)
    zero = manifest_of(entry("old", 0, 0, 9, 1), entry("new", 0, 0, 9, 100))
    return [
        ("not in order", replace(good, levels=((), (b, a)))),
        ("overlap", replace(good, levels=((), (a, entry("b", 1, 9, 19))))),
        ("names are not unique", replace(good, levels=((), (a, replace(b, name="a"))))),
        ("another level", replace(good, levels=((), (a, replace(b, level=2))))),
        ("newer than what is persisted", replace(good, persisted_sqn=9)),
        (
            "last level is empty",
            replace(good, levels=(*good.levels, ()), firsts=(*good.firsts, ())),
        ),
        ("first keys", replace(good, firsts=((), (a.first_key,)))),
        ("first keys", replace(good, firsts=((),))),
        ("file name", replace(good, levels=((), (a, replace(b, name="../b"))))),
        ("not in order", replace(zero, levels=(zero.levels[0][::-1],))),
        (
            "share keys and sqns",
            replace(zero, levels=((zero.levels[0][0], entry("old", 0, 9, 12, 95)),)),
        ),
    ]


@pytest.mark.parametrize(
    ("what", "manifest"), broken(), ids=lambda part: part[:20] if isinstance(part, str) else ""
)
def test_check_states_what_does_not_hold(what: str, manifest: LedgerManifest) -> None:
    with pytest.raises(Corruption, match=what):
        manifest.check()


def test_files_of_one_run_in_level_zero_may_share_sqns_but_not_keys() -> None:
    manifest_of(entry("a", 0, 0, 9, 1), entry("b", 0, 10, 19, 5), entry("c", 0, 0, 99, 50)).check()


# ---------------------------------------------------------------- bytes

PACKED = manifest_of(
    entry("a.sst", 0, 0, 50, 100), entry("b.sst", 1, 0, 9), entry("c.sst", 1, 10, 19, 11)
)
CHANGE = PACKED.encode_change([entry("d.sst", 2, 0, 9)], [PACKED.levels[1][0]], 20_000)


def test_every_cut_of_a_packed_manifest_is_refused() -> None:
    packed = PACKED.encode()
    for length in range(len(packed)):
        with pytest.raises(Corruption):
            LedgerManifest.decode(packed[:length])
    for length in range(len(CHANGE)):
        with pytest.raises(Corruption):
            changed(PACKED, CHANGE[:length])


def test_more_bytes_than_a_manifest_are_refused() -> None:
    with pytest.raises(Corruption, match="more than a manifest"):
        LedgerManifest.decode(PACKED.encode() + b"\0")
    with pytest.raises(Corruption, match="more than a manifest"):
        changed(PACKED, CHANGE + b"\0")


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_gives_a_manifest_that_holds_or_an_error_of_ours(mask: int) -> None:
    packed = PACKED.encode()
    for at in range(len(packed)):
        content = bytearray(packed)
        content[at] ^= mask
        try:
            LedgerManifest.decode(bytes(content)).check()
        except OctavoError:
            pass
    for at in range(len(CHANGE)):
        content = bytearray(CHANGE)
        content[at] ^= mask
        try:
            changed(PACKED, bytes(content)).check()
        except OctavoError:
            pass


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=200))
def test_anything_at_all_gives_an_error_of_ours(content: bytes) -> None:
    with pytest.raises(OctavoError):
        LedgerManifest.decode(b"OLM1\x01\x00" + content)
    with pytest.raises(OctavoError):
        changed(PACKED, b"OLC1\x01\x00" + content)


def test_a_newer_version_is_refused_by_name() -> None:
    packed = bytearray(PACKED.encode())
    packed[4] = 3
    with pytest.raises(UnsupportedFormat, match="ledger manifest: of version 3"):
        LedgerManifest.decode(bytes(packed))


def before_expiries(packed: bytes) -> bytes:
    """A manifest, or a change, as version 1 had it."""
    return packed[:4] + b"\1\0" + packed[6:22] + packed[30:]


def test_the_version_before_expiries_is_read() -> None:
    assert LedgerManifest.decode(before_expiries(PACKED.encode())) == PACKED
    assert changed(PACKED, before_expiries(CHANGE)) == changed(PACKED, CHANGE)


def test_what_expired_is_kept_and_only_grows() -> None:
    made = PACKED.edit(expired_ms=500)
    assert changed(PACKED, PACKED.encode_change(expired_ms=500)) == made
    assert LedgerManifest.decode(made.encode()) == made
    assert (made.now_ms(499), made.now_ms(501)) == (500, 501)
    for later in (made.edit(), made.edit(expired_ms=499), made.emptied()):
        assert later.expired_ms == 500
    assert (
        LedgerManifest.replayed(
            PACKED.encode(), [PACKED.encode_change(expired_ms=500), made.encode_change()]
        )
        == made.edit()
    )


def test_an_expiry_that_no_clock_reaches_is_refused() -> None:
    with pytest.raises(Corruption, match="expired up to"):
        LedgerManifest.decode(replace(PACKED, expired_ms=1 << 48).encode())
    with pytest.raises(Corruption, match="expired up to"):
        changed(PACKED, PACKED.encode_change(expired_ms=(1 << 64) - 1))


def test_changes_must_be_in_order() -> None:
    with pytest.raises(Corruption, match="leads to a version"):
        changed(changed(PACKED, CHANGE), CHANGE)
    with pytest.raises(Corruption, match="leads to a version"):
        changed(PACKED, CHANGE, CHANGE)


def test_changes_that_do_not_fit_are_refused() -> None:
    missing = PACKED.encode_change((), [entry("nowhere.sst", 1, 0, 9)])
    twice = PACKED.encode_change([entry("a.sst", 1, 90, 99)])
    overlap = PACKED.encode_change([entry("z.sst", 1, 5, 6)])
    for change in (missing, twice, overlap):
        with pytest.raises(Corruption):
            changed(PACKED, change)


def test_a_count_of_billions_takes_no_memory() -> None:
    front = b"OLM1\x01\x00" + bytes(16)
    for count in (1 << 20, 1 << 32, (1 << 64) - 1):
        for width in (b"\0", b"\1", b"\x08"):
            with pytest.raises(Corruption):
                LedgerManifest.decode(front + count.to_bytes(8, "little") + width + bytes(1 << 20))


# ---------------------------------------------------------------- costs


def test_100_000_files_change_by_one_small_record_in_few_steps() -> None:
    few, many = _in_order(100), _in_order(100_000)
    assert _steps_of_an_edit(many) < _steps_of_an_edit(few) + 100  # a step a file were 99,900 more
    old = many.levels[3][50_000]
    assert len(many.encode_change([replace(old, name="new.sst")], [old])) < 200
    assert len(many.encode()) < 100 * 100_000


def _in_order(count: int) -> LedgerManifest:
    files = [entry(f"{n:08x}-0001.sst", 3, n * 10, n * 10 + 9, n * 10 + 1) for n in range(count)]
    return manifest_of(*files, persisted_sqn=1 << 40)


def _steps_of_an_edit(manifest: LedgerManifest) -> int:
    files = manifest.levels[3]
    old = files[len(files) // 2]
    new = replace(old, name="new.sst")
    return lines_of(lambda: manifest.edit([new], [old]))
