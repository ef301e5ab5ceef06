"""Loads a source into a store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from octavo.arguments import to_expiry, to_key, to_metadata
from octavo.cli.output import Advance, Output, complain
from octavo.cli.source import Entry, Rejected, Source
from octavo.figures import count, duration, plural, size
from octavo.files.errors import Misuse
from octavo.notation import to_text

if TYPE_CHECKING:
    from octavo.store import Store

_GROUP_BYTES = 8 << 20
_SHOWN_REJECTIONS = 20


class Loading:
    """One load of a source into an open store, and its result.

    Pairs go to the store in groups, of one bucket each; an entry with metadata or an expiry goes by
    itself. The order of the source is kept, so that a later value of a key wins.
    """

    def __init__(
        self,
        store: Store,
        bucket: bytes | None,
        batch: int,
        *,
        stop: bool,
        note: Callable[[bytes, bytes], None] | None = None,
    ) -> None:
        self.loaded = 0
        self.bytes = 0
        self.last_sqn = 0
        self.rejected: list[Rejected] = []
        self.skipped: dict[str, int] = {}
        self.seconds = 0.0
        self._store = store
        self._bucket = bucket
        self._batch = batch
        self._stop = stop
        self._note = note
        self._group: list[tuple[bytes, bytes]] = []
        self._group_bucket = b""
        self._group_bytes = 0
        self._began = time.perf_counter()

    def run(self, source: Source, advance: Advance) -> None:
        """Read all of ``source``. Raises Misuse at the first bad entry if it was told to stop."""
        try:
            self._read(source, advance)
        finally:
            for what, number in source.skipped.items():
                self.skipped[what] = self.skipped.get(what, 0) + number

    def _read(self, source: Source, advance: Advance) -> None:
        for entry in source:
            if isinstance(entry, Rejected):
                self._reject(entry)
                continue
            try:
                self._add(entry)
            except Misuse as wrong:
                self._reject(Rejected(entry.where, str(wrong)))
            if not self._group:
                advance(source.done_bytes, source.total_bytes)
        self._flush()

    def _reject(self, rejected: Rejected) -> None:
        if self._stop:
            self._flush()
            raise Misuse(
                f"{rejected.where}: {rejected.why} ({plural(self.loaded, 'value')} before it "
                "loaded; --skip-bad goes on)"
            )
        self.rejected.append(rejected)
        if len(self.rejected) <= _SHOWN_REJECTIONS:
            # In the text notation, so that no file's name can send control codes to a terminal.
            complain(f"not loaded: {to_text(os.fsencode(rejected.where))}: {rejected.why}")

    def _add(self, entry: Entry) -> None:
        """Add one entry. Raises Misuse if the store would refuse it."""
        bucket = entry.bucket if self._bucket is None else self._bucket
        key = to_key(entry.key, bucket)
        if self._note is not None:
            self._note(key, entry.value)
        if entry.metadata or entry.expires_at is not None or entry.index:
            to_metadata(entry.metadata)
            to_expiry(None, entry.expires_at, 0)
            self._flush()
            self.last_sqn = self._store.bucket(bucket).put(
                key,
                entry.value,
                metadata=entry.metadata,
                expires_at=entry.expires_at,
                index=entry.index,
            )
            self._done(1, len(key) + len(entry.value))
            return
        if bucket != self._group_bucket:
            self._flush()
            self._group_bucket = bucket
        self._group.append((key, entry.value))
        self._group_bytes += len(key) + len(entry.value)
        if len(self._group) >= self._batch or self._group_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._group:
            self.last_sqn = self._store.bucket(self._group_bucket).put_many(self._group)
            self._done(len(self._group), self._group_bytes)
            self._group = []
            self._group_bytes = 0

    def _done(self, number: int, length: int) -> None:
        self.loaded += number
        self.bytes += length

    def ended(self) -> None:
        """Note that the store was closed, so that everything loaded is durable."""
        self.seconds = time.perf_counter() - self._began

    def report(self, as_json: bool) -> None:
        """Print what was loaded and what was not."""
        hidden = len(self.rejected) - _SHOWN_REJECTIONS
        if hidden > 0:
            complain(f"not loaded: {count(hidden)} more")
        with Output() as out:
            if as_json:
                out.json(
                    {
                        "loaded": self.loaded,
                        "bytes": self.bytes,
                        "seconds": round(self.seconds, 3),
                        "last_sqn": self.last_sqn,
                        "skipped": self.skipped,
                        "rejected": [{"where": r.where, "why": r.why} for r in self.rejected],
                    }
                )
                return
            rate = size(self.bytes / self.seconds) if self.seconds else "-"
            out.line(
                f"{plural(self.loaded, 'value')}, {size(self.bytes)} in "
                f"{duration(self.seconds)} ({rate}/s), last sqn {count(self.last_sqn)}"
            )
            for what, number in sorted(self.skipped.items()):
                out.line(f"left out: {count(number)} ({what})")
            if self.rejected:
                out.line(f"not loaded: {count(len(self.rejected))}")
