"""The reading commands: get, head, scan, buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from octavo.cli.heads import is_head_only, refuse_standard, refuse_sub_key, rows, tell_row
from octavo.cli.options import (
    COUNT,
    STANDARD,
    bound,
    bucket_option,
    hex_key_option,
    json_option,
    notation_options,
    one_key,
    open_for_reading,
    path_argument,
    sub_key_option,
    tag_option,
    to_bytes,
    to_moment,
)
from octavo.cli.output import Output, complain, terminal_columns
from octavo.figures import count, moment, plural
from octavo.files.ledger.head import Head
from octavo.notation import IN_DEFAULT, fields_of, no_key, printed, to_text

if TYPE_CHECKING:
    from octavo.scans import Scan
    from octavo.snapshot import Snapshot

_MIN_COLUMNS = 20


@click.command()
@path_argument
@click.argument("key")
@bucket_option
@tag_option
@sub_key_option
@hex_key_option
@notation_options
@json_option
@click.pass_context
def get(
    ctx: click.Context,
    path: str,
    key: str,
    bucket: str,
    tag: str,
    sub_key: str | None,
    hex_key: bool,
    notation: str | None,
    as_json: bool,
) -> None:
    """Write the value of KEY to standard output.

    Its bytes as they are; with --hex or --text, one line. KEY `-` reads the key from standard
    input, one line as `scan --keys-only` prints it. Exits with 1 if the key is absent.
    """
    wanted = one_key(key, hexadecimal=hex_key)
    sub = bound("--sub-key", sub_key, hexadecimal=hex_key) or b""
    with Output() as out, open_for_reading(path) as store:
        name = to_bytes("--bucket", bucket)
        if is_head_only(path):
            refuse_standard(tag)
            value = store.head_bucket(name).get(wanted, sub)
        else:
            refuse_sub_key(sub_key)
            value = store.bucket(name, tag=tag).get(wanted)
        if value is None:
            complain(no_key(name, wanted, sub))
            ctx.exit(1)
        tell(out, wanted, value, notation, as_json=as_json)


@click.command()
@path_argument
@click.argument("key")
@bucket_option
@tag_option
@sub_key_option
@hex_key_option
@json_option
@click.pass_context
def head(
    ctx: click.Context,
    path: str,
    key: str,
    bucket: str,
    tag: str,
    sub_key: str | None,
    hex_key: bool,
    as_json: bool,
) -> None:
    """Show what is known of KEY, without its value.

    Its sequence number, size, metadata, write time and expiry. Exits with 1 if the key is absent.
    """
    wanted = one_key(key, hexadecimal=hex_key)
    sub = bound("--sub-key", sub_key, hexadecimal=hex_key) or b""
    with Output() as out, open_for_reading(path) as store:
        name = to_bytes("--bucket", bucket)
        if is_head_only(path):
            refuse_standard(tag)
            row = store.head_bucket(name).head(wanted, sub)
            found = row and Head(row.sqn, len(row.value), b"", row.written_at, row.expires_at)
        else:
            refuse_sub_key(sub_key)
            found = store.bucket(name, tag=tag).head(wanted)
        if found is None:
            complain(no_key(name, wanted, sub))
            ctx.exit(1)
        if as_json:
            document = fields_of(key=wanted, **({"sub_key": sub} if sub else {}))
            document |= {"sqn": found.sqn, "size": found.size}
            document |= fields_of(metadata=found.metadata)
            document |= {"written_at": found.written_at, "expires_at": found.expires_at}
            out.json(document)
            return
        out.columns(
            [
                ("sqn", count(found.sqn)),
                ("size", plural(found.size, "byte")),
                ("metadata", to_text(found.metadata) or "none"),
                ("written at", moment(found.written_at)),
                ("expires at", moment(found.expires_at) or "never"),
            ]
        )


@click.command()
@path_argument
@bucket_option
@tag_option
@click.option("--prefix", metavar="KEY", help="Only keys that begin with this.")
@click.option("--start", metavar="KEY", help="First key, inclusive.")
@click.option("--end", metavar="KEY", help="Last key, exclusive; also with --reverse.")
@click.option("--reverse", is_flag=True, help="From the highest key down.")
@click.option("--match", metavar="REGEX", help="Only keys in which it matches somewhere.")
@click.option("--since", metavar="TIME", help="Only what was written then or later.")
@click.option("--before", metavar="TIME", help="Only what was written before then.")
@click.option(
    "--limit",
    type=COUNT,
    metavar="N",
    help="At most N keys; a message then says how to go on.",
)
@click.option("--resume", metavar="POSITION", help="Go on where a --limit ended.")
@click.option("--keys-only", is_flag=True, help="Read and print no values.")
@hex_key_option
@notation_options
@json_option
def scan(
    path: str,
    bucket: str,
    tag: str,
    prefix: str | None,
    start: str | None,
    end: str | None,
    reverse: bool,
    match: str | None,
    since: str | None,
    before: str | None,
    limit: int | None,
    resume: str | None,
    keys_only: bool,
    hex_key: bool,
    notation: str | None,
    as_json: bool,
) -> None:
    """Print keys and values in order.

    A range of keys, in byte order, one pair a line: key, tab, value. On a terminal long values are
    cut to its width; redirect the output or use --json to see them whole.

    TIME is ISO 8601, UTC where it names no zone, or milliseconds since 1970. REGEX is a Python one,
    on the key's bytes. POSITION is valid only with the same range and direction. In a head-only
    store it prints key, sub-key and value.
    """
    notation = notation or "text"
    name = to_bytes("--bucket", bucket)
    low, high, begins = (
        bound(option, given, hexadecimal=hex_key)
        for option, given in (("--start", start), ("--end", end), ("--prefix", prefix))
    )
    with Output() as out, open_for_reading(path) as store:
        if is_head_only(path):
            others = {"--match": match, "--since": since, "--before": before, "--resume": resume}
            refuse_standard(tag, **others)
            in_heads = store.head_bucket(name)
            for row in rows(in_heads, low, high, begins, reverse=reverse, limit=limit):
                tell_row(out, row, notation, keys_only=keys_only, as_json=as_json)
            return
        source = store.bucket(name, tag=tag)
        give = source.keys if keys_only else source.items
        found: Scan[Any] = give(
            low,
            high,
            prefix=begins,
            reverse=reverse,
            match=None if match is None else to_bytes("--match", match),
            limit=limit,
            resume=resume,
            modified_since=None if since is None else to_moment("--since", since),
            modified_before=None if before is None else to_moment("--before", before),
        )
        width = terminal_columns()
        given: Any = None
        for given in found:
            key, value = (given, None) if keys_only else given
            if as_json:
                out.json(fields_of(key=key) if value is None else fields_of(key=key, value=value))
                continue
            text = printed(key, notation)
            if value is not None:
                text += f"\t{_shortened(value, notation, text, width)}"
            out.line(text)
        if given is None and not bucket and resume is None:
            complain(f"nothing found{IN_DEFAULT}")
        if limit and found.position is not None:
            complain(f"more may follow: --resume {found.position}")


@click.command()
@path_argument
@tag_option
@json_option
def buckets(path: str, tag: str, as_json: bool) -> None:
    """Print the names of the buckets.

    A bucket exists as long as it holds a key.
    """
    with Output() as out, open_for_reading(path) as store, store.snapshot() as snap:
        for name in snap.buckets(tag=tag):
            if as_json:
                out.json(fields_of(bucket=name))
            else:
                out.line(to_text(name) or "(default)")
        tell_of_other_types(snap, tag)


def tell(out: Output, key: bytes, value: bytes, notation: str | None, *, as_json: bool) -> None:
    """Print a value that was asked for by its key, in the form that is wanted."""
    if as_json:
        out.json(fields_of(key=key, value=value))
    elif notation is None:
        out.write(value)
    else:
        out.line(printed(value, notation))


def tell_of_other_types(snap: Snapshot, tag: str) -> None:
    """Print a message for each type of objects that a command about all keys leaves out; none if a
    type was asked for."""
    identity = snap._identity
    for name in () if identity.head_only or tag != STANDARD else identity.tags.numbers:
        if name != STANDARD and next(snap.buckets(tag=name), None) is not None:
            complain(f"left out: objects of type {name!r}; --tag {name} is for them")


def _shortened(value: bytes, notation: str, before: str, width: int | None) -> str:
    """A value cut to the rest of a terminal's line; whole if there is no terminal."""
    if width is None:
        return printed(value, notation)
    room = max(width - (len(before) // 8 + 1) * 8, _MIN_COLUMNS)
    text = printed(value[:room], notation)
    if len(text) <= room and len(value) <= room:
        return text
    note = f"... {plural(len(value), 'byte')}"
    return text[: max(room - len(note), 0)] + note
