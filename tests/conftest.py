"""Lets every test import the models, ``from simdisk import SimDisk``, and keeps tests apart."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from pykka import ActorRegistry

from octavo import registry
from octavo.actors.writing import reserve
from octavo.files.kernels.cold_pages import COLD

sys.path.insert(0, str(Path(__file__).parent / "model"))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background so; tests want a Ctrl-C to be one.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes tells of the machine, and not of what is tested.
settings.register_profile(
    "any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def all_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What of the files is in memory just now does not decide how a test reads them."""
    monkeypatch.setattr(COLD, "left", 0)
    monkeypatch.setattr(COLD, "reads", int)


@pytest.fixture
def small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store on a simulated disk the low-space reserve is most of what its images hold."""
    monkeypatch.setattr(reserve, "RESERVE_BYTES", 512)


MANY_DISKS = 20
"""A store that lost power is a cycle that keeps its simulated disk, of megabytes, in few objects:
CPython looks for such cycles after so many objects that gigabytes wait for it."""


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """A store whose simulated machine lost power in a test is gone with that test: whoever stops
    all actors of the process later does not reach it, nor does the interpreter's end close it,
    and many of them give back their memory."""
    from simdisk import SimDisk  # found by now

    running, open_before = ActorRegistry.get_all(), set(registry.OPEN)
    disks_before = SimDisk.made
    kept = set(map(id, running))
    yield
    registry.OPEN &= open_before
    for ref in ActorRegistry.get_all():
        if id(ref) not in kept:
            ActorRegistry.unregister(ref)
    if SimDisk.made - disks_before > MANY_DISKS:
        gc.collect()
