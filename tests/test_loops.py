"""Where Ctrl-C finds no ``finally``: read off the bytecode that this CPython makes of the library.

From 3.12 to 3.14 CPython's compiler leaves a jump back to the top of a loop out of what a ``try``
or ``with`` covers, where the loop ends in a condition: ``for``, ``while`` or a comprehension. A
Ctrl-C is looked for at just that jump, and then passes the ``finally`` by. Such a loop has to be in
a function of its own, for a call is covered. On 3.11 the jump is covered, and it is told for what
newer ones make of it; there a comprehension is a function, which newer ones put in its place. From
3.15 on the jump is covered again.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("files", "manifest", "actors", "pipeline", "api")
NEVER_INTERRUPTED = {
    ("actors/turns/pool.py", "_serve"): "runs on threads of the pool",
    ("actors/turns/pool.py", "_next"): "runs on threads of the pool",
    ("api/cli/demo_tour.py", "write"): "runs on a thread of the demonstration",
    ("files/jobs/compaction.py", "_files"): "runs in the worker; who calls it removes what it made",
}
OLD = sys.version_info < (3, 12)
MENDED = sys.version_info >= (3, 15)
FOR_ALL = ("BaseException", "KeyboardInterrupt")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")


def functions(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from functions(constant)


class Covered:
    """What of a function is in which ``try`` and ``with``."""

    def __init__(self, code: CodeType) -> None:
        self.steps = list(dis.get_instructions(code))
        self._at = {step.offset: number for number, step in enumerate(self.steps)}
        self._ranges = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def by(self, offset: int) -> list[int]:
        """Where an exception at ``offset`` goes, innermost first, if Ctrl-C stops there."""
        passed: list[int] = []
        while True:
            ends = (each.target for each in self._ranges if each.start <= offset < each.end)
            offset = next(ends, -1)
            if offset < 0 or offset in passed:
                return [each for each in passed if self._stops(each)]
            passed.append(offset)

    def _stops(self, offset: int) -> bool:
        first = self._at[offset]
        if self.steps[first].opname != "PUSH_EXC_INFO":
            return False  # the end of a comprehension: it only puts a name back
        names = []
        for step in self.steps[first + 1 :]:
            if step.opname == "CHECK_EXC_MATCH":
                return any(name in FOR_ALL for name in names)
            if step.opname.startswith(("WITH_", "STORE_", "CALL", "RERAISE", "POP_TOP")):
                return True
            names.append(step.argval)
        return True


def ends(covered: Covered) -> Iterator[dis.Instruction]:
    """Of 3.11: where a loop ends in a condition, here or in a comprehension within."""
    chosen = {step.argval for step in covered.steps if step.opname.startswith("POP_JUMP")}
    for step in covered.steps:
        if isinstance(step.argval, CodeType) and step.argval.co_name in COMPREHENSIONS:
            if next(ends(Covered(step.argval)), None):
                yield step
        elif step.opname.startswith("POP_JUMP_BACKWARD") or (
            step.opname == "JUMP_BACKWARD" and step.offset in chosen
        ):
            yield step


def passed_by(code: CodeType) -> Iterator[int]:
    """Lines whose jump back passes by a ``finally``, ``with`` or ``except`` around it."""
    covered = Covered(code)
    if OLD:
        for step in ends(covered):
            if covered.by(step.offset):
                yield step.positions.lineno or 0 if step.positions else 0
        return
    for number, step in enumerate(covered.steps):
        line = step.positions.lineno or 0 if step.positions else 0
        if step.opname != "JUMP_BACKWARD":
            continue
        before = number - 1
        if covered.steps[before].opname == "NOT_TAKEN":
            before -= 1
        if covered.steps[before].opname.startswith("POP_JUMP"):
            around = covered.by(covered.steps[before - 1].offset)
            if not set(around) <= set(covered.by(step.offset)):
                yield line


@pytest.mark.parametrize("room", ROOMS)
def test_no_loop_passes_its_finally_by(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {code.co_name}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for code in functions(compile(path.read_text(), str(path), "exec"))
        if (str(path.relative_to(ROOT)), code.co_name) not in NEVER_INTERRUPTED
        for line in passed_by(code)
    ]
    assert found == []


LOOPS = {
    "for": "for x in xs:\n      if x: f()",
    "while": "while xs:\n      if f(): f()",
    "comprehension": "y = [x for x in xs if x]",
}


@pytest.mark.parametrize("loop", list(LOOPS))
@pytest.mark.parametrize("around", ["with lock:\n    {}", "try:\n    {}\n  finally:\n    f()"])
def test_the_look_has_teeth(around: str, loop: str) -> None:
    made = compile("def g(xs):\n  " + around.format(LOOPS[loop]), "g", "exec")
    found = [line for code in functions(made) for line in passed_by(code)]
    assert bool(found) is not MENDED
