"""MCP servers over HTTP: what their tools say of themselves, what has changed, and a person's agreement to it.

Rule 1: an agreement names the digest of what was shown; a tool that has changed since is not agreed to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from handrail import plugins
from handrail.errors import ConfigError, Json
from handrail_server.answers import ApiError, not_found, page
from handrail_server.operations import ApiCall, ApiOperation


class Pin(Protocol):
    """What a tool of a server says of itself, beside what somebody agreed to."""

    @property
    def server(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def seen(self) -> Mapping[str, Json] | None: ...
    def diff(self) -> str: ...


class Pins(Protocol):
    """The pins of any number of servers, in one file."""

    def get(self, server: str = "") -> Mapping[str, Pin]: ...
    def agree(
        self, server: str, tools: Iterable[str], *, digests: Mapping[str, str]
    ) -> Sequence[str]: ...


def list_servers(call: ApiCall) -> Json:
    """Return the servers of the file of pins, and how their tools stand."""
    pins = _pins(call)
    if pins is None:
        return page([])
    by_server: dict[str, list[Pin]] = {}
    for pin in pins.get().values():
        by_server.setdefault(pin.server, []).append(pin)
    return page(
        [
            {"name": name, "tools": [_describe(each) for each in found]}
            for name, found in by_server.items()
        ]
    )


def _describe(pin: Pin) -> Mapping[str, Json]:
    return {
        "name": pin.tool,
        "state": pin.state,
        "digest": pin.digest,
        "diff": pin.diff(),
        "description": (pin.seen or {}).get("description"),
    }


def accept(call: ApiCall) -> Json:
    """Agree to what tools of a server say of themselves, as they were shown."""
    pins = _pins(call)
    name = call.path["name"]
    if pins is None or not pins.get(name):
        raise not_found(f"server {name!r}")
    digests: Mapping[str, str] = call.body["digests"]
    try:
        agreed = pins.agree(name, list(digests), digests=digests)
    except ConfigError as error:
        raise ApiError(409, "other_digest", str(error)) from error
    return {"agreed": agreed}


def _pins(call: ApiCall) -> Pins | None:
    if call.by.scope is not None:
        raise ApiError(403, "of_all_tenants", "this is about all tenants together")
    if not call.deployment.pins_file:
        return None
    pins: Pins = plugins.load("pins", "mcp")(call.deployment.pins_file)
    return pins


OPERATIONS = [
    ApiOperation(
        "GET", "/servers", list_servers, "see", "List MCP servers and their pins."
    ),
    ApiOperation(
        "POST",
        "/servers/{name}/accept",
        accept,
        "administer",
        "Agree to what tools of a server say of themselves.",
        body={
            "digests": {
                "type": "object",
                "additionalProperties": {"type": "string"},
            }
        },
        required=("digests",),
    ),
]
