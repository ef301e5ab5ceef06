"""Journal files that a backup has links of stay as they are there, whatever becomes of the store's
own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from whole_store import opened, settle


def test_a_damaged_file_that_the_manifest_lacks_is_sealed_anew_apart_from_its_links(
    tmp_path: Path,
) -> None:
    manifest, earlier = tmp_path / "s" / "journal" / "manifest", tmp_path / "earlier"
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        shutil.copytree(manifest, earlier)  # from before anything was sealed
        for n in range(700):
            store.put(b"%03d" % n, b"v" * 50)
        settle(store)
        store.backup(tmp_path / "b")
    shutil.rmtree(manifest)
    shutil.copytree(earlier, manifest)
    own = min((tmp_path / "s" / "journal").glob("*.cdb"))
    linked = tmp_path / "b" / "journal" / own.name
    assert os.path.samefile(own, linked)
    content = bytearray(own.read_bytes())
    content[-1] ^= 1
    with own.open("r+b") as file:
        file.write(content)
    with opened(tmp_path / "s", compact_every_seconds=None) as store:
        assert any("read record by record" in note for note in store.stats()["notes"])
        settle(store)
        assert len(store) == 700
        assert store.verify().ok
    assert linked.read_bytes() == content
    with opened(tmp_path / "s") as again:
        assert again.stats()["notes"] == []
