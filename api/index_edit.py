"""IndexEdit: a change of a key's index entries, as given to a put."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.actors.writing import operation
from octavo.actors.writing.index_sets import index_parts, removed_parts


class IndexEdit:
    """What a put changes in its key's index entries, given as its ``index``.

    ``add`` and ``remove``: {field: term or iterable of terms}, terms as for a put. ``remove`` is
    applied before ``add``; None as the terms there removes the whole field. Applied when the put
    happens, to the entries of the version that it replaces. A type with an ``index`` function takes
    none. Raises Misuse.
    """

    def __init__(
        self, *, add: Mapping[Any, Any] | None = None, remove: Mapping[Any, Any] | None = None
    ) -> None:
        self.parts = operation.IndexEdit(
            tuple(sorted(index_parts({} if add is None else add, "add"))),
            tuple(sorted(removed_parts({} if remove is None else remove))),
        )

    def __repr__(self) -> str:
        added, removed = len(self.parts.added), len(self.parts.removed)
        return f"<octavo.IndexEdit that adds {added} and removes {removed}>"
