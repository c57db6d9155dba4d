"""One run as a page shows it: its turns, and of each call what was asked, checked, done and answered.

The journal has what the model wrote and what it read; the moments (`run_moments`) have when, what the tool got, and
why; the ledger has the writes; the store has the questions to people. What none of them has is None.

Rule 1: pure: nothing is read from a store here, and nothing runs.
Rule 2: times are milliseconds since the run was created, or ISO texts that the caller writes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from handrail.calls import Label, ToolCall, ToolResult
from handrail.core.results import as_text
from handrail.errors import PENDING, Code, Json
from handrail.history.run_history import HistoryTurn, RunHistory
from handrail.history.run_moments import RunMoment
from handrail.history.summaries import DENIALS
from handrail.invisible import remove_hidden
from handrail.journal import codec
from handrail.messages import Turn
from handrail.parsing import jsontext
from handrail.records import ApprovalRequest, WriteRecord

MOST_TEXT_CHARS = 256 * 1024
"""How much of one text of a call is shown."""

_ABOUT_TURNS = ("ModelAsked", "ModelAnswered")
_REFUSED_AT: Mapping[str, str] = {
    Code.RULE_VIOLATED: "rule",
    Code.NOT_PERMITTED: "permission",
}
"""The steps that refuse a call with valid arguments, by the code of its failure."""
_LIMITS = (Code.REPEATED_CALL, Code.BUDGET_EXHAUSTED, Code.RATE_LIMITED)
_FAULTS_OF_ARGUMENTS = (
    Code.BAD_JSON,
    Code.INVALID_ARGUMENTS,
    Code.TRUNCATED_CALL,
    Code.UNKNOWN_TOOL,
)


class Sources(Struct, frozen=True):
    """What there is of a run beside its journal.

    Attributes:
        moments: In order.
        questions: Those of the run, whatever their state.
        writes: Those of the run in the ledger.
        step_times: When each step was recorded, as Unix time, by its key; empty where the store does not say.
        injected: The names of the parameters that the model never sees, by tool; of tools that this process has.
        is_under_way: Whether a process carries the run out now.
        time_text: Writes a Unix time.
    """

    time_text: Callable[[float | None], str | None]
    moments: Sequence[RunMoment] = ()
    questions: Sequence[ApprovalRequest] = ()
    writes: Sequence[WriteRecord] = ()
    step_times: Mapping[str, float] = {}
    injected: Mapping[str, Sequence[str]] = {}
    is_under_way: bool = False


def describe_turns(history: RunHistory, sources: Sources) -> list[dict[str, Json]]:
    """Return the turns of a run."""
    asked = _times_of_turns(sources.moments, "ModelAsked")
    answered = _times_of_turns(sources.moments, "ModelAnswered")
    return [
        {
            "index": each.number,
            "text": each.turn.text,
            "reasoning": each.turn.reasoning or None,
            "model": history.model or None,
            "finish": each.turn.finish,
            "tokens": _tokens(each.turn),
            "started_at": sources.time_text(asked.get(each.number)),
            "ended_at": sources.time_text(
                answered.get(
                    each.number, sources.step_times.get(codec.model_key(each.number))
                )
            ),
            "elapsed_s": round(each.answered_at_s, 3),
        }
        for each in history.turns
    ]


def _tokens(turn: Turn) -> dict[str, Json]:
    usage = turn.usage
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cached": usage.cached_tokens,
        "cache_written": usage.cache_written_tokens,
    }


def _times_of_turns(moments: Iterable[RunMoment], name: str) -> dict[int, float]:
    """Return when something happened first in each turn."""
    times: dict[int, float] = {}
    for each in moments:
        if each.name == name:
            times.setdefault(int(each.body.get("turn") or 0), each.at)
    return times


def describe_calls(history: RunHistory, sources: Sources) -> list[dict[str, Json]]:
    """Return the calls of a run, in the order in which the model wrote them."""
    moments = _by_call(sources.moments)
    questions: dict[str, list[ApprovalRequest]] = defaultdict(list)
    for question in sources.questions:
        questions[question.step].append(question)
    writes = {each.key: each for each in sources.writes}
    calls: list[dict[str, Json]] = []
    for turn in history.turns:
        for index, (call, result) in enumerate(
            zip(turn.turn.calls, turn.results, strict=True)
        ):
            card = CallCard(
                turn=turn,
                index=index,
                call=call,
                result=result,
                moments=moments.get((turn.number, call.id), ()),
                questions=questions.get(codec.call_key(turn.number, index), ()),
                created=history.stored.record.created,
                sources=sources,
            )
            calls.append(card.as_json(writes))
    return calls


_BRIEF_CHARS = 120


def without_texts(card: Mapping[str, Any]) -> dict[str, Json]:
    """Return a card without what was written and read: a timeline of thousands of calls needs `brief` only."""
    arguments = card["arguments"]
    newest_first = ("final", "edited", "coerced", "raw")
    given = next(
        (arguments[each] for each in newest_first if arguments[each] is not None), ""
    )
    values = given.values() if isinstance(given, Mapping) else [given]
    brief = ", ".join(
        each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
        for each in values
    )
    left_out: dict[str, Json] = dict.fromkeys(("arguments", "result", "decisions"))
    return {**card, **left_out, "brief": brief[:_BRIEF_CHARS]}


def checklist(
    calls: Sequence[Mapping[str, Any]], questions: Sequence[ApprovalRequest]
) -> list[dict[str, Json]]:
    """Return what a person asks first of a run, and whether it holds."""
    states = [each["status"] for each in calls]
    open_questions = [each.id for each in questions if each.state == "open"]
    doubts = [str(each["id"]) for each in calls if each["status"] == "in_doubt"]
    failed = [str(each["tool"]) for each in calls if each["status"] == "failed"]
    unanswered = states.count("running") + states.count("waiting")
    repaired = [str(each["tool"]) for each in calls if each["arguments"]["repairs"]]
    items: Sequence[tuple[str, bool, str]] = (
        ("every_call_answered", not unanswered, str(unanswered or "")),
        ("nothing_in_doubt", not doubts, ", ".join(doubts)),
        ("nobody_is_waited_for", not open_questions, ", ".join(open_questions)),
        ("no_call_failed", not failed, ", ".join(dict.fromkeys(failed))),
        ("no_arguments_repaired", not repaired, ", ".join(dict.fromkeys(repaired))),
    )
    return [{"key": key, "ok": ok, "note": note or None} for key, ok, note in items]


def _by_call(moments: Iterable[RunMoment]) -> Mapping[tuple[int, str], list[RunMoment]]:
    """Return the moments of each call, by its turn and id: a model may give one id twice."""
    turn = 0
    by_call: dict[tuple[int, str], list[RunMoment]] = defaultdict(list)
    for each in moments:
        if each.name in _ABOUT_TURNS:
            turn = int(each.body.get("turn") or turn)
        elif each.call:
            by_call[turn, each.call].append(each)
    return by_call


class CallCard:
    """One call, from the model's text to the text that the model read."""

    def __init__(
        self,
        *,
        turn: HistoryTurn,
        index: int,
        call: ToolCall,
        result: ToolResult | None,
        moments: Sequence[RunMoment],
        questions: Sequence[ApprovalRequest],
        created: float,
        sources: Sources,
    ) -> None:
        self._turn = turn
        self._index = index
        self._call = call
        self._result = result
        self._moments = [each for each in moments if _is_own(each)]
        self._questions = questions
        self._created = created
        self._sources = sources
        self._admitted = self._last("CallAdmitted") or self._last_with("arguments")
        self._ended = self._last("CallFinished")

    def as_json(self, writes: Mapping[str, WriteRecord]) -> dict[str, Json]:
        """Return the card."""
        key = self._key()
        write = writes.get(key) if key else None
        time_text = self._sources.time_text
        return {
            "id": self._call.id,
            "turn": self._turn.number,
            "step": codec.call_key(self._turn.number, self._index),
            "tool": self._call.name,
            "status": self._status(),
            "started_at": time_text(self._started_at()),
            "ended_at": time_text(self._ended_at()),
            "attempts": self._result.attempts if self._result else None,
            "segments": self._segments(),
            "arguments": self._arguments(),
            "result": self._result_json(),
            "decisions": self._decisions(write),
            "key": key or None,
            "ledger": _ledger(write, self._result),
            "locks": None,
            "risk": self._risk(),
            "label": label_text(self._result.label) if self._result else None,
        }

    # ------------------------------------------------------------------ when

    def _last(self, *names: str) -> RunMoment | None:
        return next(
            (each for each in reversed(self._moments) if each.name in names), None
        )

    def _last_with(self, field: str) -> RunMoment | None:
        """Return the record of a read's end: the audit log has its admission in it."""
        ended = self._last("CallFinished")
        return ended if ended is not None and field in ended.body else None

    def _started_at(self) -> float | None:
        admitted = next(
            (each for each in self._moments if each.name == "CallAdmitted"), None
        )
        if admitted is not None:
            return admitted.at
        if self._moments and self._moments[0].name != "CallFinished":
            return self._moments[0].at
        if self._ended is None:
            return None
        seconds = self._ended.body.get("seconds")
        if not isinstance(seconds, (int, float)):
            return None
        return self._ended.at - seconds

    def _ended_at(self) -> float | None:
        if self._ended is not None and self._status() != "waiting":
            return self._ended.at
        if self._result is None:
            return None
        return self._sources.step_times.get(
            codec.call_key(self._turn.number, self._index)
        )

    def _offset(self, at: float) -> int:
        return max(0, round((at - self._created) * 1000))

    def _segment(
        self, kind: str, start: float, end: float | None, **more: Json
    ) -> dict[str, Json]:
        end_ms = None if end is None else self._offset(end)
        return {"kind": kind, "start_ms": self._offset(start), "end_ms": end_ms, **more}

    def _segments(self) -> list[Json]:
        """Return what the call did when; a segment without an end goes on, or nobody knows its end."""
        segments = self._approval_segments()
        ready: float | None = None
        began: tuple[int, float] | None = None
        failed: float | None = None
        for each in self._moments:
            body = each.body
            if each.name == "CallAdmitted":
                ready = each.at
            elif each.name == "ApprovalAsked":
                ready = None
            elif each.name == "ApprovalGiven" and "granted" in body:
                ready = each.at
            elif each.name == "AttemptStarted":
                if ready is not None and each.at - ready >= 0.001:
                    segments.append(self._segment("queued", ready, each.at))
                if failed is not None:
                    segments.append(self._segment("backoff", failed, each.at))
                began = (int(body.get("attempt") or 1), each.at)
                ready = failed = None
            elif each.name == "AttemptFailed":
                number = int(body.get("attempt") or 1)
                start = began[1] if began else self._started_at() or each.at
                error = str(body.get("reason") or "")
                segments.append(
                    self._segment(
                        "attempt", start, each.at, n=number, ok=False, error=error
                    )
                )
                began = None
                failed = each.at
        segments += self._last_segments(began, failed)
        return list(segments)

    def _approval_segments(self) -> list[dict[str, Json]]:
        """Return how long people were asked: from the stored questions, where there are any."""
        words = [
            each
            for each in self._moments
            if each.name in ("ApprovalDecided", "ApprovalGiven")
            and "granted" in each.body
        ]
        asked = [each.asked for each in self._questions] or [
            each.at for each in self._moments if each.name == "ApprovalAsked"
        ]
        segments = []
        for at in asked:
            word = next((each for each in words if each.at >= at), None)
            answered = None if word is None else word.at
            more = {} if word is None else {"ok": bool(word.body["granted"])}
            segments.append(self._segment("approval", at, answered, **more))
        return segments

    def _last_segments(
        self, began: tuple[int, float] | None, failed: float | None
    ) -> Iterable[dict[str, Json]]:
        """Yield the attempt that ended the call, or that goes on, and the cut of its result."""
        ended = self._ended
        result = self._result
        if began is not None and ended is None:
            yield self._segment("attempt", began[1], None, n=began[0])
        if ended is None:
            return
        if result is None:
            if began is not None:
                ok = bool(ended.body.get("ok", True))
                yield self._segment("attempt", began[1], ended.at, n=began[0], ok=ok)
            return
        start = began[1] if began is not None else self._start_of_only_attempt(failed)
        if result.attempts and start is not None:
            number = began[0] if began else result.attempts
            failure = result.failure
            error = None if failure is None else failure.message
            yield self._segment(
                "attempt", start, ended.at, n=number, ok=result.ok, error=error
            )
        if result.handle:
            yield self._segment("cut", ended.at, ended.at)

    def _start_of_only_attempt(self, failed: float | None) -> float | None:
        """Return when the only attempt began, as far as the audit log says: it has no record of the first one."""
        if failed is not None:
            return None
        return self._started_at()

    # ------------------------------------------------------------------ what

    def _status(self) -> str:
        result = self._result
        if result is not None:
            code = "" if result.failure is None else str(result.failure.code)
        elif self._ended is not None and self._ended.body.get("code") not in PENDING:
            code = str(self._ended.body.get("code") or "")  # not in the journal yet
        elif any(each.state == "open" for each in self._questions):
            return "waiting"
        else:
            return "running" if self._sources.is_under_way else "waiting"
        if not code:
            return "ok"
        if code in PENDING:
            return "waiting"
        if code == Code.IN_DOUBT:
            return "in_doubt"
        if code in DENIALS:
            return "denied"
        return "failed"

    def _arguments(self) -> dict[str, Json]:
        parsed = jsontext.parse(self._call.arguments, self._turn.turn.finish)
        repaired: Json = None
        repairs: Sequence[str] = self._result.repairs if self._result else ()
        if isinstance(parsed, jsontext.Parsed):
            repairs = repairs or parsed.repairs
            if repairs:
                repaired = json.dumps(parsed.value, ensure_ascii=False)
        coerced = self._admitted.body.get("arguments") if self._admitted else None
        edited = next(
            (each.edited for each in self._questions if each.edited is not None), None
        )
        injected = self._sources.injected.get(self._call.name)
        hidden: Json = None
        if injected is not None:
            hidden = dict.fromkeys(injected, "***")
        accepted = coerced if edited is None else dict(edited)
        return {
            "raw": shorten(self._call.arguments),
            "repaired": None if repaired is None else shorten(str(repaired)),
            "repairs": list(repairs),
            "coerced": coerced,
            "injected": hidden,
            "edited": None if edited is None else dict(edited),
            "final": accepted if self._reached_the_function() else None,
        }

    def _reached_the_function(self) -> bool:
        """Return whether the function was called, or may have been."""
        if any(each.name == "AttemptStarted" for each in self._moments):
            return True
        if self._result is not None and self._result.attempts:
            return True
        return self._status() == "in_doubt"

    def _result_json(self) -> Json:
        result = self._result
        if result is None:
            return None
        raw = None if result.failure is not None else as_text(result.value)
        screened = None if raw is None else remove_hidden(raw)[0]
        dropped = 0
        if result.handle and raw is not None:
            dropped = max(0, _size(raw) - _size(result.text))
        return {
            "raw": None if raw is None else shorten(raw),
            "screened": None if screened is None else shorten(screened),
            "shown": shorten(result.text),
            "bytes": None if raw is None else _size(raw),
            "dropped_bytes": dropped,
            "dropped_tokens": dropped // 4,
            "handle": result.handle or None,
            "failure": None if result.failure is None else result.failure.as_json(),
            "note": result.note or None,
            "replayed": result.replayed,
            "media": [each.media_type for each in result.media],
        }

    # ------------------------------------------------------------------ why

    def _key(self) -> str:
        if self._result is not None and self._result.done_under:
            return self._result.done_under
        for each in (self._admitted, self._ended):
            if each is not None and each.body.get("key"):
                return str(each.body["key"])
        return ""

    def _risk(self) -> Json:
        if self._admitted is not None and self._admitted.body.get("risk"):
            return str(self._admitted.body["risk"])
        return next((each.risk for each in self._questions), None)

    def _decisions(self, write: WriteRecord | None) -> list[Json]:
        """Return each check that decided about the call, in the order in which they are made."""
        if self._failure_code in _FAULTS_OF_ARGUMENTS:
            return [self._refusal("schema")]
        decisions = self._admission_decisions()
        decisions += [_decision_of(each) for each in self._questions]
        if self._failure_code in _LIMITS:
            decisions.append(self._refusal("limits"))
        if write is not None:
            decisions.append(self._ledger_decision(write))
        if self._result is not None:
            outcome = self._failure_code or "ok"
            decisions.append(_decision("result", outcome, "", self._failure_message))
        return decisions

    def _admission_decisions(self) -> list[Json]:
        result = self._result
        decisions: list[Json] = []
        if self._admitted is not None or (result is not None and result.attempts):
            repairs = ", ".join(result.repairs) if result is not None else ""
            decisions.append(_decision("schema", "passed", "", repairs))
        step = _REFUSED_AT.get(self._failure_code)
        if step is not None:
            decisions.append(self._refusal(step))
        if self._admitted is not None:
            body = self._admitted.body
            rule = str(body.get("why") or "")
            decisions.append(_decision("risk", str(body.get("risk") or ""), rule, ""))
        return decisions

    def _ledger_decision(self, write: WriteRecord) -> Json:
        replayed = self._result is not None and self._result.replayed
        outcome = "repeated" if replayed else "new"
        state = f"{write.state}, fence {write.fence}"
        return _decision("ledger", outcome, write.key, state)

    def _refusal(self, step: str) -> Json:
        return _decision(step, "refused", self._failure_code, self._failure_message)

    @property
    def _failure_code(self) -> str:
        failure = self._result.failure if self._result is not None else None
        return str(failure.code) if failure is not None else ""

    @property
    def _failure_message(self) -> str:
        failure = self._result.failure if self._result is not None else None
        return failure.message if failure is not None else ""


def _is_own(moment: RunMoment) -> bool:
    """Whether something happened to the call then: it was not answered from the journal, nor left waiting."""
    return not moment.body.get("recalled") and moment.body.get("code") not in PENDING


def _decision(step: str, outcome: str, rule: str, note: str) -> dict[str, Json]:
    return {
        "step": step,
        "outcome": outcome,
        "rule": rule or None,
        "note": note or None,
    }


def _decision_of(question: ApprovalRequest) -> dict[str, Json]:
    by = f"by {question.by}" if question.by else ""
    note = ": ".join(filter(None, (by, question.decision_reason)))
    return _decision("approval", question.state, question.reason, note)


def _ledger(write: WriteRecord | None, result: ToolResult | None) -> Json:
    if write is None:
        return None
    return {
        "state": write.state,
        "fence": write.fence,
        "first_call": write.run_id,
        "scope": write.scope,
        "tool": write.tool,
        "resolved_by": write.resolved_by or None,
        "repeated": bool(result is not None and result.replayed),
    }


def label_text(label: Label) -> Json:
    """Return where words come from, as JSON; None for trusted, public words."""
    body = codec.label_as_json(label)
    return body if body else None


def shorten(text: str) -> str:
    """Return a text of bounded length, which says what it leaves out."""
    if len(text) <= MOST_TEXT_CHARS:
        return text
    left = len(text) - MOST_TEXT_CHARS
    return f"{text[:MOST_TEXT_CHARS]}[... {left:,} more characters]"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def describe_question(
    question: ApprovalRequest, time_text: Callable[[float | None], str | None]
) -> dict[str, Json]:
    """Return a question to a person as the API has it."""
    return {
        "id": question.id,
        "run": question.run_id,
        "call": question.call_id,
        "step": question.step,
        "tool": question.tool,
        "description": question.description,
        "arguments": dict(question.arguments),
        "schema": dict(question.parameters),
        "risk": question.risk,
        "reason": question.reason,
        "rule": question.reason,
        "digest": question.digest,
        "preview": None,
        "state": question.state,
        "awaits_result": question.awaits_result,
        "asked_at": time_text(question.asked),
        "expires_at": time_text(question.expires),
        "needs": question.required_approvals,
        "given": [{"by": each, "at": None} for each in question.agreed],
        "by": question.by or None,
        "decision_reason": question.decision_reason or None,
        "edited": None if question.edited is None else dict(question.edited),
        "principal": question.principal or None,
        "label": None,
    }


def describe_write(
    write: WriteRecord, now: float, time_text: Callable[[float | None], str | None]
) -> dict[str, Json]:
    """Return a write of the ledger as the API has it."""
    body = asdict(write)
    return {
        "scope": body["scope"],
        "key": body["key"],
        "tool": body["tool"],
        "run": body["run_id"],
        "state": write.state_at(now),
        "replay": body["replay"],
        "fence": body["fence"],
        "begun_at": time_text(write.begun),
        "updated_at": time_text(write.updated),
        "lease_until": time_text(write.lease_until),
        "deliver_until": time_text(write.deliver_until or None),
        "resolved_by": write.resolved_by or None,
        "why": write.why(now) or None,
        "value": write.value,
    }
