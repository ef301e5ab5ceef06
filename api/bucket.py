"""A bucket of a live store: a mutable mapping of keys to values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar, Unpack, overload

from xxhash import xxh3_64_intdigest as xxh3

from octavo.actors.opening.startup import Running
from octavo.actors.opening.tags import STANDARD
from octavo.actors.reader import Reader
from octavo.actors.reading.guide import ROW_BITS, ROW_MASK
from octavo.actors.writing.plain_put import PlainPut
from octavo.actors.writing.reserve import RECORD
from octavo.arguments import (
    OF_HEADS,
    Key,
    PutOptions,
    Value,
    to_condition,
    to_keys,
    to_put,
    to_sync,
    to_value,
)
from octavo.drawn_pairs import plain_pairs, to_pair
from octavo.files.argument_checks import shown
from octavo.files.errors import Misuse
from octavo.files.journal.record import DELETE, LOW_32, PUT
from octavo.files.journal.short_value import plain_fields
from octavo.files.kernels.cold_pages import COLD
from octavo.files.ledger.head import Head
from octavo.index_edit import IndexEdit
from octavo.mutable import Mutable
from octavo.type_parameters import Out, Told

D = TypeVar("D")

_made = tuple.__new__
_SMALL_BYTES = 1 << 20
_GROUP = 512
_GROUPED_BYTES = 32 << 10  # larger values make smaller groups: at most 16 MiB in one turn
_LARGE_GROUP_BYTES = 2 << 20
_FEW = 2  # up to so many, putting them one by one takes less time


class Bucket(Mutable[Out, Told]):
    """Keys and values of one bucket. Made by ``store.bucket(name)``; costs nothing to make.

    Several threads may use it. ``str`` arguments stand for their UTF-8 bytes. To type checkers one
    with ``text=True`` is a ``Bucket[str]``.
    """

    def __init__(
        self, running: Running, name: bytes, *, text: bool = False, tag: str = STANDARD
    ) -> None:
        tags = running.identity.tags
        super().__init__(name, text, tags.number(tag), tags.functions.get(tag))
        self._type = tag
        # Objects of the standard type take the short path: nothing is derived from their values.
        standard = tag == STANDARD
        self._small_bytes = _SMALL_BYTES if standard else 0
        self._grouped_bytes = _GROUPED_BYTES if standard else 0
        if running.identity.head_only:
            self._refuse(OF_HEADS)
        self._running = running
        self._bookie = self._newest = running.bookie.actor
        self._plain_put: PlainPut | None = None
        self._plain_delete: PlainPut | None = None
        self._inker = running.inker.actor
        self._always = running.options.sync == "always"
        self._plain = plain_fields(self._tag, name)
        measures = running.inker.actor.measures
        self._put_meter = measures.put
        self._get_meter = measures.get
        self._head_meter = measures.head

    # ------------------------------------------------------------ writing

    @property
    def _put_one(self) -> PlainPut:
        """The short path of a put. Made on first use, since making it costs as much as a put."""
        if self._plain_put is None:
            self._plain_put = self._bookie.plain_put(self._tag, self._name, PUT)
        return self._plain_put

    @property
    def _delete_one(self) -> PlainPut:
        """The short path of a delete."""
        if self._plain_delete is None:
            self._plain_delete = self._bookie.plain_put(self._tag, self._name, DELETE)
        return self._plain_delete

    def put(self, key: Key, value: Value, **options: Unpack[PutOptions]) -> int:
        """Write a value; returns its sequence number. At most one system call, as a rule, and an
        fsync if asked for.

        Options, by name: ``metadata``: up to 1 MiB, which ``head`` returns without reading the
        value. ``ttl`` (seconds, or a timedelta) or ``expires_at`` (ms UTC, or an aware datetime):
        from then on the key reads as absent; without either it never expires, even if it was to
        before. ``index``: the key's whole set of index entries, {field: term or iterable of terms},
        or an IndexEdit of its present set; terms are int, bytes or str. A put without it leaves the
        key with none. ``sync=True`` returns once the write is durable; it can only strengthen the
        store's setting. ``if_sqn=n`` writes only if the live version's sqn is n; 0 means absent.

        Raises Misuse, Conflict, StorageFull (nothing is kept), StorageFailed, Closed.
        """
        meter = self._put_meter
        left = meter.left
        if left <= 0 and not (left := meter.skip()):
            return meter.timed(self.put, key, value, **options)
        meter.left = left - 1
        # The most frequent call, so it takes as few steps as possible. CPython finds a dict of
        # options empty in half the time that six defaults take, and calls what an attribute holds
        # faster than a method.
        if not options:
            if type(key) is not bytes or type(value) is not bytes:
                key, value = self._whole(key), to_value(value)
            if 0 < len(key) < self._key_limit and len(value) < self._small_bytes:
                put_one = self._plain_put or self._put_one
                sqn = put_one(key, value)
                if self._always:
                    self._inker.make_durable(sqn)
                return sqn
        return self._put_with(key, value, **options)

    def _put_with(
        self,
        key: Key,
        value: Value,
        *,
        metadata: bytes | str = b"",
        ttl: float | timedelta | None = None,
        expires_at: int | datetime | None = None,
        index: Mapping[Any, Any] | IndexEdit | None = None,
        sync: bool | None = None,
        if_sqn: int | None = None,
    ) -> int:
        durable = to_sync(sync)
        whole = self._whole(key)
        expected = -1 if if_sqn is None else to_condition(if_sqn)
        plain = ttl is expires_at is None and index is None
        plain = plain and type(metadata) is bytes and not metadata
        if plain and len(stored := to_value(value)) < self._small_bytes:
            sqn = self._put_one(whole, stored, None, expected)
        else:
            operation, edit = to_put(
                self._running.identity.tags, self._type, self._name, whole, value, metadata,
                ttl, expires_at, index, self._bookie.now_ms,
            )  # fmt: skip
            if edit is None and len(operation.value) < _SMALL_BYTES:
                sqn = self._put_one(whole, operation.value, operation, expected)
            else:
                conditions = () if expected < 0 else ((0, expected),)
                edits = None if edit is None else {0: edit}
                sqn, _ = self._bookie.write(
                    (operation,), (self._prefix + whole,),
                    atomic=False, conditions=conditions, edits=edits,
                )  # fmt: skip
        if durable or self._always:
            self._inker.make_durable(sqn)
        return sqn

    _put_with.__qualname__ = "Bucket.put"  # the name that the interpreter's errors give it

    def delete(self, key: Key, *, sync: bool | None = None, if_sqn: int | None = None) -> int:
        """Delete a key, present or not, and its index entries; returns the sqn of the deletion.
        ``sync``, ``if_sqn`` and errors as for ``put``."""
        self._running.identity.tags.functions_of(self._type)
        whole = self._whole(key)
        durable = to_sync(sync)
        expected = -1 if if_sqn is None else to_condition(if_sqn)
        one = partial(self._delete_one, whole, b"", None, expected)
        sqn = self._running.with_reserve(one, RECORD)
        if self._always or durable:
            self._inker.make_durable(sqn)
        return sqn

    def delete_many(self, keys: Iterable[Key], *, sync: bool | None = None) -> int:
        """Delete keys, present or not; returns the last sqn (0 for none). For a range:
        ``bucket.delete_many(bucket.keys(prefix="session/"))``.

        Not atomic: an error or an interrupt leaves a first part deleted. Some hundreds of keys at a
        time share a system call, and with ``sync`` all share an fsync. ``sync`` and errors as for
        ``put``.
        """
        source, durable = iter(to_keys(keys)), to_sync(sync)
        running = self._running
        running.identity.tags.functions_of(self._type)
        self._refuse_if_closed()
        last = 0
        while pairs := [(self._whole(key), b"") for key in islice(source, _GROUP)]:
            write = partial(self._write_plain, pairs, DELETE)
            if len(pairs) == 1:
                write = partial(self._delete_one, *pairs[0])
            last = running.with_reserve(write, RECORD)
        if last and (self._always or durable):
            self._inker.make_durable(last)
        return last

    def put_many(
        self, pairs: Iterable[tuple[Key, Value]] | Mapping[Any, Any], *, sync: bool | None = None
    ) -> int:
        """Write many values; returns the last sqn (0 for none). Takes any iterable; memory does not
        grow with it.

        Not atomic: an error or an interrupt leaves a first part written. A few hundred pairs share
        a system call, and with ``sync`` all share an fsync. For the other options of a put use a
        batch. Raises Misuse, StorageFull, StorageFailed, Closed.
        """
        if isinstance(pairs, Mapping):
            pairs = pairs.items()
        elif not isinstance(pairs, Iterable):
            raise Misuse(
                f"pairs={shown(pairs)}: allowed are a mapping, and an iterable of (key, value)"
            )
        durable = to_sync(sync)
        self._refuse_if_closed()
        prefix, limit, grouped = self._prefix, self._key_limit, self._grouped_bytes
        meter = self._inker.measures.put_many
        last = 0
        source = iter(pairs)
        while True:
            drawn = islice(source, _GROUP)
            group, ledger_keys, checked = plain_pairs(drawn, prefix, limit, grouped)
            if checked is not None:
                last = self._put_checked(checked)
                continue
            if not group:
                break
            write = partial(self._put_each, group)
            if len(group) > _FEW:
                put_group = self._bookie.put_many
                write = partial(put_group, ledger_keys, self._tag, self._name, group)
            if meter.left <= 0:
                meter.left = 1
                last = meter.timed(write)
            else:
                last = write()
            meter.left -= 1
        if last and (self._always or durable):
            self._inker.make_durable(last)
        return last

    def _put_each(self, pairs: Sequence[tuple[bytes, bytes]]) -> int:
        put_one, last = self._put_one, 0
        for key, value in pairs:
            last = put_one(key, value)
        return last

    def _put_checked(self, group: Iterator[Any]) -> int:
        """Write pairs that have to be converted, or are large. If one is wrong, all before it are
        written."""
        last = held = 0
        ready: list[tuple[bytes, bytes]] = []
        try:
            for key, value in map(self._pair, group):
                if self._type != STANDARD:
                    last = self.put(key, value, sync=False)
                    continue
                if held + len(value) > _LARGE_GROUP_BYTES:
                    full, ready, held = ready, [], 0
                    last = self._write_plain(full)
                ready.append((key, value))
                held += len(value)
        except Misuse:
            self._write_plain(ready)
            raise
        return self._write_plain(ready) or last

    def _pair(self, pair: Any) -> tuple[bytes, bytes]:
        key, value = to_pair(pair)
        try:
            return self._whole(key), to_value(value)
        except Misuse as wrong:
            wrong.add_note(f"in the pair with the key {shown(key)}")
            raise

    def _write_plain(self, pairs: list[tuple[bytes, bytes]], kind: int = PUT) -> int:
        """Write checked pairs as plain puts, or deletes, in few writes; returns the last sqn, 0 for
        none."""
        if not pairs:
            return 0
        ledger_keys = [self._prefix + key for key, _ in pairs]
        return self._bookie.put_many(ledger_keys, self._tag, self._name, pairs, kind)

    def _refuse_if_closed(self) -> None:
        if self._bookie.closed:
            raise self._bookie.stopped_error()

    # ------------------------------------------------------------ reading

    def _reader(self) -> Reader:
        return Reader(self._bookie)

    @overload
    def get(self, key: Key) -> Out | None: ...
    @overload
    def get(self, key: Key, default: D) -> Out | D: ...
    def get(self, key: Key, default: object = None) -> Any:
        """The value, or ``default`` if the key is absent or expired.

        At most one read of the journal. Raises Misuse, Corruption, Closed.
        """
        if type(key) is not bytes:
            key = key.encode() if type(key) is str and key.isascii() else self._whole(key)
        meter = self._get_meter
        left = meter.left
        if left <= 0:
            return super().get(key, default)
        meter.left = left - 1
        # From here on, LiveReads.get is inlined, so that a hit of the cache costs no other call.
        bookie = self._bookie
        if bookie.closed:
            raise bookie.stopped_error()
        ledger_key = self._prefix + key
        if (value := bookie.cache.entries.get(ledger_key)) is not None:
            if not left & 3:
                bookie.cache.marks.add(ledger_key)
        else:
            view = bookie.view
            if ledger_key in view.recent.rows:
                value = bookie.get_recent(view, ledger_key, self._name + key, self._plain)
            elif view.frozen:
                value = bookie.get(ledger_key, self._name + key, self._plain)
            else:
                h = xxh3(ledger_key)
                slots, mask, tails = view.guide.way
                if steps := tails[slots[h & mask]]:
                    value = bookie.get_from_ledger(
                        view, steps, h & LOW_32, ledger_key, self._name + key, self._plain
                    )
        if value is None:
            if not key or len(key) >= self._key_limit:
                self._whole(key)  # found nowhere, and says why
            return default
        return value if self._text is None else self._text.out(value)

    def _get(self, key: bytes) -> bytes | None:
        meter = self._get_meter
        left = meter.left
        if left <= 0 and not (left := meter.skip()):
            self._bookie.view.guide.wanted()
            return self._inker.measures.timed_get(
                self._get, key, self._bookie.where(self._prefix + key)
            )
        meter.left = left - 1
        if self._bookie.closed:
            raise self._bookie.stopped_error()
        return self._bookie.get(self._prefix + key, self._name + key, self._plain)

    def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        meter = self._inker.measures.get_many
        if meter.left <= 0:
            self._bookie.view.guide.wanted()
            return self._inker.measures.judged(meter, self._get_many, keys)
        meter.left -= 1
        bookie = self._bookie
        if bookie.closed:
            raise bookie.stopped_error()
        get, prefix, name, plain = bookie.get, self._prefix, self._name, self._plain
        if COLD.left:
            return super()._get_many(keys)
        if name:
            return [get(prefix + key, name + key, plain) for key in keys]
        return [get(prefix + key, key, plain) for key in keys]

    def _ask_for(self, keys: list[bytes]) -> None:
        self._bookie.ask_for(self._bookie.view, map(self._prefix.__add__, keys))

    def _index_of(self, key: bytes) -> bytes | None:
        if self._bookie.closed:
            raise self._bookie.stopped_error()
        return self._bookie.index_of(self._prefix + key)

    def head(self, key: Key) -> Told | None:
        """The key's Head (sqn, size, metadata, write time and expiry), or None; no value is read.

        For objects of a type that builds heads, what its function makes of the Head.

        Raises Misuse, Corruption, Closed.
        """
        if type(key) is not bytes:
            key = self._whole(key)
        meter = self._head_meter
        left = meter.left
        bookie = self._bookie
        if left <= 0 or self._kind is not None or bookie.closed:
            return super().head(key)
        meter.left = left - 1
        ledger_key = (prefix := self._prefix) + key
        view = bookie.view
        found: Any = None
        if view.frozen or ledger_key in view.recent.rows:
            found = bookie.head(ledger_key, self._name + key, self._plain)
        else:  # PlainHeads.head_in_ledger, inlined: most heads cost no other call
            guide = view.guide
            if (heads := guide.heads) and (found := heads.get(ledger_key)) is not None:
                return found  # type: ignore[return-value]
            slots, shift, parts = guide.rows
            h32 = xxh3(ledger_key) & LOW_32
            if slot := slots[h32 >> shift]:
                part = parts[slot >> ROW_BITS]
                if (
                    part is not None
                    and (sst := part[1].sst) is not None
                    and (columns := sst.head_columns) is not None
                ):
                    buffer, at, ends, sqns, sizes, times, time_base = columns
                    row = slot & ROW_MASK
                    if buffer[at + ends[row] : at + ends[row + 1]] == key and (
                        part[0] == prefix or (part[0] is None and sst.prefix_of(row) == prefix)
                    ):
                        if part[3]:
                            return bookie.head_of_row(view, sst, row, part[2])  # type: ignore[return-value]
                        told = sqns[row] + part[2], sizes[row], b"", times[row] + time_base, None
                        found = _made(Head, told)
                        if heads is not None:
                            heads[ledger_key] = found
                        return found  # type: ignore[no-any-return]
                places, mask, tails = guide.way
                if steps := tails[places[h32 & mask]]:
                    found = bookie.head_by_steps(view, steps, h32, ledger_key, prefix, key)
        if found is None and (not key or len(key) >= self._key_limit):
            self._whole(key)  # found nowhere, and says why
        return found  # type: ignore[no-any-return]

    def _head(self, key: bytes) -> Head | None:
        meter = self._head_meter
        left = meter.left
        if left <= 0 and not (left := meter.skip()):
            self._bookie.wants_heads()
            return meter.timed(self._head, key)
        meter.left = left - 1
        if self._bookie.closed:
            raise self._bookie.stopped_error()
        return self._bookie.head(self._prefix + key, self._name + key, self._plain)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<octavo.{type(self).__name__} {self._name!r} of {self._running.path!r}>"
