"""Values that a model left open: `<user_id>` in place of an id, `{{find_user.id}}` in place of another call's result.

A model that writes several calls at once does not know yet what the first one returns. Some say so by a reference (see
`planning`), and some by a placeholder of their own making, which a tool would take for the value. So such a call is
refused, with the form of a reference that would have worked.

Rule 1: only a text that is a placeholder as a whole, and that names its own parameter or an earlier call, is one:
        `<b>`, `{{greeting}}` and `Dear <name>` are what somebody wants to write.
Rule 2: a tool whose name is one plain word, such as `search`, is named only where a result is spoken of:
        `<search>` and `{{search_query}}` are markup and a template, `{{search.id}}` is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from handrail.calls import ToolCall
from handrail.errors import Code, Failure, Json
from handrail.schemas.argument_errors import JsonPath, format_value, name_path

_OPEN = re.compile(r"<([^<>]+)>|\$?\{\{([^{}]+)\}\}|\$\{([^{}]+)\}")
"""How nearly all models write a placeholder; with these a parameter's own name is enough."""
_LOOSE = re.compile(r"\{([^{}\"]+)\}|\[([^\[\]\"]+)\]")
"""These are written around much else too, so the words in them have to speak of a call's result."""
_OF_A_RESULT = re.compile(r"\.|result|output|response|\bfrom\b", re.IGNORECASE)
_MARKUP = re.compile(r"[=@!*|^\"?]|://")
"""In attributes, addresses, comments and patterns, and in no words for a result."""
_PLAIN_WORD = re.compile(r"[A-Za-z]?[a-z]*")
_DEEPEST = 64
_LONGEST = 200
_MOST_EARLIER = 200


def none_in(text: str) -> bool:
    """Whether arguments, as strict JSON, hold neither a placeholder nor a reference, for sure: asked of every call."""
    # Writers that think of HTML spell `<` as an escape.
    return not (
        "$" in text or '"<' in text or '"{' in text or '"[' in text or '"\\u00' in text
    )


def refusal(
    arguments: Mapping[str, Json], earlier: Iterable[ToolCall]
) -> Failure | None:
    """Return why a call does not run whose arguments hold a placeholder; None where they hold none.

    Args:
        earlier: The calls before it in its turn; the first `_MOST_EARLIER` are looked at.
    """
    calls: list[ToolCall] = []
    for path, text in _texts(arguments, (), 0):
        words = _words_in(text)
        if words is None:
            continue
        calls = calls or list(islice(earlier, _MOST_EARLIER))
        advice = _advise(words, path, calls, is_open=bool(_OPEN.fullmatch(text)))
        if advice:
            message = f"{name_path(path)} is a placeholder, {format_value(text)}, and no value."
            return Failure(Code.INVALID_ARGUMENTS, message, advice)
    return None


def _words_in(text: str) -> str | None:
    """Return the words in the brackets of a text that may be a placeholder; None if it is certainly none."""
    match = _OPEN.fullmatch(text) or _LOOSE.fullmatch(text)
    if match is None:
        return None
    words: str = next(filter(None, match.groups()))
    if _MARKUP.search(words) is not None:
        return None
    if match.re is _OPEN or _OF_A_RESULT.search(words):
        return words
    return None


def _advise(
    words: str, path: JsonPath, calls: Sequence[ToolCall], *, is_open: bool
) -> str:
    """Return what to do instead of a placeholder with these words; empty if they name nothing."""
    for number, call in enumerate(calls, 1):
        if _names(words, call):
            return _REFERENCE.format(name=call.name, number=number)
    if is_open and _is_own_name(words, path):
        return _FIND_OUT
    return ""


_FIND_OUT = "Find the value out first, with a tool or from the user, then call again with the value itself."
_REFERENCE = (
    "Call `{name}` first and use what it returns. When both are called at once, a field of its result is named like "
    'this: "$var{number}.FIELD$", for it is call {number} of the answer.'
)


def _texts(value: Json, path: JsonPath, depth: int) -> Iterator[tuple[JsonPath, str]]:
    """Yield every text that may be a placeholder, with its path."""
    if isinstance(value, str):
        if value[:1] in ("<", "{", "[", "$") and len(value) <= _LONGEST:
            yield path, value
    elif depth < _DEEPEST and isinstance(value, dict):
        for name, each in value.items():
            yield from _texts(each, (*path, name), depth + 1)
    elif depth < _DEEPEST and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _texts(each, (*path, index), depth + 1)


def _names(words: str, call: ToolCall) -> bool:
    """Whether words such as `result of find_user` or `find_user_result.id` name a call, by its tool or its id."""
    names = [call.name]
    if any(map(str.isalpha, call.id)):
        names.append(call.id)
    return any(
        # asked first: a pattern for each of a thousand calls, for each of them, takes a minute
        name in words
        and re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", words)
        and (_PLAIN_WORD.fullmatch(name) is None or _OF_A_RESULT.search(words))
        for name in names
    )


def _is_own_name(words: str, path: JsonPath) -> bool:
    """Whether this is the name of the parameter that holds it, however it is spelled."""
    own = next((each for each in reversed(path) if isinstance(each, str)), "")
    return _plain(words) == _plain(own) != ""


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()
