"""Bytes on disk: formats, codecs, and the one door to the operating system."""
