"""What the command reads of standard input: no more than it needs, and none without an end."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cli_runs import TIMEOUT_SECONDS

import octavo
from octavo.cli.options import one_key
from octavo.notation import to_text

_WITHOUT_END = """
import resource, sys
from octavo import arguments
from octavo.cli import source
from octavo.cli.commands import main

arguments.MAX_VALUE_BYTES = 4 << 20
source.LONGEST_LINE = 5_000_000
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
sys.argv = ["octavo", *sys.argv[1:]]
main()
"""


def _without_end(*words: str) -> subprocess.CompletedProcess[bytes]:
    with open("/dev/zero", "rb") as zeros:
        return subprocess.run(
            [sys.executable, "-c", _WITHOUT_END, *words],
            stdin=zeros, capture_output=True, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip


@pytest.mark.parametrize("words", [["-"], ["--hex", "-"], ["--file", "/dev/zero"]])
def test_what_has_no_end_is_refused_as_soon_as_it_is_longer_than_a_value(
    tmp_path: Path, words: list[str]
) -> None:
    done = _without_end("put", str(tmp_path / "s"), "k", *words)
    assert (done.returncode, b"value of more than 4194304 bytes" in done.stderr) == (2, True)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("command", ["get", "head", "del"])
def test_a_key_without_an_end_is_refused_as_soon_as_it_is_too_long(
    tmp_path: Path, command: str
) -> None:
    octavo.open(tmp_path / "s").close()
    done = _without_end(command, str(tmp_path / "s"), "-")
    assert (done.returncode, b"KEY of more than 65536 bytes" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("kind", "begins"),
    [
        ("jsonl", b""),
        ("jsonl", b'{"key": "a", "value": "A"}\n'),
        ("csv", b""),
        ("csv", b"name,text\na,A\n"),
        ("csv", b'name,text\na,A\nb,"\n'),  # whose rows are of many lines
    ],
)
def test_a_line_without_an_end_is_refused_by_number_as_soon_as_it_is_too_long(
    tmp_path: Path, kind: str, begins: bytes
) -> None:
    path = tmp_path / "s"
    words = ["load", str(path), "-", "--format", kind, "--skip-bad"]
    with subprocess.Popen(
        [sys.executable, "-c", _WITHOUT_END, *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stdin is not None
        try:
            running.stdin.write(begins)
            while True:
                running.stdin.write((b"x" * 99_999 + b"\n") if b'"\n' in begins else b"x" * 100_000)
        except BrokenPipeError:
            pass
        with suppress(BrokenPipeError):
            running.stdin.close()
        running.stdin = None
        _, told = running.communicate(timeout=TIMEOUT_SECONDS)
    assert running.returncode == 1, told
    number = 1 + begins.count(b"\n") - (b'"\n' in begins)
    assert f"standard input, line {number}: more than 5000000 bytes without an end".encode() in told
    with octavo.open(path) as store:
        assert list(store) == ([b"a"] if b"A" in begins else [])


class _Lines(io.BytesIO):
    """Of which the third line is asked for by nobody."""

    asked = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        self.asked += 1
        assert self.asked <= 2
        return super().readline(size)


def test_of_many_keys_where_one_is_allowed_two_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.cli.options.stdin", lambda: _Lines(b"a\nb\nc\n"))
    with pytest.raises(octavo.Misuse, match="more than one line: allowed is one line"):
        one_key("-", hexadecimal=False)
    monkeypatch.setattr("octavo.cli.options.stdin", _Lines)
    with pytest.raises(octavo.Misuse, match="holds nothing: allowed is one line"):
        one_key("-", hexadecimal=False)


@pytest.mark.parametrize("hexadecimal", [False, True])
def test_the_longest_key_is_one_that_can_be_read(
    monkeypatch: pytest.MonkeyPatch, hexadecimal: bool
) -> None:
    key = bytes(range(256)) * 256
    line = key.hex(" ") if hexadecimal else to_text(key)
    for end in ("", "\n"):
        monkeypatch.setattr(
            "octavo.cli.options.stdin", lambda end=end: io.BytesIO(f"{line}{end}".encode())
        )
        assert one_key("-", hexadecimal=hexadecimal) == key
