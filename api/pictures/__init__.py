"""A look at an open store: its figures at one moment, and the page that shows them."""
