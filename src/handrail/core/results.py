"""What of a result reaches the model: all of it when it fits, else a cut that keeps its structure and says so.

Of a list or an object long texts are shortened first, and it stays JSON (`cuts`). A text keeps its head and tail. A
note says what was left out, in the characters by which `read_result` counts. The whole text is stored under a handle.

Rule 1: sizes are bytes of UTF-8, because Chinese text costs up to three a character; cuts are at characters.
Rule 2: a result is never an error because of its size, or because it does not turn into JSON.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from numbers import Number
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace
from pydantic_core import SchemaSerializer, from_json, to_json
from pydantic_core.core_schema import any_schema

from handrail.calls import Media, Page
from handrail.errors import Failure, Json
from handrail.invisible import clean, clean_json, is_clean, remove_hidden
from handrail.tools import cuts, materialize
from handrail.tools.cuts import size

# 16 KiB is about 4,000 tokens of English: a long read, yet a small share of a 128k context. inspect_ai chose the same.
DEFAULT_RESULT_BYTES = 16 * 1024

# Below this a cut would hold little but the line that speaks of it.
LEAST_RESULT_BYTES = 512

# The line that says what was left out, and how to read on.
_ROOM_FOR_THE_NOTE = 320

MOST_FAILURE_CHARACTERS = 4096
"""A failure says what was wrong in a few lines. A longer one carries data."""

_LEAST_DETAILS = 512

# What the line in a cut text takes.
_ROOM_FOR_LINE = 64
_GAP = " [...] "
_LONGEST_LINE = 200
_MOST_COUNTED = 10_000


class Shaped(Struct):
    """What the model reads; if it was cut, a sentence that says what was left out, and the whole text.

    `hidden` is how many characters were removed from it that nobody sees.
    """

    text: str
    cut: str = ""
    whole: str = ""
    hidden: int = 0


def as_text(value: Any) -> str:
    """Return a value as the model reads it: a string as it is, anything else as JSON.

    Dates, enums, models, dataclasses and sets become JSON as pydantic writes them. Bytes are the text that they are,
    else base64. What has no JSON form is named by its class: its `repr` may hold a secret. Lone surrogates, which no
    wire can carry, are replaced. `Media` is named, since it is shown beside the text: `[image/png, 12 KB]`.
    """
    if isinstance(value, str):
        if value.isascii():
            return value
        return _replace_surrogates(value)
    if media_in(value):
        return _with_media_named(value)
    return _write_json(value)


def _write_json(value: Any) -> str:
    return _encode(value).decode()


def _encode(value: Any) -> bytes:
    """Return a value that is no text and holds no media as JSON."""
    if type(value) is Page:
        value = value.as_json()
    if not repeats_a_name(value):
        try:
            return _encode_strictly(value)
        except _NO_JSON:
            pass
    try:
        parts = _make_plain(_ANYTHING.to_python(value, by_alias=True))
        return to_json(parts, inf_nan_mode="strings", fallback=_otherwise)
    except _NO_JSON:  # it contains itself, is too deep, or its own code raised
        return to_json(_name_class(value))


_ANYTHING = SchemaSerializer(any_schema())


def _encode_strictly(value: Any) -> bytes:
    """Return a value as JSON; raises whatever its parts raise where it has no such form."""
    body: bytes = to_json(value, inf_nan_mode="strings", fallback=_otherwise)
    return body


def _make_plain(value: Any) -> Any:
    """Return a value with what keeps it from being JSON replaced: bytes, half characters, equal names."""
    if isinstance(value, str):
        return value if value.isascii() else _replace_surrogates(value)
    if isinstance(value, bytes | bytearray):
        return _write_bytes(value)
    if isinstance(value, Struct):
        return _make_plain(_otherwise(value))
    if isinstance(value, dict):
        return dict(
            zip(_make_names(value), map(_make_plain, value.values()), strict=True)
        )
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [_make_plain(each) for each in value]
    return value


def _write_bytes(value: bytes | bytearray) -> str:
    """Return bytes as the text that they are; where they are none, in base64 (RFC 4648, 4)."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64encode(value).decode()


def repeats_a_name(value: Any) -> bool:
    """Whether an object in a value would have a name twice as JSON, such as `{1: "a", "1": "b"}`."""
    return any(
        len(set(_write_names(each))) < len(each)
        for each in materialize.find_odd_objects(value)
    )


def _write_names(value: dict[Any, Any]) -> list[str]:
    """Return the names of an object as JSON has them; what cannot be a name there is named by its class."""
    return [name if isinstance(name, str) else _write_name(name) for name in value]


def _write_name(key: Any) -> str:
    try:
        return str(next(iter(from_json(to_json({key: 0}, fallback=_otherwise)))))
    except _NO_JSON:
        return _name_class(key)


def _make_names(value: dict[Any, Any]) -> list[str]:
    """Return the names of an object, each once: what is no text says its class where there is such a text."""
    names = list(map(_replace_surrogates, _write_names(value)))
    counts = Counter(names)
    made: dict[str, None] = {}
    numbers: Counter[str] = Counter()
    for name, key in zip(names, value, strict=True):
        if counts[name] > 1 and not isinstance(key, str):
            name = f"{name} ({type(key).__name__})"
        unique = name
        while unique in made:
            numbers[name] += 1
            unique = f"{name} #{numbers[name] + 1}"
        made[unique] = None
    return list(made)


def plain(value: Any) -> Json:
    """Return a value as plain JSON, or None when it has no such form. Of `Media` there is the name."""
    if isinstance(value, str) or media_in(value):
        text = as_text(value)
        return _parse(text) if isinstance(value, dict) else text
    return _parse(_encode(value))


def is_written_as(value: Any, text: str) -> bool:
    """Whether `text` is the JSON of `value`, which must be an object or a list without media."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return False
    try:
        body = _encode_strictly(value)
    except _NO_JSON:
        return False  # the text may be its `repr`
    return body == text.encode("utf-8", "replace") and not media_in(value)


def copy_plain(value: Any) -> tuple[Json, bytes | None]:
    """Return a copy of a plain value (`materialize.is_plain`), equal to `plain(value)`, and its JSON.

    The JSON is None for a text, and for a value that `encode` refuses, such as one with a lone surrogate.
    """
    if type(value) is str:
        return as_text(value), None
    try:
        body = encode(value)
    except _NO_JSON:
        return _parse(_encode(value)), None
    return _parse(body), body


def media_in(value: Any) -> Sequence[Media]:
    """Return the media in a value: itself, or those in its list or under its keys."""
    kind = type(value)
    if kind is Media:
        return (value,)
    if kind is not list and kind is not dict and kind is not tuple:
        return ()
    parts = value.values() if kind is dict else value
    # This test is quick, and nearly every value ends there.
    if Media in map(type, parts):
        return tuple(part for part in parts if type(part) is Media)
    return ()


def label(media: Media) -> str:
    """Return how a text names what is shown beside it.

    >>> label(Media("image/png", bytes(12_300), name="chart.png")), label(Media("image/png", url="https://a.example/b"))
    ('[image/png chart.png, 12 KB]', '[image/png, https://a.example/b]')
    """
    size = len(media.data)
    name = " ".join(filter(None, (media.media_type, media.name)))
    if size:
        return f"[{name}, {_size_in_words(size)}]"
    return f"[{name}, {media.url or 'empty'}]"


def _size_in_words(size: int) -> str:
    if size < 1024:
        return f"{size} bytes"
    if size < 1024**2:
        return f"{size / 1024:.0f} KB"
    return f"{size / 1024**2:.1f} MB"


def _with_media_named(value: Any) -> str:
    if isinstance(value, Media):
        return label(value)
    if isinstance(value, dict):
        return as_text(
            {
                name: label(each) if isinstance(each, Media) else each
                for name, each in value.items()
            }
        )
    return "\n".join(map(as_text, value))


def failure_text(failure: Failure, note: str = "") -> str:
    """Return a failure as the model reads it, cut where its author, or what the model itself wrote, is too long.

    Args:
        note: A sentence for the model, as one more field.
    """
    document = failure.as_json()
    if note:
        document["note"] = note
    text, hidden = remove_hidden(as_text(document))
    if hidden:
        note = join_notes(note, describe_hidden(hidden))
        document = {**clean_json(document), "note": note}
        text = as_text(document)
    if len(text) <= MOST_FAILURE_CHARACTERS:
        return text
    short = Failure(
        failure.code[:100],
        _both_ends(clean(failure.message), MOST_FAILURE_CHARACTERS // 2),
        _both_ends(clean(failure.suggestion), MOST_FAILURE_CHARACTERS // 4),
        failure.retryable,
    )
    shortened = short.as_json()
    if note:
        shortened["note"] = note
    if details := document.get("details"):
        room = max(MOST_FAILURE_CHARACTERS - len(as_text(shortened)), _LEAST_DETAILS)
        shortened["details"] = _fit_details(details, room)
    return as_text(shortened)


def _fit_details(details: Json, room: int) -> Json:
    """Return what of a failure's details fits."""
    text = as_text(details)
    if size(text) <= room:
        return details
    return _parse(cuts.fit(_parse(text), room))


def describe_hidden(count: int) -> str:
    """Return the note on characters that were removed."""
    if count == 1:
        return "1 hidden character was removed"
    return f"{count} hidden characters were removed"


def join_notes(first: str, second: str) -> str:
    """Return two notes as one; either may be empty."""
    return "; ".join(filter(None, (first, second)))


def clean_failure(failure: Failure) -> Failure:
    """Return a failure without hidden characters: what a tool raised may quote a stranger."""
    if is_clean(as_text(failure.as_json())):
        return failure
    return replace(
        failure,
        message=clean(failure.message),
        suggestion=clean(failure.suggestion),
        details=clean_json(failure.details),
    )


def _both_ends(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]} [...] {text[-most // 4 :]}"


def encode_if_it_fits(value: Any, most_bytes: int) -> str | bytes | None:
    """Return a value's text if that is all there is to show, as for nearly every value; else its JSON, or None."""
    if isinstance(value, str):
        text = as_text(value)
        if len(text) <= most_bytes and (text.isascii() or size(text) <= most_bytes):
            return text
        return None
    try:
        # `encode`, inlined: every call comes here
        body = to_json(value, inf_nan_mode="strings", fallback=_unusual)
    except _NO_JSON:  # `Media` for one: pydantic knows no structs
        return None
    if len(body) <= most_bytes:
        return body.decode()
    return body


def encode(value: Any) -> bytes:
    """Return a value's JSON; raises where there is more to show than text, or what the value's own code raises."""
    return to_json(value, inf_nan_mode="strings", fallback=_unusual)


def _unusual(value: Any) -> Any:
    if type(value) is Media or type(value) is Page:
        raise TypeError(type(value).__name__)
    # here, and not at a second look: an iterator beside it would be at its end by then
    return _otherwise(value)


def shape(value: Any, most_bytes: int = DEFAULT_RESULT_BYTES) -> Shaped:
    """Return what of `value` the model reads within `most_bytes`, but at least `LEAST_RESULT_BYTES`.

    Hidden characters are removed before it is cut, so that they take no room from what can be seen.
    """
    raw = as_text(value)
    text, hidden = remove_hidden(raw)
    if not hidden:
        return _shape(value, text, most_bytes)
    shown: Any = text
    if not isinstance(value, str):
        if _text_repeats_a_name(text):
            text = as_text(clean_json(_parse(raw)))
        shown = _parse(text)
    shaped = _shape(shown, text, most_bytes)
    shaped.hidden = hidden
    return shaped


def _shape(value: Any, text: str, most_bytes: int) -> Shaped:
    room = max(most_bytes, LEAST_RESULT_BYTES)
    if len(text) <= room and (text.isascii() or size(text) <= room):
        return Shaped(text)
    room = max(room - _ROOM_FOR_THE_NOTE, LEAST_RESULT_BYTES)
    if isinstance(value, str):
        return _shorten_text(text, room)
    if (
        isinstance(value, Page)
        and value.offset is not None
        and (page := _shorten_page(value, value.offset, room))
    ):
        return page
    try:
        return Shaped(_fit(value, text, room), cuts.MARKS.format(len(text)), text)
    except cuts.NotPlain:  # texts and media, one a line
        return _shorten_text(text, room)


def _fit(value: Any, text: str, room: int) -> str:
    """Return what of a value's JSON fits, as JSON.

    Raises:
        NotPlain: The text is no JSON.
    """
    try:
        # Most values are plain. Parsing takes twice as long as writing, in one step in which nothing else runs.
        return cuts.fit(value, room, text)
    except cuts.NotPlain:
        return cuts.fit(_parse(text), room, text)


# A value's own code (a computed field, a serializer, a `__repr__`) may raise anything, `SystemExit` too: it has been
# returned, so the call has succeeded. An interrupt from the keyboard is no doing of the value's, and passes.
_NO_JSON = (Exception, SystemExit, GeneratorExit)


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _otherwise(value: Any) -> Any:
    """Return what stands for a value that pydantic cannot write: for a struct its fields, else its class.

    Its `repr` may hold what no model may read.
    """
    if isinstance(value, Struct):
        return to_builtins(value, builtin_types=_BYTES, enc_hook=_within_a_struct)
    with suppress(TypeError):  # a class without a hash is no number's
        if isinstance(value, Number):  # of numpy or a fraction
            return str(value)
    return _name_class(value)


_BYTES = (bytes, bytearray)


def _within_a_struct(value: Any) -> Any:
    """Return what stands for a value in a struct that msgspec cannot write, such as a model of pydantic."""
    fields = _ANYTHING.to_python(value, by_alias=True)
    if type(fields) is type(value):
        return _otherwise(value)
    return fields


def _name_class(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _parse(text: str | bytes) -> Json:
    try:
        return from_json(text)
    except ValueError:
        return None


def _text_repeats_a_name(text: str) -> bool:
    """Whether an object in a JSON text has a name twice: names that differed in hidden characters alone."""
    repeated = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated = repeated or len(pairs) > len(dict(pairs))

    try:
        json.loads(text, object_pairs_hook=look)
    except (ValueError, RecursionError):
        return False
    return repeated


def _shorten_text(text: str, room: int) -> Shaped:
    """Keep the head and the tail, two thirds to one: a log says first what it is about, and last how it ended."""
    room -= _ROOM_FOR_LINE
    head = _first(text, room * 2 // 3)
    tail = _last(text, room // 3)
    left_out = len(text) - len(head) - len(tail)
    cut = f"{left_out} of {len(text)} characters are left out, from offset {len(head)}"
    return Shaped(
        f"{head}\n[... {left_out} characters left out ...]\n{tail}", cut, text
    )


def _shorten_page(whole: Page, offset: int, room: int) -> Shaped | None:
    """Keep the first rows that fit; None if no row fits. The others can be asked for, so nothing is stored."""
    left = room - size(_write_json(replace(whole, rows=())))
    count = 0
    for row in whole.rows:
        left -= size(_write_json(row)) + 1
        if left < 0:
            break
        count += 1
    if not count:
        return None
    return Shaped(
        _write_json(replace(whole, rows=whole.rows[:count], next=offset + count))
    )


def _first(text: str, most_bytes: int) -> str:
    return text[:most_bytes].encode()[:most_bytes].decode(errors="ignore")


def _last(text: str, most_bytes: int) -> str:
    if most_bytes > 0:
        return text[-most_bytes:].encode()[-most_bytes:].decode(errors="ignore")
    return ""


def with_note(text: str, note: str, value: Any) -> str:
    """Return a result's text with a note for the model: one more field of an object, else one more line."""
    if not note:
        return text
    if isinstance(value, dict | Page):
        fields = _parse(text)
        if isinstance(fields, dict) and "note" not in fields:
            comma = "," if len(text) > 2 else ""
            return f'{text[:-1]}{comma}"note":{cuts.write_json(note)}}}'
    return f"{text}\n[note: {note}]"


def page(text: str, offset: int, limit: int, pattern: str = "") -> dict[str, Json]:
    """Return a piece of a stored text as `read_result` answers: characters from `offset`, or lines with `pattern`.

    `next` is the offset to go on with, None at the end.
    """
    if pattern:
        return _matches(text, offset, max(1, limit // 80), pattern)
    piece = text[offset : offset + limit]
    after = offset + len(piece)
    return {
        "text": piece,
        "offset": offset,
        "total_characters": len(text),
        "next": after if after < len(text) else None,
    }


def _matches(text: str, offset: int, most: int, pattern: str) -> dict[str, Json]:
    """Return `most` matches from the one at `offset`; up to `_MOST_COUNTED` further ones are counted."""
    shown: list[str] = []
    count = 0
    for hit in _hits(text, pattern):
        if offset <= count < offset + most:
            shown.append(hit)
        count += 1
        if count > offset + most + _MOST_COUNTED:
            break
    whole = count <= offset + most + _MOST_COUNTED
    after = offset + most if offset + most < count else None
    return {
        "matches": count if whole else f"more than {count - 1:,}",
        "text": "\n".join(shown),
        "next": after,
    }


def _hits(text: str, pattern: str) -> Iterator[str]:
    """Yield the lines that contain the pattern, each with its number."""
    if "\n" in pattern:
        return  # no line has it
    number = 0
    end = 0
    match = text.find(pattern)
    while match >= 0:
        number += text.count("\n", end, match)
        start = text.rfind("\n", end, match) + 1
        end = text.find("\n", match)
        if end < 0:
            end = len(text)
        yield from (f"{number}: {each}" for each in _near(pattern, text[start:end]))
        match = text.find(pattern, end)


def _near(pattern: str, line: str) -> Iterator[str]:
    """Yield a line with the pattern; of a very long one, such as a stored JSON text, the surroundings of each match."""
    is_long = len(line) > _LONGEST_LINE
    match = line.find(pattern)
    while match >= 0:
        start = max(0, match - _LONGEST_LINE // 2) if is_long else 0
        end = start + _LONGEST_LINE
        before = _GAP.lstrip() if start else ""
        after = _GAP.rstrip() if end < len(line) else ""
        yield f"{before}{line[start:end]}{after}"
        # What has been shown whole is not shown again.
        match = line.find(pattern, max(end - len(pattern) + 1, match + len(pattern)))
