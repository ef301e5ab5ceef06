"""Reads what ``octavo pipeline`` is given into a DataFrame: key, value, and the group as metadata.

A directory: each file is a value, its path the key, its suffix the group. A table (Parquet, CSV,
JSON lines): a column is the key, another or the whole row the value, another the group.
"""

from __future__ import annotations

import csv
import io
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from octavo.files.door.disk import RealDisk
from octavo.files.errors import Misuse
from octavo.files.messages import messages_of
from octavo.pipeline import spark_tasks

log = messages_of("octavo.corpus")

SCHEMA = "key binary, value binary, metadata binary"
_SUFFIXES = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "jsonl",
}  # fmt: skip
_PACKED = (".gz", ".zst")
_PATTERNS = "*?[]{}\\"
"""Characters that in the name of a table mean something else to Spark."""
_MAX_FILE_BYTES = 1 << 30
_BATCH_BYTES = 4 << 20
_HEAD_BYTES = 1 << 16
_CRLF_HEADER = re.compile(rb'(?:[^"\r\n]|"[^"]*")*+\r\n')
"""A line with its end; ends of lines within quotes do not count."""
_END = "the end of the file"
_OTHER_ESCAPE = r"\\[^u]"
_LONE = (
    r"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
"""In JSON without other escapes, half of a pair of surrogates without the other half. A pattern
both to Java and to Python."""
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
_BEYOND_ASCII = re.compile("%[89A-Fa-f]")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Where it is, and which of its columns are what."""

    path: str
    kind: str
    key_field: str | None = None
    value_field: str | None = None
    group_field: str | None = None
    exclude: tuple[str, ...] = ()
    """Names that are left out of a directory."""


def kind_of(path: str) -> str:
    """Tell by what is there: directory, parquet, csv or jsonl. Raises Misuse if that cannot be
    told."""
    found = _SUFFIXES.get(_suffix(path))
    if found is None and os.path.isdir(path):
        inside = {os.path.splitext(each)[1] for each in os.listdir(path) if each[:1] not in "_."}
        found = "parquet" if inside == {".parquet"} else "directory"
    if found is None:
        raise Misuse(f"cannot tell what {path!r} is: say it with --format")
    return found


def _suffix(path: str) -> str:
    """What the name of a file or directory ends in, in lower case, before .gz or .zst."""
    name = os.path.basename(path.rstrip("/")).lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return os.path.splitext(name)[1]


def frame(spark: Any, corpus: Corpus) -> Any:
    """The rows of a corpus, with the columns of SCHEMA; a row whose key is null or empty is left
    out, and so is a file of over 1 GiB, or that may not be read, with a warning.

    Raises Misuse where a column is missing, and where Spark cannot read the table.
    """
    if corpus.kind == "directory":
        return _files(spark, corpus)
    return _table(spark, corpus)


@contextmanager
def readable(corpus: Corpus, code: str = "FAILED_READ_FILE[A-Z_.]*") -> Iterator[None]:
    """Context in which an error of Spark's with such a code becomes Misuse: Spark cannot read this.
    It has Spark's words, and their last cause."""
    try:
        yield
    except Exception as error:  # Spark's, or of its bridge to Java
        said = re.search(rf"\[{code}\] .*", str(error))
        if said is None:
            raise
        causes = re.findall(r"^Caused by: [\w.$]+: (.+)$", str(error), re.MULTILINE)
        told = ": ".join([said[0].strip(), *causes[-1:]])
        raise Misuse(f"Spark cannot read {corpus.path} as {corpus.kind}: {told:.600}") from error


# ---------------------------------------------------------------- a directory


def _files(spark: Any, corpus: Corpus) -> Any:
    root = os.fsencode(os.path.abspath(corpus.path))
    found = sorted(_walk(root, {os.fsencode(name) for name in corpus.exclude}))
    if not found:
        raise Misuse(f"{corpus.path} holds no file")
    parts = 2 * int(spark.sparkContext.defaultParallelism)
    total = sum(size for _, size in found)
    names: list[list[bytes]] = [[] for _ in range(parts)]
    done = 0
    for name, size in found:
        names[min(done * parts // (total + 1), parts - 1)].append(name)
        done += size
    rows = spark.createDataFrame(
        spark.sparkContext.parallelize([(part,) for part in names if part], parts),
        "names array<binary>",
    )

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                yield from _contents(root, part)

    return rows.mapInArrow(read, SCHEMA)


def _walk(root: bytes, exclude: set[bytes]) -> Iterator[tuple[bytes, int]]:
    for directory, below, names in os.walk(root):
        below[:] = [name for name in below if name not in exclude]
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                size, shown = os.path.getsize(path), os.fsdecode(path)
                if not os.access(path, os.R_OK):
                    log.warning("%s is left out: this process's user may not read it", shown)
                elif size <= _MAX_FILE_BYTES:
                    yield os.path.relpath(path, root), size
                else:
                    log.warning("%s is left out: %d bytes, over 1 GiB", shown, size)


def _contents(root: bytes, names: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    """In a task: the files, about 4 MiB a batch."""
    disk = RealDisk()
    rows: list[tuple[bytes, bytes, bytes]] = []
    held = 0
    for name in names:
        path = os.fsdecode(os.path.join(root, name))
        value = disk.pread(path, disk.size(path), 0)
        rows.append((name, value, os.path.splitext(name)[1] or b"none"))
        held += len(value)
        if held >= _BATCH_BYTES:
            yield _batch(rows)
            rows, held = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: Sequence[tuple[bytes, bytes, bytes]]) -> pa.RecordBatch:
    columns = [pa.array(column, pa.binary()) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "metadata"])


# ---------------------------------------------------------------- a table


def _table(spark: Any, corpus: Corpus) -> Any:
    from pyspark.sql import functions as sql

    with readable(corpus, "[A-Z_.]+"):
        rows = _rows(spark, corpus)
    if not rows.columns:
        raise Misuse(f"{corpus.path} is empty: it has no column")
    for option, name in (
        ("--key-field", corpus.key_field),
        ("--value-field", corpus.value_field),
        ("--group-field", corpus.group_field),
    ):
        if name is not None and name not in rows.columns:
            raise Misuse(f"{option} {name}: the columns are {', '.join(rows.columns):.300}")
    if corpus.key_field is None:
        raise Misuse(
            f"say with --key-field which column of {corpus.path} is the key: "
            f"{', '.join(rows.columns):.300}"
        )
    named = (corpus.key_field, corpus.value_field, corpus.group_field)
    _refuse_keys_of_maps(rows, rows.columns if corpus.value_field is None else named, corpus.path)
    types = dict(rows.dtypes)

    def raw(name: str) -> Any:
        # A name may hold a dot.
        column = sql.col(f"`{name.replace('`', '``')}`")
        if types[name] == "binary":
            return column
        if types[name].startswith(("array", "map", "struct")):
            column = sql.to_json(column)
        return column.cast("string").cast("binary")

    key = raw(corpus.key_field)
    whole = sql.to_json(sql.struct("*")).cast("binary")
    value = whole if corpus.value_field is None else raw(corpus.value_field)
    group = sql.substring(key, 1, 1) if corpus.group_field is None else raw(corpus.group_field)
    chosen = rows.select(
        key.alias("key"),
        sql.coalesce(value, sql.lit(b"")).alias("value"),
        sql.coalesce(sql.nullif(group, sql.lit(b"")), sql.lit(b"none")).alias("metadata"),
    )
    return chosen.where("key is not null and length(key) > 0")


def _rows(spark: Any, corpus: Corpus) -> Any:
    where = os.path.abspath(corpus.path)
    _refuse_name(where, corpus)
    _refuse_passed_over(where, corpus.path)
    heads = _heads(where) if corpus.kind == "csv" else []
    reader, where = spark.read, "file:" + where
    if corpus.kind == "parquet":  # else columns that the first file lacks are silently left out
        return _meant(reader.option("mergeSchema", True).parquet(where), corpus.path)
    reader = reader.option("mode", "FAILFAST")  # else lines and cells are silently left out
    if corpus.kind == "jsonl":
        rows = reader.json(where)
        _refuse_what_follows(spark, where, corpus.path)
        return _meant(rows, corpus.path)
    between = "\t" if _suffix(corpus.path) == ".tsv" else ","
    # Of many files each has its own order of columns; in one Spark names those that have no name.
    several = os.path.isdir(corpus.path)
    reader = reader.options(header=True, multiLine=True, escape='"', sep=between)
    if heads and all(map(_CRLF_HEADER.match, heads)):
        # Spark takes the first end of a line for that of all rows, even if it stands within a name,
        # and changes those within cells.
        reader = reader.option("lineSep", "\r\n")
    rows = reader.option("enforceSchema", not several).csv(where)
    _refuse_open_quotes(spark, corpus.path, between)
    return _meant(rows, corpus.path)


def _meant(rows: Any, path: str) -> Any:
    """The rows with partitions named as their writer meant them: pyarrow and others spell UTF-8 by
    %XX in names of directories, and Spark makes a character of each."""
    from pyspark.sql import functions as sql

    where = os.path.abspath(path)
    columns: dict[str, dict[str, str]] = {}
    for each in _shown(where):
        for place in os.path.relpath(os.path.dirname(each), where).split("/"):
            name, _, value = place.partition("=")
            if value and _BEYOND_ASCII.search(place):
                columns.setdefault(name, {})[value] = _utf8(value)
    for name, values in columns.items():
        given = _as_spark(name)
        if given not in rows.columns:
            continue
        changed = {_as_spark(was): now for was, now in values.items() if _as_spark(was) != now}
        if changed:
            column = sql.col(f"`{given.replace('`', '``')}`")
            known = sql.create_map(*map(sql.lit, chain.from_iterable(changed.items())))
            rows = rows.withColumn(given, sql.coalesce(known[column], column))
        rows = rows.withColumnRenamed(given, _utf8(name))
    return rows


def _as_spark(name: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)


def _utf8(name: str) -> str:
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError:
        return _as_spark(name)


def _heads(where: str) -> list[bytes]:
    """How each file of a table begins, as far as that can be told here."""
    out = []
    for path in _shown(where):
        try:
            head = RealDisk().pread(path, _HEAD_BYTES, 0)
            if path.endswith(".gz"):
                head = zlib.decompressobj(zlib.MAX_WBITS + 16).decompress(head, _HEAD_BYTES)
        except (OSError, zlib.error):
            head = b""  # Spark will say what is wrong
        out.append(head)
    return out


def _shown(where: str) -> list[str]:
    """The files of a table, without those that Spark takes for hidden."""
    if not os.path.isdir(where):
        return [where]
    found = []
    for directory, below, names in os.walk(where):
        below[:] = [name for name in below if name[0] != "." and (name[0] != "_" or "=" in name)]
        found += [os.path.join(directory, name) for name in names if name[0] not in "_."]
    return sorted(found)


def _refuse_passed_over(where: str, path: str) -> None:
    """Raise Misuse for a directory of which Spark would silently leave out a file: it reads what
    stands in the directory itself or, if there are any, in partitions (``name=value``)."""
    found = {each: os.path.dirname(os.path.relpath(each, where)) for each in _shown(where)}
    parts = any("=" in place for place in found.values())
    for each, place in found.items():
        if ("=" not in place) if parts else place:
            raise Misuse(
                f"Spark cannot read {path}: it would pass over {each}, which is in a directory "
                f"{'beside partitions' if parts else 'of its own'}; load that by itself"
            )


def _refuse_what_follows(spark: Any, where: str, path: str) -> None:
    """Raise Misuse for a line with more than one object (in brackets it is no array of one), of
    which Spark silently takes the first. And for half a character, of which Spark makes another."""
    from pyspark.sql import functions as sql

    line = sql.col("value")
    found = sql.from_json(sql.concat(sql.lit("["), line, sql.lit("]")), "array<string>")
    more = sql.coalesce(sql.size(found), sql.lit(-1)) != 1
    halves = sql.regexp_replace(line, sql.lit(_OTHER_ESCAPE), sql.lit(" "))
    wrong = line.rlike(r"\S") & (more | halves.rlike(_LONE))
    for row in spark.read.text(where).where(wrong).head(1):
        lone = re.search(_LONE, re.sub(_OTHER_ESCAPE, " ", row.value))
        raise Misuse(
            f"Spark cannot read {path} as jsonl: it would "
            + (f"make ? of {lone[0]}" if lone else "pass over what follows the first object")
            + f" of a line: {row.value:.200}"
        )


def _refuse_open_quotes(spark: Any, path: str, between: str) -> None:
    """Raise Misuse for a file of CSV that ends within quotes: Spark silently makes one cell of all
    that stands behind them."""
    files = _shown(os.path.abspath(path))
    tasks = min(2 * spark_tasks.parallelism(spark), len(files))
    run = partial(_ending_within_quotes, between)
    for found in spark_tasks.results(spark, run, [files[n::tasks] for n in range(tasks)]):
        for each in found:
            raise Misuse(
                f"Spark cannot read {path} as csv: a quote in {each} is not closed, so that the "
                "rest of the file would be one cell"
            )


def _ending_within_quotes(between: str, files: Sequence[str]) -> list[str]:
    """In a task: which of these files end within quotes."""
    csv.field_size_limit(sys.maxsize)
    out = []
    for each in files:
        row: list[str] = [_END]
        try:
            raw = pa.input_stream(each, compression="detect")
            with io.TextIOWrapper(raw, "utf-8-sig", errors="replace", newline="") as text:
                for row in csv.reader(chain(text, ["\n", _END]), delimiter=between):  # noqa: B007
                    pass
        except OSError:
            continue  # Spark will say what is wrong
        if row != [_END]:
            out.append(each)
    return out


def _refuse_keys_of_maps(rows: Any, names: Sequence[str | None], path: str) -> None:
    """Raise Misuse for a map whose keys Spark would spell in JSON as nobody expects: bytes by their
    place in memory, dates as a count of days."""
    from pyspark.sql import types

    def keys_of(kind: Any) -> Iterator[Any]:
        if isinstance(kind, types.StructType):
            for field in kind.fields:
                yield from keys_of(field.dataType)
        elif isinstance(kind, types.ArrayType):
            yield from keys_of(kind.elementType)
        elif isinstance(kind, types.MapType):
            yield kind.keyType
            yield from keys_of(kind.valueType)

    plain = (types.StringType, types.NumericType, types.BooleanType)
    for field in rows.schema.fields:
        for kind in keys_of(field.dataType) if field.name in names else ():
            if not isinstance(kind, plain):
                raise Misuse(
                    f"column {field.name!r} of {path} has a map whose keys are of type "
                    f"{kind.simpleString()}: in JSON keys are strings, numbers or booleans; make "
                    "strings of them, or name another column with --value-field"
                )


def _refuse_name(where: str, corpus: Corpus) -> None:
    """Raise Misuse for a table whose name Spark takes for other tables, or for none."""
    path, name = corpus.path, os.path.basename(where) if os.path.isfile(where) else ""
    colon = ":" in (where if corpus.kind == "csv" else name)  # a URI's, to Spark
    for each in where:
        if each in _PATTERNS or (each == ":" and colon):
            raise Misuse(
                f"Spark cannot read {path}: {each!r} has another meaning in Spark's paths; give it "
                "another name, or a link"
            )
    if name[:1] in ("_", "."):
        raise Misuse(
            f"Spark cannot read {path}: it passes over files whose names begin with _ or a dot; "
            "give it another name, or a link"
        )
