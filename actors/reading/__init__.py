"""The way of a get, in the caller's thread: memory, the ledger, the journal."""
