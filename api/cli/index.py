"""The command about secondary indexes."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

import click

from octavo.cli.options import (
    COUNT,
    bucket_option,
    json_option,
    open_for_reading,
    path_argument,
    tag_option,
    to_bytes,
)
from octavo.cli.output import Output, complain
from octavo.cli.rows import term_to_json
from octavo.files.errors import Misuse
from octavo.notation import IN_DEFAULT, fields_of, to_text

if TYPE_CHECKING:
    from octavo.files.ledger.index_terms import Term

index_option = click.option(
    "--index", "index", multiple=True, metavar="FIELD=TERM",
    help="An index entry of the key; repeat it for more. FIELD:int=7 makes the term a number.",
)  # fmt: skip


def to_term(name: str, argument: str, *, number: bool) -> Term:
    """A term from the command line: an int if ``number``, else a str or, if it is not UTF-8, bytes.
    Raises Misuse that names the option."""
    if not number:
        raw = os.fsencode(argument)  # the bytes as given, whatever the locale
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw
    try:
        return int(argument)
    except ValueError:
        raise Misuse(f"{name}={argument!r:.80}: allowed are whole numbers") from None


def to_entries(arguments: tuple[str, ...]) -> dict[bytes, list[Term]] | None:
    """The arguments of ``--index`` as ``put`` takes them; None if there are none. Raises Misuse."""
    out: dict[bytes, list[Term]] = {}
    for argument in arguments:
        field, equals, term = argument.partition("=")
        name, colon, kind = field.rpartition(":")
        number = bool(colon) and kind == "int"
        if not equals or not (name if number else field):
            raise Misuse(f"--index={argument!r:.80}: allowed is FIELD=TERM, or FIELD:int=NUMBER")
        out.setdefault(os.fsencode(name if number else field), []).append(
            to_term(f"--index {field[:80]}", term, number=number)
        )
    return out or None


@click.command()
@path_argument
@click.argument("field")
@bucket_option
@tag_option
@click.option("--start", metavar="TERM", help="First term, inclusive.")
@click.option("--end", metavar="TERM", help="Last term, exclusive; also with --reverse.")
@click.option("--term", metavar="TERM", help="Exactly this term.")
@click.option("--int", "number", is_flag=True, help="The terms given are numbers.")
@click.option("--match", metavar="REGEX", help="Only str terms in which it matches somewhere.")
@click.option("--reverse", is_flag=True, help="From the highest term down.")
@click.option("--limit", type=COUNT, metavar="N", help="At most N entries.")
@click.option("--keys-only", is_flag=True, help="Print no terms.")
@json_option
def index(
    path: str,
    field: str,
    bucket: str,
    tag: str,
    start: str | None,
    end: str | None,
    term: str | None,
    number: bool,
    match: str | None,
    reverse: bool,
    limit: int | None,
    keys_only: bool,
    as_json: bool,
) -> None:
    """List keys by their terms in the index FIELD.

    In the order of the terms, one entry a line: term and key, as text. In JSON a number is an int
    term, a string a str term, and `term64` a bytes term, as in `dump`.
    """
    if term is not None and (reverse or not start is end is match is None):
        raise click.UsageError("give --term, or --start, --end, --match and --reverse")
    low, high, exact = (
        None if given is None else to_term(name, given, number=number)
        for name, given in (("--start", start), ("--end", end), ("--term", term))
    )
    with Output() as out, open_for_reading(path) as store:
        found = store.bucket(to_bytes("--bucket", bucket), tag=tag).index(os.fsencode(field))
        if exact is not None:
            entries = islice(((exact, key) for key in found.having(exact)), limit)
        else:
            entries = islice(
                found.range(low, high, match=match, reverse=reverse, limit=limit), limit
            )
        key = None
        for given, key in entries:
            if as_json:
                out.json(fields_of(key=key) | term_to_json(given))
            elif keys_only:
                out.line(to_text(key))
            else:
                raw = given if isinstance(given, bytes) else str(given).encode()
                out.line(f"{to_text(raw)}\t{to_text(key)}")
        where = "" if bucket else IN_DEFAULT
        if key is None and not (number or low is high is exact is None):
            complain(f"nothing found among terms of str (numbers: --int){where}")
        elif key is None and where:
            complain(f"nothing found{where}")
