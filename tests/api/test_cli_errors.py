"""The command line: exit codes, interruptions, and outputs that end early."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import TIMEOUT_SECONDS, command, document, octavo, output, process

import octavo as library
from octavo.cli.output import Output

READING = [
    ("get", "key"), ("head", "key"), ("del", "key"), ("scan",), ("buckets",), ("stats",),
    ("verify",), ("dump",), ("changes",), ("snapshot",),
]  # fmt: skip
WRITING = [("put", "key", "value"), ("load", os.path.dirname(__file__))]
OF_AN_OWNER = [("stats", "--prometheus"), ("stats", "--score")]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with library.open(path) as opened:
        opened.put_many((b"key %05d" % n, b"value" * 50) for n in range(2000))
    return path


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_reading_where_there_is_no_store_ends_with_2_and_makes_nothing(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    name, *rest = words
    missing = tmp_path / "missing"
    assert "missing" in octavo(name, missing, *rest, code=2).stderr
    assert not missing.exists()
    (tmp_path / "empty").mkdir()
    octavo(name, tmp_path / "empty", *rest, code=2)
    assert os.listdir(tmp_path / "empty") == []


ALONE = ("del",)
"""Commands of these that want the store to themselves."""


@pytest.mark.parametrize(
    "words", [w for w in READING if w[0] not in ALONE], ids=lambda words: words[0]
)
def test_a_store_that_is_open_elsewhere_is_read_beside_its_owner(
    store: Path, words: tuple[str, ...]
) -> None:
    name, *rest = words
    code = int(name in ("get", "head"))  # for there is no such key
    alone = octavo(name, store, *rest, code=code).stdout
    with library.open(store):
        beside = octavo(name, store, *rest, code=code).stdout
    if name not in ("snapshot", "stats", "verify"):  # which tell their moment
        assert beside == alone


@pytest.mark.parametrize(
    "words", [w for w in READING if w[0] in ALONE] + WRITING + OF_AN_OWNER, ids=" ".join,
)  # fmt: skip
def test_a_store_that_is_open_elsewhere_ends_with_3(store: Path, words: tuple[str, ...]) -> None:
    name, *rest = words
    with library.open(store):
        found = octavo(name, store, *rest, code=3)
    assert found.stdout == ""
    assert found.stderr.startswith("octavo: ")
    assert "read_only=True" not in found.stderr  # of which the command line knows nothing
    assert "`scan`" in found.stderr


def test_a_store_of_an_unknown_format_ends_with_4(store: Path) -> None:
    identity = store / "OCTAVO"
    identity.write_text(identity.read_text().replace('"format": 1', '"format": 99'))
    assert "99" in octavo("stats", store, code=4).stderr


def test_damage_in_a_value_is_found_and_never_printed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    mark = b"a value that is about to be damaged"
    with library.open(store) as opened:
        opened.put_many((b"%d" % n, b"whole %d" % n) for n in range(100))
        opened.put(b"victim", mark)
        opened.put_many((b"%d" % n, b"whole %d" % n) for n in range(100, 200))
    damaged = 0
    for file in store.rglob("*"):
        if file.is_file() and mark in (held := file.read_bytes()):
            file.write_bytes(held.replace(mark, mark.replace(b"damaged", b"dbmaged")))
            damaged += 1
    assert damaged == 1
    told = process("verify", store)
    assert told.returncode == 1 or b"damage" in told.stderr
    found = process("get", store, "victim")
    assert found.returncode in (1, 4)
    assert found.stdout == b""
    assert b"Traceback" not in found.stderr
    assert output("get", store, "150") == b"whole 150"


def test_help_documents_the_exit_codes() -> None:
    text = octavo("--help").stdout
    for code in (0, 1, 2, 3, 4, 130):
        assert re.search(rf"^ +{code}  ", text, re.MULTILINE)


def test_help_says_what_each_command_does_in_full() -> None:
    commands = octavo("--help").stdout.partition("Commands:\n")[2].splitlines()
    assert len(commands) > 20
    assert [line for line in commands if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("words", [*READING, *WRITING, ("demo",)], ids=lambda words: words[0])
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    assert len(octavo(words[0], "--help").stdout.splitlines()) > 5


def test_a_reader_that_leaves_early_ends_it_quietly(store: Path) -> None:
    with subprocess.Popen(
        command("scan", store), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        told = running.stderr.read()
        assert running.wait(TIMEOUT_SECONDS) == 141
    assert told == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_without_room_ends_with_4(store: Path, unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        found = subprocess.run(
            command("scan", store), stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert found.returncode == 4
    assert b"No space left" in found.stderr
    assert b"Traceback" not in found.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_page_of_help_without_room_ends_with_4(unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        found = subprocess.run(
            command("--help"), stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert found.returncode == 4
    assert b"No space left" in found.stderr
    assert b"bug" not in found.stderr


@pytest.mark.parametrize("words", [("--help",), ("get", "--help")], ids=lambda words: words[0])
def test_a_page_of_help_that_nobody_reads_ends_quietly(words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        found = subprocess.run(
            command(*words), stdout=nobody, stderr=subprocess.PIPE, timeout=TIMEOUT_SECONDS
        )
    assert (found.returncode, found.stderr) == (141, b"")


def shell(line: str, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """A command of octavo's behind which a shell closes descriptors."""
    return subprocess.run(
        ["sh", "-c", line, *command(*words)], capture_output=True, timeout=TIMEOUT_SECONDS
    )


@pytest.mark.parametrize("words", [("scan",), ("put", "key", "value"), ("stats",), ("dump",)])
def test_a_closed_output_is_told_before_anything_is_done(
    store: Path, words: tuple[str, ...]
) -> None:
    name, *rest = words
    found = shell('exec "$0" "$@" >&-', name, store, *rest)
    assert found.returncode == 4
    assert found.stderr == b"octavo: standard output: is closed\n"
    with library.open(store) as opened:
        assert opened.last_sqn == 2000


def test_a_closed_input_is_told(store: Path) -> None:
    found = shell('exec "$0" "$@" <&-', "put", store, "key", "-")
    assert found.returncode == 4
    assert found.stderr == b"octavo: standard input: is closed\n"


def test_where_messages_go_nowhere_the_command_works(store: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(b"value")
    found = shell('exec "$0" "$@" 2>&-', "load", store, tmp_path / "in", "--json")
    assert found.returncode == 0
    assert b'"loaded": 1' in found.stdout


NINES = "9" * 5000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("scan", "STORE", "--since", NINES), "--since='999"),
        (("scan", "STORE", "--limit", "9" * 30), "--limit"),
        (("changes", "STORE", "--limit", "9" * 30), "--limit"),
        (("index", "STORE", "f", "--limit", "9" * 30), "--limit"),
        (("snapshot", "STORE", "--depth", "9" * 30), "--depth"),
        (("put", "STORE", "k", "v", "--index", f"f:int={NINES}"), "--index f:int='999"),
        (("put", "STORE", "k", "v", "--index", NINES), "--index='999"),
        (("index", "STORE", "f", "--int", "--end", "x"), "--end='x'"),
        (("put", "STORE", "k", "v", "--ttl", "1e10"), "--ttl=10000000000.0: "),
        (("put", "STORE", "k", "v", "--bucket", "b" * 65536), "bucket name of 65536 bytes"),
        (("put", ":memory:", "k", "v"), "PATH=':memory:'"),
        (("scan", "STORE", "--resume", "x"), "--resume='x'"),
        (("scan", "STORE", "--match", "("), "--match=b'('"),
        (("restore", "STORE", "/"), "PATH='/' "),
        (("load", "STORE", "-", "--format", "csv", "--delimiter", "\n"), "--delimiter"),
        (("load", "STORE", "-", "--format", "csv", "--delimiter", '"'), "--delimiter"),
        (("dump", "STORE", "-o", "missing/d.csv"), "FILE='missing/d.csv' cannot be used"),
        (("dump", "STORE", "-o", "/"), "FILE='/' is a directory"),
        (("inspect", "STORE", "--html", "missing/p"), "FILE='missing/p' cannot be used"),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else value[0],
)
def test_an_argument_that_cannot_be_is_named_in_short(
    store: Path, words: tuple[str, ...], said: str
) -> None:
    told = octavo(*(store if word == "STORE" else word for word in words), code=2).stderr
    assert said in told
    assert len(told) < 600


def test_as_many_as_can_be_counted_is_a_limit(store: Path) -> None:
    most = str((1 << 63) - 1)
    assert len(output("changes", store, "--limit", most).splitlines()) == 2000
    assert octavo("snapshot", store, "--depth", most, "--bucket", "none").stdout


def interrupted(running: subprocess.Popen[bytes]) -> bytes:
    """Ctrl-C, and what the program says then on standard error. Another one only where the first
    met a callback of its interpreter, which swallows it: that one waits for its input for ever."""
    assert running.stderr is not None
    for _ in range(5):
        running.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(120)
            break
    told = running.stderr.read()
    return b"interrupted" if b"Exception ignored" in told else told


def test_an_interrupted_load_ends_with_130_and_keeps_what_it_loaded(tmp_path: Path) -> None:
    store = tmp_path / "store"
    lines = [b'{"key": "%06d", "value": "%s"}\n' % (n, b"v" * 100) for n in range(10_000)]
    with subprocess.Popen(
        command("load", store, "-", "--format", "jsonl"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stdin is not None
        assert running.stderr is not None
        # More than a pipe holds: when this returns, the first lines are loaded.
        running.stdin.write(b"".join(lines))
        running.stdin.flush()
        told = interrupted(running)
        assert running.wait(TIMEOUT_SECONDS) == 130
    assert b"interrupted" in told
    assert b"Traceback" not in told
    found = document("snapshot", store, "--json")
    assert 1000 <= found["keys"] <= len(lines)
    octavo("verify", store)


def test_the_output_is_utf8_in_any_locale(tmp_path: Path) -> None:
    store = tmp_path / "store"
    octavo("put", store, "clé", "à part")
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = process("scan", store, env=plain)
    assert found.stdout == "clé\tà part\n".encode()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_an_index_entry_is_of_the_very_bytes_of_its_argument(tmp_path: Path, locale: str) -> None:
    store = tmp_path / "s"
    env = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ("--index", b"f\xff=\xc3\xa9", "--index", b"f\xff=\xff")
    assert process("put", store, "k", "v", *words, env=env).returncode == 0
    with library.open(store) as opened:
        assert opened.index_of("k") == {b"f\xff": [b"\xff", "é"]}
    for term, shown in ((b"\xff", b"\\xff"), (b"\xc3\xa9", b"\xc3\xa9")):
        found = process("index", store, b"f\xff", "--term", term, env=env)
        assert found.stdout == shown + b"\tk\n"


def test_who_asks_for_a_number_as_text_is_told_how(tmp_path: Path) -> None:
    store = tmp_path / "s"
    octavo("put", store, "k", "v", "--index", "f:int=7", "--bucket", "b")
    for words in (("--term", "7"), ("--start", "6"), ("--end", "8")):
        told = octavo("index", store, "f", "--bucket", "b", *words).stderr
        assert told == "octavo: nothing found among terms of str (numbers: --int)\n"
        assert output("index", store, "f", "--bucket", "b", "--int", *words) == b"7\tk\n"
    assert octavo("index", store, "f", "--bucket", "b", "--int", "--term", "8").stderr == ""


def test_no_term_and_no_file_name_steers_a_terminal(tmp_path: Path) -> None:
    store, folder = tmp_path / "s", tmp_path / "in"
    octavo("put", store, "k", "v", "--index", "f=\x1b[2J\n\\")
    assert output("index", store, "f") == b"\\x1b[2J\\n\\\\\tk\n"
    folder.mkdir()
    (folder / "\x1b[2J\n").write_bytes(b"")
    with open(folder / "\x1b[2J\n", "rb+") as file:
        file.truncate(1 << 33)  # too large for a value
    told = octavo("load", store, folder, code=1).stderr
    assert f"not loaded: {folder}/\\x1b[2J\\n: " in told


def test_a_relative_path_without_a_working_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    for words in (("put", "s", "k", "v"), ("load", "s", str(tmp_path)), ("verify", "s")):
        found = subprocess.run(
            ["sh", "-c", 'cd "$1" && mkdir here && cd here && rmdir ../here && shift && "$@"',
             "sh", tmp_path / "gone", *command(*words)],
            capture_output=True, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        assert found.returncode == 2
        named = b"there is no store at s" if words[0] == "verify" else b"='s' is relative, and"
        assert named in found.stderr


def test_a_key_that_is_not_utf8_can_be_an_argument(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert process("put", store, b"\xff\xfe", b"\x80").returncode == 0
    assert process("get", store, b"\xff\xfe").stdout == b"\x80"
    assert output("scan", store) == b"\\xff\\xfe\t\\x80\n"


@pytest.mark.parametrize("words", [("verify",), ("dump",), ("load", os.path.dirname(__file__))])
def test_no_progress_is_shown_where_no_terminal_is(store: Path, words: tuple[str, ...]) -> None:
    name, *rest = words
    assert process(name, store, *rest).stderr == b""


def test_progress_is_shown_on_a_terminal(store: Path, tmp_path: Path) -> None:
    outer, inner = pty.openpty()
    with subprocess.Popen(
        command("load", store, os.path.dirname(__file__)),
        stdout=subprocess.PIPE, stderr=inner, env=os.environ | {"TERM": "xterm"},
    ) as done:  # fmt: skip
        os.close(inner)
        shown = b""
        with contextlib.suppress(OSError):  # EIO is how a terminal ends
            while part := os.read(outer, 1 << 16):  # a slow machine shows more than it holds
                shown += part
        os.close(outer)
        assert done.stdout is not None
        said = done.stdout.read()
    assert done.returncode == 0
    assert b"loading" in shown
    assert b"\x1b" not in said


def test_a_store_is_not_loaded_with_its_own_files(store: Path) -> None:
    (store.parent / "link").symlink_to(store)
    for source in (store, store / "journal", store / "OCTAVO", store.parent / "link"):
        words = ("--format", "csv") if source.name == "OCTAVO" else ()
        assert "is the store, or inside it" in octavo("load", store, source, *words, code=2).stderr
    (store.parent / "file").write_bytes(b"mine")
    octavo("load", store, store.parent)  # which holds it: it is left out
    with library.open(store) as opened:
        assert list(opened.keys(end="key")) == [b"file"]


def test_where_there_is_no_store_nobody_is_asked_whether_to_remove_it(tmp_path: Path) -> None:
    told = octavo("destroy", tmp_path / "missing", code=2)
    assert "there is no store" in told.stderr
    assert "[y/N]" not in told.stderr


FAILED_DISK = """
import errno, os
import octavo.cli.commands
look = os.lstat

def failed(path, *args, **given):
    if os.path.basename(path) == "OCTAVO":
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    return look(path, *args, **given)

os.lstat = failed
octavo.cli.commands.main()
"""


@pytest.mark.parametrize("words", [("get", "key"), ("verify",), ("destroy", "--yes")])
def test_a_disk_that_fails_is_no_missing_store(store: Path, words: tuple[str, ...]) -> None:
    """XFS answers so to every look, once it has shut down."""
    call = [sys.executable, "-c", FAILED_DISK, words[0], store, *words[1:]]
    found = subprocess.run(call, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    assert found.returncode == 4, found.stderr
    assert b"Input/output error" in found.stderr
    assert b"there is no store" not in found.stderr


INTERRUPTED_IN_PANDAS = """
import os, signal, sys
import octavo.cli.commands

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas._libs.tslibs":
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
octavo.cli.commands.main()
"""


def test_a_dump_that_is_interrupted_as_arrow_loads_pandas_is_no_bug(
    store: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pandas")
    command = [sys.executable, "-c", INTERRUPTED_IN_PANDAS, "dump", store]
    found = subprocess.run(
        [*command, "-o", tmp_path / "all.parquet"], capture_output=True, timeout=TIMEOUT_SECONDS
    )
    assert found.returncode == 130, found.stderr
    assert found.stderr == b"octavo: interrupted; acknowledged writes are kept\n"
    assert not list(tmp_path.glob("all.parquet*"))


INTERRUPTED_AS_IT_LOADS = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
import runpy
runpy.run_module("octavo", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "module", ["octavo.cli.commands", "click", "octavo.cli.read", "octavo.cli.write"]
)
def test_an_interrupt_as_the_command_is_loaded_ends_it_with_130_and_says_nothing(
    module: str,
) -> None:
    command = [sys.executable, "-c", INTERRUPTED_AS_IT_LOADS, "get", "nothing", module]
    found = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS)
    assert (found.returncode, found.stdout, found.stderr) == (130, b"", b"")


def test_an_answer_that_is_no_text_removes_nothing(store: Path) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    found = process("destroy", store, stdin=b"\xff\xfe\n", env=env)
    # click before 8.2.2 prints a blank where a question is not answered.
    assert (found.returncode, found.stdout.strip()) == (1, b"")
    assert found.stderr.endswith(b"octavo: nothing was removed\n")


def test_an_output_that_takes_little_at_a_time_is_given_all() -> None:
    """As an unbuffered standard output is: no more than 2 GiB a call, less on a full disk."""

    class Slow(io.RawIOBase):
        taken = b""

        def write(self, raw: object) -> int:
            some = bytes(raw)[:1000]  # type: ignore[call-overload]
            self.taken += some
            return len(some)

    stream, value = Slow(), bytes(range(256)) * 20
    Output(stream).write(value)  # type: ignore[arg-type]
    assert stream.taken == value
