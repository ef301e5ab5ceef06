"""How actors run: turns, inboxes, deadlines; nothing here knows of a store."""
