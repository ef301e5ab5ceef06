"""What others make in a user's store does not keep that user from going on with it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import octavo
import octavo.files.jobs.table  # as the worker does, which may not be able to run

OWNER, COLLEAGUE, GROUP = 4001, 4002, 5000


@pytest.fixture
def place() -> Iterator[Path]:
    """A store's directory, of OWNER and for the GROUP, that other users can reach."""
    if os.geteuid():
        pytest.skip("NOT RUN: being several users needs root")
    above = Path(tempfile.mkdtemp(prefix="octavo-users-", dir="/var/tmp"))  # TMPDIR may be private
    above.chmod(0o755)
    used(above / "first")  # loads what is loaded later: users may not be allowed to read the tree
    there = above / "s"
    with octavo.open(there) as store:
        store.put_many((f"{n:04}", b"%d" % n * 50) for n in range(2000))
    for each in [there, *there.rglob("*")]:
        os.chown(each, OWNER, GROUP)
        each.chmod(0o2775 if each.is_dir() else 0o664)
    yield there
    shutil.rmtree(above)


@contextmanager
def being(user: int) -> Iterator[None]:
    """As a user whose files others may only read."""
    before, groups = os.umask(0o022), os.getgroups()
    os.setgroups([GROUP])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
        os.umask(before)


def used(path: Path) -> None:
    """Make all that a store is made of."""
    with octavo.open(path, waste_retention_seconds=3600) as store:
        store.put_many((f"{n:04}", b"new %d" % n) for n in range(2000))
        store.compact()
        store.consumer("c").acknowledge(store.last_sqn)
        store.put("last", b"1")
    with octavo.open(path) as store, octavo.open(path, read_only=True) as reader:
        assert reader["last"] == store["last"]
        store.snapshot().publish()


def test_what_root_makes_in_a_users_store_is_that_users(place: Path) -> None:
    shutil.rmtree(place / "ledger")
    used(place)
    assert {each.stat().st_uid for each in place.rglob("*")} == {OWNER}


def test_what_one_of_its_group_makes_in_a_store_the_group_may_write(place: Path) -> None:
    with being(COLLEAGUE):
        used(place)
    found = [(each, each.stat()) for each in place.rglob("*")]
    assert {each.st_gid for _, each in found} == {GROUP}
    assert not [path for path, each in found if not each.st_mode & stat.S_IWGRP]
    with being(OWNER):
        used(place)


def test_what_reads_a_store_leaves_its_owner_free_to_publish(place: Path) -> None:
    with octavo.open(place, read_only=True):
        pass
    with being(OWNER), octavo.open(place) as store:
        assert store.snapshot().publish()


def test_what_one_of_its_group_asks_the_owner_does(place: Path) -> None:
    with octavo.open(place) as store:
        asked = f"octavo.acknowledge({str(place)!r}, 'c', 7, timeout_seconds=60)"
        ask = f"import octavo; print({asked})"
        done = subprocess.run([sys.executable, "-c", ask], capture_output=True, check=False)
        assert done.stdout.strip() == b"7", done.stderr
        assert store.consumers() == {"c": 7}
    assert (place / "inbox").stat().st_uid == OWNER


def test_what_only_its_owner_may_change_stays_so(place: Path) -> None:
    for each in [place, *place.rglob("*")]:
        each.chmod(0o755 if each.is_dir() else 0o644)
    with being(OWNER):
        used(place)
    used(place)
    assert not [each for each in place.rglob("*") if each.stat().st_mode & stat.S_IWGRP]


def test_a_store_is_destroyed_by_who_may_not_remove_its_directory(place: Path) -> None:
    with being(OWNER):
        octavo.destroy(place)
    assert list(place.iterdir()) == []
