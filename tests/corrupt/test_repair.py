"""repair: what is whole is kept, what is lost is listed, and then nothing is wrong any more."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import document, output
from cli_runs import octavo as command
from look import clock_ms
from one_thread import forget, one_thread, opened
from simdisk import SimDisk
from simfaults import SimCrash
from whole_store import opened as small
from whole_store import rolled

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.compacting import compaction
from octavo.actors.keeping import lost_records
from octavo.actors.keeping.lost_records import Lost
from octavo.actors.keeping.repair import DAMAGED
from octavo.actors.keeping.whole_records import HEADERLESS
from octavo.actors.opening import shutdown, startup
from octavo.actors.opening.options import Options
from octavo.files.door.disk import AppendFile, Buffer, RealDisk
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.journal import cdb
from octavo.files.journal.sparse_offsets import SparseOffsets
from octavo.files.wall_clock import wall_clock_ms
from octavo.repairing import repair_on
from octavo.store import Store

SEED = 20261121
KEYS = 600


def filled(path: Path) -> dict[bytes, bytes]:
    """A store with several sealed files, a batch in each, a ledger of two files, an active one."""
    wanted: dict[bytes, bytes] = {}
    with octavo.open(path, roll_count=256) as store:
        for turn in range(3):
            for n in range(KEYS // 3):
                key = b"%d-%d" % (turn, n)
                wanted[key] = b"value %d " % n * 20
                store.put(key, wanted[key], metadata=b"m%d" % n)
            with store.batch() as batch:
                for n in range(5):
                    wanted[b"b%d-%d" % (turn, n)] = b"in a batch"
                    batch.put(b"", b"b%d-%d" % (turn, n), b"in a batch")
        store._running.bookie.call(Bookie.push)  # the ledger is not empty
    return wanted


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[bytes, bytes]]:
    home = tmp_path_factory.mktemp("image")
    return home / "s", filled(home / "s")


def sealed(store: Path) -> Path:
    return sorted((store / "journal").glob("*.cdb"))[0]


def flip(path: Path, at: int) -> None:
    changed = bytearray(path.read_bytes())
    changed[at] ^= 1 << (at % 8)
    path.write_bytes(changed)


def holds_all_but(path: Path, wanted: dict[bytes, bytes], lost: set[bytes]) -> None:
    with octavo.open(path) as store:
        assert store.verify().ok
        found = dict(store.items())
        assert found == {key: value for key, value in wanted.items() if key not in lost}
    assert not (path / "ledger/REBUILD").exists()  # or each opening would make it anew
    again = octavo.repair(path)
    assert again.ok
    assert again.files.nothing


def trailer_of(path: Path) -> cdb.Trailer:
    whole = path.read_bytes()
    return cdb.read_trailer(whole[-cdb.TRAILER_BYTES :], len(whole), str(path))


PARTS: dict[str, Callable[[Path], tuple[int, int]]] = {
    "pointers": lambda file: (0, cdb.POINTERS_BYTES),
    "header": lambda file: (cdb.POINTERS_BYTES, cdb.RECORDS_AT),
    "tables": lambda file: (trailer_of(file).tables_at, trailer_of(file).offsets_at),
    "offsets": lambda file: (
        trailer_of(file).offsets_at,
        trailer_of(file).windows_at,
    ),
    "windows": lambda file: (
        trailer_of(file).windows_at,
        file.stat().st_size - cdb.TRAILER_BYTES,
    ),
    "trailer": lambda file: (file.stat().st_size - cdb.TRAILER_BYTES, file.stat().st_size),
}


@pytest.mark.parametrize("part", PARTS)
def test_what_stands_around_the_records_is_made_anew(
    part: str, image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    for turn in range(4):
        store = tmp_path / str(turn)
        shutil.copytree(image[0], store)
        file = sealed(store)
        low, high = PARTS[part](file)
        flip(file, rng.randrange(low, high))
        done = octavo.repair(store)
        assert done.ok
        assert done.files.rewritten == [file.name]
        assert len(list((store / DAMAGED).iterdir())) == 1
        holds_all_but(store, image[1], set())


def test_of_a_journal_file_with_damaged_records_the_others_are_kept(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    for turn in range(12):
        store = tmp_path / str(turn)
        shutil.copytree(image[0], store)
        file = sealed(store)
        with octavo.open(image[0]) as whole:
            sqns = {whole.head(key).sqn: key for key in image[1]}
        flip(file, rng.randrange(cdb.RECORDS_AT, trailer_of(file).tables_at))
        done = octavo.repair(store)
        assert done.verified.ok
        assert not done.ok
        (lost,) = done.files.lost
        assert lost.key in (None, sqns[lost.sqn])
        holds_all_but(store, image[1], {sqns[lost.sqn]})


def test_the_ledger_tells_whose_record_it_was_of_which_the_header_is_damaged(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    store = tmp_path / "s"
    shutil.copytree(image[0], store)
    keys = rng.sample([b"0-%d" % n for n in range(100, KEYS // 3)], 5)
    file = sealed(store)
    for key in keys:  # which stands in the header
        flip(file, file.read_bytes().index(key))
    done = octavo.repair(store)
    assert {each.why for each in done.files.lost} == {HEADERLESS}
    assert sorted(each.key or b"" for each in done.files.lost) == sorted(keys)
    holds_all_but(store, image[1], set(keys))


def test_gaps_that_compaction_left_are_no_losses(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    store = tmp_path / "s"
    shutil.copytree(image[0], store)
    wanted = dict(image[1])
    with octavo.open(store) as opened:
        for n in range(0, 200, 2):
            wanted[b"0-%d" % n] = b"anew"
            opened.put(b"0-%d" % n, b"anew")
        opened.compact()
    file = sealed(store)
    flip(file, file.stat().st_size - 10)
    done = octavo.repair(store)
    assert done.ok
    assert done.files.rewritten == [file.name]
    holds_all_but(store, wanted, set())


def test_a_batch_that_lost_a_record_keeps_the_others(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    store = tmp_path / "s"
    shutil.copytree(image[0], store)
    file = sealed(store)
    flip(file, file.read_bytes().index(b"b0-2"))
    done = octavo.repair(store)
    assert [lost.sqn for lost in done.files.lost] == [KEYS // 3 + 3]
    flip(file, trailer_of(file).offsets_at)  # now its records tell, one by one
    with octavo.open(store) as damaged:
        found = dict(damaged.items())
        assert found == {key: value for key, value in image[1].items() if key != b"b0-2"}
    assert octavo.repair(store).ok
    holds_all_but(store, image[1], {b"b0-2"})


def test_a_damaged_ledger_file_is_made_anew(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    for turn in range(3):
        store = tmp_path / str(turn)
        shutil.copytree(image[0], store)
        file = sorted((store / "ledger").glob("*.sst"))[0]
        flip(file, file.stat().st_size * (turn + 1) // 4)
        done = octavo.repair(store)
        assert done.ok
        assert len(done.files.ledger) == 1
        holds_all_but(store, image[1], set())


def test_a_ledger_file_that_is_missing_is_made_anew(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    store = tmp_path / "s"
    shutil.copytree(image[0], store)
    for file in (store / "ledger").glob("*.sst"):
        file.unlink()
    done = octavo.repair(store)
    assert done.ok
    assert "is missing" in done.files.ledger[0]
    holds_all_but(store, image[1], set())


@pytest.mark.parametrize("half", ["journal", "ledger"])
def test_manifests_that_are_gone_are_made_up_from_the_files(
    half: str, image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    store = tmp_path / "s"
    shutil.copytree(image[0], store)
    shutil.rmtree(store / half / "manifest")
    assert octavo.repair(store).ok
    holds_all_but(store, image[1], set())


def test_an_identity_that_is_gone_is_made_anew(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    store = tmp_path / "s"
    shutil.copytree(image[0], store)
    (store / "OCTAVO").unlink()
    told = "if it is a store that lost its file OCTAVO, repair it"
    with pytest.raises(octavo.Misuse, match=told):
        octavo.open(store)
    assert told in command("scan", store, code=2).stderr
    done = octavo.repair(store)
    assert done.ok
    assert "OCTAVO: was missing" in done.files.notes[0]
    holds_all_but(store, image[1], set())


@pytest.mark.parametrize("cut", [False, True])
def test_what_the_active_file_lost_is_listed_and_the_ledger_names_it_no_more(
    tmp_path: Path, cut: bool
) -> None:
    place = tmp_path / "s"
    wanted = filled(place)
    (file,) = (place / "journal").glob("*.log")
    whole = bytearray(file.read_bytes())
    if cut:
        del whole[len(whole) // 2 :]
    else:
        at = len(whole) // 2
        whole[at : at + 512] = bytes(512)
    file.write_bytes(whole)
    done = octavo.repair(place)
    assert done.verified.ok
    assert not done.ok
    lost = {each.key for each in done.files.lost if each.key is not None}
    assert lost
    assert len(lost) == len(done.files.lost)
    assert len({each.sqn for each in done.files.lost}) == len(lost)
    with octavo.open(place) as store:
        assert store.verify().ok
        found = dict(store.items())
    assert found == {key: value for key, value in wanted.items() if key not in lost}


def test_keys_of_a_journal_file_that_is_gone_are_listed_and_come_back_with_it(
    tmp_path: Path,
) -> None:
    place = tmp_path / "s"
    wanted = filled(place)
    file = sealed(place)
    file.rename(tmp_path / "away")
    done = octavo.repair(place)
    assert not done.ok
    lost = {each.key for each in done.files.lost}
    assert lost
    with octavo.open(place) as store:
        for key in lost:
            assert key is not None
            with pytest.raises(octavo.Corruption, match="missing"):
                store.get(key)
    (tmp_path / "away").rename(file)
    holds_all_but(place, wanted, set())


def test_a_journal_file_that_is_gone_for_good_is_given_up_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    place = tmp_path / "s"
    wanted = filled(place)
    with octavo.open(place) as store:
        last = store.last_sqn
    sealed(place).unlink()
    done = octavo.repair(place, accept_missing=True)
    assert done.verified.ok
    lost = {each.key for each in done.files.lost}
    assert lost
    with octavo.open(place) as store:
        assert store.verify().ok
        assert dict(store.items()) == {k: v for k, v in wanted.items() if k not in lost}
        with pytest.raises(octavo.HistoryCompacted):
            list(store.changes(since=0))
        assert store.put("next", b"x") > last


def test_the_active_file_can_be_given_up_too(tmp_path: Path) -> None:
    place = tmp_path / "s"
    wanted = filled(place)
    (file,) = (place / "journal").glob("*.log")
    file.unlink()
    done = octavo.repair(place, accept_missing=True)
    lost = {each.key for each in done.files.lost}
    assert done.verified.ok
    with octavo.open(place) as store:
        found = dict(store.items())
        assert {k: v for k, v in wanted.items() if k not in lost} == found
        store.put("next", b"x")
        assert store.verify().ok


def test_a_file_with_another_name_is_not_touched(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    store = tmp_path / "s"
    shutil.copytree(image[0], store)
    file = sealed(store)
    flip(file, file.stat().st_size - 10)
    (tmp_path / "backup.cdb").hardlink_to(file)
    before = (tmp_path / "backup.cdb").read_bytes()
    assert octavo.repair(store).ok
    assert (tmp_path / "backup.cdb").read_bytes() == before
    assert sealed(store).read_bytes() != before


@pytest.mark.parametrize("kind", ["compaction", "commit"])
def test_a_damaged_file_that_was_left_over_is_put_aside_and_nothing_is_lost_with_it(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "s"
    wanted = filled(path)
    if kind == "compaction":  # the power went before the file that it replaced was removed
        left, raw = sealed(path), sealed(path).read_bytes()
        with octavo.open(path) as store:
            for n in range(100):
                wanted[b"0-%d" % n] = b"later"
                store.put(b"0-%d" % n, b"later")
            store.compact()
        assert not left.exists()
    else:  # ... before the change that decides
        writer = StagedWriter(RealDisk(), str(path), "j", "0", now_ms=1)
        writer.put_many(b"", [b"never 1", b"never 2"], [b"v1", b"v2"])
        writer.finish()
        (staged,) = (path / "staging" / "j").glob("*.cdb")
        seed = cdb.read_header(staged.read_bytes()[: cdb.RECORDS_AT], "").seed
        left, raw = path / "journal" / f"{10**7:016x}-{seed:016x}.cdb", staged.read_bytes()
        shutil.rmtree(path / "staging")
    left.write_bytes(raw)
    flip(left, cdb.RECORDS_AT + 60)
    done = octavo.repair(path)
    assert done.ok
    assert (done.files.lost, done.files.rewritten) == ([], [])
    assert done.files.moved == [f"{path}/{DAMAGED}/journal-{left.name}.0"]
    assert not left.exists()
    holds_all_but(path, wanted, set())


def test_an_open_store_is_not_repaired(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s"), pytest.raises(octavo.StoreLocked):
        octavo.repair(tmp_path / "s")


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(octavo.Misuse, match="there is no store at"):
        octavo.repair(tmp_path)


def test_the_command_tells_what_it_did(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    store = tmp_path / "s"
    shutil.copytree(image[0], store)
    assert output("repair", store) == b"nothing to repair\n"
    flip(sealed(store), sealed(store).read_bytes().index(b"value 7 ") + 3)
    told = document("repair", store, "--json", code=1)
    assert [(lost["sqn"], lost["key"]) for lost in told["lost"]] == [(8, "0-7")]
    assert told["problems"] == []


def test_the_commands_tell_the_bucket_and_the_key_of_a_damaged_record(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with octavo.open(place) as store:
        for name in ("north", "south"):
            store.bucket(name).put("k", b"value of " + name.encode())
        rolled(store)
        store._running.bookie.call(Bookie.push)
    file = sealed(place)
    flip(file, file.read_bytes().index(b"southk") + 5)  # its header
    told = command("verify", place, code=1).output
    assert "(ledger key b'k' of bucket b'south')" in told
    told = command("repair", place, code=1).output
    assert "lost: sqn 2 of key k of bucket south in " in told


@pytest.mark.usefixtures("small_reserve")
def test_a_repair_that_is_cut_short_is_done_again_by_the_next() -> None:
    def damaged() -> SimDisk:
        disk = SimDisk()
        store = Store(startup.start("/s", Options(worker=False, roll_count=256), disk))
        for n in range(300):
            store.put(b"%d" % n, b"v%d" % n)
        store.close()
        name = next(n for n in disk.listdir("/s/journal") if n.endswith(".cdb"))
        whole = bytearray(disk.read(f"/s/journal/{name}", 1 << 30))
        whole[-10] ^= 1
        disk.unlink(f"/s/journal/{name}")
        file = disk.create(f"/s/journal/{name}")
        file.write_all(bytes(whole))
        file.sync()
        file.close()
        disk.sync_dir("/s/journal")
        return disk

    crashes = 0
    while True:
        disk = damaged()
        disk.crash_at(disk.ops + 1 + crashes)
        try:
            assert repair_on(disk, "/s").ok
            break
        except SimCrash:
            left = disk.after_crash(("nothing", "all", "torn")[crashes % 3], crashes)
        assert repair_on(left, "/s").ok
        running = startup.start("/s", Options(worker=False), left)
        assert len(Store(running)) == 300
        shutdown.stop(running)
        crashes += 1
    assert crashes > 30


@pytest.mark.parametrize("hides", ["a delete", "a put"])
def test_a_repair_that_is_cut_short_ends_as_one_that_was_not(hides: str) -> None:
    """Of a key whose newest record is damaged, and what is lost is told by the second one."""

    def damaged() -> SimDisk:
        disk = SimDisk()
        with one_thread("damaged") as pool:
            store = opened(disk, "/s", clock_ms=clock_ms)
            for n in range(20):
                store.put(b"%d" % n, b"v%d" % n)
            sqn = store.delete(b"3") if hides == "a delete" else store.put(b"3", b"newer")
            store.put(b"last", b"1")
            store._running.bookie.call(Bookie.push)
            rolled(store)
            pool.go_on()
            file = store._inker.view.files[0]
            at = file.ensure_open()[1][sqn - file.base]
            store.close()
        node = disk._file(f"/s/journal/{file.name}")
        for content in (node.content, node.durable):
            content[at + 8] ^= 0x20
        return disk

    def mended(disk: SimDisk) -> tuple[dict[bytes, bytes], list[str], list[int]]:
        done = repair_on(disk, "/s")
        with one_thread("mended"):
            store = opened(disk, "/s", clock_ms=clock_ms, create=False)
            state = dict(store.items())
            forget(store)
        return state, done.verified.problems, [each.sqn for each in done.files.lost]

    state, problems, lost = mended(damaged())
    assert (state[b"3"], problems, lost) == (b"v3", [], [21])
    crashes = rebuilt = 0
    while True:
        disk = damaged()
        disk.crash_at(disk.ops + 1 + crashes)
        try:
            repair_on(disk, "/s")
            break
        except SimCrash:
            left = disk.after_crash(("nothing", "all", "torn")[crashes % 3], crashes)
        rebuilt += left.exists("/s/ledger/REBUILD")
        assert mended(left) == (state, [], [21]), crashes
        crashes += 1
    assert not disk.exists("/s/damaged/LOST")
    assert crashes > 30
    assert rebuilt > 5


def test_all_losses_that_a_repair_keeps_are_known_to_the_next_one_however_long_their_names(
    tmp_path: Path,
) -> None:
    (tmp_path / "s").mkdir()
    name, path = b"\xff" * 256, "/" + "\udcff" * 4000
    lost = [Lost(sqn, path, "its value is damaged", name, name) for sqn in range(1000)]
    lost_records.keep(RealDisk(), str(tmp_path / "s"), lost)
    assert lost_records.kept(RealDisk(), str(tmp_path / "s")) == lost


def test_a_sparse_file_is_read_by_its_records_not_by_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers may be two billion."""
    with octavo.open(tmp_path / "s") as store:
        store.put_many((b"%03d" % (n % 100), b"v%d" % n) for n in range(20_000))
        store.compact()
    looks: list[object] = []
    found = SparseOffsets.__getitem__

    def counted(self: SparseOffsets, index: int) -> int:
        looks.append(index)
        return found(self, index)

    monkeypatch.setattr(SparseOffsets, "__getitem__", counted)
    assert octavo.repair(tmp_path / "s").files.nothing
    assert 0 < len(looks) < 2000, "100 records are left"


@pytest.mark.parametrize("ledger", ["kept", "rebuilt"])
def test_a_compacted_file_without_its_trailer_is_read_whole_however_far_its_numbers_reach(
    ledger: str, tmp_path: Path
) -> None:
    with octavo.open(tmp_path / "s", compact_every_seconds=None) as store:
        store.put_many((b"%05d" % n, b"v%d" % n) for n in range(20_000))
        store.delete_many(b"%05d" % n for n in range(20_000) if n % 100)
        store.compact()
        wanted = dict(store.items())
    assert len(wanted) == 200
    flip(sealed(tmp_path / "s"), sealed(tmp_path / "s").stat().st_size - 50)
    if ledger == "rebuilt":
        shutil.rmtree(tmp_path / "s/ledger")
    with octavo.open(tmp_path / "s") as store:
        assert dict(store.items()) == wanted
        assert {key: store.get(key) for key in wanted} == wanted
    assert octavo.repair(tmp_path / "s").files.lost == []


ENDS: dict[str, Callable[[Path], list[int]]] = {
    "a record": lambda file: [cdb.RECORDS_AT + 50],
    "offsets": lambda file: [trailer_of(file).offsets_at],
    "origin": lambda file: [file.stat().st_size - cdb.TRAILER_BYTES - cdb.ORIGIN_BYTES],
    "trailer": lambda file: [file.stat().st_size - 1],
    "origin and trailer": lambda file: [*ENDS["origin"](file), *ENDS["trailer"](file)],
}


@pytest.mark.parametrize("part", ENDS)
def test_a_compacted_file_goes_on_to_tell_of_which_states_it_is(part: str, tmp_path: Path) -> None:
    """Or restoring an earlier one would leave out what was replaced later."""
    now = [1000]
    with small(tmp_path / "s", roll_count=256, clock_ms=lambda: now[0]) as store:
        for value in (b"old", b"new"):
            store.put_many((b"a%d" % n, value) for n in range(300))
            store.put_many((b"%s%d" % (value, n), b"") for n in range(300))
        now[0] = 2000
        store.delete(b"old0")
        now[0] = 3000
        store.compact()
        store.put(b"later", b"")
    file = sealed(tmp_path / "s")
    for at in ENDS[part](file):
        flip(file, at)
    assert octavo.repair(tmp_path / "s").verified.ok
    given: list[dict[str, int]] = [{"sqn": 599}, {"sqn": 1200}, {"time": 1999}]
    if "origin" in part:  # of which state nothing tells but that it is this one
        given.append({"sqn": 1201})
    else:
        assert octavo.restore(tmp_path / "s", tmp_path / "r1", sqn=1201).sqn == 1201
    for each in given:
        with pytest.raises(octavo.HistoryCompacted):
            octavo.restore(tmp_path / "s", tmp_path / "r", **each)  # type: ignore[arg-type]
    now_ms = wall_clock_ms() if "trailer" in part else 3000  # which tells when all that was
    assert octavo.restore(tmp_path / "s", tmp_path / "r", time=now_ms).sqn == 1202


@pytest.mark.parametrize("times", [1, 2])
def test_a_file_tells_of_later_moments_whichever_file_of_its_making_lacks_what_was_dropped(
    times: int, tmp_path: Path
) -> None:
    """The last one that a compaction makes tells when all was written that it dropped; where the
    clock was set back since, nothing else does."""
    now, rng = [9000], random.Random(SEED)
    sizes = {"roll_size_bytes": 1 << 20, "roll_count": 512}
    with small(tmp_path / "s", clock_ms=lambda: now[0], **sizes) as store:
        store.put(b"k", b"old")
        now[0] = 5000
        store.put_many((b"a%d" % max(n // 2, n - 4), rng.randbytes(300 << 10)) for n in range(12))
        store.put(b"k", b"new")
        for _ in range(times):
            rolled(store)
            store.compact()
            store.put(b"later", b"")
    file = max((tmp_path / "s" / "journal").glob("*.cdb"), key=lambda each: each.name)
    origin = cdb.read_origin(file.read_bytes(), trailer_of(file), "")
    assert origin is not None
    assert (origin.horizon < int(file.name[:16], 16), trailer_of(file).last_ms) == (True, 9000)
    flip(file, file.stat().st_size - 1)
    assert octavo.repair(tmp_path / "s").verified.ok
    with pytest.raises(octavo.HistoryCompacted):  # "old" was written first, and later
        octavo.restore(tmp_path / "s", tmp_path / "r", time=7000)


@pytest.mark.parametrize("entered", [True, False], ids=["", "no manifest"])
def test_a_file_that_was_never_compacted_goes_on_to_be_of_every_state(
    entered: bool, image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    shutil.copytree(image[0], tmp_path / "s")
    flip(sealed(tmp_path / "s"), sealed(tmp_path / "s").stat().st_size - 1)
    if not entered:
        shutil.rmtree(tmp_path / "s/journal/manifest")
    assert octavo.repair(tmp_path / "s").verified.ok
    octavo.restore(tmp_path / "s", tmp_path / "r", sqn=100)
    with octavo.open(tmp_path / "r") as store:
        assert len(list(store.keys())) == 100


def loaded(path: Path) -> dict[bytes, bytes]:
    """A store with a file that was damaged, and one that a bulk load brought at the next opening;
    what is whole in it."""
    with octavo.open(path) as store:
        store.put_many([(b"%03d" % n, b"value %d" % n) for n in range(300)])
        rolled(store)
        compaction.seal_waiting(store._inker)
    victim = sealed(path)
    flip(victim, victim.read_bytes().index(b"value 7") + 2)
    with octavo.open(path) as store:
        writer = StagedWriter(RealDisk(), store.path, "j", "a", now_ms=1)
        writer.put_many(b"", [b"loaded"], [b"whole"])
        writer.finish()
        store.ingest("j", ["a"])
        store.put(b"later", b"whole")
    wanted = {b"%03d" % n: b"value %d" % n for n in range(300)}
    return wanted | {b"loaded": b"whole", b"later": b"whole"}


def damage_the_last_change(log: Path) -> None:
    flip(log, log.read_bytes().index(b"job j"))


@pytest.mark.parametrize("how", [damage_the_last_change, Path.unlink])
def test_an_earlier_manifest_is_made_up_before_it_is_written_anew(
    tmp_path: Path, how: Callable[[Path], None]
) -> None:
    """Or files that it does not list would be removed as left-overs."""
    wanted = loaded(tmp_path / "s")
    how(sorted((tmp_path / "s" / "journal" / "manifest").iterdir())[-1])
    done = octavo.repair(tmp_path / "s")
    assert [lost.key for lost in done.files.lost] == [b"007"]
    assert done.verified.ok, done.verified.problems
    told = any("changes 1 to 1 are lost" in note for note in done.files.notes)
    assert told == (how is damage_the_last_change)
    holds_all_but(tmp_path / "s", wanted, {b"007"})
    again = octavo.repair(tmp_path / "s")
    assert again.files.nothing, again.files


def test_what_is_gone_for_good_is_given_up_of_an_earlier_manifest_too(tmp_path: Path) -> None:
    wanted = loaded(tmp_path / "s")
    damage_the_last_change(sorted((tmp_path / "s" / "journal" / "manifest").iterdir())[-1])
    sealed(tmp_path / "s").unlink()
    done = octavo.repair(tmp_path / "s", accept_missing=True)
    assert done.verified.ok, done.verified.problems
    holds_all_but(tmp_path / "s", wanted, set(wanted) - {b"loaded", b"later"})


def unsealed(path: Path) -> Path:
    (found,) = path.glob("journal/*.log")
    return found


def test_what_a_damaged_unsealed_file_lost_is_listed(tmp_path: Path) -> None:
    """The opening behind the repair steps over it, and only says how many bytes those are."""
    path = tmp_path / "s"
    with octavo.open(path) as store:
        for n in range(100):
            store.put(b"%03d" % n, b"value %03d" % n)
    flip(unsealed(path), unsealed(path).read_bytes().index(b"value 050") + 4)
    done = octavo.repair(path)
    assert done.verified.ok
    assert not done.ok
    assert [(lost.sqn, lost.key) for lost in done.files.lost] == [(51, b"050")]
    with octavo.open(path) as store:
        assert len(list(store.keys())) == 99
    assert octavo.repair(path).ok


def test_what_a_damaged_unsealed_file_of_a_head_only_store_lost_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with octavo.open(path, mode="head_only") as store:
        for n in range(100):
            store.head_bucket("b").put(b"%03d" % n, b"value")
    flip(unsealed(path), unsealed(path).read_bytes().index(b"value") + 4)
    done = octavo.repair(path)
    assert done.verified.ok
    assert [lost.sqn for lost in done.files.lost] == [1]


def test_a_batch_that_a_damaged_unsealed_file_lost_is_listed_whole(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with octavo.open(path) as store:
        store.put("before", "1")
        with store.batch() as batch:
            for n in range(3):
                batch.put("", f"batch{n}", "in it")
        store.put("behind", "5")
    flip(unsealed(path), unsealed(path).read_bytes().index(b"batch1") + 2)
    done = octavo.repair(path)
    assert [lost.sqn for lost in done.files.lost] == [2, 3, 4]
    assert [lost.key for lost in done.files.lost] == [b"batch0", None, b"batch2"]
    with octavo.open(path) as store:
        assert set(store.keys()) == {b"before", b"behind"}


def test_a_batch_at_the_end_that_is_not_whole_is_lost_only_where_the_store_was_closed(
    tmp_path: Path,
) -> None:
    """Else it is what a write left that broke off."""
    with octavo.open(tmp_path / "closed") as store:
        store.put("before", "1")
        with store.batch() as batch:
            for n in range(3):
                batch.put("", f"batch{n}", "in it")
        shutil.copytree(store.path, tmp_path / "killed")
    for path, lost in ((tmp_path / "closed", [2, 3, 4]), (tmp_path / "killed", [])):
        flip(unsealed(path), unsealed(path).read_bytes().index(b"batch2") + 2)
        assert [each.sqn for each in octavo.repair(path).files.lost] == lost


class FullDisk(RealDisk):
    """Has no room for a file that is written anew."""

    def create(self, path: str) -> AppendFile:
        file = super().create(path)

        def full(_: Buffer) -> int:
            raise OSError(errno.ENOSPC, "No space left on device", path)

        if path.endswith(".cdb.tmp"):
            file.write(b"half")
            file.write = full
        return file


def test_a_repair_that_finds_no_room_leaves_no_half_of_a_file(
    image: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    store = tmp_path / "s"
    shutil.copytree(image[0], store)
    flip(sealed(store), cdb.POINTERS_BYTES + 3)
    before = set((store / "journal").iterdir())
    with pytest.raises(OSError, match="No space left"):
        repair_on(FullDisk(), str(store))
    assert set((store / "journal").iterdir()) == before
    octavo.repair(store)
    holds_all_but(store, image[1], set())
