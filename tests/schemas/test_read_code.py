"""A function's parameters read from its code are those of its signature, whatever kind of function it is."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from handrail.context import Context, Injected
from handrail.errors import ToolDefinitionError
from handrail.schemas import hints
from handrail.schemas.docstrings import Docs
from handrail.schemas.hints import describe_function
from handrail.tools.injection import is_injected


def nothing() -> None: ...


def plain(city: str, days: int = 1, unit: str = "celsius") -> dict[str, Any]:
    return {"city": city, "days": days, "unit": unit}


async def by_name(city: str, *, days: int, unit: str = "celsius") -> str:
    return f"{city}, {days}, {unit}"


def last_by_name(city: str = "Oslo", *, days: int = 2) -> Iterator[str]:
    yield f"{city}, {days}"


def as_text(city: "str", days: "int | None" = None, deep: "list[str]" = []) -> str:
    return f"{city}, {days}, {deep}"


def rich(
    amount: Annotated[float, Field(gt=0)],
    currency: Literal["EUR", "USD"] = "EUR",
    note: Optional[str] = None,  # noqa: UP045
) -> None: ...


def injected(
    context: Context[Any], secret: Annotated[str, Injected], city: str
) -> None: ...


def closed_over(city: str, days: int = 1) -> Callable[[], str]:
    return lambda: f"{city} {days}"  # makes cells of both


def with_locals(city: str, days: int = 3) -> int:
    length = len(city)
    return length + days


@functools.wraps(plain)
def wrapped(*args: Any, **named: Any) -> Any:
    return plain(*args, **named)


def says_another_signature(**named: Any) -> None: ...


says_another_signature.__signature__ = inspect.signature(plain)  # type: ignore[attr-defined]


def changed(city: str, days: int) -> None: ...


changed.__defaults__ = ("Rome", 7)
changed.__annotations__["days"] = float


class Weather:
    def method(self, city: str, days: int = 1) -> None: ...

    @classmethod
    def of_class(cls, city: str, *, days: int = 1) -> None: ...

    @staticmethod
    def static(city: str, days: int = 1) -> None: ...

    def __call__(self, city: str) -> None: ...


def unhinted(city, days: int = 1): ...  # type: ignore[no-untyped-def]
def any_number(*cities: str) -> None: ...
def any_names(**cities: str) -> None: ...
def by_place(city: str, /) -> None: ...
def unresolved(city: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


FUNCTIONS = [
    nothing, plain, by_name, last_by_name, as_text, rich, injected, closed_over, with_locals, wrapped,
    says_another_signature, changed, Weather().method, Weather.of_class, Weather.static, Weather(), Weather.method,
    functools.partial(plain, "Oslo"), functools.partial(plain, days=5), functools.partial(Weather().method, days=2),
    functools.lru_cache(plain), unhinted, any_number, any_names, by_place, unresolved, lambda city: city, lambda: 1,
]  # fmt: skip


def describe(fn: Callable[..., Any]) -> object:
    """What is made of a function, or why it is refused."""
    try:
        found = describe_function(fn, Docs(), is_injected, name="f")
        return (
            list(found.visible.items()),
            list(found.hidden.items()),
            list(found.defaults.items()),
        )
    except ToolDefinitionError as error:
        return str(error)


def describe_by_signature(fn: Callable[..., Any]) -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hints, "is_plainly_hinted", lambda _fn: False)
        return describe(fn)


@pytest.mark.parametrize(
    "fn", FUNCTIONS, ids=lambda fn: getattr(fn, "__qualname__", type(fn).__name__)
)
def test_a_function_is_described_as_by_its_signature(fn):
    assert describe(fn) == describe_by_signature(fn)


def test_most_of_these_functions_are_read_from_their_code():
    assert sum(map(hints.is_plainly_hinted, FUNCTIONS)) == 13


parameters = st.lists(
    st.tuples(
        st.sampled_from(["", "", ": str", ": 'int'", ": Context", ": list[str]"]),
        st.sampled_from(["", " = None", " = 3"]),
    ),
    max_size=5,
)


@given(parameters, st.integers(0, 5), st.integers(0, 5))
def test_functions_made_at_random_are_described_as_by_their_signatures(
    some, by_place_until, by_name_from
):
    written = [
        f"p{number}{hint}{default}" for number, (hint, default) in enumerate(some)
    ]
    if 0 < by_place_until <= len(written):
        written.insert(by_place_until, "/")
    if by_name_from < len(some):
        written.insert(by_name_from + (0 < by_place_until <= by_name_from), "*")
    scope: dict[str, Any] = {"Context": Context}
    try:
        exec(f"def made({', '.join(written)}): ...", scope)
    except SyntaxError:  # a default before a parameter without one
        return
    assert describe(scope["made"]) == describe_by_signature(scope["made"])
