"""Values as elements within elements: `<items><item><sku>a-1</sku></item></items>`.

Objects and lists are written as elements where the family's reader can tell their types: where the schema refers to no
other, exactly one of its branches is an object or a list, and none is text. Elsewhere they are written as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping

from handrail.errors import Json
from handrail.schemas.walk import Schema
from handrail_openmodels.grammars.expressions import (
    NOTHING,
    Expression,
    Literal,
    choice,
    repeat,
    sequence,
)
from handrail_openmodels.grammars.notations import TextForm, bare_text
from handrail_openmodels.grammars.patterns import MOST_REPEATS
from handrail_openmodels.grammars.values import Values, fits_type
from handrail_openmodels.prompts.parameter_calls import Element

_NESTED = ("object", "array")


def write_element(
    values: Values, element: Element, name: str, schema: Json, path: str
) -> Expression:
    """Return an element with the values of a schema; `NOTHING` if its name would end its opening mark early."""
    if element.named in name or not name or name.startswith("/") or "\n" in name:
        return NOTHING
    closes = element.closes.replace("{name}", name).removeprefix(element.opens)
    return sequence(
        Literal(f"{element.opens}{name}{element.named}"),
        choice(_values(values, element, schema, path)),
        Literal(closes),
    )


def _values(
    values: Values, element: Element, schema: Json, path: str
) -> list[Expression]:
    """Return the values that may stand in an element, each with the beginning of the mark that closes it.

    No text may hold that beginning, so a text ends at the first mark of any kind.
    """
    form = bare_text("", element.opens, element.opens)
    branches = list(values.branches(schema, path))
    kinds = [str(each.get("type")) for each in branches]
    is_plain = isinstance(schema, Mapping) and not _refers(schema)
    nests = is_plain and "string" not in kinds and _count_nested(kinds) == 1
    return [_branch(values, element, each, path, form, nests) for each in branches]


def _refers(schema: Mapping[str, Json]) -> bool:
    return any(key in schema for key in ("$ref", "allOf"))


def _count_nested(kinds: list[str]) -> int:
    return sum(kind in _NESTED for kind in kinds)


def _branch(
    values: Values,
    element: Element,
    branch: Schema,
    path: str,
    form: TextForm,
    nests: bool,
) -> Expression:
    if "enum" in branch:
        return _choose_value(values, branch, form)
    kind = branch.get("type")
    if "$ref" not in branch and kind == "string":
        return values.string(branch, path, form)
    if nests and kind == "object" and branch.get("properties"):
        return sequence(_members(values, element, branch, path), Literal(form.closes))
    if nests and kind == "array" and _is_list(branch):
        return sequence(_items(values, element, branch, path), Literal(form.closes))
    return sequence(values.simple_value(branch, path), Literal(form.closes))


def _choose_value(values: Values, branch: Schema, form: TextForm) -> Expression:
    written: list[Expression] = []
    for each in branch["enum"]:
        if not fits_type(each, branch.get("type")):
            continue
        if isinstance(each, str):
            written.append(form.literal(each))
        else:
            written.append(
                sequence(values.notation.literal(each), Literal(form.closes))
            )
    return choice(written)


def _members(values: Values, element: Element, branch: Schema, path: str) -> Expression:
    return values.members(
        branch,
        path,
        lambda schema, where: (schema, where),
        lambda name, member: write_element(values, element, name, *member),
        comma="",
    )


def _is_list(branch: Schema) -> bool:
    most = max(int(branch.get("minItems", 0)), int(branch.get("maxItems") or 0))
    return (
        not branch.get("prefixItems")
        and isinstance(branch.get("items"), Mapping)
        and most <= MOST_REPEATS
    )


def _items(values: Values, element: Element, branch: Schema, path: str) -> Expression:
    item = write_element(values, element, "item", branch["items"], f"{path}[]")
    most = branch.get("maxItems")
    return repeat(
        item, int(branch.get("minItems", 0)), None if most is None else int(most)
    )
