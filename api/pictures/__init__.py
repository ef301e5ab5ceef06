"""Inspections of an open store: its figures at one moment, and the page that shows them."""
