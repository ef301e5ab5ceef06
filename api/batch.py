"""Batches: several writes that become visible and durable together, or not at all."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

from octavo.actors.opening.startup import Running
from octavo.actors.opening.tags import STANDARD
from octavo.actors.writing import operation as operations
from octavo.actors.writing.operation import Operation
from octavo.actors.writing.plain_batch import MOST, MOST_BYTES
from octavo.actors.writing.reserve import RECORD
from octavo.arguments import (
    Key,
    Value,
    to_bucket,
    to_condition,
    to_key,
    to_put,
    to_sync,
    to_value,
)
from octavo.files.errors import Closed, Misuse, StorageFull
from octavo.files.journal.record import DELETE, PUT
from octavo.files.ledger import ledger_key
from octavo.handles import Handle
from octavo.index_edit import IndexEdit

MAX_OPERATIONS = 1 << 20
MAX_BYTES = 1 << 30
T = TypeVar("T")
_made = tuple.__new__
_NONE = object()
_NO_METADATA = b""


class _Said(NamedTuple):
    """A condition or an index edit of an operation. It counts only if the operation ``of`` itself
    was collected: a signal handler may have raised before that."""

    at: int
    of: Operation
    sqn: int | None
    edit: operations.IndexEdit | None


class Together(Handle):
    """What the batches of both kinds of stores have in common: they collect operations, and write
    them at the end of a ``with`` block."""

    def __init__(self, running: Running, sync: bool | None) -> None:
        self._running = running
        self._sync = to_sync(sync) or running.options.sync == "always"
        self._operations: list[Operation] = []
        self._ledger_keys: list[bytes] = []
        self._said: list[_Said] = []
        self._bytes = 0
        self._done = False
        self.last_sqn = 0
        """After the batch was written: the sqn of its last operation; 0 for an empty batch."""

    def __len__(self) -> int:
        """Operations that are still to be written."""
        return len(self._operations)

    def __repr__(self) -> str:
        number = f"{len(self)} operation{'' if len(self) == 1 else 's'}"
        told = " that was written or discarded" if self._done else f" of {number}"
        return f"<octavo.{type(self).__name__}{told}>"

    @abstractmethod
    def commit(self) -> int:
        """Write now."""

    def _commit(self, *, atomic: bool) -> int:
        if self._done:
            self._refuse()
        self._done = True
        collected, keys, said = self._operations, self._ledger_keys, self._said
        if collected:
            self._forget()
            if len(keys) != len(collected):  # a signal's handler raised between their appends
                keys = [ledger_key.prefix(each.tag, each.bucket) + each.key for each in collected]
            conditions: list[tuple[int, int]] = []
            edits: dict[int, operations.IndexEdit] = {}
            for at, of, sqn, edit in said:
                if of not in collected[at : at + 1]:  # likewise: before its append
                    continue
                if sqn is not None:
                    conditions.append((at, sqn))
                if edit is not None:
                    edits[at] = edit
            write = partial(
                self._running.bookie.actor.write,
                collected, keys, atomic=atomic, conditions=conditions, edits=edits,
            )  # fmt: skip
            try:
                _, last = write()
            except StorageFull as full:
                _, last = self._by_reserve(collected, write, full)
            self._written(last)
        return self.last_sqn

    def _by_reserve(
        self, collected: Sequence[Operation], write: Callable[[], T], full: StorageFull
    ) -> T:
        """Write again, from the low-space reserve, if all are deletes: a way out of a full disk."""
        if any(each.kind != DELETE for each in collected):
            raise full
        return self._running.with_reserve(write, RECORD)

    def _written(self, last_sqn: int) -> None:
        self.last_sqn = last_sqn
        if self._sync:
            self._running.inker.actor.make_durable(last_sqn)

    def _forget(self) -> None:
        """Let go of what was collected."""
        self._operations, self._ledger_keys, self._said = [], [], []

    def discard(self) -> None:
        """Write nothing. Idempotent; does not undo a batch that was already written."""
        self._done = True
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.discard()
        elif not self._done:
            self.commit()

    def _add_told(
        self, operation: Operation, if_sqn: int | None, edit: operations.IndexEdit | None = None
    ) -> None:
        _, number, name, key, value, _, packed, entries = operation
        size = len(name) + len(key) + len(value) + len(packed) + len(entries)
        self._add(operation, ledger_key.prefix(number, name) + key, size, if_sqn, edit)

    def _add(
        self,
        operation: Operation,
        whole: bytes,
        size: int,
        if_sqn: int | None,
        edit: operations.IndexEdit | None = None,
    ) -> None:
        size += self._bytes
        if self._done or len(self._operations) >= MAX_OPERATIONS or size > MAX_BYTES:
            self._refuse()
        if if_sqn is not None or edit is not None:
            sqn = None if if_sqn is None else to_condition(if_sqn)
            self._said.append(_Said(len(self._operations), operation, sqn, edit))
        self._bytes = size
        self._operations.append(operation)
        self._ledger_keys.append(whole)

    def _refuse(self) -> NoReturn:
        """Raise Closed if it was written, Misuse if it would be too large."""
        if self._done:
            raise Closed("the batch was already written or discarded")
        raise Misuse(
            f"batch: at most {MAX_OPERATIONS} operations and {MAX_BYTES} bytes are allowed"
        )


class Batch(Together):
    """Collects operations on any buckets; leaving the ``with`` block writes them atomically, and
    with ``sync`` durably.

    If the block raises, or after ``discard()``, nothing is written. Memory holds the batch until it
    is written: at most 1,048,576 operations and 1 GiB.
    """

    def __init__(self, running: Running, *, sync: bool | None = None) -> None:
        super().__init__(running, sync)
        self._plain = True
        """Whether the operations have only keys and values, apart from conditions."""
        self._standard = running.identity.tags.number(STANDARD)
        self._given: object = _NONE
        self._name, self._front, self._key_limit = b"", b"", 0

    def put(
        self,
        bucket: Key,
        key: Key,
        value: Value,
        *,
        metadata: bytes | str = _NO_METADATA,
        ttl: float | timedelta | None = None,
        expires_at: int | datetime | None = None,
        index: Mapping[Any, Any] | IndexEdit | None = None,
        if_sqn: int | None = None,
        tag: str = STANDARD,
    ) -> None:
        """As Bucket.put; b"" is the default bucket. Raises Misuse."""
        if bucket is not self._given:
            self._turn_to(bucket)
        name = self._name
        # As _add, but without another call, if nothing else is given.
        if (
            metadata is _NO_METADATA
            and tag is STANDARD
            and ttl is expires_at is None
            and index is None
        ):
            if type(key) is not bytes or not 0 < len(key) < self._key_limit:
                key = to_key(key, name)
            if type(value) is not bytes:
                value = to_value(value)
            collected = self._operations
            size = self._bytes + len(name) + len(key) + len(value)
            if self._done or len(collected) >= MAX_OPERATIONS or size > MAX_BYTES:
                self._refuse()
            operation = _made(Operation, (PUT, self._standard, name, key, value, 0, b"", b""))
            if if_sqn is not None:
                self._said.append(_Said(len(collected), operation, to_condition(if_sqn), None))
            self._bytes = size
            collected.append(operation)
            self._ledger_keys.append(self._front + key)
            return
        self._plain = False
        operation, edit = to_put(
            self._running.identity.tags,
            tag, name, key, value, metadata, ttl, expires_at, index,
            self._running.bookie.actor.now_ms,
        )  # fmt: skip
        self._add_told(operation, if_sqn, edit)

    def delete(
        self, bucket: Key, key: Key, *, if_sqn: int | None = None, tag: str = STANDARD
    ) -> None:
        """As Bucket.delete. Raises Misuse."""
        name = to_bucket(bucket)
        tags = self._running.identity.tags
        number = tags.number(tag)
        tags.functions_of(tag)
        self._add_told(Operation(DELETE, number, name, to_key(key, name), b""), if_sqn)

    def _turn_to(self, bucket: Key) -> None:
        """Have puts go to this bucket; most puts go to the same one as the put before. Raises
        Misuse."""
        self._given = _NONE  # until everything is changed: a Ctrl-C may come in between
        name = to_bucket(bucket)
        self._name, self._front = name, ledger_key.prefix(self._standard, name)
        self._key_limit = ledger_key.MAX_KEY_BYTES - len(name) + 1
        if type(bucket) is bytes or type(bucket) is str:  # objects of other types may change
            self._given = bucket

    def commit(self) -> int:
        """Write now, in one system call; returns the last sqn, 0 for an empty batch. If a condition
        does not hold, Conflict is raised and nothing is written; all are checked at one moment.
        After any error the batch is over: make another one to try again.

        Raises Conflict, Misuse (more than a journal file holds), StorageFull (nothing is kept),
        StorageFailed, Closed.
        """
        meter = self._running.inker.actor.measures.batch
        if meter.left <= 0:
            return meter.timed(self.commit)
        meter.left -= 1
        collected, keys = self._operations, self._ledger_keys
        if (
            self._plain
            and not (self._done or self._said)
            and 0 < len(collected) == len(keys) <= MOST
            and self._bytes <= MOST_BYTES
        ):
            self._done = True
            self._forget()
            write = self._running.bookie.actor.plain_batch
            try:
                last = write(collected, keys, self._bytes)
            except StorageFull as full:
                again = partial(write, collected, keys, self._bytes)
                last = self._by_reserve(collected, again, full)
            self._written(last)
            return self.last_sqn
        return self._commit(atomic=len(self) > 1)
