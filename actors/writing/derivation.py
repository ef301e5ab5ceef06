"""Metadata and index entries that a type's functions derive from a value, checked; for puts and
rebuilds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.actors.writing.index_sets import index_parts
from octavo.actors.writing.operation import packed_index
from octavo.files.argument_checks import shown
from octavo.files.errors import Misuse
from octavo.files.journal.record import MAX_METADATA_BYTES


def _given(what: str, function: Callable[[bytes, bytes], Any], key: bytes, value: bytes) -> Any:
    try:
        return function(key, value)
    except Exception as error:
        error.add_note(f"raised by {what} for the key {shown(key)}")
        raise


def derived_metadata(
    name: str, function: Callable[[bytes, bytes], Any], key: bytes, value: bytes
) -> bytes:
    """The metadata that the function of type ``name`` gives. Raises what the function raises, and
    Misuse if it gives anything but metadata."""
    found = _given(f"tags[{name!r}].metadata", function, key, value)
    if isinstance(found, str):
        try:
            found = str.encode(found)
        except UnicodeEncodeError as wrong:
            raise Misuse(f"tags[{name!r}].metadata: {wrong}") from None
    if not isinstance(found, bytes | bytearray | memoryview):
        raise Misuse(
            f"tags[{name!r}].metadata gave a {type(found).__name__}; allowed are bytes and str"
        )
    whole = bytes(found)
    if len(whole) > MAX_METADATA_BYTES:
        raise Misuse(
            f"tags[{name!r}].metadata gave {len(whole)} bytes: "
            f"at most {MAX_METADATA_BYTES} are allowed"
        )
    return whole


def derived_index(
    name: str, function: Callable[[bytes, bytes], Any], key: bytes, value: bytes
) -> bytes:
    """The packed index entries that the function of type ``name`` gives; None stands for no
    entries. Raises as ``derived_metadata``."""
    found = _given(f"tags[{name!r}].index", function, key, value)
    if found is None:
        return b""
    if not isinstance(found, Mapping):
        raise Misuse(
            f"tags[{name!r}].index gave a {type(found).__name__}; "
            "allowed is a mapping of fields to terms"
        )
    try:
        return packed_index(index_parts(found))
    except Misuse as wrong:
        raise Misuse(f"tags[{name!r}].index: {wrong}") from None
