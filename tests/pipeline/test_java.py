"""Where there is no Java: it is installed if that may be, else the error says what to install; and
what needs no Spark works."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from cli_runs import process

from octavo.files.errors import Misuse
from octavo.pipeline import java


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH; this is root."""
    made = tmp_path / "bin"
    made.mkdir()
    monkeypatch.setenv("PATH", str(made))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return made


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def a_java(version: str) -> str:
    return f"echo 'openjdk version \"{version}\"' >&2"


def an_installer(programs: Path, has: str, version: str = "21.0.2") -> str:
    """A package manager that has one package, which brings a java."""
    made = programs.parent / "java"
    program(made, a_java(version))
    return (
        f'echo "$0 $*" >>"{programs}/ran"\n'
        f'case "$*" in *{has}*) /bin/cp -p "{made}" "{programs}/java";;\n'
        "*install*) echo no such package >&2; exit 100;; esac"
    )


@pytest.mark.parametrize(("told", "major"), [("17.0.19", 17), ("1.8.0_392", 8), ("25", 25)])
def test_the_version_is_read(programs: Path, told: str, major: int) -> None:
    program(programs / "java", a_java(told))
    assert java.java_version() == major


def test_one_that_is_there_is_not_installed(programs: Path) -> None:
    program(programs / "java", a_java("17.0.1"))
    program(programs / "apt-get", an_installer(programs, "openjdk"))
    java.have_java(pytest.fail)
    assert not (programs / "ran").exists()


def test_the_first_package_that_there_is_gets_installed(programs: Path) -> None:
    program(programs / "apt-get", an_installer(programs, "openjdk-21"))
    told: list[str] = []
    java.have_java(told.append)
    ran = [line.split("/")[-1] for line in (programs / "ran").read_text().splitlines()]
    assert ran[0] == "apt-get update -q"
    assert ran[1].endswith(" openjdk-17-jre-headless")
    assert ran[2].endswith(" openjdk-21-jre-headless")
    assert len(ran) == 3
    assert any("no such package" in text for text in told)


def test_one_that_is_too_old_is_replaced(programs: Path) -> None:
    program(programs / "java", a_java("11.0.2"))
    program(programs / "apk", an_installer(programs, "openjdk17"))
    java.have_java(lambda _: None)
    assert java.java_version() == 21


def test_who_is_not_root_is_told_what_to_install(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(programs / "apt-get", an_installer(programs, "openjdk"))
    with pytest.raises(Misuse, match=r"none here\. Spark needs Java 17 .* apt-get install openjdk"):
        java.have_java(pytest.fail)
    assert not (programs / "ran").exists()


def test_an_installer_that_fails_ends_in_what_to_install(programs: Path) -> None:
    program(programs / "dnf", "echo no network >&2; exit 1")
    told: list[str] = []
    with pytest.raises(Misuse, match="dnf install java-17-openjdk-headless"):
        java.have_java(told.append)
    assert "no network" in told


def test_a_java_home_is_not_gone_past(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = programs.parent / "old"
    (home / "bin").mkdir(parents=True)
    program(home / "bin" / "java", a_java("1.8.0_1"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    program(programs / "java", a_java("21"))
    program(programs / "apt-get", an_installer(programs, "openjdk"))
    with pytest.raises(Misuse, match=rf"JAVA_HOME={home} is Java 8\. Spark needs"):
        java.have_java(pytest.fail)
    assert not (programs / "ran").exists()


def test_everything_else_works_without_java(tmp_path: Path) -> None:
    bare = {
        name: value for name, value in os.environ.items() if name not in ("PATH", "JAVA_HOME")
    } | {"PATH": str(tmp_path)}
    store = tmp_path / "s"
    for words in (
        ["put", store, "k", "v"], ["verify", store], ["scan", store],
        ["backup", store, tmp_path / "b"],
    ):  # fmt: skip
        done = process(*words, env=bare)
        assert done.returncode == 0, done.stderr
    assert process("get", store, "k", env=bare).stdout == b"v"


def test_the_pipeline_without_java_says_what_to_install(tmp_path: Path) -> None:
    bare = dict(os.environ) | {"PATH": str(tmp_path)}
    bare.pop("JAVA_HOME", None)
    done = process("pipeline", tmp_path, env=bare)
    assert done.returncode == 2
    assert b"there is none here. Spark needs Java 17 or newer" in done.stderr
    assert sys.executable.encode() not in done.stderr  # a message, no traceback
