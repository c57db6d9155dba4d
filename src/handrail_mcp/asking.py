"""Questions about a call, put to the person at the client.

Until 2025-11-25 the client is asked while the call waits (elicitation). From 2026-07-28 on the call ends with
`input_required`, and the client makes the request again with the person's answer and a state that the SDK seals and
binds to tool, arguments and principal. The state names the question, so an answer counts for that question alone: if
the tool has changed meanwhile, the client is asked again.

Rule 1: only a client that declares that it can ask a person is asked.
Rule 2: only `approve: true` in an accepted form is a yes. A form that was closed is no answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp import types
from mcp.server.mcpserver import Context
from msgspec import Struct
from msgspec.structs import astuple

from handrail.approvers.arguments import in_short, warnings
from handrail.effects import Approval, AskHuman
from handrail.errors import Failure, Json
from handrail.invisible import printable
from handrail.records import ApprovalRequest, not_counted
from handrail.schemas.validation import Checker
from handrail_mcp.callers import MODERN, Caller

APPROVAL = "handrail/approval"
"""The name of our question among the requests to a client."""

MOST_TRIES = 3
"""How often a person is asked who writes arguments that the tool does not take."""

_STATE = "handrail/1"


class State(Struct, frozen=True):
    """What a repeated request brings back from the one before.

    Attributes:
        run, call_id: Identify the call, which is still the same.
        question: The id of the question that was asked; empty if the tool itself asked something.
        digest: Of what was asked about: the tool's description and the arguments.
        word: The person's decision, for a call that its tool left, without a change, to ask something.
        tries: How often the question was asked because its answer could not be read.
        own: The state of the tool itself, if it has one.
    """

    run: str
    call_id: str
    question: str = ""
    digest: str = ""
    word: Mapping[str, Any] | None = None
    tries: int = 0
    own: str | None = None

    def word_on(self, question: ApprovalRequest) -> Approval | None:
        """Return the decision on this question that an earlier request of the call brought; None without one."""
        if self.word is None or question.digest != self.digest:
            return None
        return Approval(**self.word, question=question.id)

    def as_text(self) -> str:
        """Return it as text, which the SDK seals."""
        return json.dumps([_STATE, *astuple(self)])


def read_state(text: str | None) -> State | None:
    """Return the state that a request brings back; None where it is not ours."""
    try:
        version, *fields = json.loads(text or "null")
    except (TypeError, ValueError):
        return None
    return State(*fields) if version == _STATE else None


def keep_word(word: Approval | None) -> Mapping[str, Any] | None:
    """Return a yes as a state holds it."""
    if word is None or not word.granted:
        return None
    return {
        "granted": True,
        "by": word.by,
        "reason": word.reason,
        "arguments": word.arguments,
    }


# ---------------------------------------------------------------------- asking


def can_be_asked(context: Context[Any, Any]) -> bool:
    """Whether the client declares that it can show a form to a person."""
    declared = context.client_capabilities
    if declared is None or declared.elicitation is None:
        return False
    modes = declared.elicitation
    # an empty declaration, as the first revision had it, means forms
    return modes.form is not None or modes.url is None


def may_answer(asked: AskHuman | ApprovalRequest, by: str) -> bool:
    """Whether a yes of the person at this client would count."""
    return not not_counted(by, asked)


def who_answers(caller: Caller) -> str:
    """Return how the person at a client is named in the records.

    Without a proof of identity all people have one name: otherwise a client could be two people by changing its name.
    """
    return caller.principal or "mcp client"


def write_question(
    asked: AskHuman | ApprovalRequest, tool: str, complaint: str = ""
) -> types.ElicitRequest:
    """Return a question as a form: yes or no, why, and the arguments, which may be edited."""
    lines = [
        *([complaint] if complaint else []),
        f"`{printable(tool)}` wants to run ({printable(asked.reason)}; risk {asked.risk}):",
        in_short(asked.arguments),
        *warnings(asked.arguments),
        "Allow it?",
    ]
    properties: dict[str, Any] = {
        "approve": {
            "type": "boolean",
            "title": "Approve",
            "description": "Whether this call may run.",
        },
        "reason": {
            "type": "string",
            "title": "Reason",
            "description": "What the model is told if it may not.",
        },
    }
    if asked.required_approvals == 1:
        properties["arguments"] = {
            "type": "string",
            "title": "Other arguments",
            "description": "A JSON object, to run it with these arguments instead.",
        }
    schema = {"type": "object", "properties": properties, "required": ["approve"]}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(
            message="\n".join(lines), requested_schema=schema
        )
    )


class BadEdit(ValueError):
    """The person wrote arguments that the tool does not take; the text says why."""


def read_word(
    answer: Any, by: str, parameters: Mapping[str, Json], question: str = ""
) -> Approval | None:
    """Return a person's decision from a form; None if the form is no answer.

    Args:
        parameters: The JSON Schema of the tool's arguments.

    Raises:
        BadEdit: They agreed to arguments that the tool does not take.
    """
    if not isinstance(answer, types.ElicitResult):
        return None
    content = answer.content or {}
    reason = str(content.get("reason") or "")
    if answer.action == "decline":
        return Approval(False, by=by, reason=reason, question=question)
    if answer.action != "accept":
        return None
    if content.get("approve") is not True:
        return Approval(False, by=by, reason=reason, question=question)
    edited = _read_edit(content.get("arguments"), parameters)
    return Approval(True, by=by, reason=reason, arguments=edited, question=question)


def _read_edit(
    text: object, parameters: Mapping[str, Json]
) -> Mapping[str, Json] | None:
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        edited = json.loads(text)
    except ValueError as error:
        raise BadEdit(f"The arguments that you wrote are not JSON ({error}).") from None
    if not isinstance(edited, dict):
        raise BadEdit("The arguments that you wrote are not a JSON object.")
    checked = Checker(dict(parameters)).check(edited)
    if isinstance(checked, Failure):
        raise BadEdit(f"The tool does not take what you wrote: {checked.message}")
    return edited


class ClientApprover:
    """Asks the person at the client of one request, while the call waits.

    Args:
        tool: The tool's name, as the client knows it.
    """

    def __init__(self, context: Context[Any, Any], caller: Caller, tool: str) -> None:
        self._context = context
        self._by = who_answers(caller)
        self._tool = tool

    async def __call__(self, asked: AskHuman) -> Approval | None:
        """Ask; None where nobody answered."""
        complaint = ""
        for _ in range(MOST_TRIES):
            if not may_answer(asked, self._by):
                return None
            request = write_question(asked, self._tool, complaint)
            params = request.params
            assert isinstance(params, types.ElicitRequestFormParams)
            answer = await self._context.session.elicit_form(
                params.message,
                params.requested_schema,
                related_request_id=self._context.request_id,
            )
            try:
                return read_word(answer, self._by, asked.parameters)
            except BadEdit as error:
                complaint = str(error)
        return None


def waits_for_client(context: Context[Any, Any]) -> bool:
    """Whether a person at the client can be asked while the call waits."""
    return (
        context.protocol_version != MODERN
        and can_be_asked(context)
        and context.session.can_send_request
    )
