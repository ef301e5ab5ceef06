"""Where Spark finds ``format("octavo-metadata")`` by itself; it takes one source a module."""

from octavo.pipeline.metadata import DefaultSource

__all__ = ["DefaultSource"]
