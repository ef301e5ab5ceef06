"""Reads what ``octavo load`` is given, a directory, CSV or JSONL, as a stream of entries.

These are the user's own files, not the store's, so they are read here and not by ``files/door/``.
Every source gives an Entry for what can be stored, and for what cannot a Rejected, which says where
and why; the caller decides whether to stop or to go on.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import stat
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, Protocol, cast

from octavo.arguments import MAX_VALUE_BYTES
from octavo.cli.rows import (
    ALL_FIELDS,
    LONGEST_LINE,
    Entries,
    check_columns,
    dumped_cells,
    entries_of_json,
)
from octavo.files.errors import Misuse
from octavo.notation import take_field

TEXT_FORMATS = ("directory", "csv", "jsonl")
FORMATS = (*TEXT_FORMATS, "parquet")
_BY_SUFFIX = {
    ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip
_BLOCK_BYTES = 1 << 20
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """One value to be stored."""

    where: str
    key: bytes
    value: bytes
    bucket: bytes = b""
    metadata: bytes = b""
    expires_at: int | None = None
    index: Entries | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """Something in the source that cannot be stored."""

    where: str
    why: str


class Source(Protocol):
    """A source of entries. Iterating reads it once, front to back."""

    @property
    def total_bytes(self) -> int | None:
        """How much there is to read; None if that is not known, or not yet."""

    @property
    def done_bytes(self) -> int:
        """How much of it has been read."""

    @property
    def skipped(self) -> dict[str, int]:
        """What was left out on purpose, with how often."""

    def __iter__(self) -> Iterator[Entry | Rejected]: ...


def format_of(path: str) -> str | None:
    """One of FORMATS, by what ``path`` is or how its name ends; None if that does not tell."""
    if os.path.isdir(path):
        return "directory"
    return _BY_SUFFIX.get(os.path.splitext(unpacked_name(path))[1])


def unpacked_name(path: str) -> str:
    """The name in lower case, without .gz or .zst."""
    base, suffix = os.path.splitext(path.lower())
    return base if suffix in (".gz", ".zst") else path.lower()


def unpacked(path: str, stream: BinaryIO) -> BinaryIO:
    """The file's contents, decompressed if its name ends in .gz or .zst. Raises Misuse if that
    needs pyarrow, which is missing."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb"))
    if suffix == ".zst":
        from octavo.files.kernels.arrow import pyarrow

        packed = pyarrow().CompressedInputStream(stream, "zstd")
        return io.BufferedReader(_Blocks(packed.read), _BLOCK_BYTES)
    return stream


# ---------------------------------------------------------------- a directory


@dataclass
class Directory:
    """Every regular file below ``path``: its relative path, with ``/``, is the key.

    Symbolic links are not followed; they and FIFOs, sockets and devices are counted in
    ``skipped``. ``exclude``: shell patterns for names or, if they have a ``/``, for whole relative
    paths. The directory ``store`` is left out too. Memory: the names and sizes of all files.
    """

    path: str
    exclude: Sequence[str] = ()
    store: str | None = None
    total_bytes: int | None = None
    done_bytes: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    _unreadable: list[Rejected] = field(default_factory=list)

    def __iter__(self) -> Iterator[Entry | Rejected]:
        found = sorted(self._walk(os.fsencode(self.path), b""))
        self.total_bytes = sum(size for _, size in found)
        yield from self._unreadable
        for key, size in found:
            yield self._read(key)
            self.done_bytes += size

    def _walk(self, directory: bytes, below: bytes) -> Iterator[tuple[bytes, int]]:
        waiting = [(directory, below)]
        while waiting:
            directory, below = waiting.pop()
            try:
                with os.scandir(directory) as names:
                    for item in names:
                        key = below + item.name
                        if self._is_excluded(item.name, key):
                            self._skip("excluded")
                        elif item.is_symlink():
                            self._skip("symbolic links")
                        elif item.is_dir(follow_symlinks=False):
                            if self._is_store(item):
                                self._skip("the store itself")
                            else:
                                waiting.append((item.path, key + b"/"))
                        elif item.is_file(follow_symlinks=False):
                            yield key, item.stat(follow_symlinks=False).st_size
                        else:
                            self._skip("special files")
            except OSError as wrong:
                self._unreadable.append(_refusal(directory, wrong))

    def _is_excluded(self, name: bytes, key: bytes) -> bool:
        if not self.exclude:
            return False
        base, whole = os.fsdecode(name), os.fsdecode(key)
        return any(
            fnmatchcase(whole if "/" in pattern else base, pattern) for pattern in self.exclude
        )

    def _is_store(self, item: os.DirEntry[bytes]) -> bool:
        if self.store is None or not os.path.isdir(self.store):
            return False
        return os.path.samestat(item.stat(follow_symlinks=False), os.stat(self.store))

    def _skip(self, what: str) -> None:
        self.skipped[what] = self.skipped.get(what, 0) + 1

    def _read(self, key: bytes) -> Entry | Rejected:
        path = os.path.join(os.fsencode(self.path), key)
        try:
            # A file in the listing may be something else by now: never wait for a FIFO.
            with open(os.open(path, _READ_FLAGS), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    return Rejected(os.fsdecode(path), "is no regular file any more")
                if status.st_size > MAX_VALUE_BYTES:
                    return Rejected(
                        os.fsdecode(path),
                        f"{status.st_size} bytes: at most {MAX_VALUE_BYTES} are allowed",
                    )
                return Entry(os.fsdecode(path), key, file.read())
        except OSError as wrong:
            return _refusal(path, wrong)


def _refusal(path: bytes, wrong: OSError) -> Rejected:
    return Rejected(os.fsdecode(path), wrong.strerror or str(wrong))


# ---------------------------------------------------------------- lines of text


@dataclass
class _Lines(ABC):
    """The base of sources that are files of lines."""

    name: str
    stream: BinaryIO
    total_bytes: int | None = None
    done_bytes: int = 0
    skipped: dict[str, int] = field(default_factory=dict)

    @abstractmethod
    def __iter__(self) -> Iterator[Entry | Rejected]: ...

    def _numbered(self) -> Iterator[tuple[int, bytes]]:
        for number, line in enumerate(_lines_of(self.stream), 1):
            self.done_bytes += len(line)
            yield number, line

    def _at(self, number: int) -> str:
        return f"{self.name}, line {number}"


@dataclass
class Jsonl(_Lines):
    """One JSON object a line.

    Without ``key_field`` the lines are as ``octavo dump`` writes them. With it, that field is the
    key, and the value is the field ``value_field`` or, if that is not given, the whole line. A
    field that is a string stands for its UTF-8 bytes, any other for its JSON.
    """

    key_field: str | None = None
    value_field: str | None = None

    def __iter__(self) -> Iterator[Entry | Rejected]:
        make = self._of_dump if self.key_field is None else self._of_fields
        number, lines = 0, self._numbered()
        while True:
            try:
                number, line = next(lines, (number, None))
            except Misuse as wrong:  # nothing more can be read
                yield Rejected(self._at(number + 1), str(wrong))
                return
            if line is None:
                return
            line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not line.strip():
                continue
            where = self._at(number)
            try:
                yield make(where, _object(line), line.strip())
            except (Misuse, KeyError) as wrong:
                yield Rejected(where, _why(wrong))

    def _of_dump(self, where: str, document: dict[str, Any], line: bytes) -> Entry:
        key, value = take_field(document, "key"), take_field(document, "value")
        if key is None or value is None:
            raise Misuse(
                "no 'key' and 'value' as `octavo dump` writes them; "
                "name the field that is the key with --key-field"
            )
        expires_at = document.get("expires_at")
        if expires_at is not None and (
            isinstance(expires_at, bool) or not isinstance(expires_at, int)
        ):
            raise Misuse(f"'expires_at' is {expires_at!r:.60}: allowed are ms since 1970 UTC")
        return Entry(
            where,
            key,
            value,
            take_field(document, "bucket") or b"",
            take_field(document, "metadata") or b"",
            expires_at,
            entries_of_json(document.get("index")),
        )

    def _of_fields(self, where: str, document: dict[str, Any], line: bytes) -> Entry:
        named = document[self.key_field or ""]
        if isinstance(named, bool) or not isinstance(named, str | int | float):
            raise Misuse(f"the key is {named!r:.60}: allowed are a string and a number")
        key = _bytes_of(named)
        value = line if self.value_field is None else _bytes_of(document[self.value_field])
        return Entry(where, key, value)


@dataclass
class Csv(_Lines):
    """A header row, then a value a row.

    The column ``key_field`` (default: the first one) is the key; the value is the column
    ``value_field`` or, if that is not given, the whole row as a JSON object. Without either, rows
    are read as a dump's if the header is one that ``octavo dump`` writes.
    """

    key_field: str | None = None
    value_field: str | None = None
    delimiter: str = ","
    _row_bytes: int = 0

    def __iter__(self) -> Iterator[Entry | Rejected]:
        csv.field_size_limit(min(sys.maxsize, (1 << 63) - 1))
        rows = csv.reader(self._text(), delimiter=self.delimiter, strict=True)
        header: list[str] | None = None
        make: Callable[[str, list[str]], Entry] | None = None
        while True:
            where = self._at(rows.line_num + 1)
            self._row_bytes = 0
            try:
                row = next(rows, None)
                if row is None:
                    return
                if not row:
                    continue
                if header is None or make is None:
                    header = row
                    make = self._columns(header)
                    continue
                if len(row) != len(header):
                    raise Misuse(f"{len(row)} columns; the header has {len(header)}")
                yield make(where, row)
            except (Misuse, csv.Error) as wrong:
                yield Rejected(where, _why(wrong))
                if make is None:
                    return  # without a header, no row can be read
            except UnicodeDecodeError as wrong:
                yield Rejected(self._at(rows.line_num + 1), f"is not UTF-8: {wrong.reason}")
                return

    def _text(self) -> Iterator[str]:
        for number, line in self._numbered():
            self._row_bytes += len(line)
            _refuse_long(self._row_bytes)
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")

    def _columns(self, header: list[str]) -> Callable[[str, list[str]], Entry]:
        """A function that makes an entry of a row. Raises Misuse if the header cannot be used."""
        check_columns(header, self.key_field, self.value_field)
        if self.key_field is None and len(header) == 1 and set(header[0]) & set(",;\t|"):
            told = f"the header is one column, {header[0]!r:.80}; name it with --key-field"
            raise Misuse(f"{told}, or say with --delimiter what is between columns")
        if self.key_field is self.value_field is None and {"key", "value"} <= set(header):
            if len(header) < 3:
                raise Misuse(
                    "only columns key and value: this may be a dump, whose cells are escaped, or "
                    "not. --key-field key --value-field value takes cells as they are; for a dump "
                    "to be loaded, dump another column too, such as bucket"
                )
            if set(header) <= set(ALL_FIELDS):
                parts = dumped_cells(header)
                return lambda where, row: Entry(where, *parts(row))
        key_at = 0 if self.key_field is None else header.index(self.key_field)
        if self.value_field is not None:
            value_at = header.index(self.value_field)
            return lambda where, row: Entry(where, row[key_at].encode(), row[value_at].encode())
        return lambda where, row: Entry(
            where,
            row[key_at].encode(),
            json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False).encode(),
        )


def text_source(
    kind: str,
    name: str,
    stream: BinaryIO,
    total: int | None,
    *,
    key_field: str | None,
    value_field: str | None,
    delimiter: str | None = None,
) -> Source:
    """A file of CSV or JSONL as a source. Its name says whether it is compressed and, without a
    ``delimiter``, whether tabs divide its columns. Raises Misuse if it needs pyarrow, which is
    missing."""
    lines = unpacked(name, stream)
    if lines is not stream:
        total = None  # how much it decompresses to is not known
    if kind == "jsonl":
        return Jsonl(name, lines, total, key_field=key_field, value_field=value_field)
    between = delimiter or ("\t" if unpacked_name(name).endswith(".tsv") else ",")
    return Csv(name, lines, total, key_field=key_field, value_field=value_field, delimiter=between)


def _lines_of(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines with their ends. Raises Misuse if they cannot be decompressed, and as soon as one
    is too long."""
    try:
        while line := stream.readline(_BLOCK_BYTES):
            yield line if len(line) < _BLOCK_BYTES else _long_line(stream, line)
    except (EOFError, zlib.error, ValueError, OSError) as wrong:
        if isinstance(wrong, OSError) and wrong.errno is not None:
            raise
        raise Misuse(f"cannot be decompressed: {wrong}") from None


def _long_line(stream: BinaryIO, piece: bytes) -> bytes:
    """Read the rest of the line that begins with ``piece``, and return all of it."""
    found = io.BytesIO()
    while piece:
        found.write(piece)
        _refuse_long(found.tell())
        piece = b"" if piece.endswith(b"\n") else stream.readline(_BLOCK_BYTES)
    return found.getvalue()  # no copy


def _refuse_long(length: int) -> None:
    if length > LONGEST_LINE:
        raise Misuse(f"more than {LONGEST_LINE} bytes without an end: at most so many are allowed")


class _Blocks(io.RawIOBase):
    """A raw stream over a decompressor, which cannot read lines itself."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        part = self._read(len(into))
        into[: len(part)] = part
        return len(part)


def _object(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as wrong:
        raise Misuse(f"is not JSON: {wrong}") from None
    if not isinstance(document, dict):
        raise Misuse(f"is a JSON {type(document).__name__}: allowed is an object")
    return document


def _bytes_of(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise Misuse("holds half of a surrogate pair, which is no text") from None


def _why(wrong: Exception) -> str:
    return f"there is no field {wrong.args[0]!r}" if isinstance(wrong, KeyError) else str(wrong)
