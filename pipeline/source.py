"""The data source ``octavo`` of Spark."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

from octavo.pipeline.writing import Writing


class DefaultSource(Writing, DataSource):
    """What ``spark.read.format("octavo")`` is."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "octavo"
