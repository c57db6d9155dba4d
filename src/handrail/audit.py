"""What was done, why it was allowed, and how it ended: one record per decision, each chained to the one before it.

A record's hash is SHA-256 over its canonical JSON and the hash before it, so an edit, an insertion, a deletion or a
change of order inside the log is found, and named by record. With a key it is an HMAC, and nobody without the key can
write the log anew; a tail that was cut off is found against a checkpoint (a record's number and hash, kept elsewhere).

Rule 1: without a key and without checkpoints the chain proves order and wholeness of what is there, no more.
Rule 2: records hold redacted arguments, and of results their size and digest only.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    ModelAnswered,
    RunEnded,
    RunStarted,
)
from handrail.records import AuditRecord, Notice
from handrail.redaction import Redactor
from handrail.shaping import plain, text_of

FIRST = "0" * 64
"""What stands before the first record."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Where a chain breaks: the number of the record, and what is wrong there."""

    seq: int
    why: str


def linked(notice: Notice, *, seq: int, at: float, prev: str, key: bytes = b"") -> AuditRecord:
    """Return the record of a notice, chained to the hash before it."""
    return AuditRecord(
        seq, at, notice.run_id, notice.event, notice.body, prev,
        _digest(seq, at, notice.run_id, notice.event, notice.body, prev, key),
    )  # fmt: skip


def verify(
    records: Iterable[AuditRecord], *, key: bytes = b"", checkpoint: tuple[int, str] | None = None
) -> tuple[int, Broken | None]:
    """Return how many records stand in good order, and where the chain breaks, if it does.

    Args:
        checkpoint: A record's number and hash, as they were once; finds a cut tail and a log that was written anew.
    """
    prev, seq = FIRST, 0
    for record in records:
        if record.seq != seq + 1:
            return seq, Broken(record.seq, f"record {seq + 1} is missing: after {seq} comes {record.seq}")
        if record.prev != prev:
            return seq, Broken(record.seq, f"record {record.seq} does not follow record {seq}: something was taken out")
        wanted = _digest(record.seq, record.at, record.run_id, record.event, record.body, prev, key)
        if not hmac.compare_digest(wanted, record.hash):
            return seq, Broken(record.seq, f"record {record.seq} was changed, or hashed with another key")
        if checkpoint and checkpoint[0] == record.seq and checkpoint[1] != record.hash:
            return seq, Broken(
                record.seq, f"record {record.seq} is not the one of the checkpoint: the log was written anew"
            )
        prev, seq = record.hash, record.seq
    if checkpoint and seq < checkpoint[0]:
        return seq, Broken(seq + 1, f"the log ends with record {seq}; the checkpoint is record {checkpoint[0]}")
    return seq, None


def notice_of(event: Event, run_id: str, redactor: Redactor) -> Notice | None:
    """Return what is to be recorded of an event; None of one that decides and changes nothing."""
    body = _body(event, redactor)
    return None if body is None else Notice(run_id, type(event).__name__, body)


def _body(event: Event, redactor: Redactor) -> dict[str, Json] | None:
    match event:
        case RunStarted(model=model):
            return {"model": model}
        case RunEnded(status=status, reason=reason):
            return {"status": status, "reason": redactor.text(reason)}
        case ModelAnswered(turn=turn, answer=answer):
            return {"turn": turn, "finish": answer.finish, "calls": [[call.id, call.name] for call in answer.calls]}
        case CallAdmitted(call=call, arguments=arguments, repairs=repairs):
            return _of(call.id, call.name, **_arguments(arguments, redactor), repairs=list(repairs))
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


def _digest(seq: int, at: float, run_id: str, event: str, body: Mapping[str, Json], prev: str, key: bytes) -> str:
    told = keys.canonical({"seq": seq, "at": at, "run_id": run_id, "event": event, "body": body, "prev": prev})
    data = told.encode("utf-8", "surrogatepass")
    return hmac.new(key, data, "sha256").hexdigest() if key else hashlib.sha256(data).hexdigest()
