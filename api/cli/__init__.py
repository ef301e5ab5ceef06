"""The ``octavo`` command, a module for each group of commands."""
