"""The command line where what it has to say can not be said: exit codes tell it all the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_runs import TIMEOUT_SECONDS, command

import octavo as library


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with library.open(path) as opened:
        opened.put_many((b"key %d" % n, b"value") for n in range(5))
    return path


def on_a_full_disk(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """A command whose messages go to a file for which there is no room."""
    with open("/dev/full", "wb") as full:
        return subprocess.run(
            command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=full,
            timeout=TIMEOUT_SECONDS,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("get", "STORE", "none"), 1),
        (("get", "NOWHERE", "key"), 2),
        (("get", "STORE"), 4),
        (("destroy", "STORE"), 4),
        (("snapshot", "STORE", "--get", "key 1"), 0),
    ],
)
def test_it_ends_with_a_code_of_its_own_where_there_is_no_room_for_messages(
    store: Path, words: tuple[str, ...], code: int
) -> None:
    paths = {"STORE": store, "NOWHERE": store.parent / "nowhere"}
    assert on_a_full_disk(*(paths.get(word, word) for word in words)).returncode == code


def test_who_has_the_store_is_told_by_the_code_where_there_is_no_room_for_messages(
    store: Path,
) -> None:
    with library.open(store):
        assert on_a_full_disk("put", store, "key", "value").returncode == 3


def test_keys_are_deleted_whether_or_not_there_is_room_to_say_which_are_absent(
    store: Path,
) -> None:
    found = on_a_full_disk("del", store, "none", "key 1", "nothing", "key 2")
    assert (found.returncode, found.stdout) == (1, b"2\n")
    with library.open(store) as opened:
        assert list(opened) == [b"key 0", b"key 3", b"key 4"]


def test_nobody_agrees_through_a_closed_input(store: Path) -> None:
    found = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" <&-', *command("destroy", store)],
        capture_output=True, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    assert found.returncode == 4
    assert found.stderr == b"octavo: standard input: is closed\n"
    assert store.is_dir()
