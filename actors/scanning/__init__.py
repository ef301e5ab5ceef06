"""Scans: windows of rows in key order, and the values that belong to those rows."""
