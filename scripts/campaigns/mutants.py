#!/usr/bin/env python3
"""Takes one fsync, check, bound, lock or lease out of a copy of the tree; its test must fail.

    scripts/campaign mutants                            one after the other, again and again
    python scripts/campaigns/mutants.py                 all of them, and a table
    python scripts/campaigns/mutants.py fsync lease     those with one of these words in their name
    python scripts/campaigns/mutants.py --check         only that the list is up to date
    python scripts/campaigns/mutants.py --results FILE  continue where an earlier run with it ended
    python scripts/campaigns/mutants.py --search "tests/crash tests/files"   for a survivor: which
                                                        test of these notices?

Exit code 1: a mutant survives (its test must be mended), a text no longer stands exactly once in
its file, or a test fails without any mutant. The list is mutants.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = ("actors", "api", "files", "manifest", "pipeline", "tests", "scripts", "docs")
TIMEOUT_SECONDS = 600
SHORTEST_TIMEOUT_SECONDS = 60
MOST_BYTES = 4 << 30


class Mutant(NamedTuple):
    """One thing that is taken away."""

    what: str
    """The guard in words, or what holds while it is there; no two alike."""
    file: str
    text: str
    instead: str
    test: str


def listed() -> list[Mutant]:
    """The list."""
    with open(Path(__file__).with_suffix(".toml"), "rb") as file:
        return [Mutant(**row) for row in tomllib.load(file)["mutant"]]


ALL: Sequence[Mutant] = listed()


class Run(NamedTuple):
    """What pytest said."""

    code: int
    """1: a test failed; 0: all passed; -1: no end; anything else: pytest itself failed."""
    failed: str
    """The first test that did."""
    seconds: float


def _bounded() -> None:
    """Limit memory: a mutant without its bound must not take all of the machine's."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


class Scratch:
    """A copy of the tree that may be changed."""

    def __init__(self, home: Path) -> None:
        self.root = home / "octavo"
        self.root.mkdir()
        without = shutil.ignore_patterns("__pycache__", ".*cache", ".venv", ".types", "golden.tmp")
        for name in ROOMS:
            if (ROOT / name).exists():
                shutil.copytree(ROOT / name, self.root / name, ignore=without)
        for path in ROOT.iterdir():
            if path.is_file() and path.name != ".git":
                shutil.copy2(path, self.root / path.name)
        subprocess.run([self.root / "scripts/link-types"], check=True)
        self.temporary = home / "tmp"

    def run(self, tests: Sequence[str], timeout: float = TIMEOUT_SECONDS) -> Run:
        """Have pytest run these, up to the first failure."""
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir()
        # Python tells by time and size whether bytecode is of a source, and mutants come quickly.
        told = {**os.environ, "PYTHONPATH": str(self.root / ".types")}
        told |= {"PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self.temporary)}
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
             "--tb=line", "-rfE", *tests],
            cwd=self.root, env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="backslashreplace", start_new_session=True, preexec_fn=_bounded,
        )  # fmt: skip
        try:
            out, _ = process.communicate(timeout=timeout)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, _ = process.communicate()
            code = -1
        seconds = time.monotonic() - began
        words = [line.split()[1] for line in out.splitlines() if line.startswith("FAILED ")]
        errors = [line.split()[1] for line in out.splitlines() if line.startswith("ERROR ")]
        if code == 1 and not words:
            code = 2 if not errors or "::" not in errors[0] else 1
        if code not in (0, 1, -1):
            print(out[-2000:], file=sys.stderr)
        return Run(code, (words or errors or [""])[0], seconds)

    def mutated(self, mutant: Mutant, tests: Sequence[str], timeout: float) -> Run:
        """The same, with something removed; it is put back."""
        path = self.root / mutant.file
        whole = path.read_text()
        path.write_text(whole.replace(mutant.text, mutant.instead, 1))
        try:
            return self.run(tests, timeout)
        finally:
            path.write_text(whole)


# ---------------------------------------------------------------- is the list up to date?


def line_of(mutant: Mutant) -> int:
    """Where the text stands in its file; 0 where it does not stand there exactly once."""
    path = ROOT / mutant.file
    whole = path.read_text() if path.exists() else ""
    if whole.count(mutant.text) != 1:
        return 0
    lead = len(mutant.text) - len(mutant.text.lstrip())
    return whole[: whole.index(mutant.text) + lead].count("\n") + 1


def faults(mutants: Sequence[Mutant] = ALL) -> list[str]:
    """What is wrong with the list."""
    found = []
    if len({mutant.what for mutant in mutants}) != len(mutants):
        found.append("two mutants of one name")
    for mutant in mutants:
        path = ROOT / mutant.file
        count = path.read_text().count(mutant.text) if path.exists() else 0
        if count != 1:
            found.append(f"{mutant.what}: its text stands {count} times in {mutant.file}")
            continue
        changed = path.read_text().replace(mutant.text, mutant.instead)
        try:
            compile(changed, mutant.file, "exec")
        except SyntaxError as wrong:
            found.append(f"{mutant.what}: {mutant.file} would not be Python: {wrong}")
        file, _, name = mutant.test.partition("::")
        test = ROOT / file
        if not test.exists():
            found.append(f"{mutant.what}: there is no {file}")
        elif name and f"def {name.partition('[')[0]}(" not in test.read_text():
            found.append(f"{mutant.what}: there is no {name} in {file}")
    return found


# ---------------------------------------------------------------- the campaign


def chosen(words: Sequence[str]) -> list[Mutant]:
    """Those with one of the words in what they remove or where; all, where there is none."""
    return [
        mutant
        for mutant in ALL
        if not words or any(word in f"{mutant.what} {mutant.file}" for word in words)
    ]


def kept(path: Path | None) -> dict[str, dict[str, object]]:
    """Results of an earlier run, by mutant; what has changed since does not count."""
    if path is None or not path.exists():
        return {}
    told: dict[str, dict[str, object]] = json.loads(path.read_text())
    now = {mutant.what: list(mutant) for mutant in ALL}
    return {what: row for what, row in told.items() if row.get("mutant") == now.get(what)}


def said(run: Run) -> str:
    """How it went, in a word."""
    return {0: "SURVIVED", 1: "caught", -1: "no end"}.get(run.code, f"pytest: {run.code}")


def campaign(mutants: Sequence[Mutant], results: Path | None, search: Sequence[str]) -> int:
    """Run them all; returns how many were not caught."""
    done = kept(results)
    usual: dict[str, float] = {}
    bad = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="octavo-mutants-") as home:
        scratch = Scratch(Path(home))
        for number, mutant in enumerate(mutants, 1):
            tests = list(search) or [mutant.test]
            if not search and mutant.what in done:
                row = done[mutant.what]
                print(f"{number:3} {row['how']:8} {row['seconds']:6}s  {mutant.what}  (earlier)")
                bad += row["how"] != "caught"
                continue
            key = " ".join(tests)
            if key not in usual:
                plain = scratch.run(tests)
                usual[key] = plain.seconds
                if plain.code:
                    print(f"{number:3} {key} fails without any mutant: {plain.failed}")
                    usual[key] = -1.0
            if usual[key] < 0:
                bad += 1
                continue
            limit = max(SHORTEST_TIMEOUT_SECONDS, 10 * usual[key])
            run = scratch.mutated(mutant, tests, limit)
            how = said(run)
            bad += how != "caught"
            where = f"{mutant.file}:{line_of(mutant)}"
            print(f"{number:3} {how:8} {run.seconds:6.1f}s  {mutant.what}  ({where})  {run.failed}")
            sys.stdout.flush()
            done[mutant.what] = {
                "mutant": list(mutant), "how": how, "seconds": round(run.seconds, 1),
                "where": where, "by": run.failed,
            }  # fmt: skip
            if results is not None and not search:
                results.write_text(json.dumps(done, indent=1))
    caught = len(mutants) - bad
    print(f"{caught} of {len(mutants)} mutants caught, {time.monotonic() - began:.0f} s")
    return bad


def case(seed: int, number: int) -> dict[str, int]:
    """For scripts/campaign: one of them."""
    mutant = ALL[number % len(ALL)]
    wrong = faults([mutant])
    with tempfile.TemporaryDirectory(prefix="octavo-mutants-") as home:
        run = Scratch(Path(home)).mutated(mutant, [mutant.test], TIMEOUT_SECONDS)
    if wrong or said(run) != "caught":
        raise AssertionError(f"{mutant.what}: {wrong or said(run)} by {mutant.test}")
    return {"mutants caught": 1}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Take one guard out at a time; run its test.")
    parser.add_argument("words", nargs="*", help="only mutants with one of these in their name")
    parser.add_argument("--check", action="store_true", help="only see whether the list is right")
    parser.add_argument("--results", type=Path, help="keep results here, and go on from them")
    parser.add_argument("--search", default="", help="run these tests instead of the named ones")
    given = parser.parse_args()
    mutants = chosen(given.words)
    wrong = faults(mutants)
    for fault in wrong:
        print(fault)
    if given.check or (wrong and not given.search):
        print(f"{len(mutants)} mutants, {len(wrong)} faults")
        return bool(wrong)
    return bool(campaign(mutants, given.results, given.search.split()))


if __name__ == "__main__":
    sys.exit(main())
