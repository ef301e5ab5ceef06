"""How far a campaign has come: one small JSON file, replaced as a whole after every case."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

MOST_FAILURES_KEPT = 100


@dataclass
class RunState:
    name: str
    seed: int
    cases: int = 0
    """Cases done; the next one has this number."""
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    """What was done, as the cases counted it."""
    failed: int = 0
    failures: list[dict[str, object]] = field(default_factory=list)
    """The first of them: {"case": number, "error": text}."""
    begun: int | None = None
    """The case under way when this was written. If it is found set, the run ended within that
    case."""
    tries: int = 0
    """How often a run ended with ``begun`` under way."""

    def add(self, counts: dict[str, int]) -> None:
        for what, count in counts.items():
            self.counts[what] = self.counts.get(what, 0) + count

    def fail(self, number: int, error: str) -> None:
        self.failed += 1
        if len(self.failures) < MOST_FAILURES_KEPT:
            self.failures.append({"case": number, "error": error[:2000]})

    @property
    def rate(self) -> float:
        """Cases a second."""
        return self.cases / self.seconds if self.seconds else 0.0

    def replay(self, number: int) -> str:
        """The command that does one case again."""
        return f"scripts/campaign {self.name} --seed {self.seed} --case {number}"


def file_of(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name}-{seed}.json"


def load(folder: Path, name: str, seed: int) -> RunState:
    """The state that was kept, or a new one."""
    path = file_of(folder, name, seed)
    if not path.exists():
        return RunState(name, seed)
    return RunState(**json.loads(path.read_text()))


def save(folder: Path, state: RunState) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = file_of(folder, state.name, state.seed)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(asdict(state), indent=1) + "\n")
    os.replace(beside, path)


def known(folder: Path, name: str) -> list[RunState]:
    """Every run of a campaign whose state is there."""
    found = folder.glob(f"{name}-*.json") if folder.exists() else []
    states = [RunState(**json.loads(path.read_text())) for path in sorted(found)]
    return [state for state in states if state.name == name]
