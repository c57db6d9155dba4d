"""Spans and metrics in memory, by the SDK of OpenTelemetry."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from handrail.observers.otel import Tracing


class Recorded:
    """What one test has traced."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.tracer = self.provider.get_tracer("test")

    def tracing(self, **options: Any) -> Tracing:
        return Tracing(
            tracer_provider=self.provider, meter_provider=self.meters, **options
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """Those that have ended, by their start."""
        spans = self.exporter.get_finished_spans()
        return sorted(spans, key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def points(self, name: str) -> list[Any]:
        """The points of a metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def text(self) -> str:
        """All that was exported, as one text."""
        return "\n".join(span.to_json() for span in self.spans)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    # whoever runs the tests may have switched it off
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    recorded = Recorded()
    yield recorded
    recorded.provider.shutdown()
    recorded.meters.shutdown()


def event_names(span: ReadableSpan) -> list[str]:
    return [event.name for event in span.events]


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == parent.context.span_id
