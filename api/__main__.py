"""``python -m octavo``: the command line where the console script is not on PATH."""

from octavo.command import main

main()
