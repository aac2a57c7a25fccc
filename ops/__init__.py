"""The `freshet` command: what operators run."""
