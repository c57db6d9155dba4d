"""How segments of runs get to workers, in this process, on this machine or on many: see `port`."""
