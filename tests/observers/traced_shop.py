"""An MCP server of handrail by stdio, whose tool says in which trace it runs."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import handrail as hr
from handrail.observers.otel import Tracing


@hr.tool(effect="read")
def get_trace() -> dict[str, str]:
    """Return the trace that this call is in."""
    context = trace.get_current_span().get_span_context()
    return {
        "trace_id": f"{context.trace_id:032x}",
        "span_id": f"{context.span_id:016x}",
    }


if __name__ == "__main__":
    trace.set_tracer_provider(TracerProvider())
    runtime = hr.Runtime([get_trace], observers=[Tracing()])
    hr.mcp.server(runtime, "shop").run("stdio")
