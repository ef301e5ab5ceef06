"""Where Spark finds ``format("octavo")`` by itself: it imports modules named ``pyspark_*``."""

from octavo.pipeline.source import DefaultSource

__all__ = ["DefaultSource"]
