"""`handrail serve`: the HTTP API, the console that uses it, and doors for other programs.

The web framework is the extra `server` (`pip install -e '.[server]'`); it is imported when a server is made.

Rule 1: whatever a request says, it decides nothing that `admin` would refuse the command line.
Rule 2: what is shown is what the store, its log and the runs of this process say; `null` stands for what nobody knows.
"""
