"""Runs and calls as OpenTelemetry traces and metrics.

    runtime = hr.Runtime(tools, observers=[otel.Tracing()])

A run is a span `invoke_agent`, each question to its model a span `chat` in it, each call a span `execute_tool`, from
its admission to its one result. Attempts, waits and the words of people are events of that span. A tool runs within its
span: spans that it makes are below it, and what it calls over HTTP or MCP, or in a process of its own, continues the
trace.

Only the API package of OpenTelemetry is used. Without its SDK nothing is recorded.

Rule 1: no content without consent: arguments, results and messages are in spans where `content` says so, and then
        without secrets. Names and keys are cut, and made printable.
Rule 2: a call that waits for a person has not failed.
Rule 3: every started span ends with its run at the latest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from time import time_ns
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from handrail._version import __version__
from handrail.calls import ToolCall, ToolResult
from handrail.context import CallTrace, current_trace
from handrail.errors import PENDING, ConfigError, Failure, describe_install
from handrail.events import (
    ApprovalAsked,
    ApprovalGiven,
    AttemptFailed,
    AttemptStarted,
    CallAdmitted,
    CallFinished,
    ContextFolded,
    Event,
    FinishedLate,
    HttpExchange,
    ModelAnswered,
    ModelAsked,
    RunEnded,
    RunStarted,
    Streamed,
    ToolsSelected,
)
from handrail.invisible import printable
from handrail.messages import Usage
from handrail.observers import content
from handrail.observers import conventions as names
from handrail.ports import TracedRun

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ImportError as error:
    raise ConfigError(
        f"traces need the API of OpenTelemetry: {describe_install('otel')}"
    ) from error

Attributes: TypeAlias = "dict[str, str | int | float | bool | list[str]]"

LONGEST_TEXT = 256
"""Characters of a name, a key or a reason in a span."""

_FAILED = frozenset({"failed", "invalid", "budget", "stopped"})
"""The ends of a run that are errors; the others are answers, waits, or what a person wanted."""

_UNKNOWN = "_OTHER"
"""The name that the conventions give an error, or a tool, without a name of its own."""

CONTENT_VARIABLES = (
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    "HANDRAIL_CAPTURE_CONTENT",
)
"""Either of them, set to `true`, puts content into spans."""


class Tracing:
    """An observer that makes spans and metrics of what happens, with the OpenTelemetry API.

    Give it to `Runtime(observers=[...])`, or to one run. The environment variable `HANDRAIL_OTEL=true` gives one to
    every runtime of the process.

    Args:
        content: Whether spans carry arguments, results and messages, without the secrets that the audit log hides. By
            default what the environment says: `HANDRAIL_CAPTURE_CONTENT=true`, or OpenTelemetry's own
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true`.
        agent_name: Names the agent in its spans and metrics.
        tracer_provider: In place of the global one.
        meter_provider: In place of the global one.

    Raises:
        ConfigError: `opentelemetry-api` is not installed.
    """

    def __init__(
        self,
        *,
        content: bool | None = None,
        agent_name: str = "",
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self.content = _captures_content(os.environ) if content is None else content
        self.agent_name = agent_name
        self.tracer = trace.get_tracer(
            "handrail", __version__, tracer_provider, schema_url=names.SCHEMA_URL
        )
        meter = metrics.get_meter(
            "handrail", __version__, meter_provider, schema_url=names.SCHEMA_URL
        )
        self._meter = meter
        request = partial(self._seconds, limits=names.SECONDS_OF_A_REQUEST)
        self.tool_duration = request(names.TOOL_DURATION)
        self.model_duration = request(names.OPERATION_DURATION)
        self.first_chunk = request(names.FIRST_CHUNK)
        self.agent_duration = self._seconds(
            names.AGENT_DURATION, names.SECONDS_OF_A_RUN
        )
        self.mcp_sent = self._seconds(names.MCP_CLIENT_DURATION, names.SECONDS_OF_MCP)
        self.mcp_served = self._seconds(names.MCP_SERVER_DURATION, names.SECONDS_OF_MCP)
        self.token_usage = meter.create_histogram(
            names.TOKEN_USAGE,
            "{token}",
            explicit_bucket_boundaries_advisory=names.TOKENS,
        )

    def _seconds(self, name: str, limits: tuple[float, ...]) -> metrics.Histogram:
        return self._meter.create_histogram(
            name, "s", explicit_bucket_boundaries_advisory=limits
        )

    def __call__(self, event: Event) -> None:
        """Ignore an event: each run is observed by what `trace_run` returns."""

    def trace_run(self, run: TracedRun) -> RunSpans:
        """Return what observes one run."""
        return RunSpans(self, run)

    def record_served(self, attributes: Mapping[str, str], seconds: float) -> None:
        """Count a request of an MCP client that was answered."""
        self.mcp_served.record(seconds, attributes)

    def __repr__(self) -> str:
        return f"<Tracing: {'with' if self.content else 'without'} content>"


def _captures_content(environment: Mapping[str, str]) -> bool:
    return any(
        environment.get(name, "").strip().lower() in ("true", "1", "span_only")
        for name in CONTENT_VARIABLES
    )


class OpenCall(CallTrace):
    """A call whose span is open."""

    __slots__ = ("began", "call", "context", "queued", "sent", "span")

    def __init__(
        self, call: ToolCall, span: Span, began: int, sent: metrics.Histogram
    ) -> None:
        self.call = call
        self.span = span
        self.began = began
        self.queued: int | None = began
        """Since when it has waited to be started; None once it was."""
        self.context = trace.set_span_in_context(span)
        self.sent = sent

    def fields(self) -> Mapping[str, str]:
        """See `CallTrace.fields`."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier

    def note_request(self, attributes: Mapping[str, str], seconds: float) -> None:
        """See `CallTrace.note_request`."""
        self.span.set_attributes(
            {name: attributes[name] for name in _OF_MCP if name in attributes}
        )
        self.sent.record(seconds, attributes)


_OF_MCP = (
    names.MCP_METHOD,
    names.MCP_PROTOCOL_VERSION,
    names.NETWORK_TRANSPORT,
    names.RPC_STATUS,
)
"""What a request over MCP adds to the span of its call, which has the tool's name, and the call's own end."""


class OpenQuestion:
    """A question to the model whose span is open."""

    __slots__ = ("answered_by", "attributes", "began", "first_chunk", "span", "status")

    def __init__(self, span: Span, began: int, attributes: Attributes) -> None:
        self.span = span
        self.began = began
        self.attributes = attributes
        """Those of its metrics."""
        self.first_chunk = 0
        self.status = 0


class RunSpans:
    """Observes one run."""

    def __init__(self, tracing: Tracing, run: TracedRun) -> None:
        self._tracing = tracing
        self._run = run
        self._span: Span | None = None
        self._began = 0
        self._within: Context | None = None
        """The context of the run's span."""
        self._provider = ""
        self._model: Attributes = {}
        self._question: OpenQuestion | None = None
        self._calls: dict[int, OpenCall] = {}
        """By identity: two calls of a turn may have one id."""
        self._usage = Usage()
        self._recalled = 0
        self._shown: tuple[str, ...] | None = None

    def __call__(self, event: Event) -> None:
        note = _NOTES.get(type(event))
        if note is not None:
            note(self, event)

    def note_provider(self, name: str) -> None:
        """See `ports.RunTrace.note_provider`."""
        self._provider = name

    # ------------------------------------------------------------------ what tools continue

    def around(
        self, call: ToolCall, start: Callable[[], Any], *, is_async: bool
    ) -> partial[Any]:
        """See `ports.RunTrace.around`."""
        opened = self._calls.get(id(call))
        if opened is None:
            return partial(start)
        return partial(_run_async if is_async else _run_blocking, opened, start)

    def environment(self, call: ToolCall) -> Mapping[str, str]:
        """See `ports.RunTrace.environment`."""
        opened = self._calls.get(id(call))
        if opened is None:
            return {}
        carrier: dict[str, str] = {}
        propagate.inject(carrier, opened.context)
        return {name.upper().replace("-", "_"): text for name, text in carrier.items()}

    @contextmanager
    def within(self, call: ToolCall) -> Iterator[None]:
        """See `ports.RunTrace.within`."""
        opened = self._calls.get(id(call))
        if opened is None:
            yield
            return
        token = contexts.attach(opened.context)
        try:
            yield
        finally:
            contexts.detach(token)

    # ------------------------------------------------------------------ the run

    def _begin_run(self, event: RunStarted) -> None:
        self._began = time_ns()
        self._model = _describe_model(event.model, self._provider)
        attributes: Attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.CONVERSATION: self._text(event.run_id),
            names.RUN_ID: self._text(event.run_id),
            **self._model,
        }
        name = names.INVOKE_AGENT
        if self._tracing.agent_name:
            attributes[names.AGENT_NAME] = self._tracing.agent_name
            name = f"{name} {self._tracing.agent_name}"
        if self._run.scope:
            attributes[names.SCOPE] = self._text(self._run.scope)
        if self._run.principal:
            attributes[names.PRINCIPAL] = self._text(self._run.principal)
        self._span = self._tracing.tracer.start_span(
            name, kind=SpanKind.INTERNAL, attributes=attributes, start_time=self._began
        )
        self._within = trace.set_span_in_context(self._span)

    def _end_run(self, event: RunEnded) -> None:
        ended = time_ns()
        if self._question is not None:
            self._end_question(self._question, ended, error=self._why_unanswered())
        for opened in list(self._calls.values()):
            self._fail(opened.span, _UNKNOWN)
            opened.span.end(ended)
        self._calls.clear()
        if self._span is None:
            return
        attributes: Attributes = {
            names.RUN_STATUS: event.status,
            **_usage_attributes(self._usage),
        }
        if self._recalled:
            attributes[names.RECALLED_CALLS] = self._recalled
        self._span.set_attributes(attributes)
        metric: Attributes = {}
        if self._tracing.agent_name:
            metric[names.AGENT_NAME] = self._tracing.agent_name
        if names.REQUEST_MODEL in self._model:
            metric[names.REQUEST_MODEL] = self._model[names.REQUEST_MODEL]
        if event.status in _FAILED:
            self._fail(self._span, event.status)
            metric[names.ERROR_TYPE] = event.status
        self._span.end(ended)
        self._tracing.agent_duration.record((ended - self._began) / 1e9, metric)
        self._span = None

    def _note_folded(self, event: ContextFolded) -> None:
        if self._span is not None:
            self._span.add_event(names.EVENT_FOLDED, {"results": event.results})

    # ------------------------------------------------------------------ the model

    def _note_selection(self, event: ToolsSelected) -> None:
        self._shown = tuple(event.tools)

    def _begin_question(self, event: ModelAsked) -> None:
        began = time_ns()
        options = self._run.options
        attributes: Attributes = {names.OPERATION: names.CHAT, **self._model}
        metric = dict(attributes)
        attributes[names.CONVERSATION] = self._text(self._run.run_id)
        attributes[names.RUN_ID] = self._text(self._run.run_id)
        attributes[names.TURN] = event.turn
        if options.max_tokens is not None:
            attributes[names.REQUEST_MAX_TOKENS] = options.max_tokens
        if options.temperature is not None:
            attributes[names.REQUEST_TEMPERATURE] = options.temperature
        model = self._model.get(names.REQUEST_MODEL)
        span = self._tracing.tracer.start_span(
            f"{names.CHAT} {model}" if model else names.CHAT,
            self._within,
            SpanKind.CLIENT,
            attributes,
            start_time=began,
        )
        self._question = OpenQuestion(span, began, metric)
        if self._tracing.content and span.is_recording():
            self._add_question(span)

    def _add_question(self, span: Span) -> None:
        messages = self._run.messages()
        tools = self._run.tools()
        if self._shown is not None:
            tools = [tool for tool in tools if tool.name in self._shown]
        for name, value in (
            (names.SYSTEM_INSTRUCTIONS, content.system_parts(messages)),
            (names.INPUT_MESSAGES, content.input_messages(messages)),
            (names.TOOL_DEFINITIONS, content.tool_definitions(tools)),
        ):
            if value:
                span.set_attribute(name, content.as_json(value, self._run.redact))

    def _note_piece(self, _: Streamed) -> None:
        question = self._question
        if question is not None and not question.first_chunk:
            question.first_chunk = time_ns()

    def _note_exchange(self, event: HttpExchange) -> None:
        question = self._question
        if question is None:
            return
        question.status = event.status
        where = urlsplit(event.url)
        server: Attributes = {}
        if where.hostname:
            server[names.SERVER_ADDRESS] = where.hostname
            server[names.SERVER_PORT] = where.port or _PORTS.get(where.scheme, 0)
        question.attributes.update(server)
        question.span.set_attributes({**server, **_identify_answer(event.answer)})

    def _take_answer(self, event: ModelAnswered) -> None:
        question = self._question
        if question is None:
            return
        turn = event.answer
        self._usage += turn.usage
        question.span.set_attributes(
            {
                names.FINISH_REASONS: [names.FINISHES[turn.finish]],
                **_usage_attributes(turn.usage),
            }
        )
        if self._tracing.content and question.span.is_recording():
            question.span.set_attribute(
                names.OUTPUT_MESSAGES,
                content.as_json(content.output_messages(turn), self._run.redact),
            )
        usage = self._tracing.token_usage
        for kind, tokens in (
            ("input", turn.usage.input_tokens),
            ("output", turn.usage.output_tokens),
        ):
            if tokens:
                usage.record(tokens, {**question.attributes, names.TOKEN_TYPE: kind})
        self._end_question(question, time_ns())

    def _end_question(
        self, question: OpenQuestion, ended: int, *, error: str = ""
    ) -> None:
        self._question = None
        attributes = question.attributes
        if question.first_chunk:
            seconds = (question.first_chunk - question.began) / 1e9
            question.span.set_attribute(names.REQUEST_STREAM, True)
            question.span.set_attribute(names.TIME_TO_FIRST_CHUNK, seconds)
            self._tracing.first_chunk.record(seconds, attributes)
        if error:
            self._fail(question.span, error)
            attributes = {**attributes, names.ERROR_TYPE: error}
        question.span.end(ended)
        self._tracing.model_duration.record((ended - question.began) / 1e9, attributes)

    def _why_unanswered(self) -> str:
        """Return the status of the last answer of the model's server, where it refused."""
        question = self._question
        if question is not None and question.status >= 400:
            return str(question.status)
        return _UNKNOWN

    # ------------------------------------------------------------------ calls

    def _begin_call(self, event: CallAdmitted) -> None:
        opened = self._open_call(event.call, time_ns())
        attributes: Attributes = {}
        if event.risk:
            attributes[names.RISK] = event.risk
        if event.isolation and event.isolation != "none":
            attributes[names.ISOLATION] = event.isolation
        if event.key:
            attributes[names.WRITE_KEY] = self._text(event.key)
        if event.repairs:
            attributes[names.REPAIR] = list(event.repairs)
        opened.span.set_attributes(attributes)
        if self._tracing.content and opened.span.is_recording():
            opened.span.set_attribute(
                names.TOOL_ARGUMENTS,
                content.as_json(dict(event.arguments), self._run.redact),
            )

    def _open_call(self, call: ToolCall, began: int) -> OpenCall:
        tool = self._run.find_tool(call.name)
        attributes: Attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: self._text(call.name),
            names.TOOL_CALL_ID: self._text(call.id),
            names.RUN_ID: self._text(self._run.run_id),
        }
        name = names.EXECUTE_TOOL
        if tool is not None:
            # a name that the model has made up is no name of a span: there may be any number of them
            name = f"{name} {self._text(tool.name)}"
            attributes[names.TOOL_TYPE] = tool.trace_type
            attributes[names.TOOL_DESCRIPTION] = self._text(tool.description)
            attributes[names.MAX_ATTEMPTS] = (
                1 if tool.writes else tool.limits.max_attempts
            )
            if tool.permission is not None:
                attributes[names.PERMISSION] = tool.permission
        if self._tracing.agent_name:
            attributes[names.AGENT_NAME] = self._tracing.agent_name
        span = self._tracing.tracer.start_span(
            name, self._within, SpanKind.INTERNAL, attributes, start_time=began
        )
        opened = OpenCall(call, span, began, self._tracing.mcp_sent)
        self._calls[id(call)] = opened
        return opened

    def _note_question(self, event: ApprovalAsked) -> None:
        if (opened := self._calls.get(id(event.call))) is not None:
            opened.span.add_event(names.EVENT_APPROVAL_ASKED, {names.RISK: event.risk})

    def _note_word(self, event: ApprovalGiven) -> None:
        opened = self._calls.get(id(event.call))
        if opened is None:
            return
        opened.queued = time_ns()
        word = event.approval
        if word is None:
            decision = "none"
        elif word.expired:
            decision = "expired"
        elif not word.granted:
            decision = "denied"
        elif word.arguments is not None:
            decision = "edited"
        else:
            decision = "granted"
        attributes: Attributes = {names.APPROVAL_DECISION: decision}
        if word is not None and word.by:
            attributes[names.APPROVAL_BY] = self._text(word.by)
        opened.span.set_attributes(attributes)
        opened.span.add_event(names.EVENT_APPROVAL_GIVEN, attributes)

    def _note_attempt(self, event: AttemptStarted) -> None:
        opened = self._calls.get(id(event.call))
        if opened is None:
            return
        now = time_ns()
        if opened.queued is not None:
            opened.span.set_attribute(names.QUEUE_MS, (now - opened.queued) / 1e6)
            opened.queued = None
        opened.span.add_event(names.EVENT_ATTEMPT, {names.ATTEMPT: event.attempt}, now)

    def _note_failed_attempt(self, event: AttemptFailed) -> None:
        opened = self._calls.get(id(event.call))
        if opened is None:
            return
        attributes: Attributes = {names.ATTEMPT: event.attempt}
        if event.retry_in_s is not None:
            attributes[names.RETRY_IN_S] = event.retry_in_s
        if self._tracing.content:
            attributes["reason"] = self._text(event.reason)
        opened.span.add_event(names.EVENT_ATTEMPT_FAILED, attributes)

    def _end_call(self, event: CallFinished) -> None:
        if event.recalled:
            self._recalled += 1
            opened = self._calls.pop(id(event.call), None)
            if opened is not None:
                opened.span.end()
            return
        ended = time_ns()
        opened = self._calls.get(id(event.call))
        if opened is None:
            opened = self._open_call(event.call, ended - int(event.seconds * 1e9))
        del self._calls[id(event.call)]
        result = event.result
        opened.span.set_attributes(self._describe_result(result))
        if self._tracing.content and opened.span.is_recording() and result.ok:
            text = self._run.redact(result.text)
            opened.span.set_attribute(
                names.TOOL_RESULT, str(text)[: content.MOST_CHARS]
            )
        tool = self._run.find_tool(event.call.name)
        metric: Attributes = {names.TOOL_NAME: _UNKNOWN}
        if tool is not None:
            metric = {names.TOOL_NAME: tool.name, names.TOOL_TYPE: tool.trace_type}
        if self._tracing.agent_name:
            metric[names.AGENT_NAME] = self._tracing.agent_name
        failure = result.failure
        if failure is not None and failure.code not in PENDING:
            code = self._text(failure.code)
            self._fail(opened.span, code)
            metric[names.ERROR_TYPE] = code
        opened.span.end(ended)
        self._tracing.tool_duration.record((ended - opened.began) / 1e9, metric)

    def _describe_result(self, result: ToolResult) -> Attributes:
        attributes: Attributes = {
            names.ATTEMPTS: result.attempts,
            names.RESULT_BYTES: len(result.text.encode("utf-8", "replace")),
        }
        if result.handle:
            attributes[names.RESULT_TRUNCATED] = True
            attributes[names.RESULT_HANDLE] = self._text(result.handle)
        if result.repairs:
            attributes[names.REPAIR] = list(result.repairs)
        tool = self._run.find_tool(result.name)
        if tool is not None and tool.writes:
            attributes[names.WRITE_OUTCOME] = _describe_write(result)
        failure = result.failure
        if failure is None:
            return attributes
        if failure.code in PENDING:
            attributes[names.PENDING] = str(failure.code)
            return attributes
        attributes[names.ERROR_CODE] = self._text(failure.code)
        attributes[names.ERROR_RETRYABLE] = failure.retryable
        attributes[names.FAILURE_STAGE] = _find_stage(failure, result.attempts)
        return attributes

    def _note_late(self, event: FinishedLate) -> None:
        if self._span is not None:
            self._span.add_event(
                names.EVENT_LATE, {names.TOOL_CALL_ID: self._text(event.call.id)}
            )

    # ------------------------------------------------------------------ texts

    def _fail(self, span: Span, error: str) -> None:
        span.set_attribute(names.ERROR_TYPE, error)
        span.set_status(Status(StatusCode.ERROR, error))

    def _text(self, text: str) -> str:
        """Return a text from outside as a span may carry it: without secrets, printable, and short."""
        return printable(self._run.redact_text(str(text)[: 4 * LONGEST_TEXT]))[
            :LONGEST_TEXT
        ]


_PORTS = {"https": 443, "http": 80}

_NOTES: dict[type, Callable[[RunSpans, Any], None]] = {
    RunStarted: RunSpans._begin_run,
    RunEnded: RunSpans._end_run,
    ContextFolded: RunSpans._note_folded,
    ToolsSelected: RunSpans._note_selection,
    ModelAsked: RunSpans._begin_question,
    Streamed: RunSpans._note_piece,
    HttpExchange: RunSpans._note_exchange,
    ModelAnswered: RunSpans._take_answer,
    CallAdmitted: RunSpans._begin_call,
    ApprovalAsked: RunSpans._note_question,
    ApprovalGiven: RunSpans._note_word,
    AttemptStarted: RunSpans._note_attempt,
    AttemptFailed: RunSpans._note_failed_attempt,
    CallFinished: RunSpans._end_call,
    FinishedLate: RunSpans._note_late,
}


async def _run_async(opened: OpenCall, start: Callable[[], Any]) -> Any:
    # in the tool's own context, which ends with it
    contexts.attach(opened.context)
    current_trace.set(opened)
    return await start()


def _run_blocking(opened: OpenCall, start: Callable[[], Any]) -> Any:
    token = contexts.attach(opened.context)
    reset = current_trace.set(opened)
    try:
        return start()
    finally:
        current_trace.reset(reset)
        contexts.detach(token)


def _describe_model(name: str, provider: str) -> Attributes:
    """Return the attributes of a model; one that names no provider is its own."""
    if not name:
        return {}
    prefix, colon, model = name.partition(":")
    if colon and not provider:
        provider = prefix
        name = model
    provider = names.PROVIDERS.get(provider, provider or name)
    return {
        names.PROVIDER: printable(provider)[:LONGEST_TEXT],
        names.REQUEST_MODEL: printable(name)[:LONGEST_TEXT],
    }


def _usage_attributes(usage: Usage) -> Attributes:
    counts = {
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.cached_tokens,
        names.CACHE_WRITTEN_TOKENS: usage.cache_written_tokens,
        names.REASONING_TOKENS: usage.reasoning_tokens,
    }
    return {name: count for name, count in counts.items() if count}


_LONGEST_ANSWER = 1_000_000


def _identify_answer(text: str) -> Attributes:
    """Return id and model of a provider's answer, whole or the first event of a stream, where they are found."""
    if len(text) > _LONGEST_ANSWER:
        return {}
    candidates = [text] if text.startswith("{") else _stream_lines(text)
    for candidate in candidates:
        try:
            body = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(body, dict):
            found = _find_names(body)
            if found:
                return found
    return {}


def _stream_lines(text: str) -> Iterator[str]:
    """Yield the first events of a stream."""
    lines = (line for line in text.splitlines() if line.startswith("data:"))
    for line in islice(lines, 3):
        yield line.removeprefix("data:")


def _find_names(body: dict[str, Any]) -> Attributes:
    for key in ("message", "response"):  # Anthropic's and OpenAI's streams
        if isinstance(body.get(key), dict):
            body = body[key]
    attributes: Attributes = {}
    for name, keys in (
        (names.RESPONSE_ID, ("id", "responseId")),
        (names.RESPONSE_MODEL, ("model", "modelVersion")),
    ):
        for key in keys:
            if isinstance(body.get(key), str):
                attributes[name] = printable(body[key])[:LONGEST_TEXT]
    return attributes


def _describe_write(result: ToolResult) -> str:
    if result.replayed:
        return "replayed"
    if result.failure is not None and result.failure.code == "IN_DOUBT":
        return "in_doubt"
    return "new" if result.attempts else "not_started"


def _find_stage(failure: Failure, attempts: int) -> str:
    stage = names.STAGES.get(str(failure.code))
    if stage is not None:
        return stage
    return "invoke" if attempts else "start"
