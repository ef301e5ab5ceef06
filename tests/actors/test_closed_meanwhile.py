"""A store that is closed while a long call is under way: the call says so, by that name."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from whole_store import opened

import octavo
from octavo.actors import backup as backups
from octavo.actors.inker import Inker
from octavo.actors.inker_clerk import InkerClerk


def test_a_backup_during_which_the_store_is_closed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s")
    store.put_many((b"%d" % n, b"v") for n in range(600))

    def closed_by_another(clerk: InkerClerk) -> None:
        closer = threading.Thread(target=store.close)
        closer.start()
        closer.join()
        clerk.inker.call(Inker.seal_next)

    monkeypatch.setattr(backups, "seal_waiting", closed_by_another)
    with pytest.raises(octavo.Closed):
        store.backup(tmp_path / "b")
    monkeypatch.undo()
    with opened(tmp_path / "s") as store:
        assert store.backup(tmp_path / "b").sqn == 600
