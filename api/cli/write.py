"""The writing commands: put, del, load."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import click

from octavo.arguments import to_bucket, to_expiry, to_index, to_key, to_metadata, to_path
from octavo.cli.index import index_option, to_entries
from octavo.cli.loading import Loading
from octavo.cli.options import (
    STDIN,
    bucket_option,
    hex_key_option,
    json_option,
    keys_of_stdin,
    kind_of,
    one_key,
    open_store,
    path_argument,
    read_value,
    refuse_for_directory,
    stdin,
    to_bytes,
)
from octavo.cli.output import Output, complain, progress
from octavo.cli.parquet import Parquet
from octavo.cli.source import FORMATS, Directory, Source, text_source
from octavo.figures import count
from octavo.notation import from_hex, no_key


@click.command()
@path_argument
@click.argument("key")
@click.argument("value", required=False)
@bucket_option
@click.option(
    "--file", "-f", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the value from this file.",
)  # fmt: skip
@click.option("--hex", "hex_value", is_flag=True, help="The value is given in hexadecimal.")
@hex_key_option
@click.option("--metadata", default="", metavar="TEXT", help="Kept with the value; see `head`.")
@click.option("--ttl", type=float, metavar="SECONDS", help="KEY reads as absent after this.")
@click.option(
    "--if-sqn", type=click.IntRange(min=0), metavar="N",
    help="Write only if the key's sequence number is N; 0: only if it is absent.",
)  # fmt: skip
@index_option
@json_option
def put(
    path: str,
    key: str,
    value: str | None,
    bucket: str,
    file: Path | None,
    hex_value: bool,
    hex_key: bool,
    metadata: str,
    ttl: float | None,
    if_sqn: int | None,
    index: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write VALUE under KEY.

    Prints the sequence number. VALUE `-` reads all of standard input. Creates the store if PATH
    holds none, unless `--if-sqn` expects KEY to be there. Durable when the command ends.
    """
    if (value is None) == (file is None):
        raise click.UsageError("give VALUE or --file, one of them")
    if STDIN in (key, value) and key == value:
        raise click.UsageError("standard input is either KEY or VALUE, not both")
    wanted = one_key(key, hexadecimal=hex_key)
    if file is not None:
        with file.open("rb") as source:
            raw = read_value(source, hex_value)
    else:
        raw = read_value(stdin(), hex_value) if value == STDIN else os.fsencode(value or "")
    raw = from_hex("VALUE", raw) if hex_value else raw
    name, entries = to_bytes("--bucket", bucket), to_entries(index)
    # Refuse first what the store would refuse, so that none is made in vain.
    to_key(wanted, to_bucket(name))
    to_expiry(ttl, None, 0)
    meta, _ = to_metadata(os.fsencode(metadata)), to_index(entries or {})
    with Output() as out, open_store(path, create=not if_sqn) as store:
        sqn = store.bucket(name).put(
            wanted, raw, metadata=meta, ttl=ttl, index=entries, if_sqn=if_sqn
        )
        if as_json:
            out.json({"sqn": sqn})
        else:
            out.line(str(sqn))


@click.command("del")
@path_argument
@click.argument("keys", nargs=-1, required=True)
@bucket_option
@hex_key_option
@click.option(
    "--if-sqn", type=click.IntRange(min=1), metavar="N",
    help="Delete only if the key's sequence number is N.",
)  # fmt: skip
@json_option
@click.pass_context
def delete(
    ctx: click.Context,
    path: str,
    keys: tuple[str, ...],
    bucket: str,
    hex_key: bool,
    if_sqn: int | None,
    as_json: bool,
) -> None:
    """Delete KEYS.

    Prints how many there were. A key of `-` reads keys from standard input, one a line, as
    `scan --keys-only` prints them. Exits with 1 if any was absent; the others are deleted.
    """
    wanted: list[bytes] = []
    for key in keys:
        if key == STDIN:
            wanted += keys_of_stdin(hexadecimal=hex_key)
        else:
            wanted.append(to_bytes("KEY", key, hexadecimal=hex_key))
    if if_sqn is not None and len(wanted) != 1:
        raise click.UsageError("--if-sqn takes one KEY")
    deleted, absent = 0, 0
    with Output() as out, open_store(path) as store:
        name = to_bytes("--bucket", bucket)
        source = store.bucket(name)
        for one in wanted:
            if if_sqn is None and one not in source:
                complain(no_key(name, one))
                absent += 1
            else:
                source.delete(one, if_sqn=if_sqn)
                deleted += 1
        if as_json:
            out.json({"deleted": deleted, "absent": absent, "last_sqn": store.last_sqn})
        else:
            out.line(count(deleted))
    if absent:
        ctx.exit(1)


# ---------------------------------------------------------------- load


@click.command()
@path_argument
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=str))
@click.option("--bucket", "-b", metavar="NAME", help="Bucket that everything goes to.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS),
    help="What SOURCE is; by default its name tells.",
)  # fmt: skip
@click.option("--key-field", metavar="NAME", help="CSV column or JSON field that is the key.")
@click.option("--value-field", metavar="NAME", help="... that is the value; else the whole row.")
@click.option("--delimiter", metavar="CHAR", help="Separates CSV columns; else , or in .tsv a tab.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files or directories.")
@click.option(
    "--batch", "batch", type=click.IntRange(1, 1_000_000), default=1000, show_default=True,
    metavar="N", help="Values handed to the store at a time.",
)  # fmt: skip
@click.option("--skip-bad", is_flag=True, help="Report bad lines and go on, instead of stopping.")
@json_option
@click.pass_context
def load(
    ctx: click.Context,
    path: str,
    sources: tuple[str, ...],
    bucket: str | None,
    kind: str | None,
    key_field: str | None,
    value_field: str | None,
    delimiter: str | None,
    exclude: tuple[str, ...],
    batch: int,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Load directories, CSV, JSONL or Parquet.

    Writes what SOURCES hold into the store, which is created if PATH holds none.

    \b
    A directory: every file below it is a value, its relative path, with `/`,
      is the key. Symbolic links are not followed. Files that cannot be read
      are reported, the rest is loaded, and the command exits with 1.
    CSV (UTF-8, with a header): the first column, or --key-field, is the key,
      the row as a JSON object, or --value-field, is the value. With columns
      key and value alone, name both.
    JSONL, Parquet: any, with --key-field and perhaps --value-field.
    All three as `dump` writes them: buckets, metadata, expiry, index entries.

    Files may be compressed, with names that end in .gz or .zst. A SOURCE of `-` is standard input
    and needs --format. A later value of a key replaces an earlier one. Not atomic: what was loaded
    before an error stays. Durable when the command ends.
    """
    if sources.count(STDIN) > 1:
        raise click.UsageError("standard input can be read once")
    kinds = [kind_of(source, kind) for source in sources]
    if "directory" in kinds:
        refuse_for_directory(key_field, value_field, delimiter)
    if exclude and set(kinds) != {"directory"}:
        raise click.UsageError("--exclude is for a directory")
    _refuse_itself(path, sources)
    whole = None if bucket is None else to_bytes("--bucket", bucket)
    stop = not skip_bad and "directory" not in kinds
    with ExitStack() as stack:
        found: list[Source] = [
            Directory(source, exclude, path)
            if kind == "directory"
            else _file(stack, kind, source, key_field, value_field, delimiter)
            for source, kind in zip(sources, kinds, strict=True)
        ]
        store = stack.enter_context(open_store(path, create=True))
        result = Loading(store, whole, batch, stop=stop)
        for one, source in zip(found, sources, strict=True):
            what = "loading" if len(found) == 1 else f"loading {source}"
            with progress(what, one.total_bytes, of_bytes=True) as advance:
                result.run(one, advance)
    result.ended()
    result.report(as_json)
    if result.rejected:
        ctx.exit(1)


def _refuse_itself(path: str, sources: tuple[str, ...]) -> None:
    inside = f"{os.path.realpath(to_path('PATH', path))}/"
    for source in sources:
        if source != STDIN and f"{os.path.realpath(source)}/".startswith(inside):
            raise click.UsageError(f"SOURCE {source!r} is the store, or inside it")


def _file(
    stack: ExitStack,
    kind: str,
    source: str,
    key_field: str | None,
    value_field: str | None,
    delimiter: str | None,
) -> Source:
    """Open a file, or standard input, as a source."""
    name = "standard input" if source == STDIN else source
    if value_field is not None and key_field is None and kind != "csv":
        raise click.UsageError("--value-field needs --key-field")
    if delimiter is not None and kind != "csv":
        raise click.UsageError("--delimiter is for CSV")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise click.UsageError(
            f"--delimiter {delimiter!r:.80}: allowed is one character, no quote or end of a line"
        )
    total = None
    if source == STDIN:
        stream = stdin()
    else:
        stream = stack.enter_context(open(source, "rb"))  # noqa: SIM115 - the stack closes it
        total = os.path.getsize(source) or None
    if kind == "parquet":
        return Parquet(name, stream, total, key_field=key_field, value_field=value_field)
    return text_source(
        kind, name, stream, total,
        key_field=key_field, value_field=value_field, delimiter=delimiter,
    )  # fmt: skip
