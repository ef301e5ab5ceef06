"""Buckets that a program asks the store for again and again."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo import store as stores
from octavo.actors.reading import bucket_names
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import of_type


def test_who_asks_for_a_bucket_again_gets_the_one_that_was_made(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s", tags={"note": octavo.Tag()}) as store:
        assert store.bucket("b") is store.bucket(b"b") is store.bucket(bytearray(b"b"))
        assert store.bucket("b") is not store.bucket("b", text=True)
        assert store.bucket("b") is not store.bucket("b", tag="note")
        store.bucket("b").put("k", "1")
        store.bucket("b", tag="note").put("k", "2")
        assert store.bucket("b", text=True)["k"] == "1"
        assert store.bucket("b", tag="note")["k"] == b"2"


def test_buckets_that_were_asked_for_do_not_pile_up(tmp_path: Path) -> None:
    with octavo.open(tmp_path / "s") as store:
        held = store.bucket("held")
        for number in range(2 * stores._MOST_MADE + 1):
            store.bucket(b"%d" % number)
            assert len(store._made) <= stores._MOST_MADE
        store.bucket("x" * (stores._LONGEST_KEPT + 1))
        assert all(len(name) <= stores._LONGEST_KEPT for name, _, _ in store._made)
        held.put("k", "v")
        assert store.bucket("held")["k"] == b"v"


@pytest.mark.parametrize("tag", [["note"], None, 5, "none"])
def test_a_type_that_is_none_is_refused_each_time(tmp_path: Path, tag: object) -> None:
    with octavo.open(tmp_path / "s") as store:
        for _ in range(2):
            with pytest.raises(octavo.Misuse, match="is no type of this store"):
                store.bucket("b", tag=tag)  # type: ignore[arg-type]


def test_buckets_are_listed_while_others_put(tmp_path: Path) -> None:
    names = [b"%03d" % number for number in range(300)]
    with octavo.open(tmp_path / "s") as store:
        for name in names:
            store.bucket(name).put("k", "v")
        store.bucket(names[0]).put_many((b"%d" % n, b"v") for n in range(5000))  # several looks
        new = count()

        def take(*what: Any) -> list[bytes]:
            """A look, and what another thread does before the next one."""
            found = store._bookie.slice(*what)
            for _ in range(20):
                store.bucket(b"%d" % next(new)).put("new", "v")
            return found

        reader = store._reader()
        lives = bucket_names.fronts(reader.view, reader.sqn, of_type(ledger_key.STANDARD), take)
        assert next(new) > 100
        reader.close()
        told = {ledger_key.split(prefix)[1] for prefix, live in lives.items() if live}
        assert told == set(names)
