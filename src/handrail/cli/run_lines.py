"""The turns of a stored run as lines for a terminal.

    turn 1
        → refund  {"order": "7", "amount": 500}
        … refund  has no result yet

Rule 1: pure: turns come in, lines come out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from handrail.calls import ToolResult
from handrail.cli.timeline import Kind, Line, shorten
from handrail.history.run_history import HistoryTurn
from handrail.journal import codec
from handrail.messages import Usage
from handrail.records import ApprovalRequest


def turn_lines(
    turn_read: HistoryTurn,
    words: Mapping[str, Sequence[ApprovalRequest]],
    *,
    whole: bool,
) -> Iterator[tuple[float, Line]]:
    """Yield the lines of one turn, each with the seconds that the run had worked by then.

    Args:
        words: The approval requests about its calls, by the key of the call's step.
    """
    turn = turn_read.turn
    at = turn_read.answered_at_s
    about = f"turn {turn_read.number}{describe_cache(turn.usage)}"
    yield at, Line("turn", about=about, whole=True)
    if turn.text and turn.calls:
        yield at, Line("text", turn.text, whole=True)
    for call in turn.calls:
        yield at, _content_line("call", "", call.arguments, call.name, whole)
    for index, (call, result) in enumerate(
        zip(turn.calls, turn_read.results, strict=True)
    ):
        for request in words.get(codec.call_key(turn_read.number, index), ()):
            yield at, _request_line(request)
        if result is None:
            yield at, Line("waiting", "has no result yet", call.name, whole=True)
        else:
            yield from (
                (turn_read.ended_at_s, line) for line in _result_lines(result, whole)
            )


def describe_cache(usage: Usage) -> str:
    """Return how much of an input the provider read from its cache, after a comma; empty without such counts."""
    if not (usage.cached_tokens or usage.cache_written_tokens):
        return ""
    text = f", {usage.cache_read_share:.0%} of {usage.input_tokens:,} input tokens read from cache"
    if usage.cache_written_tokens:
        text += f", {usage.cache_written_tokens:,} written to it"
    return text


def _request_line(request: ApprovalRequest) -> Line:
    reason = f": {request.decision_reason}" if request.decision_reason else ""
    match request.state:
        case "approved" | "used":
            edited = ""
            if request.edited is not None:
                arguments = json.dumps(request.edited, ensure_ascii=False)
                edited = f", with {arguments} instead"
            return Line(
                "granted",
                f"approved by {request.by}{edited}{reason}",
                request.tool,
                whole=True,
            )
        case "denied":
            return Line(
                "denied", f"denied by {request.by}{reason}", request.tool, whole=True
            )
        case _:
            return Line(
                "ask",
                f"a person must agree: {request.reason}",
                request.tool,
                whole=True,
            )


def _result_lines(result: ToolResult, whole: bool) -> Iterator[Line]:
    if result.repairs:
        yield Line(
            "repaired",
            f"repaired: {', '.join(result.repairs)}",
            result.name,
            whole=True,
        )
    if result.failure is not None:
        failure_text = f"{result.failure.code}: {result.failure.message}"
        kind: Kind = "failed" if result.attempts else "refused"
        yield Line(kind, failure_text, result.name, whole=True)
        if result.failure.suggestion:
            yield Line("advice", result.failure.suggestion, whole=True)
        return
    how: list[str] = []
    if result.attempts > 1:
        how.append(f"{result.attempts} attempts")
    if result.replayed:
        how.append("repeated from before")
    head = f"{', '.join(how)}  " if how else ""
    yield _content_line("result", head, result.text, result.name, whole)


def _content_line(kind: Kind, head: str, text: str, name: str, whole: bool) -> Line:
    if whole:
        return Line(kind, head + text, name, whole=True)
    return Line(kind, head + shorten(text), name)
