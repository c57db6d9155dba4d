"""What a model asked for, and what it gets back.

Rule 1: a `ToolCall` holds the model's text verbatim; nobody parses it but `jsontext`.
Rule 2: every `ToolCall` gets exactly one `ToolResult`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from handrail.errors import ConfigError, Failure, Json
from handrail.records import ApprovalRequest

Integrity: TypeAlias = Literal["trusted", "untrusted"]
Confidentiality: TypeAlias = Literal["public", "private"]


class Label(Struct, frozen=True):
    """Where words come from: of one result, or of all that a run has read.

    Attributes:
        source: The tool that brought them in; empty for the label of trusted, public results.
        integrity: `untrusted` words may have been written by anybody, so a call that follows them may be too.
        confidentiality: `private` values leave only to a destination that their source names, or when a person agrees.
        call: The id of the call that brought them in, where it is not the result's own: that of a run which a tool
            started.
        is_directory: Its words may be destinations of later calls, as the user's own may.
    """

    source: str = ""
    integrity: Integrity = "trusted"
    confidentiality: Confidentiality = "public"
    call: str = ""
    is_directory: bool = False


TRUSTED = Label()
"""The label of results that change nothing about what a run may do."""


class ToolCall(Struct, frozen=True):
    """One call as the model wrote it: `arguments` is its text, verbatim, whether or not it is JSON.

    `id` is the provider's id, or one that the dialect made where the provider sent none. `program` is the id of the
    provider's program that makes the call; it is empty for a call of the model's own.
    """

    id: str
    name: str
    arguments: str = "{}"
    program: str = ""

    def __repr__(self) -> str:
        return f"<ToolCall {self.id} {self.name}: arguments of {len(self.arguments)} chars>"


class Media(Struct, frozen=True):
    """An image, a sound or a file: what a tool returns, or a person shows, for the model to look at.

    Attributes:
        media_type: Such as `image/png` or `application/pdf`.
        data: Its bytes; empty when there is a `url`.
        url: Where the provider can fetch it.
        name: A file's name, where it has one.
    """

    media_type: str
    data: bytes = b""
    url: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if not (
            isinstance(self.media_type, str)
            and isinstance(self.data, bytes)
            and isinstance(self.url, str)
        ):
            kinds = ", ".join(
                type(each).__name__ for each in (self.media_type, self.data, self.url)
            )
            raise TypeError(
                f"Media has a type such as 'image/png', bytes and an address, not {kinds}"
            )

    def __repr__(self) -> str:
        return f"Media({self.media_type!r}, <{len(self.data)} bytes>, url={self.url!r}, name={self.name!r})"

    @property
    def base64(self) -> str:
        """The bytes in base64."""
        return b64encode(self.data).decode()

    @property
    def link(self) -> str:
        """The address, or a `data:` URL with the bytes."""
        return self.url or f"data:{self.media_type};base64,{self.base64}"


class Page(Struct, frozen=True):
    """Some of many rows: what a tool returns that does not return them all.

    The model reads `{"rows": [...], "has_more": true, "next": 40}` and calls again with `next`, in the parameter that
    the tool's description names. A generator that is a tool makes its pages by itself, see `paging`.

    Attributes:
        rows: The rows of this page.
        next: What to go on with, any JSON value; None when these were the last.
        offset: The place of the first row among all, from 0, where `next` is such a place too. A page that is larger
            than the size of results is then made smaller, and `next` is the first row that the model did not see.
        columns: Names of the values, where each row is a list.
    """

    rows: Sequence[Any]
    next: Any = None
    offset: int | None = None
    columns: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """Return what the model reads."""
        document: dict[str, Any] = {}
        if self.columns:
            document["columns"] = list(self.columns)
        document["rows"] = list(self.rows)
        document["has_more"] = self.next is not None
        document["next"] = self.next
        return document


class ToolResult(Struct):
    """The result of one call: a `value`, or a `failure` that the model can act on. Nobody changes it.

    Attributes:
        value: What the tool returned, whole, as a Python value; None when there is a failure.
        text: What the model reads: the value cut to its size budget, or the error contract.
        attempts: How often the tool was started; 0 when it never was.
        replayed: The value comes from an earlier call, not from a new run of the tool.
        note: One sentence that the model gets beside the value (cut, repeated, repaired).
        repairs: Names of the repairs of the model's arguments, in order; see `jsontext.REPAIRS`.
        handle: Where the rest of a cut value can be read with `read_result`.
        media: What the model is shown beside the text.
        done_under: The ledger's key of the write if it is not the call's own: an earlier call made the same write, or a
            person had it made again.
        ends_run: Why the loop around the calls must end now, as a sentence for people: the model turns in a circle, or
            the run has made all its calls. Empty otherwise. `run` ends by itself.
        question: What a person is asked about the call, where it waits for approval and the question is stored.
        label: Where its words come from, as its tool declares it.
    """

    call_id: str
    name: str = ""
    value: Any = None
    failure: Failure | None = None
    text: str = ""
    attempts: int = 0
    replayed: bool = False
    note: str = ""
    repairs: Sequence[str] = ()
    handle: str = ""
    media: Sequence[Media] = ()
    done_under: str = ""
    ends_run: str = ""
    question: ApprovalRequest | None = None
    label: Label = TRUSTED

    @property
    def ok(self) -> bool:
        """Whether the tool returned a value."""
        return self.failure is None

    def __repr__(self) -> str:
        parts = [f"ok, {len(self.text)} chars", f"{self.attempts} attempts"]
        if self.failure:
            parts[0] = f"failed {self.failure.code}"
        if self.note:
            parts.append("noted")
        if self.replayed:
            parts.append("replayed")
        return f"<ToolResult {self.call_id} {self.name}: {', '.join(parts)}>"


# `json.dumps` makes an encoder at each call that asks for other settings than its own.
_encode = json.JSONEncoder(ensure_ascii=False).encode


def arguments_text(arguments: Mapping[str, Json] | str | None) -> str:
    """Return arguments as the text that a model would have written."""
    if isinstance(arguments, str):
        return arguments
    try:
        return _encode(arguments or {})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the arguments are not JSON: {error}") from error
    except RecursionError:
        raise ConfigError("the arguments are nested too deep for JSON") from None
