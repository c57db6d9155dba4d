"""Runs and calls as spans and metrics of OpenTelemetry's conventions."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import opentelemetry.semconv._incubating.attributes.gen_ai_attributes as gen_ai
import opentelemetry.semconv._incubating.attributes.mcp_attributes as mcp_names
import opentelemetry.semconv._incubating.metrics.gen_ai_metrics as gen_ai_metrics
import opentelemetry.semconv._incubating.metrics.mcp_metrics as mcp_metrics
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode

import handrail as hr
from handrail import testing
from handrail.errors import describe_install
from handrail.observers import conventions as names
from handrail.observers import otel
from tests.observers.support import Recorded, event_names, is_child, recorded

__all__ = ["recorded"]

pytestmark = pytest.mark.anyio

KEY = "sk-proj-" + "a1b2c3d4" * 6


@hr.tool(effect="read")
def get_price(item: str) -> float:
    """Get the price of an item."""
    return 4.5


@hr.tool(effect="write", key="order:{item}")
async def order(item: str) -> str:
    """Order an item."""
    return f"ordered {item}"


@hr.tool(effect="destructive")
def close_shop() -> str:
    """Close the shop."""
    return "closed"


def runtime(recorded: Recorded, *tools, content: bool = False, **options) -> hr.Runtime:
    tracing = recorded.tracing(content=content)
    return hr.Runtime(
        tools or [get_price, order, close_shop], observers=[tracing], **options
    )


# ---------------------------------------------------------------------- the conventions


def constants(*modules) -> set[str]:
    return {
        value
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }


def test_every_name_is_one_of_the_pinned_conventions():
    published = constants(
        gen_ai, mcp_names, gen_ai_metrics, mcp_metrics, error_attributes,
        server_attributes,
    ) | {"rpc.response.status_code", "network.transport"}  # fmt: skip
    # of the repository of the GenAI conventions, which the package does not hold yet
    newer = {"gen_ai.execute_tool.duration", "gen_ai.invoke_agent.duration"}
    ours = {
        each
        for each in constants(names)
        if "." in each and not each.startswith(("handrail.", "https://"))
    }
    assert ours - published == newer
    assert Schemas.V1_44_0.value == names.SCHEMA_URL


async def test_a_call_is_a_span_of_the_conventions_table(recorded):
    async with runtime(recorded) as desk:
        await desk.call("get_price", {"item": "tea"}, run="r_7")
    span = recorded.one("execute_tool get_price")
    assert span.kind is SpanKind.INTERNAL
    assert span.instrumentation_scope.name == "handrail"
    assert span.instrumentation_scope.schema_url == names.SCHEMA_URL
    attributes = dict(span.attributes)
    assert attributes.pop("handrail.queue.ms") >= 0
    assert attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_price",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.description": "Get the price of an item.",
        "handrail.run.id": "r_7",
        "handrail.risk": "low",
        "handrail.call.attempts": 1,
        "handrail.call.max_attempts": 3,
        "handrail.result.bytes": 3,
    }
    assert span.status.status_code is StatusCode.UNSET
    assert event_names(span) == ["handrail.attempt"]
    (point,) = recorded.points("gen_ai.execute_tool.duration")
    assert dict(point.attributes) == {
        "gen_ai.tool.name": "get_price",
        "gen_ai.tool.type": "function",
    }
    assert point.explicit_bounds == names.SECONDS_OF_A_REQUEST
    # both are the same time, says the convention
    assert point.sum == pytest.approx((span.end_time - span.start_time) / 1e9)


async def test_a_run_is_an_agent_with_its_questions_and_calls(recorded):
    async with runtime(recorded) as desk:
        model = testing.ScriptedModel(
            [[testing.call("get_price", item="tea")], "It costs 4.50."]
        )
        with recorded.tracer.start_as_current_span("request") as request:
            run = await desk.run("What does tea cost?", model=model)
    agent = recorded.one("invoke_agent")
    first, second = (span for span in recorded.spans if span.name.startswith("chat"))
    tool = recorded.one("execute_tool get_price")
    assert is_child(agent, request)
    assert all(is_child(span, agent) for span in (first, second, tool))
    assert agent.kind is SpanKind.INTERNAL
    assert first.kind is SpanKind.CLIENT
    assert agent.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert agent.attributes["gen_ai.conversation.id"] == run.id
    assert agent.attributes["handrail.run.status"] == "done"
    tokens = run.spent.usage if hasattr(run.spent, "usage") else None
    assert first.attributes["gen_ai.operation.name"] == "chat"
    assert first.attributes["gen_ai.response.finish_reasons"] == ("tool_call",)
    assert second.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    total = sum(
        span.attributes["gen_ai.usage.input_tokens"] for span in (first, second)
    )
    assert agent.attributes["gen_ai.usage.input_tokens"] == total > 0
    assert tokens is None or total
    assert {dict(point.attributes)["gen_ai.token.type"] for point in
            recorded.points("gen_ai.client.token.usage")} == {"input", "output"}  # fmt: skip
    (point,) = recorded.points("gen_ai.client.operation.duration")
    assert point.count == 2
    (point,) = recorded.points("gen_ai.invoke_agent.duration")
    assert point.count == 1


async def test_a_question_names_the_provider_its_model_and_its_server(recorded):
    with testing.ScriptedServer(["Hello."]) as server:
        async with runtime(recorded) as desk:
            await desk.run("Hi", model=server.model)
    span = next(span for span in recorded.spans if span.name.startswith("chat "))
    port = server.port
    assert span.attributes["server.address"] == "127.0.0.1"
    assert span.attributes["server.port"] == port
    assert span.attributes["gen_ai.provider.name"] == "openai"
    assert span.name == f"chat {span.attributes['gen_ai.request.model']}"
    assert span.attributes["gen_ai.response.model"]


async def test_a_model_that_does_not_answer_is_an_error_of_question_and_run(recorded):
    class Broken:
        name = "broken:model"

        async def ask(self, request, listener=None):
            raise hr.ModelError("it is down")

    async with runtime(recorded) as desk:
        run = await desk.run("Hi", model=Broken())
    assert run.status == "failed"
    question = recorded.one("chat model")
    assert question.status.status_code is StatusCode.ERROR
    assert question.attributes["error.type"] == "_OTHER"
    agent = recorded.one("invoke_agent")
    assert agent.attributes["error.type"] == "failed"
    assert agent.status.status_code is StatusCode.ERROR


async def test_an_agent_has_the_name_that_it_is_given(recorded):
    tracing = recorded.tracing(agent_name="desk")
    async with hr.Runtime([get_price], observers=[tracing]) as desk:
        model = testing.ScriptedModel(
            [[testing.call("get_price", item="tea")], "Done."]
        )
        await desk.run("?", model=model)
    assert recorded.one("invoke_agent desk").attributes["gen_ai.agent.name"] == "desk"
    span = recorded.one("execute_tool get_price")
    assert span.attributes["gen_ai.agent.name"] == "desk"


# ---------------------------------------------------------------------- how calls end


@pytest.mark.parametrize(
    ("name", "arguments", "code", "stage"),
    [
        ("get_price", "{item}", "BAD_JSON", "parse"),
        ("get_price", "{}", "INVALID_ARGUMENTS", "validate"),
        ("no_such_tool", "{}", "UNKNOWN_TOOL", "resolve"),
        ("shut", "{}", "NOT_PERMITTED", "permit"),
    ],
)
async def test_a_call_that_may_not_run_has_its_span(
    recorded, name, arguments, code, stage
):
    @hr.tool(effect="write", permission="admin")
    def shut() -> None:
        """Shut the shop."""

    async with runtime(recorded, get_price, shut) as desk:
        (result,) = await desk.calls([hr.ToolCall("c", name, arguments)], run="r")
    assert result.failure.code == code
    (span,) = recorded.spans
    assert span.attributes["error.type"] == code
    assert span.attributes["handrail.failure_stage"] == stage
    assert span.attributes["handrail.call.attempts"] == 0
    assert span.status.status_code is StatusCode.ERROR


async def test_names_that_a_model_makes_up_name_no_span_and_no_metric(recorded):
    async with runtime(recorded) as desk:
        for number in range(5):
            await desk.call(f"made_up_{number}", {})
    assert {span.name for span in recorded.spans} == {"execute_tool"}
    (point,) = recorded.points("gen_ai.execute_tool.duration")
    assert point.attributes["gen_ai.tool.name"] == "_OTHER"


async def test_a_tools_own_exception_is_no_text_of_a_span(recorded):
    @hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
    def look() -> str:
        """Look."""
        raise RuntimeError("password=hunter22-very-secret")

    async with runtime(recorded, look) as desk:
        await desk.call("look", {})
    span = recorded.one("execute_tool look")
    assert span.attributes["error.type"] == "INTERNAL_ERROR"
    assert span.attributes["handrail.failure_stage"] == "invoke"
    assert "hunter22" not in recorded.text()


async def test_every_attempt_is_an_event(recorded):
    tries = []

    @hr.tool(effect="read")
    async def flaky() -> str:
        """Try."""
        tries.append(trace.get_current_span().get_span_context().span_id)
        if len(tries) < 3:
            raise hr.ToolError("BUSY", "busy", retryable=True, retry_after_s=0.01)
        return "fine"

    async with runtime(recorded, flaky) as desk:
        await desk.call("flaky", {})
    span = recorded.one("execute_tool flaky")
    assert event_names(span) == [
        "handrail.attempt",
        "handrail.attempt.failed",
        "handrail.attempt",
        "handrail.attempt.failed",
        "handrail.attempt",
    ]
    assert [
        event.attributes["handrail.call.attempt"]
        for event in span.events
        if event.name == "handrail.attempt"
    ] == [1, 2, 3]
    assert span.attributes["handrail.call.attempts"] == 3
    assert set(tries) == {span.context.span_id}
    assert span.status.status_code is StatusCode.UNSET


async def test_parallel_calls_are_spans_beside_each_other(recorded):
    both = asyncio.Barrier(2)
    seen = {}

    @hr.tool(effect="read")
    async def meet(who: str) -> str:
        """Meet the other."""
        await both.wait()
        seen[who] = trace.get_current_span().get_span_context().span_id
        return who

    async with runtime(recorded, meet) as desk:
        # two calls of one id: it is for the model to tell them apart
        calls = [hr.ToolCall("c", "meet", json.dumps({"who": who})) for who in "ab"]
        await desk.calls(calls, run="r")
    first, second = recorded.named("execute_tool meet")
    assert {first.context.span_id, second.context.span_id} == set(seen.values())
    assert second.start_time < first.end_time
    assert not is_child(second, first)
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_write_says_whether_it_was_new_or_replayed(recorded):
    async with runtime(recorded) as desk:
        await desk.call("order", {"item": "tea"})
        await desk.call("order", {"item": "tea"})
    first, second = recorded.named("execute_tool order")
    assert first.attributes["handrail.idempotency.key"] == "order:tea"
    assert first.attributes["handrail.idempotency.outcome"] == "new"
    assert second.attributes["handrail.idempotency.outcome"] == "replayed"
    assert "handrail.attempt" not in event_names(second)


async def test_a_lost_write_is_in_doubt(recorded):
    @hr.tool(effect="write", timeout_s=0.05)
    async def pay() -> str:
        """Pay."""
        await asyncio.sleep(30)
        return "paid"

    async with runtime(recorded, pay) as desk:
        await desk.call("pay", {})
    span = recorded.one("execute_tool pay")
    assert span.attributes["error.type"] == "IN_DOUBT"
    assert span.attributes["handrail.idempotency.outcome"] == "in_doubt"


# ---------------------------------------------------------------------- people


async def test_a_deferral_for_a_person_is_no_error(recorded, tmp_path):
    store = f"sqlite:///{tmp_path}/handrail.db"
    model = testing.ScriptedModel([[testing.call("close_shop")], "The shop is closed."])
    async with runtime(recorded, store=store) as desk:
        run = await desk.run("Close.", model=model, run_id="evening")
        assert run.status == "waiting"
        waiting = recorded.one("execute_tool close_shop")
        (question,) = await desk.approvals.list()
        await desk.approvals.approve(question.id, by="ann")
        run = await desk.resume("evening", model=model)
        assert run.status == "done"
    assert waiting.status.status_code is StatusCode.UNSET
    assert "error.type" not in waiting.attributes
    assert waiting.attributes["handrail.call.pending"] == "APPROVAL_PENDING"
    assert event_names(waiting)[0] == "handrail.approval.asked"
    first, second = recorded.named("invoke_agent")
    assert first.attributes["handrail.run.status"] == "waiting"
    assert first.status.status_code is StatusCode.UNSET
    assert second.attributes["gen_ai.conversation.id"] == "evening"
    granted = recorded.named("execute_tool close_shop")[1]
    assert is_child(granted, second)
    assert granted.attributes["handrail.approval.decision"] == "granted"
    assert granted.attributes["handrail.approval.by"] == "ann"
    assert granted.attributes["handrail.risk"] == "high"


async def test_what_a_person_answers_is_an_event_of_the_call(recorded):
    async def ann(asked: hr.AskHuman) -> hr.Approval:
        return hr.Approval(False, by="ann", reason=KEY)

    async with runtime(recorded, approver=ann) as desk:
        await desk.call("close_shop", {})
    span = recorded.one("execute_tool close_shop")
    assert event_names(span) == ["handrail.approval.asked", "handrail.approval.given"]
    assert span.attributes["handrail.approval.decision"] == "denied"
    assert span.attributes["error.type"] == "NOT_APPROVED"
    assert span.attributes["handrail.failure_stage"] == "approve"
    assert KEY not in recorded.text()


# ---------------------------------------------------------------------- content


async def test_nothing_of_the_content_is_in_a_span_without_consent(recorded):
    async with runtime(recorded) as desk:
        model = testing.ScriptedModel(
            [[testing.call("order", item="canary-argument")], "canary-answer"]
        )
        await desk.run("canary-question", model=model, system="canary-system")
    exported = recorded.text().replace(
        "order:canary-argument", ""
    )  # the key is no content
    assert "canary" not in exported


async def test_content_is_there_where_it_is_wanted_and_without_secrets(recorded):
    async with runtime(recorded, content=True) as desk:
        model = testing.ScriptedModel([[testing.call("order", item=KEY)], "done"])
        await desk.run(f"Order {KEY}", model=model, system="Be brief.")
    assert KEY not in recorded.text()
    first = next(span for span in recorded.spans if span.name.startswith("chat"))
    assert json.loads(first.attributes["gen_ai.system_instructions"]) == [
        {"type": "text", "content": "Be brief."}
    ]
    (question,) = json.loads(first.attributes["gen_ai.input.messages"])
    assert question == {
        "role": "user",
        "parts": [{"type": "text", "content": "Order ***"}],
    }
    (answer,) = json.loads(first.attributes["gen_ai.output.messages"])
    assert answer["finish_reason"] == "tool_call"
    assert answer["parts"][0]["type"] == "tool_call"
    definitions = json.loads(first.attributes["gen_ai.tool.definitions"])
    assert "order" in [each["name"] for each in definitions]
    tool = recorded.one("execute_tool order")
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"item": "***"}
    assert tool.attributes["gen_ai.tool.call.result"] == "ordered ***"


@pytest.mark.parametrize("variable", otel.CONTENT_VARIABLES)
def test_the_environment_gives_consent(monkeypatch, variable):
    assert not otel.Tracing().content
    monkeypatch.setenv(variable, "true")
    assert otel.Tracing().content


async def test_names_from_outside_are_short_printable_and_without_secrets(recorded):
    async with runtime(recorded) as desk:
        for name in ("a\x1b[2Jb", "\u202egnp", "x" * 100_000, KEY):
            await desk.calls([hr.ToolCall(name, name, "{}")], run="r")
    exported = recorded.text()
    assert KEY not in exported
    for span in recorded.spans:
        for value in span.attributes.values():
            assert not isinstance(value, str) or len(value) <= otel.LONGEST_TEXT
            assert not isinstance(value, str) or value.isprintable()


# ---------------------------------------------------------------------- what tools continue


async def test_a_tool_runs_within_its_span_whatever_it_runs_in(recorded):
    @hr.tool(effect="read")
    def in_thread() -> None:
        """Run in a thread."""
        assert threading.current_thread() is not threading.main_thread()
        recorded.tracer.start_span("inner").end()

    @hr.tool(effect="read", blocking=False)
    def in_place() -> None:
        """Run at once."""
        recorded.tracer.start_span("inner").end()

    @hr.tool(effect="read")
    async def in_task() -> None:
        """Run in a task."""
        await asyncio.sleep(0)
        recorded.tracer.start_span("inner").end()

    async with runtime(recorded, in_thread, in_place, in_task) as desk:
        for tool in ("in_thread", "in_place", "in_task"):
            recorded.exporter.clear()
            await desk.call(tool, {})
            outer = recorded.one(f"execute_tool {tool}")
            assert is_child(recorded.one("inner"), outer)
            assert trace.get_current_span() is trace.INVALID_SPAN


def test_the_blocking_runtime_traces_too_and_leaves_no_span_behind(recorded):
    @hr.tool(effect="read", blocking=False)
    def in_place() -> None:
        """Run at once."""
        recorded.tracer.start_span("inner").end()

    with hr.SyncRuntime([in_place], observers=[recorded.tracing()]) as desk:
        desk.call("in_place", {})
    assert is_child(recorded.one("inner"), recorded.one("execute_tool in_place"))
    assert trace.get_current_span() is trace.INVALID_SPAN


@hr.tool(effect="read", isolation="process")
def variables() -> dict[str, str]:
    """Return the variables of the trace."""
    return {name: os.environ.get(name, "") for name in ("TRACEPARENT", "BAGGAGE")}


async def test_a_process_of_a_tools_own_finds_the_trace_in_its_environment(recorded):
    async with runtime(recorded, variables) as desk:
        first = await desk.call("variables", {})
        second = await desk.call("variables", {})
    for result, span in zip(
        (first, second), recorded.named("execute_tool variables"), strict=True
    ):
        trace_id, span_id = span.context.trace_id, span.context.span_id
        assert result.value["TRACEPARENT"] == f"00-{trace_id:032x}-{span_id:016x}-03"
    async with hr.Runtime([variables]) as untraced:
        result = await untraced.call("variables", {})
    assert result.value["TRACEPARENT"] == ""


async def test_a_tool_over_http_sends_the_trace_and_no_baggage(recorded):
    from handrail.context import trace_headers

    heard = {}

    @hr.tool(effect="read")
    async def ask() -> None:
        """Ask a service."""
        heard.update(trace_headers())

    token = context.attach(baggage.set_baggage("customer", "ann"))
    try:
        async with runtime(recorded, ask) as desk:
            await desk.call("ask", {})
    finally:
        context.detach(token)
    span = recorded.one("execute_tool ask")
    assert list(heard) == ["traceparent"]
    assert f"{span.context.span_id:016x}" in heard["traceparent"]
    assert trace_headers() == {}


async def test_runs_that_a_tool_starts_are_below_its_span(recorded):
    inner = testing.ScriptedModel(["Found."])
    outer = testing.ScriptedModel([[testing.call("research", task="tea")], "Done."])
    tools = hr.Toolset([get_price])
    async with hr.Runtime(tools, observers=[recorded.tracing()]) as desk:
        tools.add(
            hr.agent_tool(desk, "research", "Research.", model=inner, effect="read")
        )
        await desk.run("?", model=outer)
    first, second = recorded.named("invoke_agent")
    assert is_child(second, recorded.one("execute_tool research"))
    assert is_child(recorded.one("execute_tool research"), first)


# ---------------------------------------------------------------------- tenants, logs, ends


async def test_runs_of_one_name_of_two_tenants_do_not_mix(recorded):
    gate = asyncio.Barrier(2)

    @hr.tool(effect="read")
    async def meet() -> None:
        """Meet the other."""
        await gate.wait()

    async with runtime(recorded, meet) as desk:
        model = testing.ScriptedModel([[testing.call("meet")], "Done."])
        await asyncio.gather(
            *(
                desk.run("?", model=model, run_id="same", scope=scope)
                for scope in ("acme", "bolt")
            )
        )
    first, second = recorded.named("invoke_agent")
    assert {
        first.attributes["handrail.scope"],
        second.attributes["handrail.scope"],
    } == {
        "acme",
        "bolt",
    }
    for agent in (first, second):
        children = [span for span in recorded.spans if is_child(span, agent)]
        assert len(children) == 3


async def test_a_log_line_about_a_call_is_written_within_its_span(recorded, caplog):
    lines = []

    class Noted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append((record.levelno, trace.get_current_span()))

    @hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
    def broken() -> None:
        """Break."""
        raise RuntimeError("no")

    handler = Noted()
    log = logging.getLogger("handrail")
    log.addHandler(handler)
    try:
        async with runtime(recorded, broken) as desk:
            await desk.call("broken", {})
    finally:
        log.removeHandler(handler)
    span = recorded.one("execute_tool broken")
    within = [
        each.get_span_context().span_id
        for level, each in lines
        if level == logging.WARNING
    ]
    assert within == [span.context.span_id]


async def test_a_cancelled_run_leaves_no_span_open(recorded):
    started = asyncio.Event()

    @hr.tool(effect="read")
    async def wait() -> None:
        """Wait."""
        started.set()
        await asyncio.sleep(30)

    async with runtime(recorded, wait) as desk:
        model = testing.ScriptedModel([[testing.call("wait")], "Done."])
        running = asyncio.ensure_future(desk.run("?", model=model, run_id="long"))
        await started.wait()
        desk.cancel("long")
        assert (await running).status == "cancelled"
    assert recorded.one("execute_tool wait").attributes["error.type"] == "CANCELLED"
    assert recorded.one("invoke_agent").attributes["handrail.run.status"] == "cancelled"


async def test_an_observer_of_one_run_traces_it(recorded):
    async with hr.Runtime([get_price]) as desk:
        model = testing.ScriptedModel(
            [[testing.call("get_price", item="tea")], "Done."]
        )
        await desk.run("?", model=model, observers=[recorded.tracing()])
        await desk.run("?", model=model)
    assert len(recorded.named("invoke_agent")) == 1
    assert len(recorded.named("execute_tool get_price")) == 1


# ---------------------------------------------------------------------- switching it on


def test_the_environment_traces_every_runtime(monkeypatch):
    monkeypatch.setenv("HANDRAIL_OTEL", "true")
    (tracing,) = hr.SyncRuntime([get_price]).observers
    assert isinstance(tracing, otel.Tracing)
    mine = otel.Tracing()
    assert hr.SyncRuntime([get_price], observers=[mine]).observers == (mine,)


@pytest.mark.slow
def test_without_the_sdk_a_program_runs_as_before():
    program = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
import handrail as hr
from handrail.observers import otel
@hr.tool(effect="read")
def f() -> int:
    "Return a number."
    return 1
with hr.SyncRuntime([f], observers=[otel.Tracing()]) as runtime:
    print(runtime.call("f", {}).value)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


@pytest.mark.slow
def test_without_the_api_one_sentence_names_the_extra():
    program = """
import sys
sys.modules["opentelemetry"] = None
import handrail as hr
try:
    hr.SyncRuntime([])
except hr.ConfigError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "HANDRAIL_OTEL": "true"},
    )
    assert describe_install("otel") in done.stdout, done.stderr


CRASHING = Path(__file__).parent / "crashing.py"


@pytest.mark.slow
@pytest.mark.proof
def test_a_resumed_run_is_a_span_of_its_own_that_repeats_no_call(recorded, tmp_path):
    store = f"sqlite:///{tmp_path}/handrail.db"
    killed = subprocess.run([sys.executable, str(CRASHING), store], check=False)
    assert killed.returncode == -9
    from tests.observers import crashing

    with hr.SyncRuntime(
        crashing.TOOLS, store=store, observers=[recorded.tracing()]
    ) as desk:
        run = desk.resume("r_crash", model=crashing.MODEL)
    assert run.status == "done"
    agent = recorded.one("invoke_agent")
    assert agent.attributes["handrail.run.recalled_calls"] == 1
    assert recorded.named("execute_tool first") == []
    assert is_child(recorded.one("execute_tool second"), agent)
