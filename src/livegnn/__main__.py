"""`python -m livegnn`: the command line where the script is not installed."""

from livegnn.cli import main

main()
