"""`python -m ops`: the freshet command."""

from ops.cli import main

main()
