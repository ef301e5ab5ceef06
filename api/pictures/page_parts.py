"""Makes the parts of a page: pictures that stretch, tables, sections. All text is escaped.

A picture is an SVG of 1000 by 100 units, stretched to the width there is. So it holds no text:
labels stand beside it as HTML, and stay readable on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import count

WIDTH = 1000.0
MOST_ROWS = 250
"""Rows that a table shows; the others are only counted."""

_numbers = count(1)


def text(value: object) -> str:
    """Escape text for anywhere in HTML, attributes included. Invalid characters are replaced."""
    return escape("".join(c if c.isprintable() else "\ufffd" for c in str(value)), quote=True)


def rect(
    x: float, y: float, width: float, height: float, kind: str, title: str | None = None
) -> str:
    """A rectangle of a class of the style sheet; ``title`` shows when it is pointed at."""
    place = f'x="{x:.6g}" y="{y:.6g}" width="{max(width, 0):.6g}" height="{max(height, 0):.6g}"'
    told = "" if title is None else f"<title>{text(title)}</title>"
    return (
        f'<rect class="{kind}" {place}>{told}</rect>' if told else f'<rect class="{kind}" {place}/>'
    )


def upright(x: float, kind: str, title: str | None = None) -> str:
    """A vertical line over the whole height, as thin at any width."""
    told = "" if title is None else f"<title>{text(title)}</title>"
    return f'<line class="{kind}" x1="{x:.6g}" x2="{x:.6g}" y1="0" y2="100">{told}</line>'


def picture(shapes: Iterable[str], title: str, told: str, *, pixels: int) -> str:
    """An SVG that fills the width; ``told`` says in words what it shows."""
    number = next(_numbers)
    return (
        f'<svg height="{pixels}" viewBox="0 0 1000 100" '
        f'preserveAspectRatio="none" role="img" aria-labelledby="t{number} d{number}">'
        f'<title id="t{number}">{text(title)}</title><desc id="d{number}">{text(told)}</desc>'
        + "".join(shapes)
        + "</svg>"
    )


def row(what: str, drawn: str, amount: str) -> str:
    """A row of the page: a picture between its name and its figures."""
    return (
        f'<div class="row"><div class="what">{text(what)}</div><div class="pic">{drawn}</div>'
        f'<div class="amount">{text(amount)}</div></div>'
    )


def axis(marks: Sequence[tuple[float, str]]) -> str:
    """Marks at places 0 .. 1000 beneath a row's picture; a phone shows every other one."""
    spans = []
    for number, (x, label) in enumerate(marks):
        if x <= 0:
            spans.append(f'<span class="low">{text(label)}</span>')
        elif x >= WIDTH:
            spans.append(f'<span class="high">{text(label)}</span>')
        else:
            some = ' class="some"' if (len(marks) - number) % 2 == 0 else ""
            spans.append(f'<span{some} style="left:{x / 10:.4g}%">{text(label)}</span>')
    return under(f'<div class="axis">{"".join(spans)}</div>')


def ends(low: str, high: str) -> str:
    """Labels of the two ends of the pictures above."""
    return under(f'<div class="axis keys"><span>{text(low)}</span><span>{text(high)}</span></div>')


def under(drawn: str) -> str:
    """Something in the column of the pictures."""
    return (
        f'<div class="row"><div class="what"></div><div class="pic">{drawn}</div>'
        '<div class="amount"></div></div>'
    )


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """A legend of the colours: (class, meaning) each."""
    items = "".join(
        f'<li><i style="background:var(--{kind})"></i>{text(meaning)}</li>'
        for kind, meaning in entries
    )
    return f'<ul class="legend">{items}</ul>'


def table(
    caption: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, of_text: int = 1
) -> str:
    """A table, folded away at first; its first ``of_text`` columns are text. O(MOST_ROWS)."""

    def cells(kind: str, row: Sequence[str], more: str = "") -> str:
        return "".join(
            f"<{kind}{more}{' class=text' if at < of_text else ''}>{text(cell)}</{kind}>"
            for at, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows[:MOST_ROWS])
    more = len(rows) - MOST_ROWS
    if more > 0:
        caption += f" The first {MOST_ROWS}; {more:,} more are in `octavo stats --json`."
    return (
        f"<details><summary>Table</summary><div class=scroll tabindex=0><table>"
        f"<caption>{text(caption)}</caption>"
        f"<thead><tr>{cells('th', names, ' scope=col')}</tr></thead>"
        f"<tbody>{body}</tbody></table></div></details>"
    )


def section(heading: str, told: str, *parts: str) -> str:
    """A card of the page."""
    return f"<section><h2>{text(heading)}</h2><p>{text(told)}</p>{''.join(parts)}</section>"


def nothing(told: str) -> str:
    """A remark in place of a picture, if there is nothing to draw."""
    return f'<div class="none">{text(told)}</div>'


def tiles(entries: Iterable[tuple[str, str, str]]) -> str:
    """Figures in large type: (name, figure, remark) each."""
    items = "".join(
        f'<div class="tile"><dt>{text(name)}</dt><dd>{text(figure)}<small>{text(remark)}</small>'
        "</dd></div>"
        for name, figure, remark in entries
    )
    return f'<dl class="tiles">{items}</dl>'
