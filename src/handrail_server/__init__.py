"""`handrail serve`: the HTTP API, the console that uses it, and doors for other programs.

The web framework is the extra `server`; it is imported when a server is made.

Rule 1: a request can decide nothing that `admin` refuses the command line.
Rule 2: everything shown comes from the store, its log or the runs of this process; what is unknown is `null`.
"""

from collections.abc import Mapping

PARTS: Mapping[str, Mapping[str, str]] = {
    "consoles": {"browser": "handrail_server.consoles"},
}
"""What this package adds to `handrail`; see `handrail.plugins`."""
