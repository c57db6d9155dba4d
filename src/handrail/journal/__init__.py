"""What is kept of a run: how its steps are written and read, replayed and forked."""
