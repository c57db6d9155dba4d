"""A rule of lint, and what it returns.

A rule is a row: an id that never changes, how bad it is, one sentence, the function that looks, and a pair of examples
on which it must and must not speak. The tables are in `wording`, `parameters`, `declarations` and `sets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct, field

from handrail.errors import Json
from handrail.linting.findings import Settings, Severity
from handrail.linting.subjects import Subject

Definition: TypeAlias = dict[str, Json]


class Noticed(NamedTuple):
    """What a rule finds wrong, and what to write instead."""

    message: str
    rewrite: str
    severity: Severity | None = None


class Rule(Struct, frozen=True):
    """One rule.

    Attributes:
        says: What is wrong when it speaks, as a clause.
        look: Looks at one tool, with the settings.
        look_at_all: Looks at all tools together; each notice comes with the tool that it is about, or None.
        bad: Definitions on which it speaks.
        good: The same, fixed.
        needs: A setting under which its examples hold.
    """

    id: str
    severity: Severity
    says: str
    bad: Sequence[Definition]
    good: Sequence[Definition]
    look: Callable[[Subject, Settings], Iterable[Noticed]] | None = None
    look_at_all: (
        Callable[
            [Sequence[Subject], Settings], Iterable[tuple[Subject | None, Noticed]]
        ]
        | None
    ) = None
    needs: Mapping[str, Any] = field(default_factory=dict)
    is_fixable: bool = False


def list_names(names: Iterable[str], most: int = 4) -> str:
    """Name some parameters: `a`, `b` and 3 more."""
    listed = [f"`{name}`" for name in dict.fromkeys(names)]
    if len(listed) > most + 1:
        return f"{', '.join(listed[:most])} and {len(listed) - most} more"
    return " and ".join(
        filter(None, [", ".join(listed[:-1]), listed[-1] if listed else ""])
    )


def plural(count: int, one: str, several: str) -> str:
    """Return the word that fits a count."""
    return one if count == 1 else several


# ---------------------------------------------------------------------- examples


def define(
    name: str, description: str, /, *, required: Sequence[str] = (), **parameters: Json
) -> Definition:
    """Return an example: a definition as MCP and OpenAI have it. A text describes a parameter that is a text."""
    properties = {
        each: _document_text(schema) if isinstance(schema, str) else schema
        for each, schema in parameters.items()
    }
    schema: Definition = {"type": "object", "properties": properties}
    return {
        "name": name,
        "description": description,
        "parameters": {**schema, "required": list(required)},
    }


def _document_text(description: str) -> Definition:
    return {"type": "string", "description": description}
