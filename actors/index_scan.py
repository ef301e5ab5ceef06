"""Index entries in order, each compared with the object that it is of.

An entry is valid if and only if its object's newest version has the entry's sqn: so a put, a
delete or an expiry takes back the older version's entries without touching them.
"""

from __future__ import annotations

from collections.abc import Iterator

from octavo.actors.reader import STEP, Reader
from octavo.actors.scan import Bounds
from octavo.files import ledger_key

_END = b"\x00\x00"


def entries(
    reader: Reader, bucket: bytes, tag: int, field: bytes, bound: Bounds
) -> Iterator[tuple[bytes, bytes]]:
    """(term as stored, object's key) of the valid entries of a range of one field, in its
    direction. ``field`` as index_terms.field_part has it. One look at the ledger an entry.
    """
    front = ledger_key.prefix(tag, bucket)
    mark = bytes((tag,))
    begins = len(field)
    for window in reader.windows(bound):
        newest, upper = reader.view.newest, reader.sqn
        rows = zip(window.keys, window.sqns(), strict=True)
        found = []
        with reader.reading():
            for row, sqn in rows:
                at = row.index(_END, begins)
                key = row[at + 3 :]
                if row[at + 2 : at + 3] == mark and newest(front + key, upper) == sqn:
                    found.append((row[begins:at], key))
        for number, pair in enumerate(found):
            if not number % STEP:
                reader.step()
            yield pair
