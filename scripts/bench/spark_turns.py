"""Starts sessions of Spark, and measures tasks in them: in turns, in time and in CPU time."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_WARMING = 4


def session(threads: int = 2) -> Any:
    """A session of so many threads, as an application would set it up."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{threads}]").appName("octavo bench")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        "spark.python.unix.domain.socket.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def seconds_of_processors(without: int = 0) -> float:
    """CPU time of the processes below this one, ended ones included; without the process
    ``without`` and those below it."""
    ticks = sum(sum(map(int, fields[11:15])) for fields in below(without).values())
    return ticks / os.sysconf("SC_CLK_TCK")


def below(without: int = 0) -> dict[int, list[str]]:
    """The fields of /proc/N/stat, from the state on, of each process below this one; without the
    process ``without`` and those below it."""
    found: dict[int, list[str]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
            found[int(name)] = file.read().rpartition(") ")[2].split()

    def is_below(number: int) -> bool:
        while number in found and number not in (os.getpid(), without):
            number = int(found[number][1])
        return number == os.getpid()

    return {each: found[each] for each in found if each != os.getpid() and is_below(each)}


def make_nice(number: int) -> None:
    """Lower the priority of the processes below this one, as if Spark had been started so. Threads
    and workers to come inherit it."""
    for process in below():
        for thread in os.listdir(f"/proc/{process}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), number)


class Task(NamedTuple):
    """What is measured."""

    run: Callable[[], object]
    against: tuple[str, ...] = ()
    """The tasks that it is compared with."""
    wrote: str = ""
    """The directory that is removed after each turn."""


class Cost(NamedTuple):
    """Of one turn: how long it took, and what Spark and its workers used of the processors."""

    seconds: float
    processors: float


def turns(runs: int, tasks: dict[str, Task]) -> dict[str, list[Cost]]:
    """What each cost in so many turns, after some that do not count: Java compiles in them."""
    found: dict[str, list[Cost]] = {name: [] for name in tasks}
    for _ in range(_WARMING + runs):
        for name, task in tasks.items():
            os.sync()
            began, before = time.perf_counter(), seconds_of_processors()
            task.run()
            took = time.perf_counter() - began
            found[name].append(Cost(took, seconds_of_processors() - before))
            if task.wrote:
                shutil.rmtree(task.wrote)
    return {name: costs[_WARMING:] for name, costs in found.items()}


def tell(name: str, tasks: dict[str, Task], found: dict[str, list[Cost]]) -> None:
    """Print what each task cost, and its ratios to those that it is compared with."""
    for each, costs in found.items():
        times = [cost.seconds for cost in costs]
        used = statistics.median(cost.processors for cost in costs)
        ratios = [
            f"{ratio(costs, found[other], 0):.2f} ({ratio(costs, found[other], 1):.2f}) of {other}"
            for other in tasks[each].against
        ]
        print(
            f"{name}: {each:35} {statistics.median(times):6.3f} s, {min(times):.3f} at best, "
            f"{used:5.2f} s of CPU{'; ' if ratios else ''}{', '.join(ratios)}"
        )


def ratio(costs: list[Cost], others: list[Cost], of: int) -> float:
    """The median of the ratios turn by turn. ``of``: 0: time, 1: CPU time."""
    return statistics.median(a[of] / max(b[of], 0.01) for a, b in zip(costs, others, strict=True))


def sync(path: str) -> None:
    """Wait until a file, or the names in a directory, are on disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
