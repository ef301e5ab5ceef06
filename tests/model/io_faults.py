"""A workload in which the N-th call of the disk goes wrong, and what must hold afterwards.

It ends with the first call of the store that raises. Then: a store whose I/O failed says so to
every later write; one that is full or out of descriptors goes on once there is room; nothing that
was acknowledged is lost, whether the next opening finds what the process left or what a power cut
left; and no fsync that failed was tried again.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass

from history import Found, History
from look import clock_ms, look, read_all
from one_thread import forget, one_thread, opened
from power_cuts import Judge, Machine, Workload, digest
from simdisk import SimDisk

import octavo

NEVER_FAIL = frozenset({"exists", "free_bytes", "check_supported", "links", "size"})
"""Calls that do not reach the disk, or whose errors nobody can cause alone."""
OPENING = frozenset(
    {"create", "reopen", "map", "read", "listdir", "hold", "sync_dir", "sync_file", "lock"}
)
TAKING_ROOM = frozenset(
    {
        "create",
        "write",
        "pwrite",
        "sync",
        "sync_file",
        "sync_dir",
        "sync_held",
        "link",
        "rename",
        "mkdir",
    }
)
RETRIED = frozenset({"create", "write", "pwrite", "sync", "sync_dir", "sync_held"})
SHORT = -1
KINDS: dict[str, tuple[int, Callable[[str], bool]]] = {
    "EIO": (errno.EIO, lambda name: name not in NEVER_FAIL),
    "ENOSPC": (errno.ENOSPC, lambda name: name in TAKING_ROOM),
    "EMFILE": (errno.EMFILE, lambda name: name in OPENING),
    "ENOMEM": (errno.ENOMEM, lambda name: name == "map"),
    "EINTR": (errno.EINTR, lambda name: name in RETRIED),
    "short write": (SHORT, lambda name: name in ("write", "pwrite")),
}
OF_THE_PROCESS = ("EMFILE", "ENOMEM")
"""It is short of descriptors, or of room for maps."""
PATIENT = ("ENOSPC", *OF_THE_PROCESS)
SHORT_BYTES = 7


@dataclass
class Fault:
    """The calls that go wrong, counted among those that this kind of error is of."""

    kind: str
    numbers: tuple[int, ...]
    calls: int = 0
    fired: int = 0
    operation: str = ""

    def __call__(self, operation: str) -> tuple[int, int | None] | None:
        code, concerns = KINDS[self.kind]
        if not concerns(operation):
            return None
        self.calls += 1
        if self.calls not in self.numbers:
            return None
        self.fired += 1
        self.operation = operation
        return (0, SHORT_BYTES) if code == SHORT else (code, None)


def broken(
    name: str,
    workload: Workload,
    setup: Workload | None,
    seed: int,
    fault: Fault,
    *,
    judges: tuple[Judge, ...] = (),
    **options: object,
) -> str:
    """Run the workload with this fault; what was wrong, or nothing. ``fault.fired`` says whether
    it came to it. ``judges`` look at what is left beside the store."""
    disk = SimDisk()
    history = History()
    wrong = ""
    with one_thread(f"{name} {seed}") as pool:
        machine = Machine(disk, pool, random.Random(f"{name} {seed}"), history, dict(options))
        if setup is not None:
            setup(machine)
        disk.at_call = fault
        try:
            workload(machine)
        except (octavo.OctavoError, OSError) as error:
            machine.raised = error
            wrong = _told(machine, fault, error)
        finally:
            disk.at_call = None
        wrong = wrong or _after(machine, fault)
        if machine.store is not None:
            forget(machine.store)
    return wrong or _left(disk, history, options, judges, doubts="sync" in fault.operation)


def _told(machine: Machine, fault: Fault, error: Exception) -> str:
    """Whether this may come of that fault, and the store is now as the error says."""
    if fault.kind == "short write":
        return f"a short write is no error: {error!r}"
    if fault.kind in OF_THE_PROCESS and isinstance(error, octavo.StorageFailed):
        return f"{fault.operation} met {fault.kind}, and that is no failure: {error!r}"
    store, history = machine.store, machine.history
    if store is None or store.closed:
        return ""
    if isinstance(error, octavo.StorageFull):
        if fault.kind not in PATIENT:
            return f"the disk is not full: {error!r}"
        coming = history.pending_backup
        history.nothing_kept()
        history.pending_backup = coming  # it may have been at the end of it
        return ""
    if history.pending and not isinstance(error, octavo.OctavoError):
        return f"a write raised {error!r}"
    if machine.loading and store._running.inker.actor.failed is None:
        history.nothing_kept()
        machine.raised = None
        return ""
    if history.pending and isinstance(error, octavo.StorageFailed):
        try:
            _put(machine)
        except octavo.StorageFailed:
            return ""
        except octavo.OctavoError as other:
            return f"a write after {error!r} raised {other!r}"
        return f"after {error!r} a write went well"
    return ""


def _put(machine: Machine) -> None:
    store = machine.store
    if store is None:
        return
    if store._running.identity.head_only:
        store.head_bucket(b"x").put(b"x", b"1::")
    else:
        store.put(b"x", b"1::", sync=False)  # refused all the same


def _after(machine: Machine, fault: Fault) -> str:
    """The fault is over: the store is read, and closed."""
    store, history = machine.store, machine.history
    if store is None or store.closed:
        return ""
    failed = isinstance(machine.raised, octavo.StorageFailed)
    failed = failed or store._running.inker.actor.failed is not None
    if failed and fault.kind in OF_THE_PROCESS:
        return f"poisoned by {fault.kind} in {fault.operation}"
    if not failed and not history.pending:
        # It was not in the way of writing, or there was no room: it all goes on.
        machine.pool.go_on()
        try:
            where = ((b"", b"k0/0"), history.value())
            history.begin(where)
            if store._running.identity.head_only:
                sqn = store.head_bucket(b"").put(b"k0", where[1], sub_key=b"0")
            else:
                sqn = store.put(b"k0/0", where[1], sync=True)
            history.done(sqn, durable=True)
            found = read_all(store)
        except (octavo.OctavoError, OSError) as error:
            return f"{fault.kind} in {fault.operation} is over, but: {error!r}"
        if found.state != history.now():
            return f"{fault.kind} in {fault.operation}: now reads as {found.state}"
    try:
        store.close()
    except octavo.OctavoError:
        if fault.kind in PATIENT and not failed:
            return "a close with room again failed"
    return ""


def _left(
    disk: SimDisk,
    history: History,
    options: dict[str, object],
    judges: tuple[Judge, ...],
    *,
    doubts: bool,
) -> str:
    if disk.believed():
        return f"an fsync that failed was tried again: {disk.believed()}"
    for mode in ("nothing", "all", "killed"):
        image = disk.after_kill() if mode == "killed" else disk.after_crash(mode)
        for judge in judges:
            wrong = judge(image.after_crash("all"), digest(image), history)
            if wrong:
                return f"after {mode}: {wrong}"
        found = look(image, "/store", rests=False, verifies=mode != "all", **options)
        found.objects.pop((b"", b"x"), None)  # see _put: refused, which says not that it is gone
        wrong = history.wrong(found)
        if wrong:
            return f"after {mode}: {wrong}"
        if mode == "killed" and doubts:
            wrong = _believed(image, found, options)
            if wrong:
                return f"opened after the kill, synced, and then the power went: {wrong}"
    return ""


def _believed(image: SimDisk, found: Found, options: dict[str, object]) -> str:
    """The store was opened after the failure, with the power on all the time. What was there then,
    and synced, must be on the disk, and not in the system's memory alone."""
    head_only = options.get("mode") == "head_only"
    image = image.after_kill()
    with one_thread("again"):
        store = opened(image, "/store", clock_ms=clock_ms, **options)
        store.sync()
        forget(store)
    later = look(image.after_crash("nothing"), "/store", rests=False, verifies=False, **options)
    for where, (value, sqn) in found.objects.items():
        if later.objects.get(where) != (value, sqn) and not head_only:
            return f"{where} was {sqn}: {value!r}, and is {later.objects.get(where)} {later.wrong}"
    return later.wrong
