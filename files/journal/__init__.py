"""Journal files and their records: formats, reading, writing."""
