"""A store whose journal holds no known secret, but a seal for each; whoever has the secret reads it back.

A user may tell a model a password, and the model writes it into a call. The journal must have that call whole, or a
resumed run would make another one. So a known secret is replaced on its way into the store by a seal with its digest,
and the seal by the secret on its way out, exactly. Without the secret the seal stays; see `check_open`.

Rule 1: reading back what was written gives what was written, whatever the texts hold: a seal that a text contains of
        itself is marked.
Rule 2: a call whose arguments hold a seal that nobody could open is not made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec.structs import replace

from handrail.calls import ToolCall
from handrail.core.redaction import HIDDEN, KnownSecrets
from handrail.errors import JournalMismatch, Json
from handrail.futures import StoreAnswer, then
from handrail.records import (
    JournalEntry,
    JournalStep,
    RunRecord,
    StoredRun,
    Submission,
    SubmittedRun,
)

_BEGIN = "\u27e6secret:"
_END = "\u27e7"
_DIGITS = 32
_compiled = cache(re.compile)  # when first needed
_SEAL = rf"{_BEGIN}(?:([0-9a-f]{{{_DIGITS}}}){_END}|:)"
"""A seal, or the mark of a text that began like one."""


class Seals:
    """Replaces known secrets in JSON by seals, and back."""

    def __init__(self, secrets: KnownSecrets) -> None:
        self._secrets = secrets
        self._forms = {_digest(form): form for form in secrets.forms}

    def close(self, value: Json) -> Json:
        """Return JSON with a seal in place of each secret."""
        return _map_texts(value, self._close_text)

    def open(self, value: Json) -> Json:
        """Return JSON with the secret in place of each seal that can be opened."""
        return _map_texts(value, self._open_text)

    def _close_text(self, text: str) -> str:
        text = text.replace(_BEGIN, f"{_BEGIN}:")
        return self._secrets.replace(text, _seal)

    def _open_text(self, text: str) -> str:
        if _BEGIN not in text:
            return text
        return _compiled(_SEAL).sub(self._open_seal, text)

    def _open_seal(self, seal: re.Match[str]) -> str:
        if seal[1] is None:
            return _BEGIN
        return self._forms.get(seal[1], seal[0])


def hide_seals(text: str) -> str:
    """Return the text with `***` in place of each seal."""
    if _BEGIN not in text:
        return text
    return _compiled(_SEAL).sub(HIDDEN, text)


def check_open(run_id: str, calls: Sequence[ToolCall]) -> None:
    """Check that the arguments of these calls hold no seal.

    Raises:
        JournalMismatch: Those of one do.
    """
    for call in calls:
        # written as JSON, which may escape what is not ASCII
        arguments = call.arguments.replace("\\u27e6", _BEGIN[0]).replace(
            "\\u27e7", _END
        )
        if _BEGIN in arguments and re.search(_SEAL, arguments):
            raise JournalMismatch(
                f"the run {run_id!r} is to call {call.name} with a secret that this runtime does not know; give the "
                "secret again: Runtime(secrets=[...])"
            )


class SealedStore:
    """A store of runs whose records and steps hold no known secrets.

    It has the attributes of the store, as far as these are public.

    Attributes:
        wrapped: The store itself.
    """

    def __init__(self, store: Any, secrets: KnownSecrets) -> None:
        self._store = store
        self.wrapped = store
        self._secrets = secrets
        self._seals = Seals(secrets)
        # As attributes: protocol checks look at the attributes of a store.
        for name in dir(store):
            if not name.startswith("_"):
                setattr(self, name, getattr(store, name))
        # Secrets are sealed value by value, which needs the body and not its JSON.
        self.takes_texts = False
        for name in (
            "begin_run",
            "append_entry",
            "load_run",
            "list_runs",
            "submit_run",
            "take_segment",
            "finish_segment",
            "note_segment",
        ):
            if hasattr(store, name):
                setattr(self, name, getattr(self, f"_{name}"))

    def __repr__(self) -> str:
        return repr(self._store)

    def _begin_run(
        self, record: RunRecord, *, steps: Sequence[JournalStep] = (), **how: Any
    ) -> StoreAnswer[StoredRun]:
        stored = self._store.begin_run(
            self._change_record(record, self._seals.close),
            steps=self._change_steps(steps, self._seals.close),
            **how,
        )
        return then(stored, self._open_stored)

    def _append_entry(self, entry: JournalEntry) -> StoreAnswer[bool]:
        closed = replace(
            entry,
            steps=self._change_steps(entry.steps, self._seals.close),
            result=self._seals.close(entry.result),
        )
        return self._store.append_entry(closed)  # type: ignore[no-any-return]  # any store

    def _load_run(self, run_id: str) -> StoreAnswer[StoredRun | None]:
        return then(
            self._store.load_run(run_id),
            lambda stored: stored and self._open_stored(stored),
        )

    def _list_runs(self, **wanted: Any) -> StoreAnswer[Sequence[RunRecord]]:
        return then(
            self._store.list_runs(**wanted),
            lambda records: [
                self._change_record(each, self._seals.open) for each in records
            ],
        )

    def _submit_run(
        self, record: RunRecord, submission: Submission
    ) -> StoreAnswer[RunRecord]:
        sealed = self._change_record(record, self._seals.close)
        return then(
            self._store.submit_run(sealed, submission),
            lambda submitted: self._change_record(submitted, self._seals.open),
        )

    def _take_segment(
        self, run_id: str, number: int, **how: Any
    ) -> StoreAnswer[SubmittedRun | None]:
        return then(
            self._store.take_segment(run_id, number, **how),
            lambda taken: (
                taken and replace(taken, stored=self._open_stored(taken.stored))
            ),
        )

    def _finish_segment(
        self, run_id: str, number: int, *, why: str = "", **how: Any
    ) -> StoreAnswer[RunRecord | None]:
        finished = self._store.finish_segment(
            run_id, number, why=self._secrets.text(why), **how
        )
        return then(
            finished,
            lambda record: record and self._change_record(record, self._seals.open),
        )

    def _note_segment(self, run_id: str, note: str) -> StoreAnswer[None]:
        # for people, who are not to read it either
        hidden = self._secrets.text(note)
        return self._store.note_segment(run_id, hidden)  # type: ignore[no-any-return]  # any store

    def _open_stored(self, stored: StoredRun) -> StoredRun:
        return replace(
            stored,
            record=self._change_record(stored.record, self._seals.open),
            steps=self._change_steps(stored.steps, self._seals.open),
        )

    def _change_record(
        self, record: RunRecord, change: Callable[[Json], Json]
    ) -> RunRecord:
        return replace(record, input=change(record.input), result=change(record.result))

    def _change_steps(
        self, steps: Sequence[JournalStep], change: Callable[[Json], Json]
    ) -> list[JournalStep]:
        return [replace(each, body=change(each.body)) for each in steps]


def _seal(secret: str) -> str:
    return f"{_BEGIN}{_digest(secret)}{_END}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


def _map_texts(value: Json, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(name): _map_texts(part, change) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_texts(part, change) for part in value]
    return value
