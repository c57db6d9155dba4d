"""What was done, why it was allowed, and how it ended: what of a run's events goes into the audit log; see `chain`.

Rule 1: records hold redacted arguments, and of results their size and digest only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from handrail import keys
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
from handrail.records import Notice
from handrail.redaction import Redactor
from handrail.shaping import plain, text_of


def notice_of(event: Event, run_id: str, redactor: Redactor) -> Notice | None:
    """Return what is to be recorded of an event; None of one that decides and changes nothing."""
    body = _body(event, redactor)
    return None if body is None else Notice(run_id, type(event).__name__, body)


def notice_of_word(word: str, run_id: str, redactor: Redactor, *, by: str, **told: Json) -> Notice:
    """Return what is to be recorded of a person's decision; `arguments` among what is told are redacted."""
    arguments: Any = told.pop("arguments", None)
    shown = {name: redactor.text(each) if isinstance(each, str) else each for name, each in told.items()}
    edited = {} if arguments is None else _arguments(arguments, redactor)
    return Notice(run_id, word, {"by": by, **shown, **edited})


def _body(event: Event, redactor: Redactor) -> dict[str, Json] | None:
    match event:
        case RunStarted(model=model):
            return {"model": model}
        case RunEnded(status=status, reason=reason):
            return {"status": status, "reason": redactor.text(reason)}
        case ModelAnswered(turn=turn, answer=answer):
            return {"turn": turn, "finish": answer.finish, "calls": [[call.id, call.name] for call in answer.calls]}
        case CallAdmitted(call=call, arguments=arguments, repairs=repairs):
            return _of(
                call.id, call.name, **_arguments(arguments, redactor), repairs=list(repairs), key=event.key,
                risk=event.risk, why=redactor.text(event.why), pin=event.pin, isolation=event.isolation,
            )  # fmt: skip
        case ApprovalAsked(call=call, arguments=arguments, risk=risk, reason=reason):
            return _of(call.id, call.name, **_arguments(arguments, redactor), risk=risk, reason=redactor.text(reason))
        case ApprovalGiven(call=call, approval=None):
            return _of(call.id, call.name, granted=None)
        case ApprovalGiven(call=call, approval=approval) if approval is not None:
            told = _of(
                call.id, call.name, granted=approval.granted, by=approval.by, reason=redactor.text(approval.reason)
            )
            return told if approval.arguments is None else told | _arguments(approval.arguments, redactor)
        case AttemptStarted(call=call, attempt=attempt):
            return _of(call.id, call.name, attempt=attempt)
        case AttemptFailed(call=call, attempt=attempt, reason=reason):
            return _of(call.id, call.name, attempt=attempt, reason=redactor.text(reason))
        case CallFinished(call=call, result=result, seconds=seconds):
            code = str(result.failure.code) if result.failure else ""
            size = len(result.text.encode("utf-8", "surrogatepass"))
            return _of(
                call.id, call.name, ok=result.ok, code=code, attempts=result.attempts, replayed=result.replayed,
                seconds=round(seconds, 6), result_bytes=size, result=_sha256(redactor.text(result.text)),
            )  # fmt: skip
        case FinishedLate(call=call, value=value, error=error):
            return _of(call.id, call.name, error=redactor.text(error), result=_sha256(redactor.text(text_of(value))))
        case LateResult(call=call, key=key, fence=fence, state=state, value=value):
            said = _sha256(redactor.text(text_of(value)))
            return _of(call.id, call.name, key=key, fence=fence, state=state, result=said)
        case _:
            return None


def _arguments(arguments: Mapping[str, Json], redactor: Redactor) -> dict[str, Json]:
    # The digest is that of the redacted form: a bare digest of a short secret could be guessed.
    shown = redactor.value(plain(dict(arguments)))
    return {"arguments": shown, "arguments_sha256": _sha256(keys.canonical(shown))}


def _of(call_id: str, tool: str, **told: Json) -> dict[str, Json]:
    return {"call": call_id, "tool": tool, **told}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
