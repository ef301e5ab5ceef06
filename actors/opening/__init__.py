"""What happens from the directory of a store to its running actors, and at their end."""
