"""Gives back the journal's space, and decides when a file that was replaced may go."""
