"""What was done, why it was allowed, and how it ended: what of a run's events goes into the audit log; see `chain`.

A write leaves a record before it may have any effect and one at its end, and whoever finds only the first asks the
ledger. A read at low risk leaves one, at its end, that says both. What comes between (a person is asked, an attempt
fails and another one starts) has records of its own, behind that of the admission.

A run that goes on tells its ended calls once more, since the crash may have taken their records; these are marked
`recalled`, and whoever counts what was done leaves them out.

Rule 1: records hold redacted arguments, and of results their size and digest only.
        Of long ones their beginning only, with length and digest of the rest: the loop that runs the calls does this.
Rule 2: what is held back until a call ends is a read, and what tells it is made when it was admitted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from handrail.calls import ToolCall
from handrail.core.redaction import Redactor
from handrail.core.results import plain, text_of
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
    """Makes of one run's events what is to be recorded of it.

    Args:
        principal: On whose behalf the run acts; stands in every record.
    """

    __slots__ = ("_begun", "_principal", "_redactor", "_run_id")

    def __init__(self, run_id: str, redactor: Redactor, principal: str = "") -> None:
        self._run_id, self._redactor, self._principal = run_id, redactor, principal
        self._begun: dict[int, tuple[ToolCall, AuditEntry | None]] = {}
        """The calls that were admitted and of which nothing was told since; with what is held back of each. By
        identity: two calls of a turn may have one id."""

    def notices(self, event: Event) -> list[AuditEntry]:
        """Return what is to be recorded now, in this order; nothing of what decides and changes nothing."""
        if type(event) not in _BODIES:
            return []
        if isinstance(event, CallAdmitted):
            notice, held = self._notice(event), _is_harmless(event)
            self._begun[id(event.call)] = event.call, notice if held else None
            return [] if held else [notice]
        if isinstance(event, AttemptStarted) and event.attempt == 1 and id(event.call) in self._begun:
            return []  # admission and end say it as well
        notice = self._notice(event)
        if isinstance(event, RunEnded):
            return [*self._held_back(), notice]
        _, admitted = self._begun.pop(id(getattr(event, "call", None)), (None, None))
        if admitted is None:
            return [notice]
        if isinstance(event, CallFinished):
            return [AuditEntry(self._run_id, notice.event, {**admitted.body, **notice.body})]
        return [admitted, notice]

    def _held_back(self) -> list[AuditEntry]:
        """Return what was held back of calls that have no end."""
        held = [notice for _, notice in self._begun.values() if notice is not None]
        self._begun.clear()
        return held

    def _notice(self, event: Event) -> AuditEntry:
        kind = type(event)
        body = _BODIES[kind](event, self._redactor)
        if self._principal:
            body["principal"] = self._principal
        waits = isinstance(event, ApprovalGiven) and event.approval is None
        name = "ApprovalPending" if waits else kind.__name__
        return AuditEntry(self._run_id, name, body)


def notice_of_word(word: str, run_id: str, redactor: Redactor, *, by: str, **told: Json) -> AuditEntry:
    """Return what is to be recorded of a person's decision; `arguments` among what is told are redacted."""
    arguments: Any = told.pop("arguments", None)
    shown = {name: redactor.text(each) if isinstance(each, str) else each for name, each in told.items()}
    edited = {} if arguments is None else _arguments(arguments, redactor)
    return AuditEntry(run_id, word, {"by": by, **shown, **edited})


def _is_harmless(admitted: CallAdmitted) -> bool:
    """Whether it is enough to record a call at its end: what reads has no key, and nobody saw a risk in it."""
    return not admitted.key and admitted.risk == "low"


def _of(event: Any, redactor: Redactor, **told: Json) -> dict[str, Json]:
    return {"call": _line(event.call.id, redactor), "tool": _tool(event.call, redactor), **told}


def _answered(event: ModelAnswered, redactor: Redactor) -> dict[str, Json]:
    answer = event.answer
    calls = [[_line(call.id, redactor), _tool(call, redactor)] for call in answer.calls]
    return {"turn": event.turn, "finish": answer.finish, "calls": calls}


def _admitted(event: CallAdmitted, redactor: Redactor) -> dict[str, Json]:
    told = _arguments(event.arguments, redactor)
    return _of(
        event, redactor, **told, repairs=list(event.repairs), key=_key(event, told["arguments"], redactor),
        risk=event.risk, why=_line(event.why, redactor), pin=event.pin, isolation=event.isolation,
    )  # fmt: skip


def _key(event: CallAdmitted, shown: Json, redactor: Redactor) -> str:
    """Return the key of a write, without the values that were redacted in the arguments: a key may contain them."""
    if len(event.key) > _LONGEST_KEY:
        return f"[{len(event.key):,} characters, sha256 {_sha256(event.key)}]"
    key = redactor.text(event.key)
    if key and (given := plain(dict(event.arguments))) != shown:
        key = Redactor(text for text in _hidden(given, shown) if len(text) <= len(event.key)).text(key)
    return key


def _hidden(given: Json, shown: Json) -> Iterator[str]:
    """Yield the texts that are not shown."""
    if shown == given:
        return
    if isinstance(given, dict) and isinstance(shown, dict) and len(given) == len(shown):
        for one, other in zip(given.values(), shown.values(), strict=True):
            yield from _hidden(one, other)
    elif isinstance(given, list) and isinstance(shown, list):
        for one, other in zip(given, shown, strict=True):
            yield from _hidden(one, other)
    else:
        yield given if isinstance(given, str) else keys.canonical(given)


def _asked(event: ApprovalAsked, redactor: Redactor) -> dict[str, Json]:
    return _of(
        event, redactor, **_arguments(event.arguments, redactor), risk=event.risk, reason=_line(event.reason, redactor)
    )


def _given(event: ApprovalGiven, redactor: Redactor) -> dict[str, Json]:
    approval = event.approval
    if approval is None:
        return _of(event, redactor)  # nobody has answered: recorded as `ApprovalPending`
    told = _of(event, redactor, granted=approval.granted, by=approval.by, reason=_line(approval.reason, redactor))
    return told if approval.arguments is None else told | _arguments(approval.arguments, redactor)


def _finished(event: CallFinished, redactor: Redactor) -> dict[str, Json]:
    result, recalled = event.result, {"recalled": True} if event.recalled else {}
    return recalled | _of(
        event, redactor, ok=result.ok, code=str(result.failure.code) if result.failure else "",
        attempts=result.attempts, replayed=result.replayed, seconds=round(event.seconds, 6),
        result_bytes=len(result.text.encode("utf-8", "surrogatepass")), result=_digest(result.text, redactor),
    )  # fmt: skip


def _late(event: FinishedLate, redactor: Redactor) -> dict[str, Json]:
    said = _digest(text_of(event.value), redactor)
    return _of(event, redactor, error=_line(event.error, redactor), result=said)


def _too_late(event: LateResult, redactor: Redactor) -> dict[str, Json]:
    said = _digest(text_of(event.value), redactor)
    return _of(event, redactor, key=_line(event.key, redactor), fence=event.fence, state=event.state, result=said)


_BODIES: Mapping[type[Event], Callable[[Any, Redactor], dict[str, Json]]] = {
    RunStarted: lambda event, _: {"model": event.model},
    RunEnded: lambda event, redactor: {"status": event.status, "reason": _line(event.reason, redactor)},
    ModelAnswered: _answered,
    CallAdmitted: _admitted,
    ApprovalAsked: _asked,
    ApprovalGiven: _given,
    AttemptStarted: lambda event, redactor: _of(event, redactor, attempt=event.attempt),
    AttemptFailed: lambda event, redactor: _of(
        event, redactor, attempt=event.attempt, reason=_line(event.reason, redactor)
    ),
    CallFinished: _finished,
    FinishedLate: _late,
    LateResult: _too_late,
}
"""What is recorded of each kind of event; of all others nothing, since they decide and change nothing."""


def _arguments(arguments: Mapping[str, Json], redactor: Redactor) -> dict[str, Json]:
    # The digest is that of the redacted form: a bare digest of a short secret could be guessed.
    excerpt = _Excerpt(redactor, MOST_ARGUMENTS_CHARS)
    shown = redactor.value(plain(dict(arguments)), excerpt)
    told = {"arguments": shown, "arguments_sha256": _sha256(keys.canonical(shown))}
    return told | excerpt.rest() if excerpt.rest_chars else told


class _Excerpt:
    """Redacts texts in turn, up to a number of characters, and counts and digests the rest.

    Args:
        room: How many characters of all texts together are recorded.
    """

    __slots__ = ("_redactor", "_rest", "_room", "rest_chars")

    def __init__(self, redactor: Redactor, room: int) -> None:
        self._redactor, self._room = redactor, room
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
        return f"{_beginning(text, chars, self._redactor)}[... {left:,} more characters]"

    def rest(self) -> dict[str, Json]:
        """Return the length and digest of the rest; no digest if the rest is short enough to be guessed."""
        digest = {"rest_sha256": _sha256("".join(self._rest))} if self.rest_chars > _MARGIN else {}
        return {"rest_chars": self.rest_chars, **digest}


def _beginning(text: str, chars: int, redactor: Redactor) -> str:
    """Return about the first `chars` characters, redacted, with no part of a secret that crosses the cut."""
    window = text[: chars + _MARGIN]
    shown = redactor.text(window)
    return shown[: max(0, len(shown) - (len(window) - chars))]


def _line(text: str, redactor: Redactor) -> str:
    """Return a text as it is recorded: an id, a name, a reason."""
    return redactor.text(text) if len(text) <= MOST_TEXT_CHARS else _Excerpt(redactor, MOST_TEXT_CHARS)(text)


def _tool(call: ToolCall, redactor: Redactor) -> str:
    return redactor.name(call.name) if len(call.name) <= MOST_TEXT_CHARS else _line(call.name, redactor)


def _digest(text: str, redactor: Redactor) -> str:
    """Return the digest of a result, of which the beginning is redacted first."""
    if len(text) <= MOST_TEXT_CHARS + _MARGIN:
        return _sha256(redactor.text(text))
    return _sha256(_beginning(text, MOST_TEXT_CHARS, redactor) + text[MOST_TEXT_CHARS:])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
