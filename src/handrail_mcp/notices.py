"""Notices of a call to its client while it runs: progress, log lines, and questions of the tool itself.

A tool does not know its client. The notices that it gives through its `Context` arrive here by the name of its call.

Rule 1: the notices of a tool are sent before its result.
Rule 2: a client that has gone is no failure of the call.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, get_args

from mcp import types
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from handrail import logs
from handrail.context import CannotAsk, LogLevel
from handrail.dialects.received import legible
from handrail.errors import Failure, ToolError
from handrail.events import Event, Progressed
from handrail.schemas.validation import Checker
from handrail_mcp.asking import can_be_asked, waits_for_client
from handrail_mcp.callers import MODERN

_LEVELS = get_args(LogLevel)
"""From the least to the gravest."""

_ANSWER = "handrail/answer-{}"
"""The name of a tool's question, by its number, among the requests to a client."""


def is_as_grave(level: LogLevel, least: LogLevel | None) -> bool:
    """Whether a level is another one or graver; true without another."""
    return least is None or _LEVELS.index(level) >= _LEVELS.index(least)


class Leave(Exception):
    """Raised by a tool to end its call in the protocol's own way.

    Args:
        how: An error of the protocol, or what must be asked of the client before the call can go on. A read leaves
            nothing behind; a write is in doubt, unless its tool declares `hr.Write(interrupts="before")`.
    """

    def __init__(self, how: MCPError | types.InputRequiredResult) -> None:
        super().__init__(type(how).__name__)
        self.how = how


class Outbox:
    """Sends to the client of one request, in order, what comes from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], Awaitable[None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self.is_used = False

    def put(self, send: Callable[[], Awaitable[None]]) -> None:
        """Send something when its turn comes; never waits."""
        self.is_used = True
        self._waiting.append(send)
        self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        while self._waiting:
            send = self._waiting.popleft()
            try:
                await send()
            except Exception as error:  # whatever a transport raises: the call goes on
                logs.log.debug("a notice was not sent: %s", type(error).__name__)

    async def flush(self) -> None:
        """Wait until everything was sent."""
        while self._waiting or (self._task is not None and not self._task.done()):
            self._start()
            assert self._task is not None
            await asyncio.wait([self._task])


class Client:
    """The client of one request, as its call sees it. See `context.Peer`.

    Args:
        level: From which level on it takes log lines; all by default.
    """

    def __init__(
        self, context: Context[Any, Any], level: LogLevel | None = None
    ) -> None:
        self.context = context
        self.outbox = Outbox()
        self._level = level
        self._asked = 0
        self._answers: list[Mapping[str, Any] | None] | None = None
        """What the person has answered so far, where the call is made again for each answer."""

    @property
    def wants_progress(self) -> bool:
        """Whether the client asked for reports of progress."""
        meta = self.context.request_context.meta or {}
        return meta.get("progress_token") is not None

    def observe(self, event: Event) -> None:
        """Send the progress of the tool."""
        if isinstance(event, Progressed):
            self.outbox.put(
                lambda: self.context.report_progress(
                    event.done, event.total, legible(event.note) or None
                )
            )

    def log(self, level: LogLevel, text: str) -> None:
        """Send a line of the tool's log; a client of a new revision that did not ask for it gets none."""
        if is_as_grave(level, self._level):
            self.outbox.put(lambda: self._send_log(level, text))

    def _send_log(self, level: LogLevel, text: str) -> Awaitable[None]:
        context = self.context
        with warnings.catch_warnings():
            # The protocol means to drop log lines one day; there is nothing yet in their place.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            sending: Awaitable[None] = context.session.send_log_message(
                level, legible(text), related_request_id=context.request_id
            )
        return sending

    async def ask(
        self, message: str, schema: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Put a form of the tool to the person at the client."""
        context = self.context
        if not can_be_asked(context):
            raise CannotAsk("the client cannot put questions to a person")
        if context.protocol_version == MODERN:
            return self._ask_by_leaving(message, schema)
        if not waits_for_client(context):
            raise CannotAsk("the client cannot be asked while the call waits")
        try:
            answer = await context.session.elicit_form(
                message, dict(schema), related_request_id=context.request_id
            )
        except MCPError as error:
            raise CannotAsk("the client did not put it to a person") from error
        return _read_answer(answer, schema)

    def _ask_by_leaving(
        self, message: str, schema: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Return the answer that came with the request; without one, leave the call to be made again with it."""
        context = self.context
        number = self._asked
        self._asked += 1
        if self._answers is None:
            self._answers = json.loads(context.request_state or "[]")
        answers = self._answers
        name = _ANSWER.format(number + 1)
        given = (context.input_responses or {}).get(name)
        if number == len(answers) and isinstance(given, types.ElicitResult):
            answers.append(_read_answer(given, schema))
        if number < len(answers):
            return answers[number]
        form = types.ElicitRequest(
            params=types.ElicitRequestFormParams(
                message=message, requested_schema=dict(schema)
            )
        )
        raise Leave(
            types.InputRequiredResult(
                input_requests={name: form}, request_state=json.dumps(answers)
            )
        )


def _read_answer(
    answer: types.ElicitResult, schema: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Return what a person wrote into a form; None where they declined.

    Raises:
        ToolError: The client sent something else than the form asks for.
    """
    if answer.action != "accept":
        return None
    checked = Checker(dict(schema)).check(dict(answer.content or {}))
    if isinstance(checked, Failure):
        raise ToolError(
            "INVALID_ANSWER",
            f"The answer does not fit what was asked: {checked.message}",
            suggestion="Call again, so that the question is asked once more.",
        )
    return checked.arguments
