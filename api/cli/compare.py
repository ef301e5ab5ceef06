"""The command that compares stores: diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from octavo.cli.options import STANDARD, json_option, open_for_reading, to_bytes
from octavo.cli.output import Output, complain
from octavo.figures import moment, plural
from octavo.notation import fields_of, to_name, to_text

if TYPE_CHECKING:
    from octavo.files.ledger.head import Head
    from octavo.files.ledger.merkle import By

_LEASE_SECONDS = 24 * 3600.0


@click.command()
@click.argument("a", type=click.Path(path_type=str))
@click.argument("b", type=click.Path(path_type=str))
@click.option("--bucket", "-b", "name", metavar="NAME", help="Only this bucket.")
@click.option(
    "--by", type=click.Choice(["sqn", "head", "value"]),
    help="What tells versions apart; by default sqn for a store and its backups, else value.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N keys.")
@json_option
@click.pass_context
def diff(
    ctx: click.Context,
    a: str,
    b: str,
    name: str | None,
    by: By | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Find the keys in which two stores differ.

    A and B are directories of stores; one that is open elsewhere is read as it is now. Trees of
    hashes say which parts differ, and only those are read. Prints a key a line, tab-separated:
    `-` if only A has it, `+` if only B has it, `~` if both have it, then bucket, key, and what A
    and B have: sqn, bytes, write time. Exits with 1 if they differ.

    \b
    --by sqn    for copies of one store, such as backups, at most one of which was written to since
    --by head   for stores written separately: compares sizes, metadata and expiry
    --by value  compares values too, and reads all of them
    """
    from octavo.comparing import at_one_moment, compare, told_by

    bucket = None if name is None else to_bytes("--bucket", name)
    done = 0
    with (
        Output() as out,
        open_for_reading(a) as left,
        open_for_reading(b) as right,
        left.snapshot(_LEASE_SECONDS) as x,
        right.snapshot(_LEASE_SECONDS) as y,
    ):
        if by is None and (by := told_by(x, y)) == "value":
            why = "these are not copies of one store: all values are compared; see --by"
            if x._identity.id == y._identity.id:
                why = (
                    "both copies of one store were written since, or compaction took the record "
                    "that tells: all values are compared; if one at most was, --by sqn is quicker"
                )
            complain(why)
        for one in at_one_moment(compare(x, y, by=by, bucket=bucket), x, y):
            if done == limit:
                break
            done += 1
            if as_json:
                document = fields_of(bucket=one.bucket, key=one.key)
                if one.sub_key:
                    document |= fields_of(sub_key=one.sub_key)
                if one.tag != STANDARD:
                    document["tag"] = one.tag
                document |= {"a": _fields(one.a), "b": _fields(one.b)}
                out.json(document)
            else:
                mark = "+" if one.a is None else "-" if one.b is None else "~"
                key = to_name(one.key, one.sub_key)
                parts = (mark, to_text(one.bucket), key, _cell(one.a), _cell(one.b))
                out.line("\t".join(parts))
    if done:
        complain(f"they differ in {plural(done, 'key')}" + (" or more" if done == limit else ""))
        ctx.exit(1)


def _cell(head: Head | None) -> str:
    if head is None:
        return "-"
    return f"{head.sqn} {head.size} {moment(head.written_at)}"


def _fields(head: Head | None) -> dict[str, Any] | None:
    if head is None:
        return None
    document = {"sqn": head.sqn, "size": head.size, **fields_of(metadata=head.metadata)}
    return document | {"written_at": head.written_at, "expires_at": head.expires_at}
