"""The records that a run leaves in the audit log: what was done, why it was allowed, and how it ended; see `chain`.

A write leaves a record before it may have any effect and one at its end, and whoever finds only the first asks the
ledger. A read at low risk leaves one, at its end, that says both. What comes between (a person is asked, an attempt
fails and another one starts) has records of its own, behind that of the admission.

A resumed run records its ended calls once more, since the crash may have taken their records; these are marked
`recalled`, and are left out of every count of what was done.

Rule 1: records hold redacted arguments, and of results their size and digest only. Of long arguments they hold the
        beginning, and length and digest of the rest: they are redacted on the event loop that runs the calls.
Rule 2: only the entry of a read is held back until its call ends; its arguments are copied when the call is admitted.
Rule 3: an event is noted when it happens, from values that no longer change; its record may be written later, in
        another thread. Written in one loop, the records of many runs take a third of the time: the code that writes a
        record and the code of a run do not fit into a processor's caches together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeAlias, cast

from msgspec import Struct
from msgspec.json import Encoder, decode

from handrail.audit.chain import canonical_json
from handrail.calls import Label, ToolCall, ToolResult
from handrail.core.redaction import Redactor, is_secret_name
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
from handrail.messages import Turn
from handrail.records import AuditEntry
from handrail.tools import keys

MOST_TEXT_CHARS = 16 * 1024
"""How much of one text is recorded."""
MOST_ARGUMENTS_CHARS = 32 * 1024
"""How much of the texts in one call's arguments is recorded."""
_LONGEST_KEY = 4096
"""The length of a key up to which it is recorded; of a longer one, its length and digest are."""
_MARGIN = 1024
"""How many more characters are redacted than recorded, so that no secret is cut in half and recorded."""
KEYED = "hmac-sha256:"
"""What a digest begins with that was made with a key of the store."""
_MOST_QUICK_CHARS = 2048
"""The length of arguments as JSON up to which their text is searched for secrets at once."""
_BLOCK_BYTES = 64
"""What SHA-256 takes at once."""
_PLAIN = frozenset((str, int, bool, type(None)))
_MOST_IDS = 64
_LONGEST_ID = 64
"""How many ids of calls are remembered as they are recorded, and how long they may be."""
_MOST_LABELS = 16
_MOST_KINDS = 64
"""How many kinds of admissions are remembered as they are recorded; see `AuditBuilder._describe_kind`."""
_APART = "\n" * 5
"""The separator of texts that are searched for secrets together."""

_NOT_OPEN: tuple[None, None] = (None, None)

_quote = json.encoder.encode_basestring_ascii
_encode = Encoder(order="sorted").encode


Record: TypeAlias = "tuple[str, str]"
"""A record of the log: the name of its event, and its body as canonical JSON."""
Records: TypeAlias = "Sequence[Record]"


class NotedAnswer(Struct, frozen=True, gc=False):
    """A model's answer, of which a record is still to be written."""

    turn: int
    calls: Sequence[ToolCall]
    finish: str


class NotedAdmission(Struct, frozen=True, gc=False):
    """A call that may run, of which a record is still to be written.

    Attributes:
        text: Its arguments as JSON if they are short and plain, else empty.
        texts: The record's members for its arguments, already redacted, if they are not; else None.
    """

    call: ToolCall
    text: str
    texts: _Texts | None
    repairs: Sequence[str]
    key: str
    risk: str
    why: str
    pin: str
    isolation: str
    tainted_by: Label | None


class NotedEnd(Struct, frozen=True, gc=False):
    """The end of a call, of which a record is still to be written.

    Attributes:
        admission: The admission that was held back, to be recorded with the end; None if it has its own record.
    """

    admission: NotedAdmission | None
    call: ToolCall
    text: str
    ok: bool
    code: str
    attempts: int
    replayed: bool
    label: Label
    seconds: float
    recalled: bool


Noted: TypeAlias = "NotedAnswer | NotedAdmission | NotedEnd | Record"
"""An event that is still to be written as a record, or a record that is written already."""


class AuditBuilder:
    """Makes the audit records of one run: of its answers and calls, and of events.

    Args:
        principal: On whose behalf the run acts; part of every record.
        digest_key: Makes the digest of a result one that nobody without the key can check a guess against; empty for
            plain SHA-256 of the redacted text.
    """

    __slots__ = (
        "_ids",
        "_keyed",
        "_kinds",
        "_labels",
        "_open_calls",
        "_own_ends",
        "_principal",
        "_redactor",
        "_run_id",
        "_tools",
    )

    def __init__(
        self,
        run_id: str,
        redactor: Redactor,
        principal: str = "",
        digest_key: bytes = b"",
    ) -> None:
        self._run_id = run_id
        self._redactor = redactor
        self._principal = _quote(principal) if principal else ""
        self._keyed = _begin_digests(digest_key) if digest_key else None
        self._ids: dict[str, str] = {}
        """Ids of calls as they are recorded: each is in the answer, at its call's admission, its end and in labels."""
        self._kinds: dict[tuple[str, ...], _Kind] = {}
        """What the admissions of a tool have in common, as it is recorded."""
        self._labels: dict[int, tuple[Label, str]] = {}
        """Labels as they are recorded, by identity: those of the tools, and the one that a call is made under."""
        self._own_ends: dict[tuple[str, bool], str] = {}
        """Records of ends that stand beside their admissions, with places, by tool and whether they are recalled."""
        self._tools: dict[str, str] = {}
        """Names of tools as they are recorded."""
        self._open_calls: dict[int, tuple[ToolCall, NotedAdmission | None]] = {}
        """Calls that were admitted and have had no event since, with the record that is held back of each. By identity:
        two calls of a turn may have one id."""

    def entries(self, event: Event) -> list[AuditEntry]:
        """Return the entries of an event, in order; none of an event that decides and changes nothing."""
        return [
            AuditEntry(self._run_id, name, json.loads(body))
            for name, body in self.records(event)
        ]

    def records(self, event: Event) -> Records:
        """Return the records of an event; none of an event that decides and changes nothing."""
        match event:
            case CallAdmitted():
                noted = self.admission(
                    event.call,
                    event.arguments,
                    repairs=event.repairs,
                    key=event.key,
                    risk=event.risk,
                    why=event.why,
                    pin=event.pin,
                    isolation=event.isolation,
                    tainted_by=event.tainted_by,
                )
                return () if noted is None else (self.write(noted),)
            case CallFinished():
                ended = self.end(
                    event.call, event.result, event.seconds, event.recalled
                )
                return (self.write(ended),)
            case ModelAnswered():
                return (self.write(note_answer(event.turn, event.answer)),)
            case AttemptStarted():
                if event.attempt == 1 and self.is_open(event.call):
                    return ()  # admission and end say it as well
        describe = _BODIES.get(type(event))
        if describe is None:
            return ()
        body = describe(event, self._redactor)
        if isinstance(event, FinishedLate | LateResult):
            body["result"] = self._digest(as_text(event.value))
        record = (_name(event), self._write(body))
        if isinstance(event, RunEnded):
            return [*self._take_held_back(), record]
        call = getattr(event, "call", None)
        _, admitted = self._open_calls.pop(id(call), (None, None))
        if admitted is None:
            return [record]
        return [self.write(admitted), record]

    def is_open(self, call: ToolCall) -> bool:
        """Whether a call was admitted, and nothing has been recorded of it since."""
        return id(call) in self._open_calls

    def admission(
        self,
        call: ToolCall,
        arguments: Mapping[str, Json],
        *,
        repairs: Sequence[str],
        key: str,
        risk: str,
        why: str,
        pin: str,
        isolation: str,
        tainted_by: Label | None,
    ) -> NotedAdmission | None:
        """Note a call that may run; return None for a read at low risk, which is recorded with its end."""
        text = _plain_text(arguments)
        texts = None
        if text is None:
            text = ""
            texts = self._describe_carefully(arguments, key)
        noted = NotedAdmission(
            call, text, texts, repairs, key, risk, why, pin, isolation, tainted_by
        )
        # Harmless: a read, which has no key, at low risk.
        if not key and risk == "low":
            self._open_calls[id(call)] = (call, noted)
            return None
        self._open_calls[id(call)] = (call, None)
        return noted

    def end(
        self, call: ToolCall, result: ToolResult, seconds: float, recalled: bool = False
    ) -> NotedEnd:
        """Note a call's end, with its admission if that was held back."""
        _, admission = self._open_calls.pop(id(call), _NOT_OPEN)
        failure = result.failure
        return NotedEnd(
            admission,
            call,
            result.text,
            failure is None,
            "" if failure is None else str(failure.code),
            result.attempts,
            result.replayed,
            result.label,
            seconds,
            recalled,
        )

    # ------------------------------------------------------------------ writing

    def holds_no_secret(self, noted: Sequence[Noted]) -> bool:
        """Whether nothing in the ids and plain arguments of these calls looks like a secret; if so, remember the ids.

        All texts are searched at once, which finds whatever a search of each would find: neither a secret nor a match
        of a pattern contains the five line feeds between two texts. After a match, the caller searches each text alone.
        """
        ids: list[str] = []
        texts: list[str] = []
        for each in noted:
            if type(each) is NotedAnswer:
                ids += [call.id for call in each.calls]
            elif type(each) is NotedEnd:
                if each.admission is not None:
                    texts.append(each.admission.text)
            elif type(each) is NotedAdmission:
                texts.append(each.text)
        shown = _APART.join(ids + texts)
        if len(shown) > MOST_TEXT_CHARS or self._redactor.text(shown) != shown:
            return False
        for id in ids:
            _remember(self._ids, id, _quote(id))
        return True

    def write(self, noted: Noted, *, is_clean: bool = False) -> Record:
        """Return the record of what was noted. It may be called in any thread, and returns the same each time.

        Args:
            is_clean: `holds_no_secret` has found nothing in it, so its text is not searched again.
        """
        if type(noted) is NotedEnd:
            return "CallFinished", self._write_end(noted, is_clean)
        if type(noted) is NotedAdmission:
            return "CallAdmitted", _join(self._write_admission(noted, is_clean))
        if type(noted) is NotedAnswer:
            return "ModelAnswered", self._write_answer(noted)
        return cast(Record, noted)

    def _write_answer(self, noted: NotedAnswer) -> str:
        calls = ",".join(
            [
                f"[{self._describe_id(call.id)},{self._describe_tool(call)}]"
                for call in noted.calls
            ]
        )
        texts = {
            "calls": f"[{calls}]",
            "finish": _quote(noted.finish),
            "turn": f"{noted.turn}",
        }
        if self._principal:
            texts["principal"] = self._principal
        return _join(texts)

    def _kind_of(self, noted: NotedAdmission) -> _Kind:
        named = (noted.call.name, noted.risk, noted.why, noted.pin, noted.isolation)
        kind = self._kinds.get(named)
        if kind is None:
            kind = _Kind(self._describe_kind(noted))
            if len(noted.call.name) <= _LONGEST_ID and len(noted.why) <= _LONGEST_ID:
                if len(self._kinds) >= _MOST_KINDS:
                    self._kinds.clear()
                self._kinds[named] = kind
        return kind

    def _write_admission(self, noted: NotedAdmission, is_clean: bool) -> _Texts:
        alike = self._kind_of(noted).texts
        texts = alike | self._describe_arguments(noted, is_clean)
        texts["call"] = self._describe_id(noted.call.id)
        if noted.repairs:
            texts["repairs"] = canonical_json(list(noted.repairs))
        if noted.tainted_by is not None:
            texts["labels"] = self._describe_label(noted.tainted_by)
        return texts

    def _describe_kind(self, noted: NotedAdmission) -> _Texts:
        """Return the members that the admissions of one tool have in common."""
        redactor = self._redactor
        why = noted.why
        shown = redactor.name(why) if len(why) < 64 else _line(why, redactor)
        texts = {
            "tool": self._describe_tool(noted.call),
            "repairs": "[]",
            "risk": _quote(noted.risk),
            "why": _quote(shown),
            "pin": _quote(noted.pin),
            "isolation": _quote(noted.isolation),
        }
        if self._principal:
            texts["principal"] = self._principal
        return texts

    def _write_end(self, noted: NotedEnd, is_clean: bool) -> str:
        members = self._describe_end(noted)
        admission = noted.admission
        if admission is None:
            return self._own_end_of(noted) % _end_in_order(members)
        if is_clean and _is_usual(noted, admission):
            members |= self._describe_arguments(admission, is_clean)
            return self._kind_of(admission).usual_end % _usual_in_order(members)
        texts = self._write_admission(admission, is_clean)
        if noted.recalled:
            texts["recalled"] = "true"
        return _join(texts | members)

    def _own_end_of(self, noted: NotedEnd) -> str:
        """Return the record of an end whose admission has a record of its own, with places for its members."""
        kind = (noted.call.name, noted.recalled)
        layout = self._own_ends.get(kind)
        if layout is None:
            texts = {"tool": self._describe_tool(noted.call)}
            if self._principal:
                texts["principal"] = self._principal
            if noted.recalled:
                texts["recalled"] = "true"
            layout = _leave_places(texts, _END)
            if len(kind[0]) <= _LONGEST_ID and len(self._own_ends) < _MOST_KINDS:
                self._own_ends[kind] = layout
        return layout

    def _describe_end(self, noted: NotedEnd) -> _Texts:
        """Return the members of every end; see `_END`."""
        text = noted.text
        return {
            "attempts": f"{noted.attempts}",
            "call": self._describe_id(noted.call.id),
            "code": _quote(noted.code),
            "labels": self._describe_label(noted.label),
            "ok": "true" if noted.ok else "false",
            "replayed": "true" if noted.replayed else "false",
            "result": f'"{self._digest(text)}"',
            "result_bytes": f"{_count_bytes(text)}",
            "seconds": _describe_seconds(noted.seconds),
        }

    def _digest(self, text: str) -> str:
        """Return the digest of a result: of the whole text where there is a key, else of the redacted one."""
        if self._keyed is None:
            return _digest(text, self._redactor)
        # HMAC (RFC 2104, section 2) in two steps: `hmac.digest` does the first for each text, at five times the cost
        inner = self._keyed[0].copy()
        outer = self._keyed[1].copy()
        inner.update(text.encode("utf-8", "surrogatepass"))
        outer.update(inner.digest())
        return f"{KEYED}{outer.hexdigest()}"

    def _describe_arguments(self, noted: NotedAdmission, is_clean: bool) -> _Texts:
        """Return arguments, their digest, and the key of a write."""
        if noted.texts is not None:
            return noted.texts
        text = noted.text
        # Nothing in the JSON is escaped, so it contains each argument's text unchanged: one search of it is enough.
        if not is_clean and self._redactor.text(text) != text:
            return self._describe_carefully(decode(text), noted.key)
        shown: dict[str, Json] = {}  # nothing was hidden that the key may hold
        return {
            "arguments": _in_ascii(text),
            "arguments_sha256": f'"{_sha256(text)}"',
            "key": _quote(_key(shown, noted.key, shown, self._redactor)),
        }

    def _describe_carefully(self, arguments: Mapping[str, Json], key: str) -> _Texts:
        """Return any arguments, redacted value by value, their digest, and the key of a write."""
        body = _arguments(arguments, self._redactor)
        texts = {name: canonical_json(value) for name, value in body.items()}
        shown = body["arguments"]
        texts["key"] = _quote(_key(arguments, key, shown, self._redactor))
        return texts

    def _describe_label(self, label: Label) -> str:
        # Whatever is remembered by identity is referenced, so that nothing else gets that id.
        spelled = self._labels.get(id(label))
        if spelled is None:
            if len(self._labels) >= _MOST_LABELS:
                self._labels.clear()
            spelled = self._labels[id(label)] = (label, self._spell_label(label))
        return spelled[1]

    def _spell_label(self, label: Label) -> str:
        """Return a label, all of it: who finds none in a record knows nothing of that result."""
        texts = {
            "integrity": _quote(label.integrity),
            "confidentiality": _quote(label.confidentiality),
        }
        if label.source:
            texts["source"] = _quote(self._redactor.name(label.source))
        if label.call:
            texts["call"] = self._describe_id(label.call)
        return _join(texts)

    def _describe_id(self, id: str) -> str:
        described = self._ids.get(id)
        if described is None:
            described = _quote(_line(id, self._redactor))
            _remember(self._ids, id, described)
        return described

    def _describe_tool(self, call: ToolCall) -> str:
        described = self._tools.get(call.name)
        if described is None:
            described = _quote(_tool(call, self._redactor))
            _remember(self._tools, call.name, described)
        return described

    def _take_held_back(self) -> Records:
        """Return the records that are held back of calls without an end, and forget these calls."""
        held = [
            self.write(noted)
            for _, noted in self._open_calls.values()
            if noted is not None
        ]
        self._open_calls.clear()
        return held

    def _write(self, body: dict[str, Json]) -> str:
        text = canonical_json(body)
        if self._principal:
            names = {name: canonical_json(value) for name, value in body.items()}
            text = _join({**names, "principal": self._principal})
        return text


_Texts: TypeAlias = "dict[str, str]"
"""The members of a body, each as canonical JSON."""

_END = (
    "attempts",
    "call",
    "code",
    "labels",
    "ok",
    "replayed",
    "result",
    "result_bytes",
    "seconds",
)
"""The members of every end of a call; see `AuditBuilder._describe_end`."""
_USUAL = (*_END, "arguments", "arguments_sha256", "key")
"""The members of a usual end beside what its kind has in common."""
_InOrder: TypeAlias = "Callable[[_Texts], tuple[str, ...]]"
_end_in_order: _InOrder = itemgetter(*sorted(_END))
_usual_in_order: _InOrder = itemgetter(*sorted(_USUAL))


class _Kind:
    """What the admissions of one tool have in common.

    Attributes:
        texts: Those members.
        usual_end: The record of an end that `_is_usual`, with places for what differs from call to call.
    """

    __slots__ = ("texts", "usual_end")

    def __init__(self, texts: _Texts) -> None:
        self.texts = texts
        self.usual_end = _leave_places(texts, _USUAL)


def _leave_places(texts: _Texts, names: Sequence[str]) -> str:
    """Return a body as canonical JSON, with a place for each other member, in the order of their names."""
    escaped = {name: text.replace("%", "%%") for name, text in texts.items()}
    return _join({**escaped, **dict.fromkeys(names, "%s")})


def _is_usual(noted: NotedEnd, admission: NotedAdmission) -> bool:
    """Whether an end with its admission needs only the members that every call of its tool has."""
    return admission.texts is None and not admission.repairs and not noted.recalled


def _remember(remembered: dict[str, str], name: str, described: str) -> None:
    """Remember how a short name is recorded; forget all where there are too many."""
    if len(name) <= _LONGEST_ID:
        if len(remembered) >= _MOST_IDS:
            remembered.clear()
        remembered[name] = described


def note_answer(turn: int, answer: Turn) -> NotedAnswer:
    """Return a model's answer as the log tells it."""
    return NotedAnswer(turn, tuple(answer.calls), answer.finish)


def _join(texts: _Texts) -> str:
    """Return a body as canonical JSON."""
    layout, in_order = _lay_out(tuple(texts))
    body: str = layout % in_order(texts)
    return body


@lru_cache(maxsize=256)
def _lay_out(names: tuple[str, ...]) -> tuple[str, Callable[[_Texts], Any]]:
    """Return canonical JSON with a place for the value of each name, and what takes the values in that order."""
    ordered = sorted(names)
    members = ",".join(f'"{name}":%s' for name in ordered)
    return f"{{{members}}}", itemgetter(*ordered)


def _name(event: Event) -> str:
    """Return what the record of an event is called."""
    if isinstance(event, ApprovalGiven) and event.approval is None:
        return "ApprovalPending"
    return type(event).__name__


def _plain_text(arguments: Mapping[str, Json]) -> str | None:
    """Return arguments as JSON where they are short and plain, nothing is escaped, and no name speaks of a secret."""
    if not _PLAIN.issuperset(map(type, arguments.values())):
        return None
    try:
        text = _encode(arguments).decode()
    except UnicodeEncodeError:
        return None  # a lone surrogate
    if len(text) > _MOST_QUICK_CHARS or "\\" in text or _names_secrets(*arguments):
        return None
    return text


@lru_cache(maxsize=256)
def _names_secrets(*names: str) -> bool:
    """Whether one of these argument names marks a secret. Cached: every call of a tool has the same names."""
    return any(map(is_secret_name, names))


def _in_ascii(text: str) -> str:
    """Return JSON in which nothing is escaped as canonical JSON, which escapes all that is not ASCII."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _quote(text)[1:-1].replace('\\"', '"')


@lru_cache(maxsize=64)
def _begin_digests(key: bytes) -> tuple[hashlib._Hash, hashlib._Hash]:
    """Return the two digests of an HMAC with SHA-256 that start with the key: of the text, and of this digest."""
    if len(key) > _BLOCK_BYTES:
        key = hashlib.sha256(key).digest()
    block = key.ljust(_BLOCK_BYTES, b"\0")
    inner = hashlib.sha256(bytes(each ^ 0x36 for each in block))
    return inner, hashlib.sha256(bytes(each ^ 0x5C for each in block))


def _describe_seconds(seconds: float) -> str:
    """Return seconds as JSON, to the microsecond: the text of `repr(round(seconds, 6))` in a quarter of its time."""
    if not 1e-4 <= seconds < 1e9:
        return repr(round(seconds, 6))
    text = f"{seconds:.6f}".rstrip("0")
    return f"{text}0" if text[-1] == "." else text


def _count_bytes(text: str) -> int:
    """Return the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def person_entry(
    event: str, run_id: str, redactor: Redactor, *, by: str, **details: Json
) -> AuditEntry:
    """Return the entry of a person's decision.

    Args:
        event: The name of the record, such as `ApprovalGiven`.
        by: Who decided.
        details: Further members of the record. Texts are redacted, and so are the values of `arguments`.
    """
    arguments: Any = details.pop("arguments", None)
    shown = {
        name: redactor.text(each) if isinstance(each, str) else each
        for name, each in details.items()
    }
    body: dict[str, Json] = {"by": by, **shown}
    if arguments is not None:
        body |= _arguments(arguments, redactor)
    return AuditEntry(run_id, event, body)


def _describe_call(event: Any, redactor: Redactor, **details: Json) -> dict[str, Json]:
    return {
        "call": _line(event.call.id, redactor),
        "tool": _tool(event.call, redactor),
        **details,
    }


def _key(
    arguments: Mapping[str, Json], key: str, shown: Json, redactor: Redactor
) -> str:
    """Return the key of a write, without the values that were redacted in the arguments: a key may contain them."""
    if not key:
        return key
    if len(key) > _LONGEST_KEY:
        return f"[{len(key):,} characters, sha256 {_sha256(key)}]"
    key_shown = redactor.key(key)
    if not key_shown or shown is arguments:
        return key_shown
    plain_arguments = plain(dict(arguments))
    if plain_arguments == shown:
        return key_shown
    hidden = _find_hidden_texts(plain_arguments, shown)
    return Redactor(each for each in hidden if len(each) <= len(key)).key(key_shown)


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


def _describe_late_end(event: FinishedLate, redactor: Redactor) -> dict[str, Json]:
    return _describe_call(event, redactor, error=_line(event.error, redactor))


def _describe_late_result(event: LateResult, redactor: Redactor) -> dict[str, Json]:
    key = _line(event.key, redactor)
    return _describe_call(
        event, redactor, key=key, fence=event.fence, state=event.state
    )


_BODIES: Mapping[type[Event], Callable[[Any, Redactor], dict[str, Json]]] = {
    RunStarted: lambda event, _: {
        "model": event.model,
        **({"by": event.by} if event.by else {}),
    },
    RunEnded: lambda event, redactor: {
        "status": event.status,
        "reason": _line(event.reason, redactor),
    },
    ApprovalAsked: _describe_question,
    ApprovalGiven: _describe_approval,
    AttemptStarted: lambda event, redactor: _describe_call(
        event, redactor, attempt=event.attempt
    ),
    AttemptFailed: lambda event, redactor: _describe_call(
        event, redactor, attempt=event.attempt, reason=_line(event.reason, redactor)
    ),
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
