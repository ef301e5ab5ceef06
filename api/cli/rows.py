"""Rows of a dump: what JSON lines, CSV and Parquet files hold of a key, and how it is written.

JSON and CSV write bytes in the notations of notation.py; Parquet has a type for them. Index
entries are JSON in all three: a list of {"field": ..., "term": ...}, where a number is an int, a
string a str, and ``term64`` bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from octavo.files.errors import Misuse
from octavo.notation import fields_of, from_text, take_field

if TYPE_CHECKING:
    from octavo.files.ledger.head import Head
    from octavo.files.ledger.index_terms import Term

FIELDS = ("bucket", "key", "value", "metadata", "expires_at", "index", "sqn", "written_at")
"""The default columns of a dump, in this order; ``load`` needs no more."""
ALL_FIELDS = (*FIELDS, "size")
LONGEST_LINE = 3 << 30
"""Bytes that a line, or a row of CSV, may have. A longer one may have no end, and all of it would
be in memory. The largest value that a dump holds fits, as base64."""

Entries = dict[bytes, "list[Term]"]


class Row(NamedTuple):
    """A live key with everything known about it."""

    bucket: bytes
    key: bytes
    value: bytes
    head: Head
    entries: Entries | None

    def fields(self) -> dict[str, Any]:
        """The row's parts by the names of ALL_FIELDS: bytes as they are, moments in ms UTC, None if
        absent."""
        head = self.head
        return {
            "bucket": self.bucket,
            "key": self.key,
            "value": self.value,
            "metadata": head.metadata,
            "expires_at": head.expires_at,
            "index": None if not self.entries else entries_to_json(self.entries),
            "sqn": head.sqn,
            "written_at": head.written_at,
            "size": head.size,
        }


def to_fields(argument: str | None) -> tuple[str, ...]:
    """The names in ``--columns``. Raises Misuse."""
    if argument is None:
        return FIELDS
    names = tuple(name.strip() for name in argument.split(","))
    for name in names:
        if name not in ALL_FIELDS:
            raise Misuse(f"--columns names {name!r}: there are {', '.join(ALL_FIELDS)}")
    if len(set(names)) != len(names):
        raise Misuse(f"--columns={argument!r} names one twice")
    return names


def check_columns(names: Sequence[str], *wanted: str | None) -> None:
    """Raise Misuse if two columns have one name, or a wanted one is missing."""
    if len(set(names)) != len(names):  # a row would have only one of them
        raise Misuse(f"two columns have one name: {list(names)!r:.200}")
    for name in wanted:
        if name is not None and name not in names:
            raise Misuse(f"there is no column {name!r}; there are {', '.join(names):.200}")


def entries_to_json(entries: Mapping[bytes, Sequence[Term]]) -> list[dict[str, Any]]:
    """Index entries as a JSON document."""
    return [
        fields_of(field=field) | term_to_json(term)
        for field, terms in entries.items()
        for term in terms
    ]


def term_to_json(term: Term) -> dict[str, Any]:
    """A term as a field of a JSON document, whose name and type tell a str from bytes."""
    if isinstance(term, bytes):
        return {"term64": base64.b64encode(term).decode("ascii")}
    return {"term": term}


def entries_of_json(found: object) -> Entries | None:
    """Index entries from a document that ``entries_to_json`` made. Raises Misuse."""
    if found is None:
        return None
    if not isinstance(found, list):
        raise Misuse(f"'index' is {found!r:.60}: allowed is a list of entries")
    out: Entries = {}
    for entry in found:
        field = take_field(entry, "field") if isinstance(entry, dict) else None
        if field is None:
            raise Misuse(
                f"'index' holds {entry!r:.60}: allowed are entries with a field and a term"
            )
        term: object = entry.get("term")
        if term is None:
            term = take_field(entry, "term")
        if isinstance(term, bool) or not isinstance(term, int | str | bytes):
            raise Misuse(
                f"'index' holds {entry!r:.60}: allowed are entries with a field and a term"
            )
        out.setdefault(field, []).append(term)
    return out


def entries_of_text(text: object) -> Entries | None:
    """Index entries from the JSON in a cell. Raises Misuse."""
    if not text:
        return None
    if not isinstance(text, str | bytes):
        raise Misuse(f"'index' is {text!r:.60}: allowed is JSON")
    try:
        return entries_of_json(json.loads(text))
    except (ValueError, RecursionError) as wrong:
        raise Misuse(f"'index' is not JSON: {wrong}") from None


def dumped_cells(
    header: list[str],
) -> Callable[[list[str]], tuple[bytes, bytes, bytes, bytes, int | None, Entries | None]]:
    """A function that makes (key, value, bucket, metadata, expiry, index entries) of a row of CSV
    that ``octavo dump`` wrote, with some of ALL_FIELDS as columns. The function raises Misuse."""
    at = [header.index(name) if name in header else len(header) for name in FIELDS[:6]]

    def parts(row: list[str]) -> tuple[bytes, bytes, bytes, bytes, int | None, Entries | None]:
        cells = [*row, ""]
        *texts, until, index = (cells[place] for place in at)
        bucket, key, value, metadata = (from_text(text.encode()) for text in texts)
        if until and not (until.isascii() and until.isdigit() and len(until) < 20):
            raise Misuse(f"'expires_at' is {until!r:.60}: allowed are ms since 1970 UTC")
        return key, value, bucket, metadata, int(until) if until else None, entries_of_text(index)

    return parts
