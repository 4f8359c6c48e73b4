"""`python -m curvedp`."""

from curvedp.cli import main

main()
