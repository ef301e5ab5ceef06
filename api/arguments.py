"""Checks the arguments of public calls, and turns them into what the actors take."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from octavo.actors.writing import operation
from octavo.actors.writing.derivation import derived_index, derived_metadata
from octavo.actors.writing.index_sets import index_parts
from octavo.actors.writing.operation import Operation, packed_index
from octavo.files.argument_checks import (
    number,
    refuse_no_directory,
    seconds,
    shown,
    to_whole,
    whole_number,
)
from octavo.files.errors import Misuse
from octavo.files.journal.record import MAX_METADATA_BYTES, PUT
from octavo.files.ledger.ledger_key import MAX_KEY_BYTES
from octavo.files.wall_clock import LIKE_SECONDS, YEAR_10000_MS, ms_of
from octavo.index_edit import IndexEdit

if TYPE_CHECKING:
    from octavo.actors.opening.tags import Tags

BytesLike = bytes | bytearray | memoryview
Key = str | BytesLike
Value = str | BytesLike
MAX_VALUE_BYTES = (1 << 32) - (1 << 28)
"""3.75 GiB: a value fits one journal file."""
OF_HEADS = "this is a head-only store: use head_bucket(name) and head_batch() instead"
"""The error of buckets of standard objects in a head-only store."""
_YEAR_SECONDS = 366 * 86400
_MOMENTS = "allowed are whole ms since 1970 UTC (int, not float), or an aware datetime"
_NAMES_OF_FIELDS = re.compile(":[^:]*:")
"""The names of fields in a memoryview's format."""

_made = tuple.__new__


class PutOptions(TypedDict, total=False):
    """The options of a put, beside key and value: see Bucket.put."""

    metadata: bytes | str
    ttl: float | timedelta | None
    expires_at: int | datetime | None
    index: Mapping[Any, Any] | IndexEdit | None
    sync: bool | None
    if_sqn: int | None


def to_bytes(name: str, value: object) -> bytes:
    """Bytes of a str (UTF-8) or bytes-like argument. Raises Misuse that names it.

    Never an object of a subclass of bytes, whose own hash, length or comparison could do anything
    inside the store.
    """
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        try:
            return str.encode(value)
        except UnicodeEncodeError as wrong:
            raise Misuse(f"{name}: {wrong}; a str is stored as its UTF-8 bytes") from None
    if isinstance(value, bytes | bytearray | memoryview):
        view = memoryview(value)
        if "O" in view.format and "O" in _NAMES_OF_FIELDS.sub("", view.format):
            raise Misuse(
                f"{name} is a memoryview of Python objects, as of a NumPy array of dtype=object, "
                "and its bytes are their addresses in memory: encode the objects themselves"
            )
        return bytes(view)
    raise Misuse(
        f"{name} is of type {type(value).__name__}: allowed are str (stored as UTF-8), bytes, "
        "bytearray and memoryview"
    )


def to_keys(keys: object) -> Iterable[Key]:
    """An iterable of keys that is not itself a key. Raises Misuse."""
    if isinstance(keys, str | BytesLike) or not isinstance(keys, Iterable):
        raise Misuse(
            f"keys={shown(keys)} is of type {type(keys).__name__}: allowed is an iterable of keys; "
            "one key goes in a list"
        )
    return keys


def to_path(name: str, path: object) -> str:
    """A directory's absolute path. Raises Misuse."""
    try:
        where = os.fsdecode(os.fspath(path))  # type: ignore[call-overload]
    except TypeError:
        raise Misuse(f"{name}={shown(path)}: allowed are str and path-like objects") from None
    if not where or "\0" in where:
        raise Misuse(f"{name}={where!r} names no directory")
    refuse_no_directory(name, where)
    try:
        os.fsencode(where)
    except UnicodeEncodeError as wrong:
        raise Misuse(f"{name}={where!a} cannot be written in {wrong.encoding}") from None
    try:
        return os.path.abspath(where)
    except FileNotFoundError:
        raise Misuse(f"{name}={where!r} is relative, and the working directory is gone") from None


def to_key(key: object, bucket: bytes) -> bytes:
    """Bytes of a key, its length checked. Raises Misuse."""
    found = to_bytes("key", key)
    if not found:
        raise Misuse("key is empty; a key has at least one byte")
    if len(found) + len(bucket) > MAX_KEY_BYTES:
        raise Misuse(
            f"key of {len(found)} bytes, bucket name of {len(bucket)}: "
            f"together at most {MAX_KEY_BYTES} are allowed"
        )
    return found


def to_bucket(bucket: object) -> bytes:
    """Bytes of a bucket's name; the empty one is the default bucket. Raises Misuse."""
    found = to_bytes("bucket", bucket)
    if len(found) >= MAX_KEY_BYTES:
        raise Misuse(f"bucket name of {len(found)} bytes: at most {MAX_KEY_BYTES - 1} are allowed")
    return found


def to_value(value: object) -> bytes:
    """Bytes of a value, its length checked. Raises Misuse."""
    found = to_bytes("value", value)
    if len(found) > MAX_VALUE_BYTES:
        raise Misuse(f"value of {len(found)} bytes: at most {MAX_VALUE_BYTES} are allowed")
    return found


def to_metadata(metadata: object) -> bytes:
    """Bytes of a put's metadata. Raises Misuse."""
    found = to_bytes("metadata", metadata)
    if len(found) > MAX_METADATA_BYTES:
        raise Misuse(f"metadata of {len(found)} bytes: at most {MAX_METADATA_BYTES} are allowed")
    return found


def to_index(index: object) -> tuple[bytes, operation.IndexEdit | None]:
    """A put's ``index`` as (packed whole set, edit); one of them is empty. Raises Misuse."""
    if isinstance(index, IndexEdit):
        return b"", index.parts
    return packed_index(index_parts(index)), None


def to_put(
    tags: Tags,
    tag: str,
    bucket: bytes,
    key: object,
    value: object,
    metadata: object,
    ttl: object,
    expires_at: object,
    index: object,
    now_ms: Callable[[], int],
) -> tuple[Operation, operation.IndexEdit | None]:
    """A put's arguments as an operation, and its edit of the index, if any. Runs the functions of
    the object's type for what is not given. ``now_ms``: the clock from which a ttl counts. Raises
    Misuse, and what those functions raise."""
    whole, stored = to_key(key, bucket), to_value(value)
    functions = tags.functions_of(tag)
    packed, edit = (b"", None) if index is None else to_index(index)
    expiry = 0
    if ttl is not None or expires_at is not None:
        expiry = to_expiry(ttl, expires_at, now_ms())
    number, kept = tags.number(tag), to_metadata(metadata)
    if functions is not None:
        if functions.metadata is not None and not kept:
            kept = derived_metadata(tag, functions.metadata, whole, stored)
        if functions.index is not None:
            if edit is not None:
                raise Misuse(f"index: type {tag!r} derives its entries from the values")
            if index is None:
                packed = derived_index(tag, functions.index, whole, stored)
    fields = PUT, number, bucket, whole, stored, expiry, kept, packed
    return _made(Operation, fields), edit


def to_bound(name: str, bound: object) -> bytes | None:
    """Bytes of one end of a range; None is unbounded. Raises Misuse."""
    return None if bound is None else to_bytes(name, bound)


def to_expiry(ttl: object, expires_at: object, now_ms: int) -> int:
    """Expiry in ms UTC, 0 for never, from a duration or a moment. Raises Misuse."""
    if ttl is not None and expires_at is not None:
        raise Misuse("ttl and expires_at are two ways to say one thing: give one of them")
    if ttl is not None:
        found = seconds(ttl)
        if found is None or not 0 < found < 1e10:
            raise Misuse(
                f"ttl={shown(ttl)}: allowed are seconds, or a timedelta, above 0 and below 1e10 s"
            )
        return now_ms + max(int(found * 1000), 1)
    if expires_at is None:
        return 0
    moment = to_moment("expires_at", expires_at)
    if moment >= YEAR_10000_MS:
        raise Misuse(
            f"expires_at={shown(expires_at)} is beyond the year 9999, the last of a datetime: "
            "leave it out for what never expires"
        )
    if moment <= 0:
        raise Misuse(f"expires_at={shown(expires_at)}: {_MOMENTS}")
    return moment


def to_moment(name: str, moment: object) -> int:
    """ms UTC of a moment. Raises Misuse that names the argument."""
    if isinstance(moment, datetime) and moment == moment:  # not pandas' NaT, a datetime too
        if moment.utcoffset() is None:  # also if it has a tzinfo that gives no offset
            raise Misuse(f"{name} is a datetime without a time zone: give it one")
        return ms_of(moment)
    found = whole_number(moment)
    if found is None:
        raise Misuse(f"{name}={shown(moment)}: {_MOMENTS}")
    if found in LIKE_SECONDS:
        raise Misuse(
            f"{name}={found}: allowed are ms since 1970 UTC, and this looks like seconds; "
            "give ms, or an aware datetime"
        )
    return found


def to_condition(if_sqn: object) -> int:
    """The sqn of a condition; 0 means "absent". Raises Misuse."""
    return to_whole(
        "if_sqn", if_sqn, "are sequence numbers, as the sqn of a head, and 0 for absent"
    )


def to_flag(name: str, value: object) -> bool:
    """A bool. Raises Misuse that names it."""
    if not isinstance(value, bool):
        raise Misuse(f"{name}={shown(value)}: allowed are True and False")
    return value


def to_sync(sync: object) -> bool:
    """A call's ``sync``, which can only strengthen the store's. Raises Misuse."""
    return False if sync is None else to_flag("sync", sync)


def to_lease(lease_seconds: object) -> float:
    """A snapshot's lease. Raises Misuse."""
    return _to_seconds("lease_seconds", lease_seconds)


def to_timeout(timeout_seconds: object) -> float:
    """How long to wait for an answer. Raises Misuse."""
    return _to_seconds("timeout_seconds", timeout_seconds)


def _to_seconds(name: str, value: object) -> float:
    seconds = number(value)
    if seconds is None or not 0 < seconds <= _YEAR_SECONDS:
        raise Misuse(f"{name}={shown(value)}: allowed are seconds above 0, at most a year")
    return float(seconds)
