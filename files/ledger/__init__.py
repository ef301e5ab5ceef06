"""Ledger files, their keys and rows: formats, lookups, merges."""
