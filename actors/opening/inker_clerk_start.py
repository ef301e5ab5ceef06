"""Starting the Inker's clerk, as the options of a store say."""

from __future__ import annotations

from collections.abc import Callable

from octavo.actors.bookie import Bookie
from octavo.actors.compacting.waste import Waste
from octavo.actors.inker import Inker
from octavo.actors.inker_clerk import InkerClerk
from octavo.actors.opening.identity import Identity
from octavo.actors.opening.options import Options
from octavo.actors.turns.runtime import Ref
from octavo.actors.worker import JobRunner
from octavo.files.door.disk import Disk
from octavo.files.errors import OctavoError
from octavo.manifest.consumers import Consumers

NICENESS = 10
"""How much lower the priority of compaction is than that of the user's process."""


def started_clerk(
    inker: Ref[Inker],
    bookie: Ref[Bookie],
    runner: JobRunner,
    disk: Disk,
    path: str,
    options: Options,
    identity: Identity,
    notes: list[str],
    clock_ms: Callable[[], int],
    monotonic: Callable[[], float],
) -> Ref[InkerClerk]:
    """The clerk, known to the Bookie. ``notes`` is told what happens to consumers."""
    ref = InkerClerk.start(
        inker,
        bookie,
        runner,
        clock_ms,
        monotonic,
        options=options,
        identity=identity,
        waste=Waste(disk, f"{path}/waste", options.waste_retention_seconds, clock_ms),
        consumers=Consumers(
            disk,
            path,
            clock_ms,
            notes,
            hold_seconds=options.consumer_hold_seconds,
            hold_bytes=options.consumer_hold_bytes,
            came_ms=lambda position: _came_ms(inker.actor, position),
        ),
    )
    bookie.actor.inker_clerk = ref
    return ref


def _came_ms(inker: Inker, position: int) -> int | None:
    """When the first record above a sqn was written, ms UTC; None: there is none; 0: that cannot be
    told. One header. In no turn."""
    try:
        for file in inker.view.files:
            for sqn in file.sqns(position + 1, inker.last_sqn):
                return file.header(sqn).time_ms
    except (OctavoError, OSError):  # compaction tells of damage itself
        return 0
    return None
