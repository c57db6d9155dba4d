"""What was done, why it was allowed, and how it ended: what of a run's events goes into the audit log; see `chain`.

A write leaves a record before it may have any effect and one at its end, and whoever finds only the first asks the
ledger. A read at low risk leaves one, at its end, that says both. What comes between (a person is asked, an attempt
fails and another one starts) has records of its own, behind that of the admission.

A resumed run records its ended calls once more, since the crash may have taken their records; these are marked
`recalled`, and are left out of every count of what was done.

Rule 1: records hold redacted arguments, and of results their size and digest only.
        Of long ones their beginning only, with length and digest of the rest: the loop that runs the calls does this.
Rule 2: only the entry of a read is held back until its call ends, and it is made when the call is admitted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from handrail.calls import Label, ToolCall
from handrail.core.redaction import Redactor
from handrail.core.results import as_text, plain
from handrail.errors import Json
from handrail.events import (
    ApprovalAsked,
    ApprovalGiven,
    AttemptFailed,
    AttemptStarted,
    CallAdmitted,
    CallFinished,
    Event,
    FinishedLate,
    LateResult,
    ModelAnswered,
    RunEnded,
    RunStarted,
)
from handrail.records import AuditEntry
from handrail.tools import keys

MOST_TEXT_CHARS = 16 * 1024
"""How much of one text is recorded."""
MOST_ARGUMENTS_CHARS = 32 * 1024
"""How much of the texts in one call's arguments is recorded."""
_LONGEST_KEY = 4096
_MARGIN = 1024
"""How many more characters are redacted than recorded, so that no secret is cut in half and recorded."""


class AuditBuilder:
    """Makes the audit entries of one run from its events.

    Args:
        principal: On whose behalf the run acts; part of every record.
    """

    __slots__ = ("_open_calls", "_principal", "_redactor", "_run_id")

    def __init__(self, run_id: str, redactor: Redactor, principal: str = "") -> None:
        self._run_id = run_id
        self._redactor = redactor
        self._principal = principal
        self._open_calls: dict[int, tuple[ToolCall, AuditEntry | None]] = {}
        """Calls that were admitted and have had no event since, with the entry that is held back of each. By identity:
        two calls of a turn may have one id."""

    def entries(self, event: Event) -> list[AuditEntry]:
        """Return the entries of an event, in order; none of an event that decides and changes nothing."""
        if type(event) not in _BODIES:
            return []
        if isinstance(event, CallAdmitted):
            entry = self._make_entry(event)
            if _is_harmless(event):
                self._open_calls[id(event.call)] = (event.call, entry)
                return []
            self._open_calls[id(event.call)] = (event.call, None)
            return [entry]
        if (
            isinstance(event, AttemptStarted)
            and event.attempt == 1
            and id(event.call) in self._open_calls
        ):
            return []  # admission and end say it as well
        entry = self._make_entry(event)
        if isinstance(event, RunEnded):
            return [*self._take_held_back(), entry]
        _, admitted = self._open_calls.pop(
            id(getattr(event, "call", None)), (None, None)
        )
        if admitted is None:
            return [entry]
        if isinstance(event, CallFinished):
            return [
                AuditEntry(self._run_id, entry.event, {**admitted.body, **entry.body})
            ]
        return [admitted, entry]

    def _take_held_back(self) -> list[AuditEntry]:
        """Return the entries that are held back of calls without an end, and forget these calls."""
        held = [entry for _, entry in self._open_calls.values() if entry is not None]
        self._open_calls.clear()
        return held

    def _make_entry(self, event: Event) -> AuditEntry:
        kind = type(event)
        body = _BODIES[kind](event, self._redactor)
        if self._principal:
            body["principal"] = self._principal
        name = kind.__name__
        if isinstance(event, ApprovalGiven) and event.approval is None:
            name = "ApprovalPending"
        return AuditEntry(self._run_id, name, body)


def person_entry(
    word: str, run_id: str, redactor: Redactor, *, by: str, **details: Json
) -> AuditEntry:
    """Return the entry of a person's decision; `arguments` among its details are redacted."""
    arguments: Any = details.pop("arguments", None)
    shown = {
        name: redactor.text(each) if isinstance(each, str) else each
        for name, each in details.items()
    }
    body: dict[str, Json] = {"by": by, **shown}
    if arguments is not None:
        body |= _arguments(arguments, redactor)
    return AuditEntry(run_id, word, body)


def _is_harmless(admitted: CallAdmitted) -> bool:
    """Whether it is enough to record a call at its end: a read, which has no key, at low risk."""
    return not admitted.key and admitted.risk == "low"


def _describe_call(event: Any, redactor: Redactor, **details: Json) -> dict[str, Json]:
    return {
        "call": _line(event.call.id, redactor),
        "tool": _tool(event.call, redactor),
        **details,
    }


def _describe_answer(event: ModelAnswered, redactor: Redactor) -> dict[str, Json]:
    answer = event.answer
    calls = [[_line(call.id, redactor), _tool(call, redactor)] for call in answer.calls]
    return {"turn": event.turn, "finish": answer.finish, "calls": calls}


def _describe_admission(event: CallAdmitted, redactor: Redactor) -> dict[str, Json]:
    arguments = _arguments(event.arguments, redactor)
    body = _describe_call(
        event,
        redactor,
        **arguments,
        repairs=list(event.repairs),
        key=_key(event, arguments["arguments"], redactor),
        risk=event.risk,
        why=_line(event.why, redactor),
        pin=event.pin,
        isolation=event.isolation,
    )
    if event.tainted_by is not None:
        body["labels"] = _describe_label(event.tainted_by, redactor)
    return body


def _key(event: CallAdmitted, shown: Json, redactor: Redactor) -> str:
    """Return the key of a write, without the values that were redacted in the arguments: a key may contain them."""
    if len(event.key) > _LONGEST_KEY:
        return f"[{len(event.key):,} characters, sha256 {_sha256(event.key)}]"
    key = redactor.key(event.key)
    if not key:
        return key
    arguments = plain(dict(event.arguments))
    if arguments == shown:
        return key
    hidden = _find_hidden_texts(arguments, shown)
    return Redactor(each for each in hidden if len(each) <= len(event.key)).key(key)


def _find_hidden_texts(value: Json, shown: Json) -> Iterator[str]:
    """Yield the texts of a value that its redacted form does not show."""
    if shown == value:
        return
    if isinstance(value, dict) and isinstance(shown, dict) and len(value) == len(shown):
        for one, other in zip(value.values(), shown.values(), strict=True):
            yield from _find_hidden_texts(one, other)
    elif isinstance(value, list) and isinstance(shown, list):
        for one, other in zip(value, shown, strict=True):
            yield from _find_hidden_texts(one, other)
    elif isinstance(value, str):
        yield value
    else:
        yield keys.canonical(value)


def _describe_question(event: ApprovalAsked, redactor: Redactor) -> dict[str, Json]:
    return _describe_call(
        event,
        redactor,
        **_arguments(event.arguments, redactor),
        risk=event.risk,
        reason=_line(event.reason, redactor),
    )


def _describe_approval(event: ApprovalGiven, redactor: Redactor) -> dict[str, Json]:
    approval = event.approval
    if approval is None:
        # nobody has answered: recorded as `ApprovalPending`
        return _describe_call(event, redactor)
    reason = _line(approval.reason, redactor)
    body = _describe_call(
        event, redactor, granted=approval.granted, by=approval.by, reason=reason
    )
    if approval.arguments is None:
        return body
    return body | _arguments(approval.arguments, redactor)


def _describe_end(event: CallFinished, redactor: Redactor) -> dict[str, Json]:
    result = event.result
    body: dict[str, Json] = {}
    if event.recalled:
        body["recalled"] = True
    return body | _describe_call(
        event,
        redactor,
        ok=result.ok,
        code="" if result.failure is None else str(result.failure.code),
        attempts=result.attempts,
        replayed=result.replayed,
        seconds=round(event.seconds, 6),
        result_bytes=len(result.text.encode("utf-8", "surrogatepass")),
        result=_digest(result.text, redactor),
        labels=_describe_label(result.label, redactor),
    )


def _describe_label(label: Label, redactor: Redactor) -> dict[str, Json]:
    """Return a label, all of it: who finds none in a record knows nothing of that result."""
    labels: dict[str, Json] = {
        "integrity": label.integrity,
        "confidentiality": label.confidentiality,
    }
    if label.source:
        labels["source"] = redactor.name(label.source)
    if label.call:
        labels["call"] = _line(label.call, redactor)
    return labels


def _describe_late_end(event: FinishedLate, redactor: Redactor) -> dict[str, Json]:
    result = _digest(as_text(event.value), redactor)
    return _describe_call(
        event, redactor, error=_line(event.error, redactor), result=result
    )


def _describe_late_result(event: LateResult, redactor: Redactor) -> dict[str, Json]:
    key = _line(event.key, redactor)
    result = _digest(as_text(event.value), redactor)
    return _describe_call(
        event, redactor, key=key, fence=event.fence, state=event.state, result=result
    )


_BODIES: Mapping[type[Event], Callable[[Any, Redactor], dict[str, Json]]] = {
    RunStarted: lambda event, _: {"model": event.model},
    RunEnded: lambda event, redactor: {
        "status": event.status,
        "reason": _line(event.reason, redactor),
    },
    ModelAnswered: _describe_answer,
    CallAdmitted: _describe_admission,
    ApprovalAsked: _describe_question,
    ApprovalGiven: _describe_approval,
    AttemptStarted: lambda event, redactor: _describe_call(
        event, redactor, attempt=event.attempt
    ),
    AttemptFailed: lambda event, redactor: _describe_call(
        event, redactor, attempt=event.attempt, reason=_line(event.reason, redactor)
    ),
    CallFinished: _describe_end,
    FinishedLate: _describe_late_end,
    LateResult: _describe_late_result,
}
"""What is recorded of each kind of event; of all others nothing, since they decide and change nothing."""


def _arguments(arguments: Mapping[str, Json], redactor: Redactor) -> dict[str, Json]:
    # The digest is that of the redacted form: a bare digest of a short secret could be guessed.
    excerpt = _Excerpt(redactor, MOST_ARGUMENTS_CHARS)
    shown = redactor.value(plain(dict(arguments)), excerpt)
    body = {"arguments": shown, "arguments_sha256": _sha256(keys.canonical(shown))}
    if excerpt.rest_chars:
        return body | excerpt.rest()
    return body


class _Excerpt:
    """Redacts texts in turn, up to a number of characters, and counts and digests the rest.

    Args:
        room: How many characters of all texts together are recorded.
    """

    __slots__ = ("_redactor", "_rest", "_room", "rest_chars")

    def __init__(self, redactor: Redactor, room: int) -> None:
        self._redactor = redactor
        self._room = room
        self._rest: list[str] = []
        self.rest_chars = 0

    def __call__(self, text: str) -> str:
        """Return a text as it is recorded."""
        if len(text) <= self._room and len(text) <= MOST_TEXT_CHARS:
            self._room -= len(text)
            return self._redactor.text(text)
        chars = min(self._room, MOST_TEXT_CHARS)
        self._room -= chars
        left = len(text) - chars
        self._rest.append(text[chars:])
        self.rest_chars += left
        return (
            f"{_beginning(text, chars, self._redactor)}[... {left:,} more characters]"
        )

    def rest(self) -> dict[str, Json]:
        """Return the length and digest of the rest; no digest if the rest is short enough to be guessed."""
        body: dict[str, Json] = {"rest_chars": self.rest_chars}
        if self.rest_chars > _MARGIN:
            body["rest_sha256"] = _sha256("".join(self._rest))
        return body


def _beginning(text: str, chars: int, redactor: Redactor) -> str:
    """Return about the first `chars` characters, redacted, with no part of a secret that crosses the cut."""
    window = text[: chars + _MARGIN]
    shown = redactor.text(window)
    return shown[: max(0, len(shown) - (len(window) - chars))]


def _line(text: str, redactor: Redactor) -> str:
    """Return a text as it is recorded: an id, a name, a reason."""
    if len(text) <= MOST_TEXT_CHARS:
        return redactor.text(text)
    return _Excerpt(redactor, MOST_TEXT_CHARS)(text)


def _tool(call: ToolCall, redactor: Redactor) -> str:
    if len(call.name) <= MOST_TEXT_CHARS:
        return redactor.name(call.name)
    return _line(call.name, redactor)


def _digest(text: str, redactor: Redactor) -> str:
    """Return the digest of a result, of which the beginning is redacted first."""
    if len(text) <= MOST_TEXT_CHARS + _MARGIN:
        return _sha256(redactor.text(text))
    return _sha256(_beginning(text, MOST_TEXT_CHARS, redactor) + text[MOST_TEXT_CHARS:])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
