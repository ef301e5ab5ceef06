"""Reads a Parquet file as a source of entries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO

from octavo.cli.rows import check_columns, entries_of_text
from octavo.cli.source import Entry, Rejected
from octavo.files.errors import Misuse

_BATCH_ROWS = 4096


@dataclass
class Parquet:
    """Rows of a Parquet file, a few thousand at a time. Needs pyarrow.

    Without ``key_field`` the columns are as ``octavo dump`` writes them: key and value, and
    perhaps bucket, metadata, expires_at and index. With it, that column is the key, and the value
    is the column ``value_field`` or, if that is not given, the whole row as a JSON object.
    """

    name: str
    stream: BinaryIO
    total_bytes: int | None = None
    key_field: str | None = None
    value_field: str | None = None
    done_bytes: int = 0
    skipped: dict[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Entry | Rejected]:
        from octavo.files.kernels.arrow import parquet, pyarrow

        pa = pyarrow()

        number = 0
        try:
            file = parquet().ParquetFile(self.stream)
            names = file.schema_arrow.names
            check_columns(names, self.key_field, self.value_field)
            make = self._of_fields if self.key_field is not None else self._of_dump(names)
            rows = file.metadata.num_rows
            for batch in file.iter_batches(_BATCH_ROWS):
                for row in _documents(pa, batch):
                    number += 1
                    where = f"{self.name}, row {number}"
                    try:
                        if isinstance(row, str):
                            raise Misuse(row)
                        yield make(where, row)
                    except Misuse as wrong:
                        yield Rejected(where, str(wrong))
                self.done_bytes = (self.total_bytes or 0) * number // rows
        except (pa.ArrowException, OSError, Misuse) as wrong:
            where = f"{self.name}, behind row {number}" if number else self.name
            yield Rejected(where, str(wrong))

    def _of_dump(self, names: list[str]) -> Callable[[str, dict[str, Any]], Entry]:
        if not {"key", "value"} <= set(names):
            raise Misuse(
                "no columns 'key' and 'value' as `octavo dump` writes them; name the column that "
                f"is the key with --key-field; there are {', '.join(names):.200}"
            )
        return _of_dumped_row

    def _of_fields(self, where: str, row: dict[str, Any]) -> Entry:
        key = row[self.key_field or ""]
        if isinstance(key, bool) or not isinstance(key, bytes | str | int | float):
            raise Misuse(f"the key is {key!r:.60}: allowed are bytes, a string and a number")
        value = row if self.value_field is None else row[self.value_field]
        return Entry(where, _bytes_of(key), _bytes_of(value))


def _documents(pa: Any, batch: Any) -> Iterator[dict[str, Any] | str]:
    """Yield the rows of a batch; in place of one that cannot be converted, why: its text may not be
    UTF-8, and Arrow holds moments that Python cannot."""
    try:
        rows = _converted(pa, batch)
    except (ValueError, OverflowError) as wrong:
        if batch.num_rows == 1:
            yield f"cannot be read: {wrong}"
            return
        for at in range(batch.num_rows):
            yield from _documents(pa, batch.slice(at, 1))
    else:
        yield from rows


def _converted(pa: Any, batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch. Moments stay as Arrow gives them, except the expiry, which becomes ms,
    as in a dump."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    if "expires_at" in batch.schema.names:
        column = batch.column("expires_at")
        if pa.types.is_timestamp(column.type):
            moments = column.cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
            for row, moment in zip(rows, moments, strict=True):
                row["expires_at"] = moment
    return rows


def _of_dumped_row(where: str, row: dict[str, Any]) -> Entry:
    expires_at = row.get("expires_at")
    if expires_at is not None and (isinstance(expires_at, bool) or not isinstance(expires_at, int)):
        raise Misuse(f"'expires_at' is {expires_at!r:.60}: allowed are moments, and ms UTC")
    return Entry(
        where,
        _binary("key", row["key"]),
        _binary("value", row["value"]),
        _binary("bucket", row.get("bucket") or b""),
        _binary("metadata", row.get("metadata") or b""),
        expires_at,
        entries_of_text(row.get("index")),
    )


def _binary(name: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise Misuse(f"{name!r} is {value!r:.60}: allowed are bytes and a string")


def _bytes_of(value: object) -> bytes:
    """Bytes as they are, a string as UTF-8, anything else as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, default=_json_of).encode()


def _json_of(value: object) -> object:
    """A value that JSON has no type for: bytes as text if they are UTF-8, otherwise as hex."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise Misuse(f"holds a {type(value).__name__}, which JSON cannot say: name a --value-field")
