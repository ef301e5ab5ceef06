"""The commands about the store over time and at a moment: changes, snapshot."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click
from xxhash import xxh3_128

from octavo.arguments import to_bucket
from octavo.cli.options import (
    COUNT,
    STANDARD,
    hex_key_option,
    json_option,
    notation_options,
    one_key,
    open_for_reading,
    path_argument,
    tag_option,
    to_bytes,
)
from octavo.cli.output import Advance, Output, complain, progress
from octavo.cli.read import tell, tell_of_other_types
from octavo.cli.rows import entries_to_json
from octavo.figures import count, moment, size
from octavo.files.later import Later
from octavo.files.ledger.chosen_rows import Asked, Span
from octavo.files.ledger.head import Head
from octavo.manifest.store_identity import HEAD_ONLY
from octavo.notation import IN_DEFAULT, fields_of, no_key, printed, to_name, to_text

if TYPE_CHECKING:
    from octavo.actors.scanning import row_parts
    from octavo.snapshot import Snapshot
else:
    row_parts = Later("octavo.actors.scanning.row_parts")

_LEASE_SECONDS = 3600.0
_Group = tuple[bytes, bytes, int, int]
"""Bucket, common beginning of the keys, number of keys, bytes of their values."""


# ---------------------------------------------------------------- changes


@click.command()
@path_argument
@click.option(
    "--since", type=click.IntRange(min=0), default=0, metavar="SQN",
    help="Only changes above this sequence number.",
)  # fmt: skip
@click.option("--limit", type=COUNT, metavar="N", help="At most N changes.")
@click.option("--keys-only", is_flag=True, help="No values in the JSON.")
@click.option("--compacted", is_flag=True, help="Print what is left if compaction dropped some.")
@json_option
def changes(
    path: str, since: int, limit: int | None, keys_only: bool, compacted: bool, as_json: bool
) -> None:
    """Print the journal as events.

    Every put and every delete, oldest first, tab-separated: sqn, kind, bucket, key, bytes, moment.
    A delta is what the strategy retain keeps of a put that was replaced. JSON lines also hold
    values, metadata, expiry, index entries, the place in an atomic batch, and the type of the
    object. In a head-only store a key is followed by ` / ` and its sub-key.
    """
    with Output() as out, open_for_reading(path) as store:
        for change in islice(store.changes(since, compacted=compacted), limit):
            if not as_json:
                length = "-" if change.value is None else str(len(change.value))
                parts = (
                    str(change.sqn), change.kind, to_text(change.bucket),
                    to_name(change.key, change.sub_key), length, moment(change.written_at),
                )  # fmt: skip
                out.line("\t".join(parts))
                continue
            document: dict[str, Any] = {"sqn": change.sqn, "kind": change.kind}
            document |= fields_of(bucket=change.bucket, key=change.key)
            if change.tag == HEAD_ONLY:
                document |= fields_of(sub_key=change.sub_key)
            elif change.tag != STANDARD:
                document["tag"] = change.tag
            if change.value is not None:
                document["size"] = len(change.value)
                if not keys_only:
                    document |= fields_of(value=change.value)
            if change.metadata:
                document |= fields_of(metadata=change.metadata)
            if change.index:
                document["index"] = entries_to_json(change.index)
            document["written_at"] = change.written_at
            if change.expires_at is not None:
                document["expires_at"] = change.expires_at
            if change.batch is not None:
                document["batch"] = {"position": change.batch[0], "length": change.batch[1]}
            out.json(document)


# ---------------------------------------------------------------- snapshot


@click.command()
@path_argument
@click.option("--bucket", "-b", metavar="NAME", help="Only this bucket.")
@tag_option
@click.option("--prefix", metavar="KEY", help="Only keys that begin with this.")
@click.option(
    "--depth", type=click.IntRange(1, sys.maxsize), metavar="N",
    help="A line for each group of keys with the same first N parts, as `/` divides them.",
)  # fmt: skip
@click.option(
    "--fold", type=click.Choice(["count", "bytes", "digest"]),
    help="Count keys, add up their values' bytes, or digest all that they hold.  [default: bytes]",
)  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="Print the keys of one bucket instead.")
@click.option("--get", "key", metavar="KEY", help="Write the value of one key instead.")
@hex_key_option
@notation_options
@json_option
@click.pass_context
def snapshot(
    ctx: click.Context,
    path: str,
    bucket: str | None,
    tag: str,
    prefix: str | None,
    depth: int | None,
    fold: str | None,
    listing: bool,
    key: str | None,
    hex_key: bool,
    notation: str | None,
    as_json: bool,
) -> None:
    """Take a snapshot and fold over it.

    Prints the sequence number and what the fold finds.

    \b
    --fold count   reads keys only
    --fold bytes   reads heads: keys and sizes, no values
    --fold digest  reads everything; two stores with the same digest hold the
                   same keys, values, metadata and expiry

    With --list or --get the snapshot is read instead, in the default bucket unless --bucket names
    another, and the sequence number goes to standard error.
    """
    folds = fold is not None or depth is not None
    if listing + folds + (key is not None) > 1:
        raise click.UsageError("give --list, --get, or --fold and --depth")
    if key is not None and prefix is not None:
        raise click.UsageError("--prefix is not for --get, which takes a whole KEY")
    if notation is not None and not listing and key is None:
        raise click.UsageError("--hex and --text are for --list and --get, which print bytes")
    chosen = None if bucket is None else to_bucket(to_bytes("--bucket", bucket))
    begins = None if prefix is None else to_bytes("--prefix", prefix, hexadecimal=hex_key)
    wanted = None if key is None else one_key(key, hexadecimal=hex_key)
    with Output() as out, open_for_reading(path) as store, store.snapshot(_LEASE_SECONDS) as snap:
        if wanted is not None:
            complain(f"snapshot at sqn {count(snap.sqn)}")
            value = snap.bucket(chosen or b"", tag=tag).get(wanted)
            if value is None:
                complain(no_key(chosen or b"", wanted))
                ctx.exit(1)
            tell(out, wanted, value, notation, as_json=as_json)
        elif listing:
            complain(f"snapshot at sqn {count(snap.sqn)}")
            name = None
            for name in snap.bucket(chosen or b"", tag=tag).keys(prefix=begins):
                if as_json:
                    out.json(fields_of(key=name))
                else:
                    out.line(printed(name, notation or "text"))
            if name is None and not chosen:
                complain(f"nothing found{IN_DEFAULT}")
        else:
            snap._check_mode()
            folded = _Fold(snap, fold or "bytes", depth)
            number = snap._identity.tags.number(tag)
            with progress("folding", None) as advance:
                span = Span(prefix=begins)
                folded.take(row_parts.to_ask(snap._shared, number, chosen, span), advance)
            folded.report(out, as_json)
            tell_of_other_types(snap, tag)


class _Fold:
    """Counts, adds up or digests what a snapshot holds, in groups."""

    def __init__(self, snap: Snapshot, kind: str, depth: int | None) -> None:
        self._snap = snap
        self._kind = kind
        self._depth = depth
        self._groups: list[_Group] = []
        """All groups, in order; there may be a million."""
        self._digest = xxh3_128()

    def take(self, asked: Asked, advance: Advance) -> None:
        """Fold in all rows that are asked for. O(keys), however many buckets there are."""
        digested, done, name = self._kind == "digest", 0, b""
        of_bucket: dict[bytes, list[int]] = {}
        for part in row_parts.row_parts(self._snap._shared, asked, by_values=digested):
            rows = zip(part.keys(), part.heads(), strict=True)
            values = part.values()
            for _, bucket, low, high in part.runs():
                if bucket != name:
                    self._end(name, of_bucket)
                    name, of_bucket = bucket, {}
                for key, head in islice(rows, high - low):
                    group = of_bucket.setdefault(self._group_of(key), [0, 0])
                    group[0] += 1
                    group[1] += head.size
                    if digested:
                        self._take_digest(name, key, next(values), head)
                done += high - low
            self._snap.renew()
            advance(done)
        self._end(name, of_bucket)

    def _end(self, bucket: bytes, groups: dict[bytes, list[int]]) -> None:
        """Note all groups of a bucket, which has ended."""
        for begins, (number, total) in sorted(groups.items()):
            self._groups.append((bucket, begins, number, total))

    def _take_digest(self, name: bytes, key: bytes, value: bytes, head: Head) -> None:
        expiry = str(head.expires_at or 0).encode()
        for part in (name, key, value, head.metadata, expiry):
            self._digest.update(len(part).to_bytes(8, "big"))
            self._digest.update(part)

    def _group_of(self, key: bytes) -> bytes:
        if self._depth is None:
            return b""
        return b"/".join(key.split(b"/", self._depth)[: self._depth])

    def report(self, out: Output, as_json: bool) -> None:
        """Print the groups in order, and the totals."""
        keys = sum(number for _, _, number, _ in self._groups)
        length = sum(total for _, _, _, total in self._groups)
        digest = self._digest.hexdigest() if self._kind == "digest" else None
        if as_json:
            document: dict[str, Any] = {
                "sqn": self._snap.sqn,
                "taken_at": self._snap.taken_at,
                "keys": keys,
            }
            if self._kind != "count":
                document["bytes"] = length
            if digest is not None:
                document["digest"] = digest
            document["groups"] = [self._group(*group) for group in self._groups]
            out.json(document)
            return
        out.line(f"snapshot at sqn {count(self._snap.sqn)}, {moment(self._snap.taken_at)}")
        if digest is not None:
            out.line(f"digest {digest}")
        shown = [0, 1, 2, 3] if self._depth else [0, 2, 3]
        cells = itemgetter(*(shown[:-1] if self._kind == "count" else shown))

        def rows() -> Iterator[Sequence[str]]:
            yield cells(("bucket", "keys begin", "keys", "bytes"))
            for name, begins, number, total in self._groups:
                named = to_text(name) or "(default)"
                yield cells((named, to_text(begins), count(number), size(total)))
            yield cells(("all", "", count(keys), size(length)))

        out.columns(rows, right=range(shown.index(2), 4))

    def _group(self, name: bytes, begins: bytes, number: int, total: int) -> dict[str, Any]:
        document = fields_of(bucket=name)
        if self._depth is not None:
            document |= fields_of(begins=begins)
        document["keys"] = number
        if self._kind != "count":
            document["bytes"] = total
        return document
