"""Many threads on few keys: for each key, some order of its calls explains every answer.

The seed gives options, sizes, and after how many steps threads take turns; compaction, backups, a
feed, consumers, publishing, readers and merges run beside them. In one case of four the store is
closed meanwhile; one of four is of a head-only store.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from calling_heads import KEY, HeadThreads
from calling_threads import Threads, drawn_options, name_of
from histories import READS, Call, wrong
from small_sizes import small_sizes

import octavo
from octavo.actors.bookie import Bookie

HEADS: dict[bool, dict[str, Any]] = {False: {}, True: {"mode": "head_only"}}


def case(seed: int, number: int) -> dict[str, int]:
    home = Path(tempfile.mkdtemp(prefix="octavo-threads-"))
    usual = sys.getswitchinterval()
    sys.setswitchinterval(random.Random(f"turns {seed} {number}").choice((usual, 1e-4, 1e-6)))
    try:
        work = closed_meanwhile if number % 4 == 3 else kept_open
        with small_sizes(random.Random(f"sizes {seed} {number}")) if number % 3 else nullcontext():
            history = work(home, f"{seed} {number}", heads=number % 8 in (2, 7))
        problems = wrong(history)
        if problems:
            raise AssertionError("; ".join(problems[:5]))
        return {"calls": len(history), "closed meanwhile": number % 4 == 3}
    finally:
        sys.setswitchinterval(usual)
        shutil.rmtree(home, ignore_errors=True)


def kept_open(home: Path, seed: str, *, heads: bool) -> list[Call]:
    with octavo.open(home / "s", **drawn_options(seed), **HEADS[heads]) as store:
        backup, seen = partial(store.backup, home / "b"), partial(verified, store)
        compact, consume = store.trim if heads else store.compact, partial(consumed, store)
        beside = [
            compact, backup, partial(followed, store), consume, partial(published, store),
            partial(told_of, store), compact, backup, consume, seen,
        ]  # fmt: skip
        history = (HeadThreads if heads else Threads)(store, seed).run(beside)
        seen()
        return history


def closed_meanwhile(home: Path, seed: str, *, heads: bool) -> list[Call]:
    """Close the store amid calls: what was answered is there when it is opened again."""
    rng = random.Random(f"close {seed}")
    options = {**drawn_options(seed), **HEADS[heads], "sync": rng.choice(("none", 0.002))}
    store = octavo.open(home / "s", **options)
    threads = (HeadThreads if heads else Threads)(store, seed, calls=100_000)
    works = {
        "publish": partial(published, store),
        "backup": partial(store.backup, home / "b"),
        "compact": store.trim if heads else store.compact,
        "consume": partial(consumed, store),
        "follow": partial(followed, store),
        "tell": partial(told_of, store),
        "save": partial(saved, store),
    }
    chosen = [works[name] for name in rng.sample(sorted(works), 3)]
    failures: list[BaseException] = []
    others = [threading.Thread(target=until_closed, args=(work, failures)) for work in chosen]

    def close() -> None:
        for each in others:
            each.start()
        wanted = rng.randrange(50, 1500)
        while sum(map(len, threads.noted)) < wanted and not threads.failures and not failures:
            time.sleep(0.001)
        store.close()
        for each in others:
            each.join()

    history = threads.run([close])
    if failures:
        raise failures[0]
    with octavo.open(home / "s", **options) as again:
        for each in again.published():
            each.release()
        verified(again)
        for key in {call.key for call in history}:
            writes = [call for call in history if call.key == key and call.kind not in READS]
            last = max(writes, key=lambda call: call.sqn, default=None)
            cut_short = [some[key] for some in threads.unanswered.values() if key in some]
            possible = {last.value if last else None, *cut_short, *([None] * len(cut_short))}
            found = name_of(again.head_bucket(b"").get(KEY, key) if heads else again.get(key))
            if found not in possible:
                raise AssertionError(f"{key!r} is {found!r}, and not of {possible}")
    # Nobody says what a write that met the close has done.
    doubtful = {key for some in threads.unanswered.values() for key in some}
    return [call for call in history if call.key not in doubtful]


def until_closed(work: Callable[[], Any], failures: list[BaseException]) -> None:
    try:
        for each in cycle([work]):
            try:
                each()
            except octavo.Busy:
                continue
    except octavo.Closed:
        return
    except BaseException as error:  # noqa: BLE001 (the case raises it)
        failures.append(error)


def followed(store: octavo.Store) -> None:
    sqns = [change.sqn for change in store.changes(0, compacted=True)]
    if sqns != sorted(set(sqns)):
        raise AssertionError("the feed is not in order")


def consumed(store: octavo.Store) -> None:
    """See that a consumer misses nothing behind what it acknowledged."""
    mail = store.consumer("mail")
    position = mail.position
    sqns = [change.sqn for change in mail.changes()]
    if sqns != list(range(position + 1, position + 1 + len(sqns))):
        raise AssertionError(f"behind {position} the consumer sees {sqns}")
    if sqns:
        mail.acknowledge(sqns[-1])


def published(store: octavo.Store) -> None:
    with store.snapshot() as snap:
        snap.publish(lease_seconds=60).release()


def told_of(store: octavo.Store) -> None:
    store.stats(score=True)
    store.stats_prometheus()
    store.inspect_html()


def saved(store: octavo.Store) -> None:
    if store._running.identity.head_only:
        return store._running.bookie.call(Bookie.push)
    other = store.bucket("other")
    other.put_many((b"%d" % number, b"") for number in range(64))
    other.clear()


def verified(store: octavo.Store) -> None:
    report = store.verify()
    if not report.ok:
        raise AssertionError(f"verify: {report.problems}")
