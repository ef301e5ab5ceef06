"""The work that never runs on a caller's path: pure functions from files to files."""
