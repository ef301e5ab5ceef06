"""The Penciller's clerk is told of work once, and saves what was there when it was asked."""

from __future__ import annotations

import threading
from pathlib import Path

import octavo
from octavo.actors.bookie import Bookie
from octavo.actors.penciller_clerk import PencillerClerk

WAIT = 300.0


def test_many_pushes_leave_one_message_in_the_clerks_inbox(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store", push_rows=64) as store:
        clerk = store._running.clerk.actor
        entered, go = threading.Event(), threading.Event()

        def hold(_: PencillerClerk) -> None:
            entered.set()
            go.wait(WAIT)

        clerk.actor_ref.send(hold)
        assert entered.wait(WAIT)
        for number in range(10):
            store.put(b"key", b"%d" % number)
            store._running.bookie.call(Bookie.push)
        works = [m.method for m, _ in clerk.waiting_messages if m.method is PencillerClerk.work]
        go.set()
        assert len(works) == 1
        clerk.actor_ref.call(PencillerClerk.save_all)
        assert store._running.penciller.actor.manifest.persisted_sqn == 10


def test_saving_all_ends_though_more_is_pushed_meanwhile(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "store", push_rows=64) as store:
        clerk = store._running.clerk.actor
        do, saved = clerk.do, []

        def pushing(task: object) -> None:
            do(task)  # type: ignore[arg-type]
            saved.append(task)
            if len(saved) < 20:
                store.put(b"key", b"%d" % len(saved))
                store._running.bookie.call(Bookie.push)

        store.put(b"key", b"first")

        def count_saved(clerk: PencillerClerk) -> int:
            clerk.do = pushing  # type: ignore[method-assign,assignment]
            store._running.bookie.call(Bookie.push)
            clerk.save_all()
            clerk.do = do  # type: ignore[method-assign]
            return len(saved)

        assert clerk.actor_ref.call(count_saved) < 20
