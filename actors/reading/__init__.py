"""The way of a get, in the thread that asks: memory, the ledger, the journal."""
