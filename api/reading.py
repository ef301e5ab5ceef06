"""The reading methods of a bucket, live or in a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from octavo.actors.bookie import Bookie
from octavo.actors.opening.tags import Tag
from octavo.actors.reader import Reader
from octavo.actors.scanning.merkle_trees import to_segments
from octavo.actors.scanning.scan_sources import FIRST_WINDOW
from octavo.arguments import Key, to_bytes, to_flag, to_key, to_keys
from octavo.at_once import at_once
from octavo.files.errors import Misuse
from octavo.files.kernels.cold_pages import COLD
from octavo.files.kernels.freed_memory import MUCH_BYTES, keep_freed
from octavo.files.ledger import ledger_key
from octavo.files.ledger.bounds import bounds, of_bucket
from octavo.files.ledger.chosen_rows import Segments
from octavo.files.ledger.head import Head
from octavo.files.ledger.index_terms import Term, terms_by_field
from octavo.files.ledger.ledger_key import MAX_KEY_BYTES
from octavo.filters import Moment, Pattern, to_filter, to_limit
from octavo.handles import Handle
from octavo.index import Index
from octavo.scans import (
    LEAST_FIRST,
    Give,
    Heads,
    Items,
    Place,
    Scan,
    Text,
    decode,
    in_segments,
    keys_of,
    parts,
    range_of,
)
from octavo.type_parameters import Out, Told, with_defaults

D = TypeVar("D")
_MOST_FIRST, _MOST_KEYS = 200, 4096
"""The most rows to find at first, however many are wanted; the same if only keys are wanted."""
_TOGETHER = 128
_AHEAD = 3
"""Keys to find in a later window for each one given: more keys cost little, a window costs more."""


class Reading(Handle, ABC, Generic[Out, Told]):
    """The reading half of a bucket. Keys and values come out as bytes, or as str with ``text``."""

    if not TYPE_CHECKING:
        __class_getitem__ = classmethod(with_defaults)

    _newest: Bookie | None = None
    """For a live bucket, the Bookie, which is asked for few rows without a reader."""

    def __init__(
        self, name: bytes, text: bool, tag: int = ledger_key.STANDARD, kind: Tag | None = None
    ) -> None:
        self._name = name
        self._tag = tag
        self._kind = kind  # functions of the objects' type
        self._prefix = ledger_key.prefix(tag, name)
        self._text = Text(name) if text else None
        self._key_limit = MAX_KEY_BYTES - len(name) + 1  # exclusive
        self._refused: str | None = None

    def _refuse(self, why: str) -> None:
        """Have every call on this bucket raise Misuse. (Its short paths then accept no key.)"""
        self._refused = why
        self._key_limit = 0

    def _check_mode(self) -> None:
        """Raise Misuse if this bucket was refused, being of the wrong kind for its store."""
        if self._refused is not None:
            raise Misuse(self._refused)

    def _whole(self, key: object) -> bytes:
        """Bytes of a key, checked. Raises Misuse."""
        self._check_mode()
        return to_key(key, self._name)

    # -- what live buckets and those of snapshots do differently

    @abstractmethod
    def _reader(self) -> Reader:
        """Make a reader that pins what it reads; the caller closes it."""

    @abstractmethod
    def _get(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def _head(self, key: bytes) -> Head | None: ...

    @abstractmethod
    def _index_of(self, key: bytes) -> bytes | None: ...

    @abstractmethod
    def _ask_for(self, keys: list[bytes]) -> None:
        """Request the values of these keys from the device all at once."""

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        before = COLD.reads()
        found = [self._get(key) for few in self._together(keys) for key in few]
        COLD.judge(before)
        return found

    def _together(self, keys: list[bytes]) -> Iterator[list[bytes]]:
        """Yield the keys in parts whose values are read together, if reads wait for a device."""
        if not COLD.left:
            yield keys
            return
        for at in range(0, len(keys), _TOGETHER):
            few = keys[at : at + _TOGETHER]
            self._ask_for(few)
            yield few

    # -- single keys

    @property
    def name(self) -> bytes:
        """The bucket's name; b"" is the default bucket."""
        return self._name

    @overload
    def get(self, key: Key) -> Out | None: ...
    @overload
    def get(self, key: Key, default: D) -> Out | D: ...
    def get(self, key: Key, default: object = None) -> Any:
        """The value, or ``default`` if the key is absent or expired.

        At most one read of the journal. Raises Misuse, Corruption, Closed, SnapshotExpired.
        """
        if type(key) is not bytes:
            key = self._whole(key)
        value = self._get(key)
        if value is None:
            if not 0 < len(key) < self._key_limit:
                self._whole(key)  # found nowhere, and says why
            return default
        return value if self._text is None else self._text.out(value)

    def head(self, key: Key) -> Told | None:
        """The key's Head (sqn, size, metadata, write time and expiry), or None; no value is read.

        For objects of a type with a ``head`` function, what that makes of the Head.

        Raises Misuse, Corruption, Closed, SnapshotExpired.
        """
        if type(key) is not bytes:
            key = self._whole(key)
        found: Any = self._head(key)
        if found is None and not 0 < len(key) < self._key_limit:
            self._whole(key)
        if found is not None and self._kind is not None and self._kind.head is not None:
            found = self._kind.head(key, found)
        return found  # type: ignore[no-any-return]

    def index(self, field: Key) -> Index[Out]:
        """The index of a field: see Index. Costs nothing to make. Raises Misuse."""
        self._check_mode()
        return Index(self, field)

    def index_of(self, key: Key) -> dict[bytes, list[Term]] | None:
        """The index entries that the key's live version was put with: terms by field, in order;
        None if the key is absent. One read of the journal. Raises as ``get``."""
        found = self._index_of(self._whole(key))
        return None if found is None else terms_by_field(found, "journal")

    def has_index(self) -> bool:
        """Whether any key of the bucket, of any type, may have index entries; some may be stale.
        One short scan of the ledger. Raises Misuse, Corruption, Closed, SnapshotExpired."""
        self._check_mode()
        reader = self._reader()
        bound = of_bucket(ledger_key.prefix(ledger_key.INDEX, self._name))
        found = next(reader.windows(bound, brief=True), None) is not None
        reader.close()
        return found

    def get_many(self, keys: Iterable[Key]) -> list[Out | None]:
        """The values of ``keys`` in that order, None for an absent one. Each is read at a moment of
        its own; for a single moment take a snapshot. Raises as ``get``."""
        limit, whole_key = self._key_limit, self._whole
        whole = [
            key if type(key) is bytes and 0 < len(key) < limit else whole_key(key)
            for key in to_keys(keys)
        ]
        found: list[Any] = self._get_many(whole)
        if found and found[-1] and len(found) * len(found[-1]) >= MUCH_BYTES:
            keep_freed()
        if self._text is None:
            return found
        out: Any = self._text.out
        return [None if value is None else out(value) for value in found]

    def __getitem__(self, key: Key) -> Out:
        value = self._get(self._whole(key))
        if value is None:
            raise KeyError(key)
        return self._out(value)

    def __contains__(self, key: object) -> bool:
        whole = key if type(key) is bytes else self._whole(key)
        newest = self._newest
        if newest is not None and newest.view.recent.rows.get(self._prefix + whole, 0) > 0:
            return not newest.closed or self._head(whole) is not None  # which raises Closed
        found: object = self._head(self._whole(whole)) if self._kind else self.head(whole)
        return found is not None

    # -- ranges

    def keys(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        match: Pattern | None = None,
        limit: int | None = None,
        resume: str | None = None,
        modified_since: Moment | None = None,
        modified_before: Moment | None = None,
    ) -> Scan[Out]:
        """Keys in byte order. ``start`` is inclusive, ``end`` exclusive, also with ``reverse``.

        ``prefix``: only keys that begin with it. ``match``: only keys in which this regular
        expression finds something (``re.search`` on the key's bytes; a str stands for its UTF-8
        bytes, so ``.`` is a byte; anchor it with ``^`` and ``\\Z``). ``modified_since``
        (inclusive) and ``modified_before`` (exclusive), ms UTC or aware datetimes: only keys
        whose live version was written in that time. ``limit``: at most so many.

        The scan's ``position`` says where it stands; ``resume=`` continues after a position::

            page = bucket.keys(limit=1000)
            first = list(page)
            rest = list(bucket.keys(resume=page.position)) if page.position else []

        Reads from an implicit snapshot, which ends with the iteration; but with a ``limit`` of up
        to 96 keys, 32 items or 12 heads, this call itself reads them. No value is read, and
        without filters only keys; ``match`` costs some 0.2 us a key, a time filter 0.1 us, or 3 us
        for a key in memory. Raises Misuse at once; Corruption, Closed and, after a pause longer
        than its lease of 900 s, SnapshotExpired during the iteration.
        """
        return self._scan(
            keys_of if self._text is None else self._text.keys_of,
            start, end, prefix, reverse, match, limit, resume, modified_since, modified_before,
        )  # fmt: skip

    def items(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        match: Pattern | None = None,
        limit: int | None = None,
        resume: str | None = None,
        modified_since: Moment | None = None,
        modified_before: Moment | None = None,
    ) -> Scan[tuple[Out, Out]]:
        """(key, value) pairs; arguments and errors as for ``keys``. One journal read for each."""
        return self._scan(
            Items(self._name, self._tag, self._text, with_keys=True),
            start, end, prefix, reverse, match, limit, resume, modified_since, modified_before,
        )  # fmt: skip

    def values(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        match: Pattern | None = None,
        limit: int | None = None,
        resume: str | None = None,
        modified_since: Moment | None = None,
        modified_before: Moment | None = None,
    ) -> Scan[Out]:
        """Values in the order of their keys; arguments and errors as for ``keys``. One journal read
        for each."""
        return self._scan(
            Items(self._name, self._tag, self._text, with_keys=False),
            start, end, prefix, reverse, match, limit, resume, modified_since, modified_before,
        )  # fmt: skip

    def heads(
        self,
        start: Key | None = None,
        end: Key | None = None,
        *,
        prefix: Key | None = None,
        reverse: bool = False,
        match: Pattern | None = None,
        limit: int | None = None,
        resume: str | None = None,
        modified_since: Moment | None = None,
        modified_before: Moment | None = None,
        segments: Iterable[int] | None = None,
        of: int | None = None,
    ) -> Scan[tuple[Out, Told]]:
        """(key, head) pairs, the head as ``head`` returns it; arguments and errors as for ``keys``.
        No value is read.

        ``segments``: only keys in these segments of a merkle tree that has ``of`` segments, as its
        ``differences`` gives them. Hashes in the ledger's files tell which keys those are, so each
        other key costs 10 ns.
        """
        return self._scan(
            Heads(self._text, None if self._kind is None else self._kind.head),
            start, end, prefix, reverse, match, limit, resume, modified_since, modified_before,
            None if segments is None and of is None else to_segments(segments, of),
        )  # fmt: skip

    def __iter__(self) -> Iterator[Out]:
        return self.keys()

    def __reversed__(self) -> Iterator[Out]:
        return self.keys(reverse=True)

    def __len__(self) -> int:
        """How many keys there are. O(keys): nothing is counted while writing."""
        self._check_mode()
        reader = self._reader()
        number = reader.count(of_bucket(self._prefix))
        reader.close()
        return number

    def __bool__(self) -> bool:
        return next(self.keys(limit=1), None) is not None

    def _scan(
        self,
        give: Give,
        start: object,
        end: object,
        prefix: object,
        reverse: object,
        match: object,
        limit: object,
        resume: object,
        modified_since: object,
        modified_before: object,
        segments: Segments | None = None,
    ) -> Scan[Any]:
        bound = bounds(
            self._prefix,
            None if start is None else to_bytes("start", start),
            None if end is None else to_bytes("end", end),
            None if prefix is None else to_bytes("prefix", prefix),
            to_flag("reverse", reverse),
        )
        self._check_mode()
        most = to_limit(limit)
        keep = to_filter(match, modified_since, modified_before)
        behind = None if resume is None else decode(range_of(bound), resume)
        place = Place(bound, behind)
        left = bound if behind is None else bound.behind(behind)
        if keep is None and segments is None and most != 0:
            narrow = prefix is not None or (start is not None and end is not None)
            newest = self._newest
            if newest and (found := at_once(newest, left, place, most, narrow, give)) is not None:
                return found
        first = FIRST_WINDOW
        if most and keep is None:
            first = min(max(most, LEAST_FIRST), _MOST_FIRST)
        reader = self._reader()
        if segments is not None:
            windows = in_segments(reader, left, segments)
        elif isinstance(give, Items):
            windows = reader.long_windows(left, first, times=keep is not None)
        elif keep is not None:
            windows = reader.windows(left, first)
        elif isinstance(give, Heads):
            windows = reader.head_windows(left, first, most)
        else:
            if most:
                first = max(first, min(most, _MOST_KEYS))
            windows = reader.windows(left, first, brief=True, ahead=_AHEAD)
        return Scan.of(place, parts(reader, windows, place, keep, most, give), reader)

    def _object_part(self, key: object) -> bytes:
        """The end of the key of an index row that belongs to this key."""
        return bytes((self._tag,)) + self._whole(key)

    def _out(self, found: bytes) -> Out:
        return found if self._text is None else self._text.out(found)  # type: ignore[return-value]
