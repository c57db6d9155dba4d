"""What a docstring says, taken apart: the description, and a text for each parameter.

Google, NumPy and Sphinx styles, with English or Chinese headings (参数 返回 异常 示例) and full-width colons. The
headings are put into English first; then `docstring_parser` reads the sections.

Rule 1: nothing in a docstring raises. What cannot be read as sections is description.
Rule 2: no sentence for the model is lost: prose after a section joins the description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct, field

from handrail import _lazy

if TYPE_CHECKING:
    import docstring_parser
else:
    docstring_parser = _lazy.module("docstring_parser")


class Docs(Struct, frozen=True):
    """A docstring's parts. `description` is everything outside the sections; `summary` its first sentence."""

    summary: str = ""
    description: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    returns: str = ""
    raises: Mapping[str, str] = field(default_factory=dict)
    examples: Sequence[str] = ()


_HEADINGS = {
    "Args": (
        "Args",
        "Arguments",
        "Parameters",
        "Params",
        "参数",
        "参数说明",
        "入参",
        "输入",
        "输入参数",
    ),
    "Returns": ("Returns", "Return", "返回", "返回值", "返回结果", "返回说明", "输出"),
    "Yields": ("Yields", "产生", "生成"),
    "Raises": ("Raises", "Exceptions", "异常", "抛出", "抛出异常", "错误"),
    "Examples": ("Example", "Examples", "示例", "例子", "例", "样例", "使用示例"),
    "Attributes": ("Attributes", "属性"),
}
_ENGLISH = {
    spelling: heading
    for heading, spellings in _HEADINGS.items()
    for spelling in spellings
}
_SECTION_NAMES = _ENGLISH.keys() | {""}  # `:param city:` begins with a colon
_IN_NUMPY = {"Args": "Parameters"}  # where NumPy's heading differs from Google's

_SPELLINGS = "|".join(sorted(_ENGLISH, key=len, reverse=True))
_HEADING = re.compile(rf"(?P<name>{_SPELLINGS})\s*(?:[:：]\s*(?P<rest>.*))?")
_UNDERLINE = re.compile(r"\s*[-=]{3,}\s*")
_ITEM = re.compile(
    r"(?P<indent>\s*)(?:[-*•]\s+)?[`*]{0,2}(?P<name>[^\W\d][\w.]*)[`*]{0,2}\s*(?P<kind>[(（][^()（）]*[)）])?\s*[:：]\s*(?P<text>.*)"
)
_PLAIN_ITEM = re.compile(r"    (?P<name>\w+): (?P<text>\S.*)")
_FIELD = re.compile(
    r"^[ \t]*:(?P<name>param|parameter|arg|type|returns?|rtype|raises?|参数|返回值?|异常|抛出)\b",
    re.M,
)
_FIELD_NAMES = {
    "参数": "param",
    "返回": "returns",
    "返回值": "returns",
    "异常": "raises",
    "抛出": "raises",
}
_SENTENCE = re.compile(r".+?(?:[。！？]|(?<!e\.g)(?<!i\.e)[.!?](?=\s|$))", re.S)
_WITH_ITEMS = ("Args", "Raises", "Attributes")
_AT_EDGE = re.compile(r"\n\S")


def read_docstring(text: str | None) -> Docs:
    """Read a docstring. None and the empty text give empty `Docs`.

    >>> docs = read_docstring("查询天气。\\n\\n参数：\\n    city：城市名\\n返回：天气")
    >>> docs.summary, docs.parameters["city"], docs.returns
    ('查询天气。', '城市名', '天气')
    """
    if not text:
        return Docs()
    clean = text if _is_clean(text) else inspect.cleandoc(text)
    plain = _read_plain_docstring(clean)
    if plain is not None:
        return plain
    try:
        description, parsed = _parse(clean)
    except Exception:
        # a foreign parser over anybody's prose: whatever it trips over, the text is still a description
        description = clean
        parsed = docstring_parser.Docstring()
    examples = ((e.snippet or e.description or "").strip() for e in parsed.examples)
    return Docs(
        summary=_first_sentence(description),
        description=description,
        parameters={
            name.strip("`* "): _one_line(parameter.description)
            for parameter in parsed.params
            for name in parameter.arg_name.split(",")
        },
        returns=_one_line(parsed.returns.description) if parsed.returns else "",
        raises={
            error.type_name or "": _one_line(error.description)
            for error in parsed.raises
        },
        examples=tuple(filter(None, examples)),
    )


def _is_clean(text: str) -> bool:
    """Whether `inspect.cleandoc` would certainly return the text unchanged; a call takes a tenth of a tool's time."""
    if "\t" in text or text[0].isspace() or text[-1] == "\n":
        return False
    return "\n" not in text or _AT_EDGE.search(text) is not None


def _read_plain_docstring(text: str) -> Docs | None:
    """Read a docstring that is prose alone, or prose and an `Args:` section of one line each; None for any other.

    Most docstrings are so, and this takes a sixth of the time of finding sections of every style.
    """
    if len(text.splitlines()) != text.count("\n") + 1:
        return None  # other characters break lines, too
    prose, heading, items = text.partition("\nArgs:\n")
    if not all(map(_is_prose, prose.split("\n"))):
        return None
    parameters: dict[str, str] = {}
    for line in items.split("\n") if heading else ():
        item = _PLAIN_ITEM.fullmatch(line)
        if item is None:
            return None
        parameters[item["name"]] = _one_line(item["text"])
    description = prose.strip()
    return Docs(_first_sentence(description), description, parameters)


def _is_prose(line: str) -> bool:
    """Whether a line is certainly no part of a section in any style."""
    text = line.strip()
    name = text.replace("：", ":").partition(":")[0].rstrip()
    return not text or (name not in _SECTION_NAMES and bool(text.strip("-=")))


def _parse(text: str) -> tuple[str, docstring_parser.Docstring]:
    """Return the description and the sections, by the style that the text shows."""
    lines = text.splitlines()
    if any(
        _UNDERLINE.fullmatch(below) and line.strip() in _ENGLISH
        for line, below in pairwise(lines)
    ):
        parsed = docstring_parser.numpydoc.parse("\n".join(_numpy_lines(lines)))
        return _find_description(parsed), parsed
    if first := _FIELD.search(text):
        prose = text[: first.start()].strip()
        sections = _FIELD.sub(_translate_field, text[first.start() :])
        sections = inspect.cleandoc(sections).replace("：", ": ")
        return prose, docstring_parser.rest.parse(sections)
    prose, sections = _split_google(lines)
    plain = _parse_plain_sections(sections)
    if plain is not None:
        return prose, plain
    # the parser dedents all lines but the first
    return prose, docstring_parser.google.parse("\n" + sections)


def _parse_plain_sections(sections: str) -> docstring_parser.Docstring | None:
    """Return what Google's parser would of no section, or of parameters in one line each; None for anything else.

    Most docstrings are so, and the parser takes six times as long.
    """
    parsed = docstring_parser.Docstring()
    if not sections:
        return parsed
    heading, *lines = sections.split("\n")
    if heading != "Args:":
        return None
    for line in lines:
        item = _PLAIN_ITEM.fullmatch(line)
        if item is None:
            return None
        parameter = docstring_parser.DocstringParam(
            args=["param", item["name"]],
            description=item["text"],
            arg_name=item["name"],
            type_name=None,
            is_optional=None,
            default=None,
        )
        parsed.meta.append(parameter)
    return parsed


def _translate_field(match: re.Match[str]) -> str:
    return ":" + _FIELD_NAMES.get(match["name"], match["name"])


def _numpy_lines(lines: Sequence[str]) -> Iterator[str]:
    """Write the headings in English, each with an underline of its own length, as the parser insists."""
    heading = ""
    for line in lines:
        if heading and _UNDERLINE.fullmatch(line):
            yield "-" * len(heading)
            heading = ""
        else:
            english = _ENGLISH.get(line.strip(), "")
            heading = _IN_NUMPY.get(english, english)
            yield heading or line


def _find_description(parsed: docstring_parser.Docstring) -> str:
    gap = "\n\n" if parsed.blank_after_short_description else "\n"
    parts = (parsed.short_description, parsed.long_description)
    return gap.join(filter(None, parts)).strip()


def _split_google(lines: Sequence[str]) -> tuple[str, str]:
    """Split the prose from the sections, and write the sections as Google's style has them.

    A section begins with one of our headings at the left edge. It ends with the next heading, or with a line at the
    left edge. Chinese docstrings often do not indent: a section whose first line is at the edge lasts until a blank
    line.
    """
    prose: list[str] = []
    sections: list[str] = []
    heading = ""
    body: list[str] = []
    for line in lines:
        match = _HEADING.fullmatch(line)
        if match and _is_section_heading(match):
            sections += _format_section(heading, body)
            heading = _ENGLISH[match["name"]]
            body = [match["rest"]] if match["rest"] else []
        elif heading and _continues(heading, body, line):
            body.append(line)
        else:
            sections += _format_section(heading, body)
            heading = ""
            body = []
            prose.append(line)
    sections += _format_section(heading, body)
    return "\n".join(prose).strip(), "\n".join(sections)


def _format_section(heading: str, body: Sequence[str]) -> list[str]:
    """Return a section's lines, the heading first; none for a section without text."""
    if not any(text.strip() for text in body):
        return []
    format_line = _format_item if heading in _WITH_ITEMS else _indent
    return [heading + ":", *map(format_line, body)]


def _continues(heading: str, body: Sequence[str], line: str) -> bool:
    """Whether a line still belongs to the section."""
    if not line.strip() or line[0].isspace():
        return True
    if body and (body[0][:1].isspace() or not body[-1].strip()):
        return False
    return heading not in _WITH_ITEMS or _ITEM.fullmatch(line) is not None


def _is_section_heading(match: re.Match[str]) -> bool:
    """Whether it is a heading: with a colon, and with text after it only for what fits on one line."""
    rest = match["rest"]
    if rest is None:
        return False
    return not rest or _ENGLISH[match["name"]] in ("Returns", "Yields", "Examples")


def _indent(line: str) -> str:
    if not line.strip() or line[0].isspace():
        return line
    return "    " + line


def _format_item(line: str) -> str:
    """Write `- city（str）：城市名` as `    city (str): 城市名`; leave a line of continued text alone."""
    match = _ITEM.fullmatch(line)
    if not match:
        return _indent(line)
    indent = match["indent"] or "    "
    kind = f" ({match['kind'][1:-1]})" if match["kind"] else ""
    return f"{indent}{match['name']}{kind}: {match['text']}"


def _first_sentence(text: str) -> str:
    paragraph = text.split("\n\n", 1)[0]
    match = _SENTENCE.match(paragraph)
    return _one_line(match[0] if match else paragraph)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())
