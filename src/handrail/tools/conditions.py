"""Conditions over arguments, as a person writes them: `amount > 100 and currency != "EUR"`.

Names are arguments; a dot goes into an object. There are comparisons, `in`, `and`, `or`, `not`, + - * / and `len(...)`,
and nothing else: no attribute of a Python object, no call, no loop, so a condition from a configuration file can do no
harm and takes no time.

Beside them there are constraints of single arguments: a regular expression for the whole of a text, or a JSON Schema.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from handrail.errors import Json, ToolDefinitionError
from handrail.schemas.walk import compile_schema

Condition: TypeAlias = Callable[[Mapping[str, Json]], Any]
"""Takes validated arguments. Raises LookupError, TypeError or ArithmeticError where they do not answer the question."""

MOST_CHARACTERS = 1000

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
# No power, and neither `+` nor `*` on text or lists: they make a short condition cost a lot of time or memory.
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: _require_number(left) + _require_number(right),
    ast.Sub: operator.sub,
    ast.Mult: lambda left, right: _require_number(left) * _require_number(right),
    ast.Div: operator.truediv,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
}
_BOOLEANS: dict[type[ast.boolop], Callable[[Iterable[Any]], bool]] = {
    ast.And: all,
    ast.Or: any,
}


@lru_cache(maxsize=1024)
def condition(text: str) -> Condition:
    """Compile a condition over arguments.

    >>> condition("amount > 100 or user.vip")({"amount": 7, "user": {"vip": True}})
    True

    Raises:
        ToolDefinitionError: The text is no condition of this kind; the message says which part is not.
    """
    if len(text) > MOST_CHARACTERS:
        raise ToolDefinitionError(
            f"a condition of {len(text)} characters is too long; {MOST_CHARACTERS} is the most"
        )
    try:
        return _compile(ast.parse(text.strip(), mode="eval").body, text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(
            f'{text!r} is not a condition such as "amount > 100": {error}'
        ) from error


def names_in(text: str) -> set[str]:
    """Return the arguments that a condition looks at."""
    return {
        node.id
        for node in ast.walk(ast.parse(text.strip(), mode="eval"))
        if isinstance(node, ast.Name)
    } - {"len"}


def constrain(constraints: Mapping[str, Json], *, permits: bool) -> Condition:
    """Return whether arguments meet constraints, each by the name of its argument.

    A text is a regular expression that matches the whole of an argument; it takes linear time, so it has no look-around
    and no back-reference. A table is a JSON Schema.

    Args:
        permits: Whether something is allowed where they are met. Then an absent argument meets none, and `.` matches no
            line break. Otherwise what cannot be decided counts as met: an absent argument, and one that is no text.

    Raises:
        ToolDefinitionError: A constraint is neither, or its pattern or schema is none.
    """
    return _constrain(json.dumps(constraints, sort_keys=True), permits)


@lru_cache(maxsize=1024)
def _constrain(constraints_text: str, permits: bool) -> Condition:
    constraints: dict[str, Json] = json.loads(constraints_text)
    schemas = {
        name: _constraint_schema(name, each, permits)
        for name, each in constraints.items()
    }
    required = list(schemas) if permits else []
    schema = {"properties": schemas, "required": required}
    return compile_schema(schema, may_backtrack=False).is_valid


def _constraint_schema(name: str, constraint: Json, permits: bool) -> dict[str, Json]:
    if isinstance(constraint, dict):
        if permits and not constraint.keys() & {"type", "const", "enum"}:
            raise ToolDefinitionError(
                f"the constraint of {name!r} says no type, so it would be met by every value of another; "
                'add one, as in { type = "number", maximum = 100 }'
            )
        return constraint
    if not isinstance(constraint, str):
        raise ToolDefinitionError(
            f"the constraint of {name!r} is {constraint!r}; write a pattern as text, or a JSON Schema as a table"
        )
    # alone first: a bracket that closes ours would match a part
    compile_schema({"pattern": constraint}, may_backtrack=False)
    if permits:
        return {"type": "string", "pattern": f"^(?:{constraint})$"}
    return {"pattern": f"^(?:{_let_dots_match_line_breaks(constraint)})$"}


_DOT_OR_WHAT_HIDES_ONE = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\.", re.DOTALL)


def _let_dots_match_line_breaks(pattern: str) -> str:
    r"""Return the pattern with `[\s\S]` for each `.` that stands for a character.

    Patterns of JSON Schema are those of ECMAScript, whose `s` flag no pattern can set, and engines differ in whether
    they take `(?s:...)`. One that ignores it would let a line break get a command past a rule that denies it.

    >>> _let_dots_match_line_breaks(r"rm .*[.]\.txt")
    'rm [\\s\\S]*[.]\\.txt'
    """
    return _DOT_OR_WHAT_HIDES_ONE.sub(
        lambda found: r"[\s\S]" if found[0] == "." else found[0], pattern
    )


def _compile(node: ast.expr, text: str) -> Condition:
    match node:
        case ast.Constant(value=value):
            return lambda _: value
        case ast.Name(id=name):
            return lambda arguments: arguments[name]
        case ast.Attribute(value=inner, attr=name):
            owner = _compile(inner, text)
            return lambda arguments: owner(arguments)[name]
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            parts = _compile_all(items, text)
            return lambda arguments: [part(arguments) for part in parts]
        case ast.BoolOp(op=op, values=values):
            parts = _compile_all(values, text)
            combine = _BOOLEANS[type(op)]
            return lambda arguments: combine(part(arguments) for part in parts)
        case ast.UnaryOp(op=op, operand=inner) if type(op) in _UNARY:
            operand = _compile(inner, text)
            apply = _UNARY[type(op)]
            return lambda arguments: apply(operand(arguments))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _compile_arithmetic(
                _ARITHMETIC[type(op)], _compile(left, text), _compile(right, text)
            )
        case ast.Compare():
            return _compile_comparison(node, text)
        case ast.Call(func=ast.Name(id="len"), args=[inner], keywords=[]):
            measured = _compile(inner, text)
            return lambda arguments: len(measured(arguments))
        case _:
            raise ToolDefinitionError(
                f"{ast.unparse(node)!r} is not allowed in the condition {text!r}"
            )


def _compile_all(nodes: Iterable[ast.expr], text: str) -> list[Condition]:
    return [_compile(node, text) for node in nodes]


def _compile_comparison(node: ast.Compare, text: str) -> Condition:
    operands = _compile_all((node.left, *node.comparators), text)
    compare = [_COMPARISONS[type(op)] for op in node.ops]

    def holds(arguments: Mapping[str, Json]) -> bool:
        values = [operand(arguments) for operand in operands]
        return all(
            test(left, right)
            for test, left, right in zip(compare, values, values[1:], strict=False)
        )

    return holds


def _compile_arithmetic(
    combine: Callable[[Any, Any], Any], left: Condition, right: Condition
) -> Condition:
    return lambda arguments: combine(left(arguments), right(arguments))


def _require_number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise TypeError("only numbers are added and multiplied in a condition")
    return value
