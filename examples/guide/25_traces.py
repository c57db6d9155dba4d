"""A run as a trace: the run, its questions to the model and its calls, as any collector shows them."""

import asyncio

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import handrail as hr
from handrail.observers.otel import Tracing
from handrail.testing import ScriptedServer, call

spans = InMemorySpanExporter()  # in production: an OTLP exporter
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
tracer = provider.get_tracer("shop")


@hr.tool(effect="read")
async def get_price(item: str) -> float:
    """Get the price of an item."""
    with tracer.start_as_current_span("SELECT prices"):  # of your own code, or of a library's instrumentation
        return 4.5


@hr.tool(effect="destructive")
def close_shop() -> str:
    """Close the shop for good."""
    return "closed"


def show(span: ReadableSpan, depth: int = 0) -> None:
    """Print a span, what it says of itself, and those below it."""
    told = ("handrail.run.status", "handrail.risk", "handrail.call.pending", "error.type")
    attributes = span.attributes or {}
    words = [f"{name}={attributes[name]!r}" for name in told if name in attributes]
    print("  " * depth + span.name, *words)
    for each in sorted(spans.get_finished_spans(), key=lambda each: each.start_time or 0):
        if each.parent is not None and span.context is not None and each.parent.span_id == span.context.span_id:
            show(each, depth + 1)


async def main() -> None:
    calls = [call("get_price"), call("get_price", item="tea"), call("close_shop")]
    with ScriptedServer([calls, "Tea costs 4.50."]) as server:
        async with hr.Runtime([get_price, close_shop], observers=[Tracing(tracer_provider=provider)]) as runtime:
            await runtime.run("What does tea cost? Then close the shop.", model=server.model)
    (root,) = (span for span in spans.get_finished_spans() if span.parent is None)
    show(root)


asyncio.run(main())
