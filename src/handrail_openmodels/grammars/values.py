"""JSON Schema as expressions: the values that fit a schema, as a notation writes them.

Rule 1: what is written fits the schema, except for `losses`: each names a place, and a keyword that no grammar can
        express.
Rule 2: the members of an object come in the order of its schema, each once.
Rule 3: an object whose schema names members has no others, unless the schema says what others hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from handrail.errors import Json
from handrail.schemas.walk import Schema, resolve_reference, schema_types
from handrail_openmodels.grammars.expressions import (
    EMPTY,
    NOTHING,
    Expression,
    Literal,
    Rule,
    Rules,
    choice,
    optional,
    repeat,
    sequence,
    token,
)
from handrail_openmodels.grammars.notations import JSON, Notation, TextForm
from handrail_openmodels.grammars.number_ranges import (
    INTEGER,
    NUMBER,
    integers_between,
    numbers_between,
)
from handrail_openmodels.grammars.patterns import MOST_REPEATS, NotRegular, width

Losses = dict[str, str]
"""What a grammar cannot say, by the place in a schema."""

_UNSAYABLE = (
    "not",
    "if",
    "contains",
    "uniqueItems",
    "propertyNames",
    "patternProperties",
    "dependentSchemas",
    "dependentRequired",
    "unevaluatedProperties",
    "unevaluatedItems",
    "minProperties",
    "maxProperties",
    "multipleOf",
)
_FORMATS: Mapping[str, str] = {
    "date": r"^[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))$",
    "time": r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])?$",
    "uuid": "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
}
_DATE = _FORMATS["date"][1:-1].replace("[0-9]{4}", "[12][0-9]{3}", 1)
_FORMAT_PATTERNS: Mapping[str, str] = {
    **_FORMATS,
    "date": f"^{_DATE}$",
    "date-time": rf"^{_DATE}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,6}})?"
    r"(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])$",
}
"""Only what a tool's own types insist on: elsewhere a format is a remark."""

_EVERY_TYPE = ("string", "number", "boolean", "null", "object", "array")
_OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}


class Values:
    """Makes the expressions of one schema.

    Args:
        rules: Where rules are defined that the expressions name; shared rules are of their notation, others begin
            with `prefix`.
        losses: Gets what a grammar cannot express.
    """

    def __init__(
        self,
        root: Schema,
        notation: Notation,
        rules: Rules,
        prefix: str,
        losses: Losses,
    ) -> None:
        self.root = root
        self.notation = notation
        self.rules = rules
        self.losses = losses
        self._prefix = prefix
        self._references: dict[str, str] = {}
        self._parts = 0

    # ------------------------------------------------------------------ any value

    def value(self, schema: Json, path: str = "") -> Expression:
        """Return the values that fit a schema."""
        return choice(
            self.simple_value(each, path) for each in self.branches(schema, path)
        )

    def branches(self, schema: Json, path: str, depth: int = 0) -> Iterator[Schema]:
        """Yield schemas of one type each, without references; a value fits one of them."""
        if schema is True or schema == {}:
            yield {}
            return
        if not isinstance(schema, Mapping) or depth > _MOST_DEPTH:
            if schema is not False:
                self.losses[path] = "a schema that refers to itself without a value"
            return
        schema = dict(schema)
        if "$ref" in schema:
            yield from self._follow_reference(schema, path, depth)
        elif "const" in schema:
            yield {"enum": [schema["const"]], "type": schema.get("type")}
        elif "enum" in schema:
            yield {"enum": list(schema["enum"] or ()), "type": schema.get("type")}
        elif "allOf" in schema:
            yield from self.branches(self._merge_all_of(schema, path), path, depth + 1)
        elif alternatives := schema.get("anyOf", schema.get("oneOf")):
            if "oneOf" in schema and not _are_apart(self.root, alternatives):
                self.losses[path] = "`oneOf` whose alternatives are not apart"
            rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            for each in alternatives:
                yield from self.branches(_merge(rest, each), path, depth + 1)
        else:
            yield from self._split_types(schema, path)

    def _follow_reference(
        self, schema: Schema, path: str, depth: int
    ) -> Iterator[Schema]:
        reference = str(schema["$ref"])
        target = resolve_reference(self.root, reference)
        beside = [key for key in schema if key in _BESIDE_REFERENCE]
        if target is None:
            self.losses[path] = f"a reference to {reference!r}, which is not here"
            yield {}
        elif beside:
            rest = {key: schema[key] for key in beside}
            yield from self.branches(_merge(rest, target), path, depth + 1)
        elif isinstance(target, Mapping) and _may_nest(target):
            yield {"$ref": reference}
        else:
            yield from self.branches(target, path, depth + 1)

    def _merge_all_of(self, schema: Schema, path: str) -> Schema:
        """Return a schema without `allOf`: what its parts say, in one."""
        merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            if isinstance(part, Mapping) and "$ref" in part:
                part = resolve_reference(self.root, str(part["$ref"]))
            if not isinstance(part, Mapping):
                self.losses[path] = "`allOf`"
                continue
            clashes = [
                key
                for key in part
                if key in merged
                and merged[key] != part[key]
                and key not in ("properties", "required", *_REMARKS)
            ]
            shared = set(part.get("properties") or ()) & set(
                merged.get("properties") or ()
            )
            if clashes or shared:
                self.losses[path] = "`allOf` whose parts speak of the same"
            merged = _merge(merged, part)
        return merged

    def _split_types(self, schema: Schema, path: str) -> Iterator[Schema]:
        for keyword in _UNSAYABLE:
            if keyword in schema and schema[keyword] not in (False, None, {}, 0):
                self.losses[path] = f"`{keyword}`"
        types: Sequence[Any] = schema_types(schema)
        if not types:
            types = [
                kind
                for kind, keywords in _OF_TYPE.items()
                if any(keyword in schema for keyword in keywords)
            ]
            if not types:
                yield {}
        for kind in types:
            yield {**schema, "type": kind}

    def simple_value(self, schema: Schema, path: str) -> Expression:
        """Return the values of a schema that `branches` gave."""
        if "$ref" in schema:
            return self._name_reference(schema["$ref"], path)
        if "enum" in schema:
            return self._choose_value(schema)
        match schema.get("type"):
            case "string":
                return self.string(schema, path, self.notation.text)
            case "integer" | "number":
                return self._number(schema)
            case "boolean":
                words = self.notation.words
                return token(choice([Literal(words[True]), Literal(words[False])]))
            case "null":
                return Literal(self.notation.words[None])
            case "object":
                return self._object(schema, path)
            case "array":
                return self._array(schema, path)
            case None:
                return self.anything(path)
            case kind:
                self.losses[path] = f"the type {kind!r}"
                return NOTHING

    def _choose_value(self, schema: Schema) -> Expression:
        values = [
            self.notation.literal(each)
            for each in schema["enum"]
            if fits_type(each, schema.get("type"))
        ]
        return token(choice(values))

    def _name_reference(self, reference: str, path: str) -> Expression:
        name = self._references.get(reference)
        if name is None:
            name = self._references[reference] = (
                f"{self._prefix}_{len(self._references)}"
            )
            self.rules.by_name[name] = EMPTY  # so that it may name itself
            expression = self.value(resolve_reference(self.root, reference), path)
            self.rules.by_name[name] = expression
        return Rule(name)

    def anything(self, path: str) -> Expression:
        """Return any value at all."""
        self.losses[path] = "an open value, in which a name may come twice"
        notation = self.notation
        rule = f"{notation.name}_any"
        if rule not in self.rules.by_name:
            self.rules.by_name[rule] = EMPTY
            words = [Literal(word) for word in notation.words.values()]
            item = Rule(rule)
            self.rules.by_name[rule] = choice(
                [
                    self._any_text(),
                    NUMBER,
                    token(choice(words)),
                    self._list_of(item, 0, None),
                    self._map_of(item),
                ]
            )
        return Rule(rule)

    # ------------------------------------------------------------------ strings and numbers

    def _any_text(self) -> Expression:
        notation = self.notation
        return self.rules.name_once(f"{notation.name}_text", notation.text.any_text())

    def string(self, schema: Schema, path: str, form: TextForm) -> Expression:
        """Return the strings of a schema in a form."""
        least = int(schema.get("minLength", 0))
        most = schema.get("maxLength")
        pattern = schema.get("pattern") or _FORMAT_PATTERNS.get(
            str(schema.get("format"))
        )
        try:
            if pattern:
                shortest, longest = width(str(pattern))
                is_within = most is None or (longest is not None and longest <= most)
                if shortest < least or not is_within:
                    self.losses[path] = "a length beside a pattern"
                return form.matching(str(pattern))
        except NotRegular as problem:
            self.losses[path] = str(problem)
            return form.any_text()
        if max(least, most or 0) > MOST_REPEATS:
            self.losses[path] = f"a length above {MOST_REPEATS}"
            return form.any_text()
        if least or most is not None:
            return form.counted(least, most)
        if form is self.notation.text:
            return self._any_text()
        return form.any_text()

    def _number(self, schema: Schema) -> Expression:
        bounds = {key: schema[key] for key in _OF_TYPE["number"] if key in schema}
        is_whole = schema["type"] == "integer"
        if not bounds:
            shared = INTEGER if is_whole else NUMBER
            return self.rules.name_once("integer" if is_whole else "number", shared)
        least = max(_bound(bounds, "minimum", -math.inf), -math.inf)
        above = _bound(bounds, "exclusiveMinimum", -math.inf)
        most = _bound(bounds, "maximum", math.inf)
        below = _bound(bounds, "exclusiveMaximum", math.inf)
        if is_whole:
            low = max(least, math.floor(above) + 1 if above > -math.inf else above)
            high = min(most, math.ceil(below) - 1 if below < math.inf else below)
            return integers_between(low, high)
        return numbers_between(
            max(least, above),
            min(most, below),
            above=above >= least and above > -math.inf,
            below=below <= most and below < math.inf,
        )

    # ------------------------------------------------------------------ lists and objects

    def _array(self, schema: Schema, path: str) -> Expression:
        first = schema.get("prefixItems") or []
        least = int(schema.get("minItems", 0))
        most = schema.get("maxItems")
        if max(least, most or 0) > MOST_REPEATS:
            self.losses[path] = f"more than {MOST_REPEATS} items"
            least = min(least, MOST_REPEATS)
            most = None
        items = schema.get("items", True)
        if first:
            parts = [self.value(each, f"{path}[{at}]") for at, each in enumerate(first)]
            if items is not False or least < len(first):
                self.losses[path] = "a tuple of any length"
            comma = Literal(self.notation.comma)
            joined = [
                each
                for number, part in enumerate(parts)
                for each in ((comma, part) if number else (part,))
            ]
            return sequence(Literal("["), *joined, Literal("]"))
        item = self.value(items, f"{path}[]")
        return self._list_of(item, least, None if most is None else int(most))

    def _list_of(self, item: Expression, least: int, most: int | None) -> Expression:
        more = repeat(
            sequence(Literal(self.notation.comma), item),
            max(least - 1, 0),
            None if most is None else max(most - 1, 0),
        )
        inside = NOTHING if most == 0 else sequence(item, more)
        if not least:
            inside = EMPTY if inside == NOTHING else optional(inside)
        return sequence(Literal("["), inside, Literal("]"))

    def _map_of(self, value: Expression, least: int = 0) -> Expression:
        notation = self.notation
        member = sequence(notation.any_key, Literal(notation.colon), value)
        more = repeat(sequence(Literal(notation.comma), member))
        inside = sequence(member, more)
        return sequence(
            Literal("{"), inside if least else optional(inside), Literal("}")
        )

    def _object(self, schema: Schema, path: str) -> Expression:
        notation = self.notation
        others = schema.get("additionalProperties")
        properties = schema.get("properties") or {}
        if not properties and others is not False:
            self.losses[path] = "an open object, in which a name may come twice"
            return self._map_of(self.value(others if others else True, f"{path}.*"))
        if isinstance(others, Mapping):
            self.losses.setdefault(path, "further members beside the named ones")

        def write(name: str, value: Expression) -> Expression:
            key = notation.key(name)
            if key is None:
                return NOTHING
            return sequence(Literal(f"{key}{notation.colon}"), value)

        inside = self.members(schema, path, self.value, write, comma=notation.comma)
        return sequence(Literal("{"), inside, Literal("}"))

    def members(
        self,
        schema: Schema,
        path: str,
        value: Callable[[Json, str], Any],
        write: Callable[[str, Any], Expression],
        *,
        comma: str,
    ) -> Expression:
        """Return the members of an object in order, those that are not required perhaps left out.

        Args:
            value: Returns the values of a member's schema.
            write: Returns a member from its name and its values; nothing where it cannot be written.
            comma: Stands between two members.
        """
        required = set(schema.get("required") or ())
        written: list[tuple[Expression, bool]] = []
        for name, each in (schema.get("properties") or {}).items():
            where = f"{path}.{name}" if path else name
            member = write(name, value(each, where))
            is_required = name in required
            if member != NOTHING or is_required:
                written.append((member, is_required))
            if member == NOTHING and is_required:
                self.losses[where] = "a required value that this form cannot write"
        if required - set(schema.get("properties") or ()):
            self.losses[path] = "a required member without a schema"
            return NOTHING
        return self._in_order(written, comma)

    def _in_order(
        self, written: Sequence[tuple[Expression, bool]], comma: str
    ) -> Expression:
        """Return members in order, a comma between any two; each is required or may be left out."""
        if not comma:
            return sequence(
                *(
                    each if is_required else optional(each)
                    for each, is_required in written
                )
            )
        leading = next(
            (at for at, (_, is_required) in enumerate(written) if is_required),
            len(written),
        )
        rest: Expression = EMPTY
        first: Expression = EMPTY  # from here on, where no member came before
        for at, (member, is_required) in reversed(list(enumerate(written))):
            if at < leading and leading > _MOST_INLINE and rest != EMPTY:
                # several places go on with it
                rest = self._name_part(rest)
            with_comma = sequence(Literal(comma), member)
            begin = sequence(member, rest)
            first = begin if is_required else choice([begin, first])
            rest = sequence(with_comma if is_required else optional(with_comma), rest)
        return first

    def _name_part(self, expression: Expression) -> Rule:
        self._parts += 1
        return self.rules.name_once(f"{self._prefix}_rest_{self._parts}", expression)


_MOST_INLINE = 2
_MOST_DEPTH = 24
_REMARKS = ("title", "description", "default", "examples", "$defs", "definitions")
_BESIDE_REFERENCE = (
    *("type", "enum", "const", "properties", "required", "items", "anyOf", "oneOf"),
    *("allOf", "pattern", "minLength", "maxLength", "minimum", "maximum"),
)


def _bound(bounds: Mapping[str, Json], name: str, default: float) -> float:
    value = bounds.get(name, default)
    return default if isinstance(value, bool) or value is None else value


def fits_type(value: Json, kind: Json) -> bool:
    """Whether a value is of a schema's type; of any where it names none."""
    kinds = [kind] if isinstance(kind, str) else list(kind or ())
    if not kinds:
        return True
    return any(_is_of(value, each) for each in kinds)


def _is_of(value: Json, kind: str) -> bool:
    if isinstance(value, bool) or value is None:
        return kind == ("null" if value is None else "boolean")
    if isinstance(value, int):
        return kind in ("integer", "number")
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    types = {"string": str, "array": list, "object": dict}
    return kind in types and isinstance(value, types[kind])


def _may_nest(target: Mapping[str, Json]) -> bool:
    """Whether what a reference leads to has parts, and so may lead back to it."""
    return any(
        key in target
        for key in ("properties", "items", "anyOf", "oneOf", "additionalProperties")
    )


def _merge(schema: Schema, other: Json) -> Json:
    """Return one schema that says what both say."""
    if other is True or other is False:
        return other and schema
    merged = {**schema, **other}
    for key in ("properties", "$defs"):
        if key in schema and key in other:
            merged[key] = {**schema[key], **other[key]}
    if "required" in schema and "required" in other:
        merged["required"] = [*schema["required"], *other["required"]]
    return merged


def _are_apart(root: Schema, alternatives: Sequence[Json]) -> bool:
    """Whether no value fits two of the alternatives: they are of different types."""
    seen: set[str] = set()
    for each in alternatives:
        if isinstance(each, Mapping) and "$ref" in each:
            each = resolve_reference(root, str(each["$ref"]))
        if not isinstance(each, Mapping):
            return False
        kinds = set(map(str, schema_types(dict(each))))
        if "const" in each:
            kinds = {f"={each['const']!r}"}
        if not kinds or kinds & seen or {"integer", "number"} <= kinds | seen:
            return False
        seen |= kinds
    return True


def value_of(schema: Schema, rules: Rules, losses: Losses) -> Expression:
    """Return the values of a whole schema as JSON."""
    return Values(schema, JSON, rules, "part", losses).value(schema)
