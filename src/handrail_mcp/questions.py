"""Passes what a server asks of a person (elicitation) to an approver of ours.

A form becomes a question with the form's schema; its answer is what the approver approves, perhaps edited. An address
that a person should open is shown to the approver, and is never opened here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mcp import types

from handrail import logs
from handrail.calls import ToolCall
from handrail.effects import Approval, AskHuman
from handrail.engine.user_code import call_user, parse_approval
from handrail.errors import Failure, Json, ToolDefinitionError
from handrail.ports import Approver
from handrail.schemas.validation import Checker
from handrail.tools import keys
from handrail.workers.threads import ThreadPool
from handrail_mcp.delivery import Delivery

_MOST_MESSAGE_CHARS = 2000
_ANSWERERS = 8

Find = Callable[[], "Delivery | None"]
"""Returns the call during which something is asked; None if that is uncertain."""


class Elicitor:
    """Puts a server's questions to an approver.

    Args:
        server: Its name here.
        approver: Who is asked.
        find_call: Finds the call that a question belongs to.
    """

    def __init__(self, server: str, approver: Approver, find_call: Find) -> None:
        self.server = server
        self.approver = approver
        self.find_call = find_call
        self._threads = ThreadPool(_ANSWERERS)

    async def __call__(
        self, _context: Any, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        """Ask, and return the answer as the protocol has it."""
        if isinstance(params, types.ElicitRequestURLParams):
            return await self._ask_to_open(params)
        schema = dict(params.requested_schema)
        question = self._make_question(params.message, read_defaults(schema), schema)
        approval = await self._ask(question)
        if approval is None:
            return types.ElicitResult(action="cancel")
        if not approval.granted:
            return types.ElicitResult(action="decline")
        if approval.arguments is None:
            return self._accept(schema, {**question.arguments, **say_yes(schema)})
        return self._accept(schema, approval.arguments)

    async def _ask_to_open(
        self, params: types.ElicitRequestURLParams
    ) -> types.ElicitResult:
        message = (
            f"{params.message} (open {params.url} yourself; approve when it is done)"
        )
        question = self._make_question(message, {"url": params.url}, {})
        approval = await self._ask(question)
        if approval is None:
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept" if approval.granted else "decline")

    def _accept(
        self, schema: dict[str, Json], content: Mapping[str, Json]
    ) -> types.ElicitResult:
        """Return an accepted form, if what was filled in fits it."""
        try:
            checked = Checker(schema).check(dict(content))
        except ToolDefinitionError as error:
            logs.log.warning(
                "a form of the MCP server %r cannot be used: %s", self.server, error
            )
            return types.ElicitResult(action="cancel")
        if isinstance(checked, Failure):
            logs.log.warning(
                "the answer to a form of the MCP server %r does not fit it: %s",
                self.server,
                checked.message,
            )
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="accept", content=checked.arguments)

    def _make_question(
        self, message: str, arguments: Mapping[str, Json], schema: Mapping[str, Json]
    ) -> AskHuman:
        delivery = self.find_call()
        tool = delivery.caller if delivery is not None else ""
        text = message[:_MOST_MESSAGE_CHARS]
        reason = f"the MCP server {self.server!r} asks: {text}"
        return AskHuman(
            ToolCall("elicitation", tool or self.server, "{}"),
            dict(arguments),
            "medium",
            reason,
            description=f"A question of the MCP server {self.server!r}, not of handrail.",
            place=f"elicitation:{self.server}",
            digest=keys.digest([self.server, text, dict(schema), dict(arguments)]),
            parameters=dict(schema),
        )

    async def _ask(self, question: AskHuman) -> Approval | None:
        work = partial(self.approver, question)
        return parse_approval(await call_user(work, self._threads))


def read_defaults(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return the values that a form proposes.

    >>> read_defaults({"properties": {"name": {"type": "string", "default": "Ada"}, "age": {"type": "integer"}}})
    {'name': 'Ada'}
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {
        name: described["default"]
        for name, described in properties.items()
        if isinstance(described, Mapping) and "default" in described
    }


def say_yes(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return what a plain yes answers: the only field that must be filled in, if it is a yes or no.

    >>> say_yes({"properties": {"approve": {"type": "boolean"}, "why": {}}, "required": ["approve"]})
    {'approve': True}
    """
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return {}
    if len(required) != 1 or not isinstance(properties.get(required[0]), Mapping):
        return {}
    if properties[required[0]].get("type") != "boolean":
        return {}
    return {required[0]: True}
