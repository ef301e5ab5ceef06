"""A store of thousands of files: few threads, few descriptors, every value."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest
from descriptors import descriptors
from whole_store import rolled

import octavo
from octavo.files.door.disk import RealDisk

FILES = 1000
OPEN_FILES = 64


def test_a_store_of_a_thousand_files_needs_few_threads_and_descriptors(tmp_path: Path) -> None:
    threads = threading.active_count()
    options: dict[str, Any] = {"max_open_files": OPEN_FILES, "compact_every_seconds": None}
    with octavo.open(tmp_path / "s", worker=False, **options) as store:
        for i in range(FILES):
            store.put(b"k%d" % i, b"v%d" % i)
            rolled(store)
    with octavo.open(tmp_path / "s", **options) as store:
        assert store.stats()["journal"]["files"] >= FILES
        assert store.get_many(b"k%d" % i for i in range(FILES)) == [
            b"v%d" % i for i in range(FILES)
        ]
        assert threading.active_count() - threads < 20
        assert len(descriptors(store.path)) <= OPEN_FILES + 20


@pytest.mark.parametrize(
    "rebuilding",
    [
        "octavo.open(path, max_open_files=64, worker=False).close()",
        "octavo.open(path, max_open_files=64).close()",
        "offline._rebuild(RealDisk, path, offline.Run(), merge=False)",
    ],
)
def test_its_ledger_is_made_anew_with_few_descriptors(tmp_path: Path, rebuilding: str) -> None:
    with octavo.open(tmp_path / "s", worker=False) as store:
        for i in range(300):
            store.put(b"k%d" % i, b"v", metadata=b"m%d" % i)
            rolled(store)
    shutil.rmtree(tmp_path / "s" / "ledger")
    code = (
        "import octavo, resource\n"
        "from octavo.files.door.disk import RealDisk\n"
        "from octavo.pipeline import offline\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        f"path = {str(tmp_path / 's')!r}\n"
        f"{rebuilding}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    with octavo.open(tmp_path / "s", create=False) as store:
        assert {key: head.metadata for key, head in store.heads()} == {
            b"k%d" % i: b"m%d" % i for i in range(300)
        }
        assert store.verify().ok


def test_reads_that_find_no_descriptor_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with octavo.open(tmp_path / "s") as store:
        store.put_many((b"k%06d" % i, b"v") for i in range(20_000))

    def none_is_left(disk: RealDisk, path: str) -> NoReturn:
        raise OSError(errno.EMFILE, "none is left", path)

    with octavo.open(tmp_path / "s") as store:
        with monkeypatch.context() as patched:
            patched.setattr(RealDisk, "map", none_is_left)
            with pytest.raises(octavo.StorageFull, match="none is left"):
                len(store)
        assert len(store) == 20_000
