"""An update of a backup that was cut short: nothing that it brought is of the backup, however often
and by whom that is opened afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from whole_store import flush, opened

import octavo
from octavo.actors.keeping import backup as backups
from octavo.files.door.disk import Disk, RealDisk
from octavo.manifest import update_mark
from octavo.manifest.change_log import Recovered
from octavo.manifest.update_mark import UPDATING
from octavo.pipeline import offline, offline_journal
from octavo.pipeline.feed_files import JournalLook

Content = dict[Any, Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[octavo.Store]:
    """Backed up at "b" when all its values were b"old"; its epochs are ahead of the backup's."""
    with opened(tmp_path / "s") as made:
        made.put_many((b"%04d" % n, b"old") for n in range(700))
        made.backup(tmp_path / "b")
    for _ in range(4):
        opened(tmp_path / "s").close()
    with opened(tmp_path / "s") as made:
        yield made


def renew(store: octavo.Store, every: int, value: bytes, *, compacts: bool) -> None:
    store.put_many((b"%04d" % n, value) for n in range(0, 700, every))
    if compacts:
        store.compact()


def cut_short(store: octavo.Store, path: Path) -> None:
    """An update that has brought all files, and not got to the manifest."""

    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backups, "_begin", cut)
        with pytest.raises(KeyboardInterrupt):
            store.backup(path)
    assert (path / "journal" / UPDATING).exists()


def between_the_manifests(
    store: octavo.Store,
    path: Path,
    then: Callable[[], None],
    before: str = "ledger",
    **options: Any,
) -> None:
    """An update, and in its midst, behind the journal's manifest and before the ledger's, this; or
    behind the mark that tells of both, and before the journal's."""
    begin = backups.ChangeLog.begin

    def begun(disk: Disk, directory: str, epoch: int, snapshot: bytes) -> Any:
        if directory == f"{path}/{before}/manifest":
            then()
        return begin(disk, directory, epoch, snapshot)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backups, "ChangeLog", SimpleNamespace(begin=begun))
        store.backup(path, **options)


def cut_between_the_manifests(store: octavo.Store, path: Path, before: str = "ledger") -> None:
    def cut() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        between_the_manifests(store, path, cut, before)


def openings(path: Path) -> list[Content]:
    found = []
    for _ in range(3):
        with opened(path) as backup:
            assert backup.stats()["notes"] == []
            found.append(dict(backup.items()))
    return found


OLD = {b"%04d" % n: b"old" for n in range(700)}


def test_each_of_several_openings_finds_what_was_there(store: octavo.Store, tmp_path: Path) -> None:
    renew(store, 2, b"new", compacts=True)  # into a file that reaches past the backup's end
    cut_short(store, tmp_path / "b")
    assert openings(tmp_path / "b") == [OLD] * 3


def test_two_updates_that_were_cut_short(store: octavo.Store, tmp_path: Path) -> None:
    renew(store, 2, b"new", compacts=True)
    cut_short(store, tmp_path / "b")
    renew(store, 3, b"newer", compacts=True)  # what the first one brought is not of the second
    cut_short(store, tmp_path / "b")
    assert openings(tmp_path / "b") == [OLD] * 3


@pytest.mark.parametrize(
    "text",
    [
        b"a backup\n",
        b"",
        b'{"format": 1, "names": [], "checksum": "0123456789abcdef"}',
        b'{"format": 1, "names": 5}',
        b"[" * 100_000,
    ],
    ids=["of before", "empty", "checksum", "no checksum", "deep"],
)
def test_a_mark_that_does_not_say_what_comes(
    store: octavo.Store, tmp_path: Path, text: bytes
) -> None:
    """Those of before did not, and others may be damaged."""
    renew(store, 2, b"new", compacts=True)
    cut_short(store, tmp_path / "b")
    (tmp_path / "b" / "journal" / UPDATING).write_bytes(text)
    assert openings(tmp_path / "b") == [OLD] * 3


def test_files_that_the_mark_does_not_name_are_not_of_the_update(tmp_path: Path) -> None:
    theirs, mine = (f"0000000000000001-{seed:016x}.cdb" for seed in (1, 2))
    update_mark.write(RealDisk(), str(tmp_path), [theirs])
    assert update_mark.strangers(RealDisk(), str(tmp_path), {theirs, mine}, 1000) == {theirs}


@pytest.mark.parametrize(
    ("ledger", "mark", "journal", "is_to_come"),
    [
        (2, 3, 3, True),
        (2, 3, 4, True),
        (2, 4, 3, False),  # that state is not the journal's yet
        (2, 2, 3, False),  # the ledger has it, or a newer one
        (3, 3, 3, False),
    ],
)
def test_a_ledger_is_to_come_where_the_mark_is_of_the_journals_state_and_not_of_the_ledgers(
    tmp_path: Path, ledger: int, mark: int, journal: int, is_to_come: bool
) -> None:
    (tmp_path / "journal").mkdir()
    update_mark.write(RealDisk(), str(tmp_path / "journal"), [], mark, b"what is to come")
    states = (Recovered(state_epoch=journal), Recovered(state_epoch=ledger))
    found = update_mark.ledger_to_come(RealDisk(), str(tmp_path), *states)
    assert found == (b"what is to come" if is_to_come else None)


@pytest.fixture
def killed(store: octavo.Store, tmp_path: Path) -> Path:
    """The backup was opened by itself, written to and killed: any sqn may have been given in it.
    Then an update was cut short."""
    with opened(tmp_path / "b") as backup:
        backup.put(b"mine", b"of the backup")
        shutil.copytree(tmp_path / "b", tmp_path / "k")
    renew(store, 1, b"new", compacts=False)
    cut_short(store, tmp_path / "k")
    return tmp_path / "k"


def test_what_was_put_into_the_backup_itself_stays(killed: Path) -> None:
    assert openings(killed) == [{**OLD, b"mine": b"of the backup"}] * 3


def test_another_process_reads_what_was_there(killed: Path) -> None:
    with octavo.open(killed, read_only=True) as found:
        assert dict(found.items()) == {**OLD, b"mine": b"of the backup"}


def test_a_store_is_restored_as_the_backup_was(killed: Path, tmp_path: Path) -> None:
    octavo.restore(killed, tmp_path / "r")
    assert openings(tmp_path / "r") == [{**OLD, b"mine": b"of the backup"}] * 3


def test_a_feed_ends_where_the_backup_does(killed: Path) -> None:
    assert JournalLook(RealDisk(), str(killed)).newest() == 701


def test_the_next_update_is_whole(store: octavo.Store, killed: Path) -> None:
    store.backup(killed)
    assert openings(killed) == [dict(store.items())] * 3


def test_a_backup_whose_manifest_lost_something_is_not_restored_as_it_was_before(
    store: octavo.Store, tmp_path: Path
) -> None:
    renew(store, 2, b"new", compacts=False)
    store.backup(tmp_path / "b")
    newest = max((tmp_path / "b" / "journal" / "manifest").iterdir())
    whole = bytearray(newest.read_bytes())
    whole[-9] ^= 1
    newest.write_bytes(whole)
    with pytest.raises(octavo.Corruption, match="something was lost"):
        octavo.restore(tmp_path / "b", tmp_path / "r")
    assert not (tmp_path / "r").exists()
    opened(tmp_path / "b").close()
    octavo.restore(tmp_path / "b", tmp_path / "r")
    assert openings(tmp_path / "r") == [dict(store.items())] * 3


def left_behind(store: octavo.Store, path: Path) -> None:
    """The backup's ledger names what a compaction has dropped since, and is from before that."""
    flush(store)
    store.backup(path)
    for value in (b"newer", b"new"):
        renew(store, 2, value, compacts=value == b"new")


@pytest.mark.parametrize("ledger", [True, False])
def test_who_reads_it_in_the_midst_of_an_update_finds_what_was_brought(
    store: octavo.Store, tmp_path: Path, ledger: bool
) -> None:
    left_behind(store, tmp_path / "b")
    found: list[Content] = []

    def read() -> None:
        with octavo.open(tmp_path / "b", read_only=True) as reads:
            found.append(dict(reads.items()))

    between_the_manifests(store, tmp_path / "b", read, ledger=ledger)
    assert found == [dict(store.items())]


def test_an_opening_takes_the_ledger_that_was_to_come(store: octavo.Store, tmp_path: Path) -> None:
    left_behind(store, tmp_path / "b")
    cut_between_the_manifests(store, tmp_path / "b")
    assert openings(tmp_path / "b") == [dict(store.items())] * 3


NEW_ROWS = {b"%03d" % n: b"new" for n in range(100)}


@contextmanager
def head_only_store_and_backup(home: Path) -> Iterator[octavo.Store]:
    """A store of NEW_ROWS, all trimmed, at ``home``/s, and a backup of what was before at b."""
    with opened(home / "s", mode="head_only") as store:
        for value in (b"old", b"new"):
            for n in range(100):
                store.head_bucket(b"").put(b"%03d" % n, value)
            store.trim()
            if value == b"old":
                store.backup(home / "b")
        yield store


def rows(path: Path) -> Content:
    with opened(path) as backup:
        return {row.key: row.value for row in backup.head_bucket(b"").rows()}


def test_a_second_update_that_is_cut_short_leaves_the_ledger_that_was_to_come_of_the_first(
    tmp_path: Path,
) -> None:
    with head_only_store_and_backup(tmp_path) as store:
        cut_between_the_manifests(store, tmp_path / "b")
        cut_short(store, tmp_path / "b")
        assert rows(tmp_path / "b") == NEW_ROWS


@pytest.mark.parametrize("times", [1, 2])
def test_updates_that_are_cut_short_before_they_write_a_manifest_leave_what_the_first_one_wrote(
    tmp_path: Path, times: int
) -> None:
    with head_only_store_and_backup(tmp_path) as store:
        cut_between_the_manifests(store, tmp_path / "b")
        for _ in range(times):
            store.head_bucket(b"").put(b"later", b"")
            cut_between_the_manifests(store, tmp_path / "b", before="journal")
        with octavo.open(tmp_path / "b", read_only=True) as found:
            assert {row.key: row.value for row in found.head_bucket(b"").rows()} == NEW_ROWS
        octavo.restore(tmp_path / "b", tmp_path / "r")
        assert rows(tmp_path / "r") == NEW_ROWS
        assert rows(tmp_path / "b") == NEW_ROWS


@pytest.mark.parametrize(
    "work", [offline._merge, offline_journal.compacted, partial(offline._rebuild, merge=True)]
)
def test_work_on_a_closed_backup_does_not_take_the_ledger_that_was_to_come(
    tmp_path: Path, work: Callable[..., object]
) -> None:
    with head_only_store_and_backup(tmp_path) as store:
        cut_between_the_manifests(store, tmp_path / "b")
    with pytest.raises(octavo.Corruption, match="open it once") as told:
        work(RealDisk, str(tmp_path / "b"), offline.Run())
    assert told.value.file.endswith(UPDATING)
    assert rows(tmp_path / "b") == NEW_ROWS
    with suppress(octavo.Misuse):  # of a head-only store
        work(RealDisk, str(tmp_path / "b"), offline.Run())
