"""What other processes hand over to a store's owner: staged files, and requests."""
