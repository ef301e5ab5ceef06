"""The data source ``octavo`` of Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from octavo.pipeline import feed
from octavo.pipeline.batch_reader import PushingReader, SnapshotReader
from octavo.pipeline.feed import FeedReader, Following
from octavo.pipeline.python_worker import settle
from octavo.pipeline.read_options import HEAD_ONLY_COLUMNS, lowered, parsed, refuse_more
from octavo.pipeline.snapshot_choice import chosen, is_head_only, start_path
from octavo.pipeline.writing import OPTIONS, Writing


class DefaultSource(Writing, Following, DataSource):
    """What ``spark.read.format("octavo")`` is.

    Made once at ``load()``, in a process of its own, and then pickled: what it pins there stays
    for every action on that DataFrame.
    """

    def __init__(self, options: Any) -> None:
        settle()
        super().__init__(options)
        self._pinned: tuple[str, str | None] | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "octavo"

    def schema(self) -> str:
        """The columns of a change; else those that the option ``columns`` names, or all."""
        if feed.is_feed(self.options):
            # Checked here: of what a stream refuses as it starts, Spark's message ends with a bug
            # of its own.
            feed.feed_options(self.options)
            return feed.SCHEMA
        options = parsed(self.options)
        path, begin = self._pin()
        if begin is None and "columns" not in lowered(self.options) and is_head_only(path):
            options = replace(options, columns=HEAD_ONLY_COLUMNS)
        return options.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the changes, or of the snapshot that was pinned."""
        if feed.is_feed(self.options):
            return FeedReader(feed.batch_options(self.options), schema)
        options = parsed(self.options)
        if "columns" in lowered(self.options):
            refuse_more(schema.names, options.columns)
        made = PushingReader if options.pushdown else SnapshotReader
        return made(options, *self._pin(), schema)

    def _pin(self) -> tuple[str, str | None]:
        """The directory of the snapshot that all actions read, and of that from which changes are
        read, if any."""
        if self._pinned is None:
            options = parsed(self.options)
            begin = start_path(options)  # first: where it fails nothing is pinned
            self._pinned = chosen(options).path, begin
        return self._pinned

    def __getstate__(self) -> dict[str, Any]:
        # With a user's schema, schema() is never called; but this is pickled before any use.
        writes = lowered(self.options).keys() & set(map(str.lower, OPTIONS))
        if not (feed.is_feed(self.options) or writes):
            self._pin()
        return dict(self.__dict__)
