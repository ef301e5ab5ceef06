"""What is read of recent writes, before the ledger knows of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from whole_store import flush, opened

import octavo
from octavo.actors.journal_file import JournalFile

CASES: dict[str, tuple[bytes, bytes, dict[str, Any]]] = {
    "plain": (b"k", b"value", {}),
    "empty value": (b"k", b"", {}),
    "compressed": (b"k", b"much the same " * 5000, {}),
    "cannot be compressed": (b"k", random.Random(5).randbytes(50_000), {}),
    "long key": (b"k" * 65_000, b"value", {}),
    "metadata": (b"k", b"value" * 2000, {"metadata": b"draft"}),
    "metadata longer than a first read": (b"k", b"value", {"metadata": b"m" * 100_000}),
    "expiry": (b"k", b"value", {"expires_at": 1_800_000_000_000}),
    "index": (b"k", b"value", {"index": {"f": [b"%04d" % n * 200 for n in range(9)]}}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_head_is_the_same_in_memory_and_in_the_ledger(tmp_path: Path, name: str) -> None:
    key, value, options = CASES[name]
    with opened(tmp_path / "s", clock_ms=lambda: 1_700_000_000_000) as store:
        for bucket in (store, store.bucket("of a name")):
            sqn = bucket.put(key, value, **options)
            told = bucket.head(key)
            assert told == octavo.Head(
                sqn, len(value), options.get("metadata", b""), 1_700_000_000_000,
                options.get("expires_at"),
            )  # fmt: skip
        flush(store)
        assert store.bucket("of a name").head(key) == told


@pytest.mark.parametrize("since_ms", [-1, 0, 1])
def test_of_what_expired_in_memory_no_record_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since_ms: int
) -> None:
    now_ms = 1_700_000_000_000
    read: list[int] = []
    raw = JournalFile.raw

    def noted(self: JournalFile, relative: int) -> Any:
        read.append(relative)
        return raw(self, relative)

    with opened(tmp_path / "s", clock_ms=lambda: now_ms) as store:
        sqn = store.put(b"k", b"value", expires_at=now_ms + 60_000)
        with store.snapshot() as before:
            now_ms += 60_000 + since_ms
            monkeypatch.setattr(JournalFile, "raw", noted)
            with store.snapshot() as after:
                found = {store.get(b"k"), after.get(b"k")}
                told = store.head(b"k")
                if since_ms < 0:
                    assert found == {b"value"}
                    assert told is not None
                    assert told.sqn == sqn
                else:
                    assert found == {told} == {None}
                    assert read == []
            assert before.get(b"k") == b"value"


def test_a_head_in_memory_of_a_key_that_is_deleted_or_expired_is_none(tmp_path: Path) -> None:
    now = [1_700_000_000_000]
    with opened(tmp_path / "s", clock_ms=lambda: now[0]) as store:
        store.put("deleted", b"v")
        store.delete("deleted")
        store.put("expired", b"v", ttl=1)
        now[0] += 1000
        with store.snapshot() as snap:
            store.put("deleted", b"anew")
            assert snap.head("deleted") is snap.head("expired") is None
            assert store.head("deleted")
        store.delete("deleted")
        assert store.head("deleted") is None
        assert store.head("expired") is None


@pytest.mark.parametrize("looks", [0, 99], ids=["by a system call", "by a map"])
def test_a_damaged_header_in_memory_is_told(tmp_path: Path, looks: int) -> None:
    with opened(tmp_path / "s") as store:
        store.put("k", b"value")
        assert [store.head("k").size for _ in range(looks)] == [5] * looks  # type: ignore[union-attr]
        (file,) = (tmp_path / "s" / "journal").glob("*.log")
        damaged = bytearray(file.read_bytes())
        damaged[damaged.rindex(b"value") - 12] ^= 1  # in its write time
        file.write_bytes(damaged)
        with pytest.raises(octavo.Corruption, match="header checksum"):
            store.head("k")
        with store.snapshot() as snap, pytest.raises(octavo.Corruption, match="header checksum"):
            snap.head("k")


def test_a_scan_over_recent_deletes_does_not_ask_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "s", clock_ms=lambda: 1_700_000_000_000) as store:
        store.put_many((b"%04d" % n, b"v") for n in range(500))
        for n in range(499):
            store.delete(b"%04d" % n)
        with monkeypatch.context() as patched:
            patched.setattr(JournalFile, "raw", None)
            assert list(store.keys()) == [b"0499"]
            assert store.get(b"0000") is None
        store.put(b"0000", b"v", ttl=60)
        assert list(store.keys()) == [b"0000", b"0499"]


def test_damage_of_a_record_that_memory_tells_of_is_told(tmp_path: Path) -> None:
    with opened(tmp_path / "s", read_cache_bytes=0) as store:
        for _ in range(3):
            store.put(b"k", b"some value")
        assert [store.get(b"k") for _ in range(99)] == [b"some value"] * 99  # by a map
        (path,) = (tmp_path / "s" / "journal").glob("*.log")
        at = path.read_bytes().rindex(b"some value")
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"other")
        with pytest.raises(octavo.Corruption):
            store.get(b"k")
