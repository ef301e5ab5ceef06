"""From the directory of a store to its running actors, and their end."""
