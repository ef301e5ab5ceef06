"""More of what the long machine does: bulk loads, and what other processes read of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from history import Where
from look import published_objects
from staged_rows import StagedRow, operations

import octavo
from octavo.actors.keeping.ingest import ingest
from octavo.actors.published_reader import PublishedReader
from octavo.files.handover.staged_writer import StagedWriter
from octavo.files.journal import record
from octavo.manifest import pinning
from octavo.pipeline.feed_files import JournalLook, records

if TYPE_CHECKING:
    from long_machine import LongMachine

PATH = "/store"
LEASES_MS = 86_400_000, 20 * 366 * 86_400_000


def load(machine: LongMachine) -> None:
    """Rows that another process staged a while ago, by its own clock; some expire."""
    rng, history = machine.rng, machine.history
    machine.jobs += 1
    job = f"job{machine.jobs}"
    staged = machine.now + rng.choice((0, 0, -100_000, 3_600_000))
    wheres = sorted({machine.where() for _ in range(rng.choice((1, 5, 40)))})
    rows = []
    for name, key in wheres:
        value = None if rng.random() < 0.2 else history.value(machine.filling()[:400])
        ends = machine.now + rng.choice((1, 60_000, 10 * 366 * 86_400_000))
        if value is None or rng.random() < 0.7:
            ends = 0
        else:
            machine.expiry[value] = ends
        rows.append(StagedRow(name, key, value, ends))
    cut = rng.randrange(len(rows) + 1)
    attempts = []
    for number, part in enumerate((rows[:cut], rows[cut:])):
        records_each = rng.choice((3, 1000))
        writer = StagedWriter(
            machine.disk, PATH, job, f"a{number}", now_ms=staged, file_records=records_each
        )
        if part:
            writer.add(operations(part))
        writer.finish()
        attempts.append(f"a{number}")
    changes: list[tuple[Where, bytes | None]] = [((row.bucket, row.key), row.value) for row in rows]
    history.begin(*changes, batch=True)
    machine.wrote(ingest(machine.store._running, job, attempts).last_sqn, True)


def pin(machine: LongMachine) -> None:
    """Another process begins to read the store as it is now."""
    if len(machine.pins) > 2:
        machine.pins.pop(0)[0].close()
    lease = machine.rng.choice(LEASES_MS)
    made = pinning.pin(machine.disk, PATH, lease, machine.now)
    reader: Any = PublishedReader(machine.disk, made, lambda: machine.now, 64)
    found = published_objects(reader, machine.store._running.identity)
    machine.same({where: value for where, (value, _) in found.items()}, machine.history.now())
    machine.pins.append((reader, made.expires_at, found))


def read_pins(machine: LongMachine) -> None:
    """What was pinned stays as it was, whatever the clock says by now, until its lease ends."""
    identity = machine.store._running.identity
    for reader, ends, first in machine.pins:
        try:
            found = published_objects(reader, identity)
        except octavo.SnapshotExpired:
            assert machine.latest >= ends
            continue
        assert found == first, "what was pinned changed"


def follow(machine: LongMachine) -> None:
    """The change feed of another process ends with what there is."""
    look = JournalLook(machine.disk, PATH)
    upto, state = look.newest(), machine.history.now()
    assert upto <= machine.store.last_sqn
    newest: dict[Where, bytes | None] = {}
    last = look.horizon
    for part in look.parts(look.horizon, upto, machine.rng.choice((1, 4000, 1 << 30))):
        for each in records(machine.disk, PATH, part, look.horizon):
            assert each.sqn > last, "numbers ascend"
            last = each.sqn
            newest[each.bucket, each.key] = each.value if each.kind == record.PUT else None
    for where, value in newest.items():
        if value not in machine.expiry:
            assert state.get(where) == value, f"{where}: {value!r} is told, {state.get(where)!r}"
    for where in state:
        if machine.history.versions[where][-1].sqn > look.horizon:
            assert where in newest, f"{where} is not told"


MORE = (load, pin, read_pins, follow)
MORE_WEIGHTS = (8, 8, 12, 6)
