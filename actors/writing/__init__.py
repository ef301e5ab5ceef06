"""The way of a write, from the caller to the end of the journal."""
