"""A gateway that lets everything through, in front of the server that the suite is also run against.

python -m tests.handrail_mcp.conformance.gateway PORT URL
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr
from handrail_mcp.gateways.settings import GatewaySettings
from handrail_mcp.pins import Pins
from handrail_mcp.server_settings import ServerSettings
from tests.handrail_mcp.conformance.server import Events

POLICY = hr.Policy(max_permission="admin", ask_from=None, rules=[hr.Rule("*", "allow")])


def make_gateway(url: str, folder: Path) -> hr.mcp.Gateway:
    """Return a gateway whose one server keeps its names, and all of whose tools somebody has agreed to."""
    server = ServerSettings(name="up", url=url, prefix="", trust="hints")
    pins = folder / "pins.json"
    with hr.mcp.tools(url, name="up", pins=Pins(pins)):
        Pins(pins).agree("up")
    return hr.mcp.gateway(
        GatewaySettings(
            servers={"up": server}, policy=POLICY, store="memory:", pins=pins
        )
    )


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        make_gateway(sys.argv[2], Path(temporary)).run(
            "streamable-http",
            port=int(sys.argv[1]),
            event_store=Events(),
            retry_interval=100,
        )
