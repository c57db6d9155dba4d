"""Whether the present test may start a database server: only one that is marked `server`."""

now = False
