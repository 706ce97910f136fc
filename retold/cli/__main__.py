"""`python -m retold.cli`: the command, where its script is not on the path."""

from retold.cli import command

command()
