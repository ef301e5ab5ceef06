"""Many threads on few keys: for each key there is an order of its calls that explains every answer.

Over options that the seed says, beside compaction, backups, a feed, publishing, readers and merges.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

from calling_threads import Threads, drawn_options
from histories import wrong

import octavo


def case(seed: int, number: int) -> dict[str, int]:
    home = Path(tempfile.mkdtemp(prefix="octavo-threads-"))
    try:
        with octavo.open(home / "s", **drawn_options(f"{seed} {number}")) as store:
            backup = partial(store.backup, home / "b")
            compact, seen = store.compact, partial(verified, store)
            beside = [compact, backup, partial(followed, store), partial(published, store)]
            history = Threads(store, f"{seed} {number}").run([*beside, compact, backup, seen])
            problems = wrong(history)
            if problems:
                raise AssertionError("; ".join(problems[:5]))
            seen()
        return {"calls": len(history)}
    finally:
        shutil.rmtree(home, ignore_errors=True)


def followed(store: octavo.Store) -> None:
    sqns = [change.sqn for change in store.changes(0, compacted=True)]
    if sqns != sorted(set(sqns)):
        raise AssertionError("the feed is not in order")


def published(store: octavo.Store) -> None:
    with store.snapshot() as snap:
        snap.publish(lease_seconds=60).release()


def verified(store: octavo.Store) -> None:
    report = store.verify()
    if not report.ok:
        raise AssertionError(f"verify: {report.problems}")
