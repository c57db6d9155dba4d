"""Traces that leave the process: to a collector, and to the services and servers that tools call."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from mcp import Client
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import handrail as hr
from handrail import testing
from handrail.observers.otel import Tracing
from handrail_toolbox.fetching import HttpTool
from tests.observers.support import recorded

__all__ = ["recorded"]

pytestmark = pytest.mark.anyio


class Receiver(ThreadingHTTPServer):
    """Takes what is sent to it: paths, headers and bodies."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ReceiverHandler)
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.thread = Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def bodies(self, path: str) -> list[bytes]:
        return [body for where, _, body in self.received if where == path]


class ReceiverHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", 0))
        body = self.rfile.read(size)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.received.append((self.path, headers, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def receiver():
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


@hr.tool(effect="read")
def get_price(item: str) -> float:
    """Get the price of an item."""
    return 4.5


def test_a_collector_gets_what_its_protocol_describes(receiver):
    resource = Resource.create({"service.name": "shop"})
    tracers = TracerProvider(resource=resource)
    exporter = OTLPSpanExporter(f"{receiver.url}/v1/traces")
    tracers.add_span_processor(BatchSpanProcessor(exporter))
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(f"{receiver.url}/v1/metrics"), 60_000
    )
    meters = MeterProvider([reader], resource=resource)
    tracing = Tracing(tracer_provider=tracers, meter_provider=meters)
    with hr.SyncRuntime([get_price], observers=[tracing]) as runtime:
        model = testing.ScriptedModel([[testing.call("get_price", item="tea")], "4.50"])
        run = runtime.run("What does tea cost?", model=model)
    tracers.shutdown()
    meters.shutdown()

    spans = {}
    for body in receiver.bodies("/v1/traces"):
        request = ExportTraceServiceRequest.FromString(body)
        for each in request.resource_spans[0].scope_spans:
            assert each.scope.name == "handrail"
            spans.update({span.span_id: span for span in each.spans})
    by_name = {span.name: span for span in spans.values()}
    assert set(by_name) == {"invoke_agent", "chat scripted", "execute_tool get_price"}
    agent = by_name["invoke_agent"]
    tool = by_name["execute_tool get_price"]
    assert tool.parent_span_id == agent.span_id
    assert tool.trace_id == agent.trace_id
    values = {each.key: each.value for each in agent.attributes}
    assert values["gen_ai.conversation.id"].string_value == run.id

    metrics = set()
    for body in receiver.bodies("/v1/metrics"):
        request = ExportMetricsServiceRequest.FromString(body)
        for scope in request.resource_metrics[0].scope_metrics:
            metrics.update(metric.name for metric in scope.metrics)
    assert metrics == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.token.usage",
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_agent.duration",
    }


class Ask(HttpTool):
    """Asks a service."""

    name, effect = "ask", "read"
    description = "Ask a service."

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__()

    def run(self, context: hr.Context[None]) -> int:
        return self.fetch("GET", self.url, context.remaining_s).status


async def test_the_ready_made_tools_send_the_trace_to_the_service(recorded, receiver):
    ask = Ask(f"{receiver.url}/prices")
    async with hr.Runtime([ask], observers=[recorded.tracing()]) as runtime:
        assert (await runtime.call("ask", {})).value == 200
    async with hr.Runtime([ask]) as runtime:
        await runtime.call("ask", {})
    (_, traced, _), (_, untraced, _) = receiver.received
    span = recorded.one("execute_tool ask").context
    assert traced["traceparent"] == f"00-{span.trace_id:032x}-{span.span_id:016x}-03"
    assert "traceparent" not in untraced


SHOP = [sys.executable, "-m", "tests.observers.traced_shop"]


async def test_a_trace_goes_on_at_an_mcp_server(recorded):
    async with (
        await hr.mcp.connect(SHOP, name="shop", trust="hints") as tools,
        hr.Runtime(tools, observers=[recorded.tracing()]) as runtime,
    ):
        result = await runtime.call("shop_get_trace", {})
    span = recorded.one("execute_tool shop_get_trace")
    # the server's own span of the request, and of its call, belong to the caller's trace
    assert result.value["trace_id"] == f"{span.context.trace_id:032x}"
    assert span.attributes["gen_ai.tool.type"] == "extension"
    assert span.attributes["mcp.method.name"] == "tools/call"
    assert span.attributes["network.transport"] == "pipe"
    assert span.attributes["mcp.protocol.version"]
    (point,) = recorded.points("mcp.client.operation.duration")
    assert point.attributes["mcp.method.name"] == "tools/call"
    assert point.attributes["gen_ai.tool.name"] == "get_trace"
    assert result.value["span_id"] != f"{span.context.span_id:016x}"


async def test_an_mcp_server_counts_what_it_serves(recorded):
    runtime = hr.Runtime([get_price], observers=[recorded.tracing()])
    server = hr.mcp.server(runtime, "shop")
    async with Client(server) as client:
        await client.call_tool("get_price", {"item": "tea"})
        await client.call_tool("made_up", {})
    await runtime.close()
    points = recorded.points("mcp.server.operation.duration")
    tools = [dict(point.attributes).get("gen_ai.tool.name") for point in points]
    assert sorted(map(str, tools)) == ["None", "get_price"]
