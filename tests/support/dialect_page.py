"""The part of `docs/reference/dialects.md` that shows one call in every dialect, made from the dialects themselves."""

import json
import re
from pathlib import Path

from handrail import plugins
from handrail.dialects import Dialect, WireDialect
from handrail.errors import Json
from handrail.messages import Options
from tests.support.weather import QUESTION, TOOLS, answer_in, every_dialect

PAGE = Path(__file__).parents[2] / "docs/reference/dialects.md"
REGION = re.compile(r"(?<=<!-- dialects -->\n).*?(?=<!-- end of dialects -->)", re.S)


def shown() -> str:
    """What the page shows now."""
    return REGION.search(PAGE.read_text(encoding="utf-8"))[0]


def wanted() -> str:
    """What it should show."""
    return "".join(map(section, every_dialect()))


def section(spoken: Dialect) -> str:
    """One dialect: what the model gets, and what it answers."""
    if spoken.name == "plain":
        return "\n### plain\n\nIt can only be read, and has no calls: an answer is its text.\n"
    answer = answer_in(spoken)
    if spoken.name in plugins.list_added("readers"):
        return f"\n### {spoken.name}\n\nIt can only be read. The model answers:\n\n{fenced(answer, 'text')}"
    request = spoken.encode_request(QUESTION, TOOLS, Options(model="NAME"))
    if isinstance(spoken, WireDialect):
        head, language = f"A wire. `POST {spoken.path('NAME', stream=False)}`", "json"
        request, answer = laid_out(request), laid_out(json.loads(answer))
    else:
        head, language = "A prompt.", "text"
    blocks = (
        f"{fenced(request, language)}\nThe model answers:\n\n{fenced(answer, language)}"
    )
    return f"\n### {spoken.name}\n\n{head}\n\n{blocks}"


def laid_out(value: Json, indent: str = "") -> str:
    """JSON with a line for everything that fits on one."""
    short = json.dumps(value, ensure_ascii=False)
    if (
        len(indent) + len(short) <= 100
        or not isinstance(value, dict | list)
        or not value
    ):
        return short
    deeper = indent + "  "
    if isinstance(value, dict):
        inner = [
            f"{json.dumps(name)}: {laid_out(each, deeper)}"
            for name, each in value.items()
        ]
    else:
        inner = [laid_out(each, deeper) for each in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{deeper}" + f",\n{deeper}".join(inner) + f"\n{indent}{end}"


def fenced(text: str, language: str) -> str:
    """A block that no fence inside the text can end."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}\n"


def write() -> None:
    """Put the dialects into the page."""
    text = PAGE.read_text(encoding="utf-8")
    new = wanted()
    PAGE.write_text(REGION.sub(lambda _: new, text), encoding="utf-8")
