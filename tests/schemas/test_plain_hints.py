# ruff: noqa: UP007, UP045  # hints as people write them, and made from values
import ast
import json
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import ToolDefinitionError
from handrail.schemas.docstrings import Docs
from handrail.schemas.hints import Signature, describe_function
from handrail.schemas.plain_hints import describe_plain

SCALARS = [str, int, float, bool, None]
choices = st.one_of(
    st.lists(st.sampled_from(["a", "b", "北京", ""]), min_size=1, unique=True),
    st.lists(st.integers(-2, 2), min_size=1, unique=True),
    st.lists(st.sampled_from([True, 1, "a", None]), min_size=1, unique=True),
).map(lambda values: Literal[tuple(values)])
hints = st.recursive(
    st.one_of(st.sampled_from([*SCALARS, Any, list, dict, bytes]), choices),
    lambda inner: st.one_of(
        inner.map(lambda hint: list[hint]),
        inner.map(lambda hint: dict[str, hint]),
        inner.map(lambda hint: Optional[hint]),
        st.lists(inner, min_size=2, max_size=3).map(lambda some: Union[tuple(some)]),
        inner.map(lambda hint: Annotated[hint, pydantic.Field(description="mine")]),
    ),
    max_leaves=5,
)
NONE = object()
defaults = st.sampled_from(
    [NONE, NONE, None, "a", "", 0, 1, -3, True, 2.5, 3.0, 1e300, float("inf"), (), []]
)
names = st.sampled_from(["a", "b", "title", "items", "_x", "default", "type", "schema"])


def signature(parameters: Mapping[str, tuple[Any, Any, str]]) -> Signature:
    """A signature as `describe_function` makes it, of name: (hint, default, description)."""
    return Signature(
        tool="f",
        visible={name: hint for name, (hint, _, _) in parameters.items()},
        hidden={},
        docs=Docs(parameters={name: text for name, (*_, text) in parameters.items()}),
        defaults={
            name: default
            for name, (_, default, _) in parameters.items()
            if default is not NONE
        },
    )


def by_pydantic(described: Signature) -> str:
    return json.dumps(described._describe_by_pydantic())


def plainly(described: Signature) -> str | None:
    plain = describe_plain(
        described.visible, described.defaults, described.docs.parameters
    )
    return None if plain is None else json.dumps(plain)


@given(
    st.dictionaries(
        names, st.tuples(hints, defaults, st.sampled_from(["", "A text."])), max_size=4
    )
)
def test_plain_hints_are_described_as_pydantic_describes_them(parameters):
    described = signature(parameters)
    plain = plainly(described)
    if plain is not None:
        assert plain == by_pydantic(described)


@pytest.mark.parametrize("hint", [
    str, int, float, bool, list[str], dict[str, int], Literal["a", "b"], Literal["a"],
    Optional[int], Optional[list[str]], Union[str, int], Union[int, float], Optional[Literal["a"]],
    dict[str, list[int | None]] | str, Union[str, None, int], Union[None, str],
])  # fmt: skip
@pytest.mark.parametrize("default", [NONE, None, "a", 2])
def test_these_take_the_short_way(hint, default):
    described = signature({"x": (hint, default, "A text.")})
    assert plainly(described) == by_pydantic(described)


class Point(pydantic.BaseModel):
    x: int


@pytest.mark.parametrize(("hint", "default"), [
    (Point, NONE),
    (list[Point], NONE),
    (Annotated[int, pydantic.Field(gt=0)], NONE),
    (Literal["a", 1], NONE),
    (Any, NONE),
    (list, NONE),
    (dict[int, str], NONE),
    (float, float("nan")),
    (int, pydantic.Field(ge=1)),
    (list[str], []),
])  # fmt: skip
def test_these_are_left_to_pydantic(hint, default):
    assert plainly(signature({"x": (hint, default, "")})) is None


WRITTEN = [Path(__file__).parents[1], Path(__file__).parents[2] / "examples"]


def functions() -> Iterator[tuple[str, Any]]:
    """Every function in the tests and the examples whose hints need no names of its module, by its signature's text."""
    seen: set[str] = set()
    for folder in WRITTEN:
        for path in sorted(folder.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                arguments = ast.unparse(node.args)
                if arguments and arguments not in seen:
                    seen.add(arguments)
                    made = {name: getattr(typing, name) for name in typing.__all__}
                    try:
                        exec(f"def f({arguments}): ...", made)
                        yield arguments, describe_function(made["f"], Docs())
                    except (NameError, ToolDefinitionError, TypeError, AttributeError):
                        continue


def test_every_function_in_the_tests_and_examples_is_described_alike():
    count = 0
    for arguments, described in functions():
        if described.visible and described.model is None:
            plain = plainly(described)
            if plain is not None:
                count += 1
                assert plain == by_pydantic(described), arguments
    assert count > 150
