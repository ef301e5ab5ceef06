"""What is drawn for a run of a store that is followed (``followed.py``)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

VICTIMS = ("driver", "driver", "owner", "owner", "python", "python", "python", "executor")


@dataclass
class Plan:
    """What is drawn for a case."""

    seed: str
    master: str = ""
    """Of Spark; none: a program that does the same without."""
    now: bool = False
    """Streams are of availableNow, one after the other."""
    heads: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    target_options: dict[str, Any] = field(default_factory=dict)
    sink: dict[str, Any] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=dict)
    kills: list[tuple[int, str, float]] = field(default_factory=list)
    """Behind how many batches, whom, and after which time more."""
    chores: float = 0.002
    burst: int = 500
    """So many steps more the owner takes for each batch, and each other read."""
    open_target: bool = False
    reads: int = 3
    """Batches or reads before the end."""


MASTERS = ("", "", "", "local[2,4]", "local[2,4]", "local-cluster[2,1,512]")


def drawn(seed: str, master: str | None = None, kills: int | None = None) -> Plan:
    """A case of a seed; with this master, and so many kills."""
    rng = random.Random(f"{seed} plan")
    chosen = rng.choice(MASTERS)
    if master is None:
        master = chosen
    if kills is None:
        kills = 5 if master else 10
    options: dict[str, Any] = {
        "push_rows": rng.choice((64, 300, 2000)),
        "push_bytes": rng.choice((64 << 10, 1 << 20)),
        "roll_count": rng.choice((256, 256, 1000)),
        "roll_size_bytes": 1 << 20,
        "compact_every_seconds": rng.choice((0.05, 0.5, None)),
        "compact_run_length": rng.choice((2, 8)),
        "compact_single_percent": rng.choice((30.0, 100.0)),
        "compact_run_percent": rng.choice((70.0, 100.0)),
        "worker": rng.random() < 0.5,
    }
    heads = rng.random() < 0.1
    if heads:
        options["mode"] = "head_only"
    return Plan(
        seed,
        master=master,
        now=rng.random() < 0.4,
        heads=heads,
        options=options,
        target_options={"push_rows": 300, "roll_count": 256, "compact_every_seconds": None},
        sink=_stream(rng),
        log=_stream(rng),
        kills=[
            (rng.randrange(1, 4), rng.choice(VICTIMS), rng.choice((0, 0.05, 0.3, 1)) * rng.random())
            for _ in range(kills)
        ],
        chores=rng.choice((0.0005, 0.002, 0.01)),
        burst=rng.choice((300, 2000, 6000)),
        open_target=rng.random() < 0.5,
    )  # fmt: skip


def _stream(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"splitBytes": rng.choice(("50k", "1m", "64m"))}
    if rng.random() < 0.5:
        options["consumerId"] = "yes"
    elif rng.random() < 0.4:
        options["failOnDataLoss"] = "false"
    if rng.random() < 0.4:
        options["maxRecordsPerTrigger"] = str(rng.choice((2000, 20_000)))
    if rng.random() < 0.3:
        options["maxBytesPerTrigger"] = rng.choice(("1m", "200k"))
    return options
