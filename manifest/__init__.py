"""What exists: immutable views of the file set, their change log, the snapshot register."""
