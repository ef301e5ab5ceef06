"""The command that writes a store to a file that others can read: dump."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from itertools import repeat
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from octavo.arguments import OF_HEADS, to_bucket
from octavo.cli.heads import is_head_only
from octavo.cli.options import (
    STDIN,
    bound,
    hex_key_option,
    open_for_reading,
    path_argument,
    tag_option,
    to_bytes,
)
from octavo.cli.output import Output, complain, json_line, progress, whole_file
from octavo.cli.read import tell_of_other_types
from octavo.cli.rows import LONGEST_LINE, Entries, Row, entries_to_json, to_fields
from octavo.cli.source import unpacked_name
from octavo.figures import plural
from octavo.files.argument_checks import shown
from octavo.files.errors import Misuse
from octavo.files.kernels.arrays import np
from octavo.files.later import Later
from octavo.files.ledger.bounds import of_type
from octavo.files.ledger.chosen_rows import Span
from octavo.files.ledger.ledger_key import INDEX, split
from octavo.notation import put_field, to_text

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo.actors.scanning import row_parts
    from octavo.snapshot import Snapshot
else:
    row_parts = Later("octavo.actors.scanning.row_parts")

FORMATS = ("jsonl", "csv", "parquet")
_BY_SUFFIX = {
    "": "jsonl", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip
_LEASE_SECONDS = 3600.0
_MOST_BYTES = 2_000_000_000
"""Bytes of a value: Parquet holds hardly more in one, and as text it is in memory several times."""
_TOLD_ROWS = 4096
_GROUP_ROWS, _GROUP_BYTES, _GROUP_BATCHES = 1 << 16, 16 << 20, 4096
"""What a row group of Parquet has at most, unless a single row has more bytes."""


@click.command()
@path_argument
@click.option("--output", "-o", default="-", metavar="FILE", help="Appears only once it is whole.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS),
    help="By default the name of FILE tells: jsonl if that has no ending.",
)  # fmt: skip
@click.option("--bucket", "-b", metavar="NAME", help="Only this bucket.")
@tag_option
@click.option("--prefix", metavar="KEY", help="Only keys that begin with this.")
@click.option("--start", metavar="KEY", help="First key, inclusive.")
@click.option("--end", metavar="KEY", help="Last key, exclusive.")
@click.option("--columns", metavar="NAMES", help="Only these, comma-separated; may include size.")
@hex_key_option
def dump(
    path: str,
    output: str,
    kind: str | None,
    bucket: str | None,
    tag: str,
    prefix: str | None,
    start: str | None,
    end: str | None,
    columns: str | None,
    hex_key: bool,
) -> None:
    """Write all live keys as JSON lines, CSV or Parquet.

    `load` reads them back to the same state: buckets, values, metadata, expiry, index entries.

    \b
    {"bucket": "docs", "key": "a.txt", "value": "...", "metadata": "...",
     "expires_at": 1767225600000, "sqn": 7, "written_at": 1767139200000}

    JSON lines: bytes that are not UTF-8 stand as base64 in key64, value64, bucket64 and
    metadata64; parts that are empty are left out. CSV: bytes are text on one line, \\xHH for what
    cannot be printed and \\\\ for a backslash. Parquet: binary columns; needs pyarrow. FILE may
    end in .gz or .zst, except for Parquet, which is compressed by itself. A value of over
    2,000,000,000 bytes is refused: `get` writes it.

    Dumps the state of one moment, in byte order of bucket and key. With --tag it dumps objects of
    one type; `load`, which lacks the type's functions, makes standard objects of them.
    """
    wanted = None if bucket is None else to_bucket(to_bytes("--bucket", bucket))
    names = to_fields(columns)
    kind = kind or _format_of(output)
    span = Span(
        bound("--start", start, hexadecimal=hex_key),
        bound("--end", end, hexadecimal=hex_key),
        bound("--prefix", prefix, hexadecimal=hex_key),
    )
    packed = os.path.splitext(output)[1].lower()
    if kind == "parquet" and output == STDIN:
        raise click.UsageError("Parquet goes to a file: give --output")
    if kind == "parquet" and packed in (".gz", ".zst"):
        raise click.UsageError("Parquet is compressed by itself: name FILE without .gz or .zst")
    done = 0
    with ExitStack() as stack:
        store = stack.enter_context(open_for_reading(path))
        if is_head_only(path):  # refused before a header is written
            raise Misuse(OF_HEADS)
        snap = stack.enter_context(store.snapshot(_LEASE_SECONDS))
        if output == STDIN:
            out = stack.enter_context(Output())
        else:
            stream = stack.enter_context(whole_file(output))
            stream = stack.enter_context(_compressed(stream, packed, output))
            out = stack.enter_context(Output(stream, output))
        advance = stack.enter_context(progress("dumping", None))
        writer = stack.enter_context(_WRITERS[kind](out, names))
        for number in writer.write(_Source(snap, tag, wanted, span)):
            done += number
            snap.renew()
            advance(done)
        tell_of_other_types(snap, tag)
    if output != STDIN:
        complain(f"{plural(done, 'key')} in {output}")


def _format_of(output: str) -> str:
    """The format that the file's name asks for. Raises UsageError for an unknown one: it may be a
    slip."""
    suffix = os.path.splitext(unpacked_name(output))[1]
    if suffix not in _BY_SUFFIX:
        raise click.UsageError(
            f"FILE={output!r}: {suffix!r} is not the name of a format; end it in .jsonl, .csv or "
            ".parquet (.gz or .zst may follow the first two), or give --format"
        )
    return _BY_SUFFIX[suffix]


class _Source:
    """What is dumped: a span of the keys of one bucket or of each, in one pass over all."""

    def __init__(self, snap: Snapshot, tag: str, bucket: bytes | None, span: Span) -> None:
        self._snap, self._tag, self._bucket, self._span = snap, tag, bucket, span

    def rows(self, names: tuple[str, ...]) -> Iterator[Row]:
        """Yield the live keys; their values and index entries only if wanted."""
        by_values, indexed = "value" in names, self.indexed(names)
        reader, tag = self._snap._shared, self._snap._identity.tags.number(self._tag)
        asked = row_parts.to_ask(reader, tag, self._bucket, self._span)
        for part in row_parts.row_parts(reader, asked, by_values=by_values):
            buckets, keys, heads = part.buckets(), part.keys(), part.heads()
            values: Iterable[bytes] = repeat(b"", len(keys))
            if by_values:
                for bucket, key, head in zip(buckets, keys, heads, strict=True):
                    _refuse_large(bucket, key, head.size)  # before its value is read
                values = part.values()
            for bucket, key, head, value in zip(buckets, keys, heads, values, strict=True):
                entries = self.entries(bucket, key) if bucket in indexed else None
                yield Row(bucket, key, value, head, entries)

    def arrow(self, columns: list[str]) -> pa.RecordBatchReader:
        """Some columns of the live keys."""
        snap, span = self._snap, self._span._asdict()
        if self._bucket is None:
            return snap.to_arrow(columns, **span, tag=self._tag)
        return snap.bucket(self._bucket, tag=self._tag).to_arrow(columns, **span)

    def indexed(self, names: tuple[str, ...]) -> Collection[bytes]:
        """Names of the buckets that may have index entries, if these are wanted."""
        fronts = self._snap._shared.fronts(of_type(INDEX)) if "index" in names else ()
        return {split(front)[1] for front in fronts}

    def entries(self, bucket: bytes, key: bytes) -> Entries | None:
        """The index entries of a key."""
        return self._snap.bucket(bucket, tag=self._tag).index_of(key)


def _refuse_large(bucket: bytes, key: bytes, length: int) -> None:
    if length > _MOST_BYTES:
        raise Misuse(
            f"the value of {shown(key)} in bucket {shown(bucket)} has {length} bytes: a dump holds "
            f"values of up to {_MOST_BYTES}. `get` writes it; --start, --end and --prefix choose "
            "keys, --columns leaves values out"
        )


@contextlib.contextmanager
def _compressed(stream: BinaryIO, suffix: str, name: str) -> Iterator[BinaryIO]:
    """A stream that writes to ``stream``, compressed as the suffix of the file's name says."""
    if suffix == ".gz":
        with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as packed:
            yield cast(BinaryIO, packed)
    elif suffix == ".zst":
        from octavo.files.kernels.arrow import pyarrow

        # A file of its own, since pyarrow closes what it writes to, and that is still needed.
        sink = pyarrow().PythonFile(_Sink(Output(stream, name)), mode="w")
        with pyarrow().CompressedOutputStream(sink, "zstd") as packed:
            yield packed
    else:
        yield stream


# ---------------------------------------------------------------- formats


class _Writer(contextlib.AbstractContextManager["_Writer"]):
    """Writes rows; the file is whole when the ``with`` block ends."""

    def __init__(self, out: Output, names: tuple[str, ...]) -> None:
        self.out = out
        self.names = names

    def write(self, source: _Source) -> Iterator[int]:
        """Write all rows; yields from time to time how many were written."""
        done = 0
        for row in source.rows(self.names):
            self.row(row)
            done += 1
            if done == _TOLD_ROWS:
                yield done
                done = 0
        yield done

    def row(self, row: Row) -> None:
        raise NotImplementedError  # pragma: no cover - Parquet writes whole batches

    def line(self, row: Row, line: bytes) -> None:
        """Write a line. Raises Misuse if it is longer than ``load`` reads."""
        if len(line) > LONGEST_LINE:
            raise Misuse(
                f"the row of {shown(row.key)} in bucket {shown(row.bucket)} would have {len(line)} "
                f"bytes: as text, a dump holds rows of up to {LONGEST_LINE}; Parquet holds this one"
            )
        self.out.write(line)

    def __exit__(self, *error: object) -> None:
        pass


class _Jsonl(_Writer):
    """Writes a JSON object a line; empty parts are left out."""

    def row(self, row: Row) -> None:
        fields = row.fields()
        document: dict[str, Any] = {}
        for name in self.names:
            value = fields[name]
            if isinstance(value, bytes):
                if value or name in ("key", "value"):
                    put_field(document, name, value)
            elif value is not None:
                document[name] = value
        self.line(row, json_line(document))


class _Csv(_Writer):
    """Writes a header, then a row a line, in the text notation; moments in ms UTC."""

    def __init__(self, out: Output, names: tuple[str, ...]) -> None:
        super().__init__(out, names)
        self._line = io.StringIO()
        self._rows = csv.writer(self._line, lineterminator="\n")
        out.write(self._encoded(names))

    def row(self, row: Row) -> None:
        fields = row.fields()
        self.line(row, self._encoded([_cell(fields[name]) for name in self.names]))

    def _encoded(self, cells: Iterable[str]) -> bytes:
        self._line.seek(0)
        self._line.truncate()
        self._rows.writerow(cells)
        return self._line.getvalue().encode("utf-8")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return to_text(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)


class _Parquet(_Writer):
    """Writes row groups, compressed with zstd. Small buckets share one: a group costs 1.3 KB and
    2 ms, however few rows it has."""

    def __init__(self, out: Output, names: tuple[str, ...]) -> None:
        from octavo.files.kernels.arrow import parquet, pyarrow, schema

        super().__init__(out, names)
        pa = self._pa = pyarrow()
        self._stored = [name for name in names if name != "index"]
        known = schema(tuple(self._stored))
        fields = [
            pa.field(name, pa.string()) if name == "index" else known.field(name) for name in names
        ]
        self._schema = pa.schema(fields)
        self._sink = _Sink(out)
        self._writer = parquet().ParquetWriter(self._sink, self._schema, compression="zstd")
        self._group: list[Any] = []
        self._rows = self._bytes = 0

    def write(self, source: _Source) -> Iterator[int]:
        indexed = source.indexed(self.names)
        if "value" in self.names:
            for batch in source.arrow(["bucket", "key", "size"]):
                for row in np.flatnonzero(batch.column("size").to_numpy() > _MOST_BYTES)[:1]:
                    name, key, size = (column[int(row)].as_py() for column in batch.columns)
                    _refuse_large(name, key, size)
        columns = list(self._stored)
        if indexed:  # bucket and key are needed to look up the entries
            columns += [name for name in ("bucket", "key") if name not in columns]
        for batch in source.arrow(columns or ["key"]):
            cells: list[str | None] = [None] * batch.num_rows
            if indexed:
                names, keys = (batch.column(name).to_pylist() for name in ("bucket", "key"))
                cells = [
                    _entries_cell(source.entries(name, key)) if name in indexed else None
                    for name, key in zip(names, keys, strict=True)
                ]
            arrays = [
                self._pa.array(cells, self._pa.string()) if name == "index" else batch.column(name)
                for name in self.names
            ]
            self._add(self._pa.RecordBatch.from_arrays(arrays, schema=self._schema))
            yield batch.num_rows

    def _add(self, batch: pa.RecordBatch) -> None:
        if self._rows + batch.num_rows > _GROUP_ROWS or self._bytes + batch.nbytes > _GROUP_BYTES:
            self._write_group()
        self._group.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if len(self._group) == _GROUP_BATCHES:
            self._write_group()

    def _write_group(self) -> None:
        if self._group:
            self._writer.write_table(self._pa.Table.from_batches(self._group))
        self._group, self._rows, self._bytes = [], 0, 0

    def __exit__(self, kind: object = None, *error: object) -> None:
        try:
            if kind is None:
                self._write_group()
                self._writer.close()
        finally:
            self._sink.over = True  # pyarrow also ends a file that is only dropped


def _entries_cell(found: Entries | None) -> str | None:
    """Index entries as JSON text for a cell."""
    return json.dumps(entries_to_json(found), ensure_ascii=False) if found else None


class _Sink(io.RawIOBase):
    """An Output as a file that pyarrow writes to."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self._out = out
        self._at = 0
        self.over = False
        """Whether further writes are ignored."""

    def writable(self) -> bool:
        return True

    def write(self, raw: Any) -> int:
        length = memoryview(raw).nbytes
        if not self.over:
            self._out.write(bytes(raw))
        self._at += length
        return length

    def tell(self) -> int:
        return self._at


_WRITERS: dict[str, type[_Writer]] = {"jsonl": _Jsonl, "csv": _Csv, "parquet": _Parquet}
