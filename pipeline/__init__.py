"""Spark and Arrow over published snapshots: sources, folds, bulk load, change feed.

What executors run reads sealed files through files/ and manifest/ only; no actor lives there.
"""
