"""A file system that tells of an error as a descriptor is closed, as one in user space may, or one
behind a quota: what is durable is so by then, and nothing else hangs on it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

import octavo


def test_what_a_close_of_a_file_tells_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = os.close

    def failing(fd: int) -> None:
        regular = stat.S_ISREG(os.fstat(fd).st_mode)
        close(fd)
        if regular:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patched:
        store = octavo.open(tmp_path / "s", worker=False, roll_size_bytes=1 << 20)
        patched.setattr(os, "close", failing)
        for number in range(30):  # more than one file of the journal
            store.put(b"%d" % number, os.urandom(100_000), sync=True)
        assert len(store[b"7"]) == 100_000
        store.close()
        with octavo.open(tmp_path / "s", worker=False) as store:
            assert store.verify().ok
            assert len(store) == 30
