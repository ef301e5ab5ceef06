"""How the journal gives space back, and when a file that was replaced may go."""
