"""The journal of a run: how its steps are written and read, replayed and forked."""
