"""`allow_mcp_call`: how a provider's question about a call on an MCP server becomes one of ours.

A provider that calls MCP servers itself may ask first. Its question is read as a call of this tool, so that whoever
answers for our tools answers for it: the policy, a rule, a person today or tomorrow. The call on the server is the
provider's own, and happens after the answer; no ledger of ours knows it.

Rule 1: an answer holds for one question: for its server, its tool and its arguments, to the byte. Whoever edits the
        arguments of the question has not allowed what the provider would call.
Rule 2: no model calls this tool itself; only what a provider asks does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic

from handrail.context import Context
from handrail.effects import NotFound
from handrail.errors import Json
from handrail.messages import ALLOW_MCP_CALL
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Limits, Sends, Write

_DIGEST_CHARS = 32


def digest_question(server: str, name: str, arguments: str) -> str:
    """Return the digest of a call on an MCP server, by which an answer names it."""
    text = json.dumps([server, name, arguments])
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


def allow(
    server: str,
    name: str,
    arguments: Annotated[
        str, pydantic.Field(description="As the model wrote them: JSON, as a text.")
    ],
) -> str:
    """Let the model's provider call a tool of an MCP server.

    Args:
        server: The label of the server, as the provider's tool names it.
        name: The tool on that server.
    """
    return f"allowed {digest_question(server, name, arguments)}"


def _find_nothing(_arguments: Mapping[str, Json], _context: Context[Any]) -> NotFound:
    """Nothing happens in this process, so an answer that was lost is given again."""
    return NotFound()


QUESTION = FunctionTool(
    allow,
    name=ALLOW_MCP_CALL,
    # nobody here knows what the call does
    effect="destructive",
    approve=True,
    sends=Sends(destination="server", trust="trusted"),
    limits=Limits(callers=("program",)),
    write=Write(repeatable=True),
    verify=_find_nothing,
    blocking=False,
)
