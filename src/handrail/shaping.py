"""What of a result reaches the model: all of it when it fits, else a cut that keeps its structure, and where the rest is.

A list keeps its first and last rows, an object its keys, a text its head and tail; a line says what was left out and how
to read on. The whole text is kept under a handle.

Rule 1: sizes are bytes of UTF-8, because Chinese text costs up to three a character; cuts are at characters.
Rule 2: a result is never an error because of its size, or because it does not turn into JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from handrail.errors import Json

# 16 KiB is about 4,000 tokens of English: a long read, yet a small share of a 128k context. inspect_ai chose the same.
DEFAULT_RESULT_BYTES = 16 * 1024

# Below this a cut would hold little but the line that speaks of it.
LEAST_RESULT_BYTES = 512

_LONGEST_TEXT_IN_CUT = 2000


@dataclass(slots=True)
class Shaped:
    """What the model reads, what was left out (a sentence, empty when nothing was), and the whole text if it was cut."""

    text: str
    cut: str = ""
    whole: str = ""


def text_of(value: Any) -> str:
    """Return a value as the model reads it: a string as it is, anything else as JSON.

    Dates, enums, models, dataclasses, sets and bytes become JSON as pydantic writes them; what has no JSON form is
    written as its `repr`. Lone surrogates, which no wire can carry, are replaced.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    try:
        return to_json(value, inf_nan_mode="strings", fallback=repr).decode()
    except (PydanticSerializationError, ValueError, RecursionError):
        return repr(value).encode("utf-8", "replace").decode()


def shape(value: Any, most_bytes: int = DEFAULT_RESULT_BYTES) -> Shaped:
    """Return what of `value` the model reads within `most_bytes`."""
    text = text_of(value)
    if len(text) <= most_bytes and (text.isascii() or len(text.encode()) <= most_bytes):
        return Shaped(text)
    room = max(most_bytes, LEAST_RESULT_BYTES)
    if isinstance(value, str):
        return _cut_text(text, room)
    flat = plain(value)
    if isinstance(flat, list) and flat:
        return _cut_rows(flat, text, room)
    if isinstance(flat, dict) and flat:
        return _cut_object(flat, text, room)
    return _cut_text(text, room)


def plain(value: Any) -> Json:
    """Return a value as plain JSON, or None when it has no such form."""
    try:
        return to_jsonable_python(value, inf_nan_mode="strings", fallback=repr)
    except (PydanticSerializationError, ValueError, RecursionError):
        return None


def _cut_text(text: str, room: int) -> Shaped:
    """Keep the head and the tail, two thirds to one: what a log or a page is about stands first, how it ended last."""
    head, tail = _first(text, room * 2 // 3), _last(text, room // 3)
    left_out = len(text) - len(head) - len(tail)
    cut = f"{left_out} of {len(text)} characters in the middle are left out"
    return Shaped(f"{head}\n[... {left_out} characters left out ...]\n{tail}", cut, text)


def _cut_rows(rows: list[Json], text: str, room: int) -> Shaped:
    """Keep as many rows from both ends as fit, alternately, the first one twice as often as the last."""
    kept_head: list[str] = []
    kept_tail: list[str] = []
    left = room - 2
    while len(kept_head) + len(kept_tail) < len(rows):
        from_head = len(kept_head) <= 2 * len(kept_tail)
        row = rows[len(kept_head)] if from_head else rows[-1 - len(kept_tail)]
        line = text_of(row) if not isinstance(row, str) else to_json(row).decode()
        left -= len(line.encode()) + 1
        if left < 0:
            break
        (kept_head if from_head else kept_tail).append(line)
    if not kept_head:
        return _cut_text(text, room)  # one row alone is larger than the budget
    first, last = len(kept_head), len(rows) - len(kept_tail)
    cut = f"rows {first} to {last - 1} of {len(rows)} are left out (rows count from 0)"
    return Shaped("[" + ",".join([*kept_head, *reversed(kept_tail)]) + "]", cut, text)


def _cut_object(fields: dict[str, Json], text: str, room: int) -> Shaped:
    """Keep every key; share the room among the values, so that a short one is whole and a long one is cut."""
    share = max(40, room // len(fields) - 8)
    spare = room - sum(min(share, len(text_of(each).encode())) + len(name) + 8 for name, each in fields.items())
    long = [name for name, each in fields.items() if len(text_of(each).encode()) > share]
    share += max(0, spare) // max(1, len(long))
    shortened = {name: _shortened(each, share) if name in long else each for name, each in fields.items()}
    told = text_of(shortened)
    if len(told.encode()) > room + room // 8:
        return _cut_text(text, room)  # very many keys
    return Shaped(told, f"long values of {', '.join(long[:10])} are cut", text)


def _shortened(value: Json, room: int) -> Json:
    if isinstance(value, str):
        return f"{_first(value, room * 2 // 3)} [...] {_last(value, room // 4)}"
    if isinstance(value, list) and room > 200:
        kept: list[Json] = []
        for row in value:
            room -= len(text_of(row).encode()) + 1
            if room < 60:
                break
            kept.append(row)
        return [*kept, f"[... {len(value) - len(kept)} more of {len(value)} ...]"]
    return f"{_first(text_of(value), room)} [...]"


def _first(text: str, most_bytes: int) -> str:
    return text[:most_bytes].encode()[:most_bytes].decode(errors="ignore")


def _last(text: str, most_bytes: int) -> str:
    return text[-most_bytes:].encode()[-most_bytes:].decode(errors="ignore") if most_bytes > 0 else ""


def with_note(text: str, note: str, value: Any) -> str:
    """Return a result's text with a note for the model: one more field of an object, else one more line."""
    if not note:
        return text
    if isinstance(value, dict) and text.startswith("{") and text.endswith("}") and "note" not in value:
        return f'{text[:-1]}{"," if len(text) > 2 else ""}"note":{to_json(note).decode()}}}'
    return f"{text}\n[note: {note}]"


def page(text: str, offset: int, limit: int, pattern: str = "") -> dict[str, Json]:
    """Return a piece of a kept text as `read_result` answers: characters from `offset`, or the lines with `pattern`.

    `next` is the offset to go on with, None at the end.
    """
    if pattern:
        hits = [f"{number}: {line}" for number, line in enumerate(text.split("\n")) if pattern in line]
        shown = "\n".join(hits[offset : offset + max(1, limit // 80)])
        after = offset + max(1, limit // 80)
        return {"matching_lines": len(hits), "text": shown, "next": after if after < len(hits) else None}
    piece = text[offset : offset + limit]
    after = offset + len(piece)
    return {"text": piece, "offset": offset, "total_characters": len(text), "next": after if after < len(text) else None}
