"""The options of ``spark.read.format("octavo")``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from octavo.files.argument_checks import refuse_no_directory, unknown_option
from octavo.files.errors import Misuse
from octavo.files.kernels.arrow import COLUMNS
from octavo.files.ledger.chosen_rows import Span
from octavo.files.wall_clock import ms_of_iso

FEED = "readChangeFeed"
OPTIONS = (
    "path", "bucket", "bucketHex", "keyStart", "keyStartHex", "keyEnd", "keyEndHex", "prefix",
    "prefixHex", "columns", "snapshot", "sqnAsOf", "timestampAsOf", "startSnapshot", "endSnapshot",
    "tag", "splitBytes", "leaseSeconds", "checksums", "pushdown", FEED,
)  # fmt: skip
"""What a ``load`` may say."""
FEED_OPTIONS = (
    "path", FEED, "startingSqn", "endingSqn", "maxRecordsPerTrigger", "maxBytesPerTrigger",
    "failOnDataLoss", "consumerId", "splitBytes", "tag",
)  # fmt: skip
"""The same of changes."""
_SPARKS = (
    "__", "asyncprogress", "owner", "provider", "location", "comment", "collation", "external",
    "is_managed_location", "table_type",
)  # fmt: skip
"""How options begin that Spark itself adds, for streams and tables; others of Spark's have a
dot."""
_ARTIFACTS, _NO_ARTIFACTS = "SPARK_JOB_ARTIFACT_UUID", "default"
"""An environment variable, and its value where a worker of Spark does not work in a directory of
its session's."""
_MOST_DIGITS = len(str((1 << 63) - 1))
_MOST_LEASE_SECONDS = 100 * 366 * 86_400
_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:/")
"""How a URI begins: with one slash, too, as in dbfs:/towns."""
_SPELLED = re.compile(r"(bytearray\()?b(['\"]).*\2\)?", re.DOTALL)
"""What Spark makes of bytes that an option is given: Python's spelling of them."""
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
DDL = {
    "bucket": "binary",
    "key": "binary",
    "sqn": "bigint",
    "size": "bigint",
    "metadata": "binary",
    "written_at": "timestamp",
    "expires_at": "timestamp",
    "value": "binary",
    "sub_key": "binary",
}
"""Spark's type of each column."""
_NEVER_NULL = frozenset(("bucket", "key", "sqn", "size", "value"))
"""Where Spark knows that, it asks no row: 5 to 10 % of what a read of short rows costs."""
_NEVER_NULL_OF_CHANGES = frozenset(
    ("_change_type", "_commit_sqn", "_commit_timestamp", "bucket", "key")
)
_ALIKE = {
    "binary": ("binary", "string"),
    "string": ("binary", "string"),
    "timestamp": ("timestamp",),
    "bigint": ("bigint", "int", "smallint", "tinyint", "double", "float", "decimal", "string"),
}
"""The types that a user's schema may give a column. What Spark makes of a moment depends on the
session's time zone, so that is left to Spark."""
HEAD_ONLY_COLUMNS = (
    "bucket", "key", "sub_key", "sqn", "size", "written_at", "expires_at", "value",
)  # fmt: skip
"""Those of a head-only store, where none are named."""
CHANGE_DDL = {
    "_change_type": "string",
    "_commit_sqn": "bigint",
    "_commit_timestamp": "timestamp",
    "bucket": "binary",
    "key": "binary",
    "value": "binary",
    "metadata": "binary",
    "expires_at": "timestamp",
}
"""The same of a change."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is to be read. Byte strings may be given in hexadecimal: ``keyStartHex`` and so on."""

    path: str
    """The directory of the store."""
    snapshot: str | None = None
    """Id or name of a published snapshot; without it, the newest state, pinned at ``load()``."""
    start_snapshot: str | None = None
    """Id or name of one: read what changed from it to ``snapshot``."""
    sqn_as_of: int | None = None
    """The newest published snapshot that has nothing above this sqn."""
    timestamp_as_of: int | None = None
    """The newest published snapshot taken at or before this moment, ms UTC."""
    tag: str = "standard"
    """The type of objects."""
    bucket: bytes | None = None
    """Only this bucket; None: all."""
    key_start: bytes | None = None
    """Inclusive; in each bucket."""
    key_end: bytes | None = None
    """Exclusive; in each bucket."""
    prefix: bytes | None = None
    columns: tuple[str, ...] = COLUMNS
    split_bytes: int = 0
    """About how much a task reads; 0: one processor's share, from 16 to 512 MiB."""
    lease_seconds: float = 3600.0
    """Of what ``load()`` pins."""
    checksums: bool = True
    """Verify those of each value."""
    pushdown: bool = False
    """Take Spark's filters on key and bucket; needs spark.sql.python.filterPushdown.enabled."""

    @property
    def span(self) -> Span:
        """Which keys of each bucket."""
        return Span(self.key_start, self.key_end, self.prefix)

    @property
    def ddl(self) -> str:
        """The schema, as Spark writes it."""
        if self.start_snapshot is not None:
            return ddl_of({name: CHANGE_DDL[name] for name in self.columns})
        never = dict.fromkeys(_NEVER_NULL, " NOT NULL")
        return ddl_of({name: DDL[name] + never.get(name, "") for name in self.columns})


def ddl_of(kinds: Mapping[str, str]) -> str:
    """Columns as Spark reads them. What ``timestamp`` means depends on the session
    (spark.sql.timestampType), so another name is given."""
    spelled = {"timestamp": "timestamp_ltz"}
    return ", ".join(f"{name} {spelled.get(kind, kind)}" for name, kind in kinds.items())


def parsed(options: Mapping[str, str]) -> ReadOptions:
    """The options of a ``load``, whatever the case of their names. Raises Misuse."""
    for name in FEED_OPTIONS:
        if name not in OPTIONS and name.lower() in map(str.lower, options):
            raise Misuse(f'option {name!r} is for changes: add .option("{FEED}", True)')
    given = known_of(options, OPTIONS)
    refuse_empty(given, "snapshot", "startSnapshot", "endSnapshot")
    if "endsnapshot" in given and ("startsnapshot" not in given or "snapshot" in given):
        raise Misuse("endSnapshot goes with startSnapshot; to read one snapshot name it: snapshot")
    there = CHANGE_DDL if "startsnapshot" in given else DDL
    usual = there if "startsnapshot" in given else COLUMNS
    columns = tuple(name.strip() for name in given.get("columns", ",".join(usual)).split(","))
    for name in columns:
        if name not in there:
            raise Misuse(f"columns names {name!r:.80}: there are {', '.join(there)}")
    if len(set(columns)) != len(columns):
        raise Misuse(f"columns={given['columns']!r}: name each once")
    return ReadOptions(
        path=local_path(given.get("path", "")),
        snapshot=given.get("snapshot", given.get("endsnapshot")),
        start_snapshot=given.get("startsnapshot"),
        sqn_as_of=_number(given, "sqnAsOf"),
        timestamp_as_of=_moment(given),
        tag=given.get("tag", "standard"),
        bucket=_bytes(given, "bucket"),
        key_start=_bytes(given, "keyStart"),
        key_end=_bytes(given, "keyEnd"),
        prefix=_bytes(given, "prefix"),
        columns=columns,
        split_bytes=size_of(given, "splitBytes", 0),
        lease_seconds=_lease(given),
        checksums=flag(given, "checksums", default=True),
        pushdown=_pushdown(given),
    )


def refuse_unfit(schema: Iterable[tuple[str, str, bool]], *, changes: bool) -> None:
    """Raise Misuse for a user's schema that does not fit. ``schema``: (name, Spark's name of the
    type, whether it may be null) of each column. Refused are a column that does not exist, or not
    of this type, or that may be null where the schema says never: Spark would not look, and show
    something else. So is a schema without columns, which cannot say how many rows there are."""
    there = CHANGE_DDL if changes else DDL
    never = _NEVER_NULL_OF_CHANGES if changes else _NEVER_NULL
    seen: set[str] = set()
    for name, wanted, nullable in schema:
        if name not in there:
            raise Misuse(f"the schema names {name!r}: there are {', '.join(there)}")
        if name in seen:
            raise Misuse(f"the schema names {name!r} twice: name each column once")
        seen.add(name)
        kind = there[name]
        if re.split(r"[ (]", wanted)[0] not in _ALIKE[kind]:  # decimal(20,0), string collate UCS
            raise Misuse(
                f"column {name!r} is {kind}, the schema wants {wanted}: allowed are "
                f"{', '.join(_ALIKE[kind])}; cast it in a select"
            )
        if not nullable and name not in never:
            raise Misuse(f"column {name!r} may be null, and the schema says NOT NULL")
    if not seen:
        raise Misuse(f"the schema names no column: there are {', '.join(there)}")


def refuse_more(schema: Iterable[str], columns: Sequence[str]) -> None:
    """Raise Misuse for a column of a user's schema that the option ``columns`` leaves out."""
    for name in schema:
        if name.lower() not in columns:
            raise Misuse(
                f"the schema names {name!r}, and columns={','.join(columns)!r:.200} leaves it out: "
                "give one of the two"
            )


def tag_of(name: str, known: Mapping[str, int]) -> int:
    """The number of a type of objects. Raises Misuse that lists those that are there."""
    if name not in known:
        raise Misuse(f"tag={name!r:.80}: the store has {', '.join(known)}")
    return known[name]


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """The options, whose names may have any case, by their names in lower case."""
    return {name.lower(): value for name, value in options.items()}


def known_of(options: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """The options, ``lowered``. Raises Misuse for one that would do nothing, but for Spark's
    own."""
    names = set(map(str.lower, known))
    for name in options:
        if name.lower() == "paths":  # what Spark makes of a list
            raise Misuse(
                f"several paths ({options[name]:.200}): a frame is of one store; load each by "
                "itself, and join the frames with unionByName"
            )
        if name.lower() not in names and not name.lower().startswith(_SPARKS) and "." not in name:
            raise Misuse(f"{unknown_option(name, known)} allowed are {', '.join(known)}")
    return lowered(options)


def refuse_empty(given: Mapping[str, str], *names: str) -> None:
    """Raise Misuse if one of these is empty, as by a variable that is not set: what would be done
    then is not what was asked for."""
    for name in names:
        if given.get(name.lower()) == "":
            raise Misuse(f"{name}='' is empty: say which, or leave the option out")


def local_path(path: str) -> str:
    """The absolute directory of a path or a ``file:`` URI; a relative one is of the working
    directory of Spark's driver. Raises Misuse for none, for another scheme, and for a relative one
    where Spark runs data sources elsewhere."""
    if not path:
        raise Misuse(
            "no path: give the store's directory, .load(path) or .save(path). Spark does not tell "
            "a Python data source the path of a catalog table: in SQL, use CREATE TEMPORARY VIEW "
            "name USING octavo OPTIONS (path '...')"
        )
    if path.startswith("file:"):
        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            raise Misuse(f"path={path!r}: a file: URI may not name a host")
        if "?" in path or "#" in path:
            raise Misuse(f"path={path!r}: in a file: URI write %3F for ?, %23 for #")
        path = unquote(parts.path)
    elif _SCHEME.match(path):
        raise Misuse(f"path={path!r}: allowed are directories all executors see, and file: URIs")
    refuse_no_directory("path", path)
    if not os.path.isabs(path) and os.environ.get(_ARTIFACTS, _NO_ARTIFACTS) != _NO_ARTIFACTS:
        raise Misuse(
            f"path={path!r} is relative: Spark Connect runs data sources in a directory that goes "
            "with the session; give an absolute one"
        )
    return os.path.abspath(path)


def _bytes(given: Mapping[str, str], name: str) -> bytes | None:
    plain, in_hex = given.get(name.lower()), given.get(f"{name.lower()}hex")
    if plain is not None and in_hex is not None:
        raise Misuse(f"{name} and {name}Hex are one option: give one of them")
    if in_hex is None:
        return None if plain is None else text_of(name, plain, f"{name}Hex").encode()
    try:
        return bytes.fromhex(in_hex)
    except ValueError:
        raise Misuse(f"{name}Hex={in_hex!r:.80}: allowed are hexadecimal digits") from None


def text_of(name: str, given: str, instead: str) -> str:
    """An option's text. Raises Misuse for a text that Spark made of bytes: ``instead`` takes
    those."""
    if _SPELLED.fullmatch(given):
        raise Misuse(
            f"{name}={given!r:.80}: Spark makes options text, and bytes the text that Python shows "
            f"for them; give str, or {instead}"
        )
    return given


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not _is_number(text):
        raise Misuse(f"{name}={text!r:.80}: allowed are whole numbers")
    return int(text)


def _is_number(text: str) -> bool:
    """Whether this is a number of a possible length; Python reads no very long ones."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _moment(given: Mapping[str, str]) -> int | None:
    text = given.get("timestampasof")
    if text is None or (_is_number(text) and len(text) > len("20261121")):
        return None if text is None else int(text)
    try:
        return ms_of_iso(text)
    except ValueError:
        raise Misuse(
            f"timestampAsOf={text!r:.80}: allowed are ISO 8601, UTC where it names no zone "
            "(whatever the session's is, which Spark tells no data source), and ms since 1970"
        ) from None


def count_of(given: Mapping[str, str], name: str, default: int) -> int:
    """A number that is no size, and so has no unit: 30m might mean something else. Raises
    Misuse."""
    text = given.get(name.lower())
    if text is not None and (not _is_number(text) or not int(text)):
        raise Misuse(f"{name}={text!r:.80}: allowed are whole numbers from 1 up")
    return default if text is None else int(text)


def size_of(given: Mapping[str, str], name: str, default: int) -> int:
    """A number, with k, m or g behind it or not. Raises Misuse."""
    text = given.get(name.lower())
    if text is None:
        return default
    unit = _UNITS.get(text[-1:].lower(), 0)
    digits = text[:-1] if unit else text
    if not _is_number(digits) or not int(digits):
        raise Misuse(f"{name}={text!r:.80}: allowed are numbers from 1 up, and 64k, 128m, 1g")
    return int(digits) * (unit or 1)


def _lease(given: Mapping[str, str]) -> float:
    """Seconds. Raises Misuse."""
    found = count_of(given, "leaseSeconds", 3600)
    if found > _MOST_LEASE_SECONDS:
        raise Misuse(f"leaseSeconds={found}: allowed are up to a hundred years")
    return float(found)


def _pushdown(given: Mapping[str, str]) -> bool:
    """Whether Spark may push filters. Raises Misuse."""
    text = given.get("pushdown", "false").lower()
    if text not in ("false", "once"):
        raise Misuse(
            f"pushdown={given['pushdown']!r:.80}: allowed are false and once, which says that the "
            "frame is read once, in one query: Spark keeps what it pushed for the next reads of "
            "the same frame, which would lack rows. Load a frame for each query, or use keyStart, "
            "keyEnd and prefix"
        )
    return text == "once"


def flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """true or false. Raises Misuse."""
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise Misuse(f"{name}={text!r:.80}: allowed are true and false")
    return text.lower() == "true"
