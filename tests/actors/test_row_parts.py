"""Live rows of any number of buckets, in parts: what each part tells of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from beside import LITTLE, seeded
from whole_store import flush, opened

from octavo import Corruption
from octavo.actors.scanning import batch_values, row_parts
from octavo.files.ledger import chosen_rows
from octavo.files.ledger.chosen_rows import Span
from octavo.files.ledger.ledger_key import STANDARD

SPANS = [Span(), Span(b"1", b"3"), Span(prefix=b"2")]


def rows_of(snap: Any, bucket: bytes | None, span: Span) -> list[tuple[bytes, bytes, Any, bytes]]:
    asked = row_parts.to_ask(snap._shared, STANDARD, bucket, span)
    return [
        row
        for part in row_parts.row_parts(snap._shared, asked, by_values=True)
        for row in zip(part.buckets(), part.keys(), part.heads(), part.values(), strict=True)
    ]


def scanned(snap: Any, names: Any, span: Span) -> list[tuple[bytes, bytes, Any, bytes]]:
    low, high, begins = span
    return [
        (name, key, head, snap.bucket(name)[key])
        for name in names
        for key, head in snap.bucket(name).heads(low, high, prefix=begins)
    ]


@pytest.mark.parametrize("a_file", [0, 1 << 20], ids=["together", "one by one"])
def test_they_are_the_rows_of_scans_bucket_by_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, a_file: int
) -> None:
    monkeypatch.setattr(batch_values, "_FEW_A_FILE", a_file)
    monkeypatch.setattr(row_parts, "_PART_ROWS", 7)
    rng = seeded(f"row parts {a_file}")
    names = [b"", b"\0", b"a", b"a\0b", *(b"b%d" % at for at in range(20))]
    with opened(tmp_path / "s", **LITTLE) as store:
        for turn in range(1500):
            bucket, key = store.bucket(rng.choice(names)), b"%d" % rng.randrange(40)
            if rng.random() < 0.3:
                bucket.delete(key)
            else:
                bucket.put(key, rng.randbytes(rng.randrange(40)), metadata=rng.choice([b"", b"m"]))
            if turn == 1300:
                flush(store)
        with store.snapshot() as snap:
            for most in (0, 1000):  # a search in each bucket, or one pass
                monkeypatch.setattr(chosen_rows, "_ROWS_A_BUCKET", most)
                for span in SPANS:
                    assert rows_of(snap, None, span) == scanned(snap, snap.buckets(), span)
                    assert rows_of(snap, b"a", span) == scanned(snap, [b"a"], span)


@pytest.mark.parametrize("a_file", [0, 1 << 20], ids=["together", "one by one"])
def test_values_before_one_that_cannot_be_read_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, a_file: int
) -> None:
    monkeypatch.setattr(batch_values, "_FEW_A_FILE", a_file)
    with opened(tmp_path / "s") as store:
        store.put_many((b"%d" % at, b"value %d" % at) for at in range(9))
    (journal,) = (tmp_path / "s" / "journal").glob("*-*.*")
    damaged = journal.read_bytes().replace(b"value 5", b"value X")
    with opened(tmp_path / "s") as store, store.snapshot() as snap:
        with journal.open("r+b") as file:
            file.write(damaged)
        asked = row_parts.to_ask(snap._shared, STANDARD, None, Span())
        (part,) = row_parts.row_parts(snap._shared, asked, by_values=True)
        values = part.values()
        assert [next(values) for _ in range(5)] == [b"value %d" % at for at in range(5)]
        with pytest.raises(Corruption):
            next(values)
