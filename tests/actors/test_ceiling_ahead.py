"""The ceiling of sequence numbers is raised ahead, in no put's time; what waits is the pool."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from whole_store import no_hang, opened, settle

import octavo
from octavo.actors import inker as inker_module
from octavo.actors.opening import resumption
from octavo.actors.writing.pace import LOOK_EVERY

STEP = 1 << 13
LARGE = {"roll_count": 1 << 19, "roll_size_bytes": 64 << 20, "push_rows": 1 << 17}


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (inker_module, resumption):
        monkeypatch.setattr(module, "CEILING_STEP", STEP)


def put_up_to(store: octavo.Store, sqn: int) -> None:
    while store.last_sqn < sqn:
        store.put(b"k", b"v")


@pytest.mark.usefixtures("small_steps")
def test_puts_go_on_while_the_journals_manifest_is_being_written(tmp_path: Path) -> None:
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        inker = store._inker
        ceiling = inker.manifest.ceiling
        inker.enter()  # as whoever enters a sealed file in the manifest, which takes an fsync
        try:
            # Past the moment from which on the ceiling is to be raised, not to the last one.
            putting = threading.Thread(
                target=put_up_to, args=(store, ceiling - STEP // 2 + 2 * LOOK_EVERY)
            )
            putting.start()
            putting.join(100)
            assert not putting.is_alive()
            assert inker.manifest.ceiling == ceiling
        finally:
            inker.leave()
        settle(store)
        assert inker.manifest.ceiling > ceiling + STEP


@pytest.mark.usefixtures("small_steps")
def test_no_put_gets_a_number_that_is_not_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pool never comes to it: so a put does it.
    monkeypatch.setattr(inker_module.Inker, "raise_ceiling", lambda inker: None)
    with no_hang(), opened(tmp_path / "s", **LARGE) as store:
        inker = store._inker
        first = inker.manifest.ceiling
        for _ in range(2 * first):
            assert store.put(b"k", b"v") < inker.manifest.ceiling
        assert inker.manifest.ceiling > first
