"""A look at a store: on a terminal, or as one page."""
