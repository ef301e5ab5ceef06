"""Shows entries of head-only stores on the command line, for get, head and scan."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from octavo.cli.options import STANDARD
from octavo.cli.output import complain
from octavo.files.door.disk import RealDisk
from octavo.files.errors import Misuse
from octavo.manifest import store_identity
from octavo.notation import fields_of, printed

if TYPE_CHECKING:
    from octavo.cli.output import Output
    from octavo.head_only import HeadBucket, HeadRow


def is_head_only(path: str) -> bool:
    """Whether the store at ``path`` is head-only. Raises Corruption, UnsupportedFormat,
    FileNotFoundError."""
    return store_identity.is_head_only(store_identity.fields_of(RealDisk(), path))


def refuse_sub_key(sub_key: str | None) -> None:
    """Raise Misuse if a sub-key is given: the store is a standard one."""
    if sub_key is not None:
        raise Misuse("--sub-key is for head-only stores; this is a standard one")


def refuse_standard(tag: str, **others: object) -> None:
    """Raise Misuse if a type or one of these options is given: the store is a head-only one."""
    for name, value in {"--tag": None if tag == STANDARD else tag, **others}.items():
        if value is not None:
            raise Misuse(f"{name} is for standard stores; this one is head-only")


def rows(
    bucket: HeadBucket,
    start: bytes | None,
    end: bytes | None,
    prefix: bytes | None,
    *,
    reverse: bool,
    limit: int | None,
) -> Iterator[HeadRow]:
    """Yield the entries that ``scan`` prints; with a message if a limit cuts them off."""
    found = bucket.rows(start, end, prefix=prefix, reverse=reverse)
    yield from islice(found, limit)
    if limit and next(found, None) is not None:
        again = "" if reverse else "; --start with the last key begins with its entries"
        complain(f"more follow{again}")


def tell_row(out: Output, row: HeadRow, notation: str, *, keys_only: bool, as_json: bool) -> None:
    """Print one entry on a line."""
    parts = {"key": row.key, "sub_key": row.sub_key}
    if not keys_only:
        parts["value"] = row.value
    if as_json:
        out.json(fields_of(**parts))
    else:
        out.line("\t".join(printed(raw, notation) for raw in parts.values()))
