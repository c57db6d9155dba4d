"""A run as a trace: the run, its questions to the model and its calls, as any collector shows them."""

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import handrail as hr
from handrail.observers.otel import Tracing
from handrail.testing import ScriptedServer, call

spans = InMemorySpanExporter()  # in production: an OTLP exporter
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
tracer = provider.get_tracer("shop")
SHOWN = ("handrail.run.status", "handrail.risk", "handrail.call.pending", "error.type")


@hr.tool(effect="read")
def get_price(item: str) -> float:
    """Get the price of an item."""
    with tracer.start_as_current_span("SELECT prices"):  # of your own code, or of a library's instrumentation
        return 4.5


@hr.tool(effect="destructive")
def close_shop() -> None:
    """Close the shop for good."""


turns = [[call("get_price"), call("get_price", item="tea")], [call("close_shop")]]
tracing = Tracing(tracer_provider=provider)
with ScriptedServer(turns) as server, hr.SyncRuntime([get_price, close_shop], observers=[tracing]) as runtime:
    runtime.run("What does tea cost? Then close the shop.", model=server.model)
depth = {None: 0}
for span in sorted(spans.get_finished_spans(), key=lambda span: span.start_time):
    depth[span.context.span_id] = level = depth[span.parent and span.parent.span_id] + 1
    words = [f"{name}={span.attributes[name]!r}" for name in SHOWN if name in span.attributes]
    print("  " * (level - 1) + span.name, *words)
