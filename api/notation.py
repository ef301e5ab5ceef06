"""Writes bytes for people and programs: as one line of text, as hex, or as fields of JSON.

The text notation is reversible and keeps one item on one line. UTF-8 that can be printed stands
as it is; a backslash is ``\\\\``, tab, newline and carriage return are ``\\t``, ``\\n``, ``\\r``,
and every other byte is ``\\xHH``. So nothing that is stored can send control codes to a terminal.

In JSON, a field holds its bytes as a string if they are UTF-8; otherwise the field's name ends in
``64``, and it holds base64.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import cache
from typing import Any

from octavo.files.errors import Misuse

_NAMED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_PLAIN = {name[1]: mark.encode() for mark, name in _NAMED.items()}
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[\\tnr])|\\")
_HIDDEN = "surrogateescape"


def to_text(raw: bytes) -> str:
    """``raw`` in the text notation. O(bytes)."""
    text = raw.decode("utf-8", _HIDDEN)
    if text.isprintable() and "\\" not in text:
        return text
    return text.translate(_MARKS)


def printed(raw: bytes, notation: str) -> str:
    """``raw`` on one line: in hexadecimal digits for "hex", else in the text notation."""
    return raw.hex() if notation == "hex" else to_text(raw)


class _Marks(dict[int, str]):
    """The text for each character. It is kept for characters of up to two bytes, and for bytes that
    are no UTF-8: nearly all that occurs in bytes that are no text."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        mark = _NAMED.get(char) or char
        if not mark.isprintable():
            mark = "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", _HIDDEN))
        if code < 0x800 or 0xDC80 <= code < 0xDD00:
            self[code] = mark
        return mark


_MARKS = _Marks()


def from_text(line: bytes) -> bytes:
    """The bytes that ``to_text`` wrote as ``line``. Raises Misuse."""

    def plain(found: re.Match[bytes]) -> bytes:
        if (raw := _plain(found[1])) is None:
            raise Misuse(
                f"{to_text(line)!r}: allowed after a backslash are \\\\, \\t, \\n, \\r and \\xHH"
            )
        return raw

    return _ESCAPE.sub(plain, line)


@cache
def _plain(name: bytes | None) -> bytes | None:
    """The byte meant by what follows a backslash; some 500 are possible."""
    return name and (_PLAIN.get(name.decode()) or bytes((int(name[1:], 16),)))


def from_hex(name: str, text: str | bytes) -> bytes:
    """The bytes of hexadecimal digits, spaces allowed. Raises Misuse that names the argument."""
    try:
        return bytes.fromhex(text if isinstance(text, str) else text.decode("ascii"))
    except ValueError:
        raise Misuse(f"{name}={text!r:.80}: allowed are pairs of hexadecimal digits") from None


def put_field(document: dict[str, Any], name: str, raw: bytes) -> None:
    """Set a field of a JSON document to bytes."""
    try:
        document[name] = raw.decode("utf-8")
    except UnicodeDecodeError:
        document[name + "64"] = base64.b64encode(raw).decode("ascii")


def fields_of(**parts: bytes) -> dict[str, Any]:
    """A JSON document of byte strings."""
    document: dict[str, Any] = {}
    for name, raw in parts.items():
        put_field(document, name, raw)
    return document


def take_field(document: dict[str, Any], name: str) -> bytes | None:
    """Bytes of a field as ``put_field`` set it; None if it is not there. Raises Misuse."""
    plain, packed = document.get(name), document.get(name + "64")
    if plain is not None and packed is not None:
        raise Misuse(f"both {name!r} and {name + '64'!r} are there: allowed is one of them")
    if plain is not None:
        if not isinstance(plain, str):
            raise Misuse(f"{name!r} is {plain!r:.60}: allowed is a string")
        try:
            return plain.encode("utf-8")
        except UnicodeEncodeError:
            raise Misuse(f"{name!r} holds half of a surrogate pair, which is no text") from None
    if packed is None:
        return None
    try:
        if not isinstance(packed, str):
            raise ValueError
        return base64.b64decode(packed, validate=True)
    except (ValueError, binascii.Error):
        raise Misuse(f"{name + '64'!r} is {packed!r:.60}: allowed is base64") from None


def to_name(key: bytes, sub_key: bytes) -> str:
    """A key on one line, with its sub-key where it has one."""
    return to_text(key) + (f" / {to_text(sub_key)}" if sub_key else "")


IN_DEFAULT = " in the default bucket; others by --bucket, `octavo buckets` lists them"


def no_key(bucket: bytes, key: bytes, sub_key: bytes = b"") -> str:
    """The message that an entry is not there, with its bucket if that is not the default one."""
    named = to_text(key) + (f", sub-key {to_text(sub_key)}" if sub_key else "")
    return f"no key {named}" + ("" if bucket else IN_DEFAULT)
