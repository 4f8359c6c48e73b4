"""`python -m curvedp.cli`."""

from curvedp.cli import main

main()
